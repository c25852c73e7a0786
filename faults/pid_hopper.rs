//! Does: one process that is always another: it forks, the parent exits, the child
//! makes a session of its own, 20000 (argument) times; the last one sleeps. The
//! command itself sleeps, or exits 0 with a second argument.
//! corral must: catch it, though each pid is gone when it is read.
//! Exists: the smallest target that moves; a kill by number always comes late.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(args: Args) -> u8 {
    let end = now() + LIFE;
    if fork() == 0 {
        for _ in 0..args.number(1, 20_000) {
            match fork() {
                0 => setsid(),
                pid if pid > 0 => exit(0),
                _ => sleep_ms(1),
            }
            if now() >= end {
                exit(0);
            }
        }
        sleep_forever();
    }
    ready();
    if args.get(2).is_some() {
        return 0;
    }
    sleep_forever()
}
