//! Does: a detached process with 30 zombies that it never waits for; the command
//! sleeps.
//! corral must: end the parent, inherit the zombies and reap them.
//! Exists: zombies cannot be killed, and count as processes until somebody waits.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(_: Args) -> u8 {
    detach(|| {
        for _ in 0..30 {
            let pid = fork();
            if pid == 0 {
                exit(0);
            }
            watch(pid, WEXITED);
        }
        ready();
        sleep_forever()
    });
    sleep_forever()
}
