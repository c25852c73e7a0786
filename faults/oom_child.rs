//! Does: has a child that fills memory, up to 512 (argument) MiB, waits for its end,
//! whatever that is, and exits 0.
//! corral must: say 122 and `memory` where a limit stood in the way, though no status
//! tells; without a limit, nothing.
//! Exists: shells and build tools wait for a child that the OOM killer took and go on.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(args: Args) -> u8 {
    let bytes = args.number(1, 512) << 20;
    ready();
    if fork() == 0 {
        let at = map(bytes);
        for offset in (0..bytes).step_by(4096) {
            // SAFETY: inside the mapping just made.
            unsafe { ((at + offset) as *mut u8).write_volatile(1) };
        }
        exit(0);
    }
    wait();
    0
}
