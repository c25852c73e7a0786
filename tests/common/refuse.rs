//! What if the kernel, or a filter that somebody installed, knows a call not?
//!
//! A run is told which calls answer which error, as `clone3,pidfd_open:ENOSYS`; with
//! `CORRAL_TEST_REFUSE` in the environment every run of this process is. The launcher
//! installs a seccomp filter for it: corral and all that it starts have it.

use std::collections::BTreeMap;
use std::io;

use nix::errno::Errno;
use nix::libc;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// The calls for which corral has something else.
pub const CALLS: [(&str, libc::c_long); 8] = [
    ("clone3", libc::SYS_clone3),
    ("pidfd_open", libc::SYS_pidfd_open),
    ("pidfd_send_signal", libc::SYS_pidfd_send_signal),
    ("close_range", libc::SYS_close_range),
    ("splice", libc::SYS_splice),
    ("kcmp", libc::SYS_kcmp),
    ("faccessat2", libc::SYS_faccessat2),
    ("sched_setscheduler", libc::SYS_sched_setscheduler),
];

/// What they may answer instead.
pub const ERRORS: [(&str, Errno); 2] = [("ENOSYS", Errno::ENOSYS), ("EPERM", Errno::EPERM)];

/// What this whole process is asked to refuse.
pub(super) fn asked() -> Option<String> {
    std::env::var("CORRAL_TEST_REFUSE").ok()
}

/// The filter for calls and an error.
pub(super) fn filter(what: &str) -> BpfProgram {
    let (calls, error) = what.split_once(':').unwrap();
    let number = |name| CALLS.into_iter().find(|call| call.0 == name).unwrap().1;
    let error = ERRORS.into_iter().find(|it| it.0 == error).unwrap().1;
    // A call without conditions.
    let rules: BTreeMap<_, _> = calls.split(',').map(|name| (number(name), Vec::new())).collect();
    let action = SeccompAction::Errno(error as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch).unwrap();
    filter.try_into().unwrap()
}

/// Puts this process and its descendants behind it, without `no_new_privs`, which
/// would take the effect of setuid programs away: so as root.
pub(super) fn install(filter: &BpfProgram) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: filter.len().try_into().unwrap(),
        filter: filter.as_ptr().cast_mut().cast(),
    };
    // SAFETY: the kernel reads `len` instructions from the filter, which outlives the
    // call; both types of one are the kernel's `struct sock_filter`.
    let done = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) };
    Errno::result(done)?;
    Ok(())
}
