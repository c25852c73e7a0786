//! Does: calls itself `) Z 1` and a second line; a detached child does too, and
//! both ignore SIGTERM.
//! corral must: read /proc/PID/stat right all the same, end both, and write a
//! record and a line on stderr that stay whole.
//! Exists: a name may hold anything; who splits that line at spaces or at the first
//! bracket takes the wrong parent and the wrong state.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(_: Args) -> u8 {
    ignore(SIGTERM);
    prctl(PR_SET_NAME, c") Z 1\n x".as_ptr() as usize);
    detach(|| sleep_forever());
    ready();
    sleep_forever()
}
