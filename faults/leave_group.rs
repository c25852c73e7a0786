//! Does: leaves two children behind, one in a session of its own, that have moved to
//! another cgroup (argument: its cgroup.procs, or where cgroup2 is mounted: then it is
//! the one above), and exits 0 once both are there.
//! corral must: stop both, as descendants, and list them as `cgroup`.
//! Exists: su and cron move what they start; no kill of the group finds it.

#![no_std]
#![no_main]

mod support;

use support::group::{Group, cannot};
use support::*;

fault!(main);

fn main(args: Args) -> u8 {
    let argument = args.get(1);
    let procs = argument.filter(|path| path.ends_with(b"/cgroup.procs"));
    let (read_end, write_end) = pipe();
    let leave = || {
        // The argument's own NUL ends the path.
        let left = match procs {
            Some(path) => write(open(path, O_WRONLY) as i32, b"0") == 1,
            None => Group::own(argument).above().put(b"cgroup.procs", b"0"),
        };
        write(write_end, if left { b"y" } else { b"n" });
        close(write_end);
        if left {
            sleep_forever();
        }
        exit(CANNOT)
    };
    if fork() == 0 {
        leave();
    }
    if fork() == 0 {
        setsid();
        leave();
    }
    close(write_end);
    let mut answer = [0];
    for _ in 0..2 {
        if read(read_end, &mut answer) != 1 || answer != *b"y" {
            cannot(b"cannot leave the group\n");
        }
    }
    ready();
    0
}
