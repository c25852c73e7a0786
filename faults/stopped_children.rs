//! Does: keeps five stopped children, each in a session of its own, that ignore
//! SIGTERM and stop again when continued; ignores SIGTERM itself.
//! corral must: end them with SIGKILL, which needs no SIGCONT.
//! Exists: job control states must not be taken for being dead or harmless.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(_: Args) -> u8 {
    ignore(SIGTERM);
    for _ in 0..5 {
        let pid = fork();
        if pid == 0 {
            arm_even_stopped();
            setsid();
            stop_forever();
        }
        watch(pid, WSTOPPED);
    }
    ready();
    sleep_forever()
}
