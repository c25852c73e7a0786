//! Does: forks, executes its arguments, waits, exits with their status.
//! corral must: nothing; it is measured beside it.
//! Exists: the floor of every comparison: a static wrapper without libc and
//! without any feature.

#![no_std]
#![no_main]

#[path = "../faults/support/mod.rs"]
mod support;

use support::{Args, exit, syscall};

fault!(main);

fn main(args: Args) -> u8 {
    let Some(path) = args.get(1) else { return 125 };
    // SAFETY: a plain fork: SIGCHLD at exit, no shared memory.
    let pid = unsafe { syscall!(CLONE, 17, 0, 0, 0, 0) } as isize;
    if pid == 0 {
        // SAFETY: both lists are the kernel's own and end in null.
        unsafe { syscall!(EXECVE, path.as_ptr(), args.pointer(1), args.environment()) };
        exit(127)
    }
    let mut status = 0i32;
    // SAFETY: the kernel writes one int.
    unsafe { syscall!(WAIT4, pid, &raw mut status, 0, 0) };
    status.to_le_bytes()[1]
}
