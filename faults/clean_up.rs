//! Does: takes 50 ms to clean up when it is asked to end, says so, and exits 3.
//! corral must: wait for it, pass its last words on, and need no SIGKILL; the
//! status is the limit's own, not 3.
//! Exists: the good citizen; a stop that is too quick loses its work.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(_: Args) -> u8 {
    let term = mask(&[SIGTERM]);
    block(term);
    ready();
    sigwait(term);
    sleep_ms(50);
    write(1, b"cleaned up\n");
    3
}
