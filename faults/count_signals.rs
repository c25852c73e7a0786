//! Does: says the number of each signal that it gets, and heeds none of them.
//! corral must: send the first signal once (and SIGCONT, which an unstopped process
//! sees too), then SIGKILL.
//! Exists: no process may get the same signal twice: a second SIGTERM means "at
//! once" to many programs.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(_: Args) -> u8 {
    let heard = mask(&[SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2]);
    block(heard);
    ready();
    loop {
        say(b"signal", sigwait(heard) as usize);
    }
}
