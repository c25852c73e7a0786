//! Does: SIGKILLs its parent, the process of corral that owns the run, and lives on
//! with a daemon beside it.
//! corral must: lose nothing: its other process ends the tree (`supervisor_lost`).
//! Exists: the command may signal whatever runs as its own user.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(_: Args) -> u8 {
    // It is killed when its parent dies; this is for what must still be ended.
    detach(|| sleep_forever());
    ready();
    kill(getppid() as isize, SIGKILL);
    sleep_forever()
}
