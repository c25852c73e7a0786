//! How are signals named, blocked, sent and read?
//!
//! corral installs no handler: what it heeds is blocked and read from a
//! signalfd(2). Sources: signal(7), sigprocmask(2), sigaction(2), signalfd(2),
//! kill(2), pidfd_send_signal(2) (5.1). May use: `errno`, `fd`,
//! `process`.

use linux_raw_sys::general as raw;
use sc::syscall;

use super::errno::{self, Result};
use super::fd::{Fd, OwnedFd};
use super::process;

/// Bytes in the kernel's `sigset_t` on 64-bit machines.
const SET_BYTES: usize = 8;

/// A set of signals, bit N-1 for signal N.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalSet(u64);

impl SignalSet {
    /// No signal.
    pub const EMPTY: Self = Self(0);
    /// Every signal (the kernel leaves out KILL and STOP itself).
    pub const ALL: Self = Self(u64::MAX);

    /// With `signal` added.
    #[must_use]
    pub const fn with(self, signal: i32) -> Self {
        Self(self.0 | bit(signal))
    }

    /// With `signal` removed.
    #[must_use]
    pub const fn without(self, signal: i32) -> Self {
        Self(self.0 & !bit(signal))
    }
}

const fn bit(signal: i32) -> u64 {
    1u64 << ((signal - 1) & 63)
}

/// Replaces the set of blocked signals.
pub fn block_exactly(set: SignalSet) {
    let set = set.0;
    // SAFETY: the kernel reads SET_BYTES from `set`; no old set is asked for.
    // With these arguments the call cannot fail (sigprocmask(2)).
    let _ = unsafe { syscall!(RT_SIGPROCMASK, raw::SIG_SETMASK, &raw const set, 0, SET_BYTES) };
}

/// The kernel's `struct sigaction`, with no handler of ours ever in it.
#[repr(C)]
struct Action {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

/// Whether `signal` is ignored by this process.
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    let mut old = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
    // SAFETY: no new action is given; the kernel writes one `struct sigaction`,
    // which is at most as large as `Action` (AArch64 has no restorer).
    let asked = unsafe { syscall!(RT_SIGACTION, signal, 0, &raw mut old, SET_BYTES) };
    errno::check(asked).is_ok() && old.handler == 1
}

/// Gives `signal` its default action.
pub fn set_default(signal: i32) {
    let action = Action { handler: 0, flags: 0, restorer: 0, mask: 0 };
    // SAFETY: SIG_DFL with no flags; every field but the first is zero, so the
    // layout's differences between architectures do not matter.
    let _ = unsafe { syscall!(RT_SIGACTION, signal, &raw const action, 0, SET_BYTES) };
}

/// A close-on-exec, non-blocking descriptor that reads the blocked signals of
/// `set` (signalfd4(2)).
///
/// # Errors
/// EMFILE, ENFILE.
pub fn signalfd(set: SignalSet) -> Result<OwnedFd> {
    let mask = set.0;
    let flags = raw::O_CLOEXEC | raw::O_NONBLOCK;
    // SAFETY: the kernel reads SET_BYTES from `mask`.
    let made = unsafe { syscall!(SIGNALFD4, -1isize, &raw const mask, SET_BYTES, flags) };
    errno::check_i32(made).map(OwnedFd::new)
}

/// A signal that came, and who sent it as far as the kernel says. The sender of
/// a queued signal can be forged (rt_sigqueueinfo(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its number.
    pub signal: i32,
    /// `si_code`: 0 for kill(2), positive for the kernel itself.
    pub code: i32,
    /// Sender's pid, 0 when unknown or outside our PID namespace.
    pub pid: i32,
    /// Sender's real user.
    pub uid: u32,
}

/// Takes one signal from a signalfd, `None` when there is none.
#[must_use]
pub fn receive(fd: &OwnedFd) -> Option<Received> {
    // `struct signalfd_siginfo`: 128 bytes; signo, errno, code, pid, uid are
    // its first five words (signalfd(2)).
    let mut info = [0u8; 128];
    let read = super::fd::read(fd.fd(), &mut info).ok()?;
    if read < info.len() {
        return None;
    }
    let word = |at: usize| -> Option<[u8; 4]> { info.get(at..at + 4)?.try_into().ok() };
    Some(Received {
        signal: i32::from_ne_bytes(word(0)?),
        code: i32::from_ne_bytes(word(8)?),
        pid: i32::from_ne_bytes(word(12)?),
        uid: u32::from_ne_bytes(word(16)?),
    })
}

/// Sends to a pid (kill(2)). For this process, and for its own unreaped
/// children, whose number cannot be another's.
///
/// # Errors
/// ESRCH, EPERM. Numbers below 1, which mean groups or everybody, are ESRCH.
pub fn kill(pid: i32, signal: i32) -> Result<()> {
    if pid < 1 {
        return Err(errno::Errno::ESRCH);
    }
    // SAFETY: two integers.
    errno::check_unit(unsafe { syscall!(KILL, pid, signal) })
}

/// Sends to every process of a process group (kill(2)).
///
/// # Errors
/// ESRCH, EPERM. Numbers below 2, which mean our own group or everybody, are ESRCH.
pub fn kill_group(pgid: i32, signal: i32) -> Result<()> {
    if pgid < 2 {
        return Err(errno::Errno::ESRCH);
    }
    // SAFETY: two integers.
    errno::check_unit(unsafe { syscall!(KILL, -pgid, signal) })
}

/// SIGKILL for everybody in this PID namespace but its init, which must be this
/// process (kill(2), -1); forks that are under way included.
pub fn kill_everybody() {
    // Before any other has its pid there is nobody to be told from.
    if process::getpid() == 1 {
        // SAFETY: two integers.
        let _ = unsafe { syscall!(KILL, -1isize, process::SIGKILL) };
    }
}

/// Sends to the process behind a pidfd, or behind its open /proc directory
/// (pidfd_send_signal(2), 5.1).
///
/// # Errors
/// ESRCH, EPERM, ENOSYS.
pub fn pidfd_send_signal(pidfd: Fd<'_>, signal: i32) -> Result<()> {
    // SAFETY: integers and a null siginfo.
    errno::check_unit(unsafe { syscall!(PIDFD_SEND_SIGNAL, pidfd.number(), signal, 0, 0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_count_signals_from_one() {
        assert_eq!(SignalSet::EMPTY.with(1), SignalSet(1));
        assert_eq!(SignalSet::EMPTY.with(64), SignalSet(1 << 63));
        assert_eq!(SignalSet::ALL.without(64).without(1), SignalSet(!(1 | 1 << 63)));
    }

    #[test]
    fn groups_and_everybody_are_never_signalled() {
        for pid in [0, -1, -5, i32::MIN] {
            assert_eq!(kill(pid, 0), Err(errno::Errno::ESRCH));
        }
    }
}
