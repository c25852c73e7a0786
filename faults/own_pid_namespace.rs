//! Does: runs a PID namespace of its own (with a user namespace unless root), whose
//! init drops SIGTERM, as every init does, and has a daemon in it.
//! corral must: end that init with SIGKILL; the kernel ends the rest.
//! Exists: containers, bubblewrap and unshare(1) do this.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(_: Args) -> u8 {
    let user = if getuid() == 0 { 0 } else { CLONE_NEWUSER };
    match clone(CLONE_NEWPID | user | SIGCHLD) {
        0 => {
            detach(|| sleep_forever());
            ready();
            sleep_forever();
        }
        pid if pid > 0 => sleep_forever(),
        _ => CANNOT,
    }
}
