//! Does: leaves a daemon: forked twice, in a session of its own; then exits 0. With
//! `stay` it sleeps instead.
//! corral must: find the daemon, stop it, and still report 0.
//! Exists: signals to a process group do not reach it, and its parent is gone.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(args: Args) -> u8 {
    detach(|| sleep_forever());
    ready();
    if args.get(1) == Some(b"stay") {
        sleep_forever();
    }
    0
}
