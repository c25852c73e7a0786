//! Does: ignores SIGTERM and forks a child each millisecond, 1000 (argument) at
//! most; the children heed SIGTERM.
//! corral must: end those too that are born after the walk of the first signal,
//! which get none: with SIGKILL.
//! Exists: a list of processes is old before it is read.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(args: Args) -> u8 {
    ignore(SIGTERM);
    ready();
    for _ in 0..args.number(1, 1000).min(2000) {
        if fork() == 0 {
            heed(SIGTERM);
            sleep_forever();
        }
        sleep_ms(1);
    }
    sleep_forever()
}
