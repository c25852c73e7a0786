//! Does: makes four levels of sub-groups below its own group (argument: where cgroup2
//! is mounted), in each a sleeping child and an empty group beside it, with names that
//! corral itself might use, and takes all rights to them away.
//! corral must: end all, and remove every group; with rights of its own user alone too.
//! Exists: rmdir is refused while anything is below, and who cannot list a group does
//! not see what is.

#![no_std]
#![no_main]

mod support;

use support::group::{Group, cannot};
use support::*;

fault!(main);

const NAMES: [&[u8]; 4] = [b"corral-0", b"cgroup.procs.d", &[0xff; 255], b" 0::"];

fn main(args: Args) -> u8 {
    let mut group = Group::own(args.get(1));
    let mut all = [group; 4];
    let (read_end, write_end) = pipe();
    for (name, made) in NAMES.iter().zip(&mut all) {
        group.make(b"empty").forbid(b"");
        group = group.make(name);
        *made = group;
        if fork() == 0 {
            let entered = group.put(b"cgroup.procs", b"0");
            write(write_end, if entered { b"y" } else { b"n" });
            sleep_forever();
        }
        let mut answer = [0];
        if read(read_end, &mut answer) != 1 || answer != *b"y" {
            cannot(b"cannot enter a group\n");
        }
    }
    // From the innermost one: the others are on the way to it.
    for group in all.iter().rev() {
        for file in [b"cgroup.procs".as_slice(), b"cgroup.kill", b"cgroup.freeze", b""] {
            group.forbid(file);
        }
    }
    ready();
    sleep_forever()
}
