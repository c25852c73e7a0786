//! Is this process the init of a machine, and how does it end that?
//!
//! The exit of a container's init ends the container; that of a machine's is a
//! kernel panic. Both are PID 1. The machine's is in the first PID namespace,
//! whose number is fixed; where /proc does not tell it, by the kernel's own
//! threads, which are in no session that has a number.
//!
//! Rests on: namespaces(7) (/proc/PID/ns/pid, 3.8), reboot(2).
//! May use: `sys`, `policy::time`.

use crate::policy::time::Span;
use crate::sys::errno::{Errno, Result};
use crate::sys::event::{self, Wait};
use crate::sys::file;
use crate::sys::power::{self, End};
use crate::sys::process::{self, Forked};

/// The first PID namespace (PROC_PID_INIT_INO of the kernel).
const FIRST: &[u8] = b"pid:[4026531836]";

/// `kthreadd`, whose children are the kernel's threads.
const KERNEL_THREAD: i32 = 2;

/// What a disk that hangs may cost.
const SYNCING: Span = Span::from_secs(10);

/// Whether this process's exit would be the machine's end.
#[must_use]
pub fn is_machine_init() -> bool {
    if process::getpid() != 1 {
        return false;
    }
    let mut buffer = [0; 64];
    match file::read_link(file::CWD, c"/proc/self/ns/pid", &mut buffer) {
        Ok(namespace) => namespace == FIRST,
        Err(_) => process::has_no_session(KERNEL_THREAD),
    }
}

/// Ends the machine, its file systems written back as far as that goes soon.
/// Returns only on failure.
#[must_use]
pub fn end(how: End) -> Errno {
    // What is not written in time is lost; a machine that never ends is worse.
    let _ = sync();
    power::end(how)
}

fn sync() -> Result<()> {
    match process::fork()? {
        Forked::Child => {
            power::sync();
            process::exit(0)
        }
        Forked::Parent(_, pidfd) => {
            let pidfd = pidfd.ok_or(Errno::ENOSYS)?;
            event::ppoll(&mut [Wait::readable(pidfd.fd())], Some(SYNCING.0)).map(drop)
        }
    }
}
