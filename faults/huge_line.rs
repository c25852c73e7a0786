//! Does: writes `ready`, then 50 MB (argument: bytes) without a newline, and exits 0.
//! corral must: pass every byte on, and hold none of them.
//! Exists: agents write whole files as one line of JSON; a line is no unit to wait
//! for.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

static BYTES: [u8; 1 << 16] = [b'x'; 1 << 16];

fn main(args: Args) -> u8 {
    ready();
    let mut left = args.number(1, 50_000_000);
    while left > 0 {
        let wrote = write(1, &BYTES[..left.min(BYTES.len())]);
        if wrote <= 0 {
            return 1;
        }
        left -= wrote as usize;
    }
    0
}
