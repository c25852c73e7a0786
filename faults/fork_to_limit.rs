//! Does: forks until it is refused, 500 (argument) times at most, lets all children
//! go, waits for them, says how many there were and exits 0.
//! corral must: count what a limit refused (`pids_refused`), and let the status be.
//! Exists: a limit of processes ends nothing, it only says no.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(args: Args) -> u8 {
    let most = args.number(1, 500).min(500);
    let (read_end, write_end) = pipe();
    let mut children = 0;
    while children < most {
        match fork() {
            0 => {
                // At its end when the parent closes the other one.
                close(write_end);
                read(read_end, &mut [0]);
                exit(0);
            }
            pid if pid > 0 => children += 1,
            _ => break,
        }
    }
    ready();
    close(write_end);
    while wait() > 0 {}
    say(b"children", children);
    0
}
