//! Does: burns CPU time, in two processes of two sessions.
//! corral must: end them, and count their time.
//! Exists: the tight loop; who supervises on the same CPU must still get its turn.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(_: Args) -> u8 {
    detach(|| {
        loop {
            core::hint::spin_loop();
        }
    });
    ready();
    loop {
        core::hint::spin_loop();
    }
}
