//! Does: sends SIGKILL (argument: another signal) to its own process group, in
//! which it has a child.
//! corral must: stay outside that group, and report 128 and the signal.
//! Exists: `kill 0` in a script's trap must not reach whoever supervises it.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(args: Args) -> u8 {
    if fork() == 0 {
        sleep_forever();
    }
    ready();
    kill(0, args.number(1, SIGKILL as usize) as u32);
    sleep_forever()
}
