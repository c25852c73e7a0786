//! Does: stops itself with SIGSTOP, and again whenever it is continued.
//! corral must: continue it along with the first signal, so that it can end by that.
//! Exists: a stopped process heeds no signal but SIGKILL and SIGCONT.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(_: Args) -> u8 {
    arm_even_stopped();
    ready();
    stop_forever()
}
