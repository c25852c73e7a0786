//! Does: fills 64 (argument) MiB of memory, and sleeps on it.
//! corral must: end it as any other; with a memory limit below that, say so.
//! Exists: the end of a large process takes the kernel a while.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(args: Args) -> u8 {
    let bytes = args.number(1, 64) << 20;
    let at = map(bytes);
    for offset in (0..bytes).step_by(4096) {
        // SAFETY: inside the mapping just made.
        unsafe { ((at + offset) as *mut u8).write_volatile(1) };
    }
    ready();
    sleep_forever()
}
