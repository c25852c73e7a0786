//! Does: ignores every signal that asks.
//! corral must: use SIGKILL when the grace is over, not before.
//! Exists: `trap "" TERM` is the most common way to outlive a timeout.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(_: Args) -> u8 {
    for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT] {
        ignore(signal);
    }
    ready();
    sleep_forever()
}
