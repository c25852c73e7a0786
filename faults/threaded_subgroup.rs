//! Does: makes a threaded sub-group of its own group (argument: where cgroup2 is
//! mounted) and puts a thread of its own there, and a child in a session of its own;
//! with a second argument its first thread then exits.
//! corral must: end all of it, and remove both groups.
//! Exists: a threaded group neither lists its processes nor takes cgroup.kill
//! (EOPNOTSUPP), which is easily read as "empty".

#![no_std]
#![no_main]

mod support;

use core::sync::atomic::{AtomicI32, Ordering::Relaxed};

use support::group::{Group, cannot};
use support::*;

fault!(main);

/// The sub-group's cgroup.threads, and where to say that it is entered.
static THREADS: AtomicI32 = AtomicI32::new(-1);
static ANSWER: AtomicI32 = AtomicI32::new(-1);

fn main(args: Args) -> u8 {
    let threaded = Group::own(args.get(1)).make(b"threaded");
    threaded.must_put(b"cgroup.type", b"threaded");
    let (read_end, write_end) = pipe();
    THREADS.store(threaded.open(b"cgroup.threads"), Relaxed);
    ANSWER.store(write_end, Relaxed);
    if fork() == 0 {
        setsid();
        enter();
    }
    let thread = CLONE_THREAD | CLONE_SIGHAND | CLONE_FS | CLONE_FILES;
    if clone_vm(thread, enter) < 0 {
        return CANNOT;
    }
    let mut answer = [0];
    for _ in 0..2 {
        if read(read_end, &mut answer) != 1 || answer != *b"y" {
            cannot(b"cannot enter a threaded group\n");
        }
    }
    ready();
    if args.get(2).is_some() {
        // SAFETY: ends this thread alone.
        unsafe { syscall!(EXIT, 0) };
    }
    sleep_forever()
}

extern "C" fn enter() -> ! {
    let entered = write(THREADS.load(Relaxed), b"0") == 1;
    write(ANSWER.load(Relaxed), if entered { b"y" } else { b"n" });
    sleep_forever()
}
