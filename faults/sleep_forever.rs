//! Does: sleeps.
//! corral must: end it with the first signal, at once, however long the grace.
//! Exists: the plainest hang.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(_: Args) -> u8 {
    ready();
    sleep_forever()
}
