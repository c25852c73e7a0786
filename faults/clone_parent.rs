//! Does: makes three children with CLONE_PARENT, whose parent so is corral; the
//! last has no exit signal and ignores SIGTERM. The command exits 0.
//! corral must: end and reap all three, the one without SIGCHLD too.
//! Exists: they are corral's children, though it did not fork them, and wait4(2)
//! sees a child without exit signal only with __WALL.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(_: Args) -> u8 {
    for signal in [SIGCHLD, SIGUSR1, 0] {
        if clone(CLONE_PARENT | signal) == 0 {
            if signal == 0 {
                ignore(SIGTERM);
            }
            sleep_forever();
        }
    }
    ready();
    0
}
