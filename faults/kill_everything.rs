//! Does: SIGKILLs everything that its user may signal (`kill -9 -1`), both processes
//! of corral in one instant; only as a user of its own, above 60000.
//! corral must: not outlive it, but neither does the command: it is killed when its
//! parent dies.
//! Exists: the case in which nothing of corral is left to do anything.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(_: Args) -> u8 {
    let uid = getuid();
    if uid <= 60_000 || uid == 65_534 {
        return CANNOT;
    }
    ready();
    kill(-1, SIGKILL);
    sleep_forever()
}
