//! Does: its first thread exits, a second one lives on and ignores SIGTERM.
//! corral must: not take the `Z` of the first thread for the end of the process,
//! and end it with a SIGKILL to the pid.
//! Exists: `cgroup.kill` passes over such a process on most kernels, and its pidfd
//! and wait4(2) tell its end only when the last thread is gone.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

use core::sync::atomic::{AtomicU32, Ordering};

/// Cleared by the kernel when the first thread exits.
static FIRST: AtomicU32 = AtomicU32::new(1);

fn main(_: Args) -> u8 {
    ignore(SIGTERM);
    let shared = CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
    clone_vm(shared, second);
    // SAFETY: the kernel writes a zero there; then this thread is no more.
    unsafe {
        syscall!(SET_TID_ADDRESS, FIRST.as_ptr());
        syscall!(EXIT, 0);
    }
    0
}

extern "C" fn second() -> ! {
    while FIRST.load(Ordering::Acquire) != 0 {
        sleep_ms(1);
    }
    ready();
    sleep_forever()
}
