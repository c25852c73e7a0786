//! Does: `v1_frozen DIR`: freezes a child of its own in DIR, a group of the cgroup
//! v1 freezer, and sleeps. `v1_frozen thaw DIR`, started outside corral: waits for
//! the end of its stdin and thaws the group, whatever has become of the test.
//! corral must: fail to prove the end, in time: 120, with the survivor named.
//! Exists: SIGKILL waits until the thaw (cgroup-v1/freezer-subsystem), and such a
//! process never reads as stopped.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(args: Args) -> u8 {
    let thaw = args.get(1) == Some(b"thaw");
    let Some(directory) = args.get(if thaw { 2 } else { 1 }) else {
        return CANNOT;
    };
    if thaw {
        ready();
        let mut byte = 0u8;
        // SAFETY: the kernel writes at most one byte.
        while (unsafe { syscall!(READ, 0, &raw mut byte, 1) } as isize) > 0 {}
        return u8::from(!put(directory, b"/freezer.state\0", b"THAWED"));
    }
    let (read, write_end) = pipe();
    let pid = fork();
    if pid == 0 {
        // "0" is the writer itself.
        let entered = put(directory, b"/tasks\0", b"0");
        write(write_end, if entered { b"y" } else { b"n" });
        sleep_forever();
    }
    let mut answer = 0u8;
    // SAFETY: the kernel writes at most one byte.
    unsafe { syscall!(READ, read, &raw mut answer, 1) };
    if answer != b'y' || !put(directory, b"/freezer.state\0", b"FROZEN") {
        return CANNOT;
    }
    ready();
    sleep_forever()
}

/// Writes to a file of the group.
fn put(directory: &[u8], name: &[u8], text: &[u8]) -> bool {
    let mut path = [0u8; 512];
    path[..directory.len()].copy_from_slice(directory);
    path[directory.len()..][..name.len()].copy_from_slice(name);
    let fd = open(&path, O_WRONLY);
    fd >= 0 && write(fd as i32, text) == text.len() as isize
}
