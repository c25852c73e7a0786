//! Does: nothing, and exits with 0.
//! corral must: return as fast as it can.
//! Exists: the shortest command, so that what is measured is the wrapper.

#![no_std]
#![no_main]

#[path = "../faults/support/mod.rs"]
mod support;

fault!(main);

fn main(_: support::Args) -> u8 {
    0
}
