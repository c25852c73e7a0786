//! Does: makes a sub-group of its own group (argument: where cgroup2 is mounted), puts
//! a child there that ignores SIGTERM, and freezes it.
//! corral must: end both, with SIGKILL: nothing else reaches a frozen process that does
//! not die of it, and it never reads as stopped.
//! Exists: who may make a group may freeze it, and whoever waits for a stop waits for
//! ever.

#![no_std]
#![no_main]

mod support;

use support::group::{Group, cannot};
use support::*;

fault!(main);

fn main(args: Args) -> u8 {
    let group = Group::own(args.get(1)).make(b"frozen");
    let (read_end, write_end) = pipe();
    if fork() == 0 {
        arm_even_stopped();
        ignore(SIGTERM);
        let entered = group.put(b"cgroup.procs", b"0");
        write(write_end, if entered { b"y" } else { b"n" });
        sleep_forever();
    }
    let mut answer = [0];
    if read(read_end, &mut answer) != 1 || answer != *b"y" {
        cannot(b"cannot enter a group\n");
    }
    group.must_put(b"cgroup.freeze", b"1");
    let mut text = [0; 256];
    while !group.get(b"cgroup.events", &mut text).windows(8).any(|word| word == b"frozen 1") {
        sleep_ms(1);
    }
    ready();
    sleep_forever()
}
