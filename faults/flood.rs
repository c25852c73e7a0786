//! Does: fills stdout and stderr as fast as they are taken, from two processes.
//! corral must: keep its deadlines.
//! Exists: a loop that reads for as long as there is something never looks up.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

static BYTES: [u8; 1 << 16] = [b'f'; 1 << 16];

fn main(_: Args) -> u8 {
    ready();
    let fd = if fork() == 0 { 2 } else { 1 };
    while write(fd, &BYTES) > 0 {}
    1
}
