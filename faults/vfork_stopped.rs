//! Does: waits in vfork for a child that keeps itself stopped; both ignore SIGTERM
//! (a vfork parent that heeds it dies in its wait).
//! corral must: not wait for the parent to stop: it stays in state D.
//! Exists: a vfork parent never reads as T, so "stop all, then kill" needs a bound.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(_: Args) -> u8 {
    ignore(SIGTERM);
    clone_vm(CLONE_VFORK | SIGCHLD, child);
    0
}

extern "C" fn child() -> ! {
    arm();
    arm_even_stopped();
    ready();
    stop_forever()
}
