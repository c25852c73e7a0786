//! Does: moves itself to another cgroup (argument: its cgroup.procs) and detaches a
//! child there.
//! corral must: end both, as descendants, though no group of its own lists them.
//! Exists: a group alone is no proof: who may write there can leave it.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(args: Args) -> u8 {
    let Some(path) = args.get(1) else {
        return CANNOT;
    };
    // The argument's own NUL ends the path.
    let fd = open(path, O_WRONLY);
    if fd < 0 || write(fd as i32, b"0") != 1 {
        return CANNOT;
    }
    close(fd as i32);
    detach(|| sleep_forever());
    ready();
    sleep_forever()
}
