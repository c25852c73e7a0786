//! How does the one loop wait?
//!
//! ppoll(2) over a fixed array. May use: `errno`, `fd`, `signal`.

use linux_raw_sys::general as raw;
use sc::syscall;

use super::errno::{self, Errno, Result};
use super::fd::Fd;

/// One thing to wait for (`struct pollfd`).
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Wait(raw::pollfd);

impl Wait {
    /// Nothing: the kernel skips a negative number.
    pub const NOTHING: Self = Self(raw::pollfd { fd: -1, events: 0, revents: 0 });

    /// Until `fd` can be read, or its other end is gone.
    #[must_use]
    pub const fn readable(fd: Fd<'_>) -> Self {
        Self::on(fd, raw::POLLIN)
    }

    /// Until `fd` can be written, or its reader is gone.
    #[must_use]
    pub const fn writable(fd: Fd<'_>) -> Self {
        Self::on(fd, raw::POLLOUT)
    }

    /// Until the kernel says that the file `fd` has changed (kernfs: POLLPRI).
    #[must_use]
    pub const fn changed(fd: Fd<'_>) -> Self {
        Self::on(fd, raw::POLLPRI)
    }

    /// Until the other end of `fd` is gone, and nothing else.
    #[must_use]
    pub const fn gone(fd: Fd<'_>) -> Self {
        Self::on(fd, 0)
    }

    #[expect(clippy::cast_possible_truncation, reason = "POLL* flags fit a short")]
    const fn on(fd: Fd<'_>, events: u32) -> Self {
        Self(raw::pollfd { fd: fd.number(), events: events as i16, revents: 0 })
    }

    const fn has(self, flags: u32) -> bool {
        self.0.revents.cast_unsigned() as u32 & flags != 0
    }

    /// Whether anything at all was reported.
    #[must_use]
    pub const fn fired(self) -> bool {
        self.0.revents != 0
    }

    /// Whether there is something to read.
    #[must_use]
    pub const fn is_readable(self) -> bool {
        self.has(raw::POLLIN)
    }

    /// Whether there is room to write.
    #[must_use]
    pub const fn is_writable(self) -> bool {
        self.has(raw::POLLOUT)
    }

    /// Whether the other end is closed or broken.
    #[must_use]
    pub const fn is_gone(self) -> bool {
        self.has(raw::POLLERR | raw::POLLHUP)
    }

    /// Whether the number is not open at all.
    #[must_use]
    pub const fn is_closed(self) -> bool {
        self.has(raw::POLLNVAL)
    }
}

/// Waits until something fires or `timeout` nanoseconds are over (`None`: for
/// ever). Returns how many fired; an interruption counts as none.
///
/// # Errors
/// ENOMEM.
pub fn ppoll(waits: &mut [Wait], timeout: Option<u64>) -> Result<usize> {
    let mut time = raw::__kernel_timespec { tv_sec: 0, tv_nsec: 0 };
    let mut pointer = core::ptr::null_mut();
    if let Some(nanos) = timeout {
        time.tv_sec = i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX);
        time.tv_nsec = i64::try_from(nanos % 1_000_000_000).unwrap_or(0);
        pointer = &raw mut time;
    }
    let (list, count) = (waits.as_mut_ptr(), waits.len());
    // SAFETY: `Wait` is a transparent pollfd and `count` of them are ours; the
    // timeout is null or a timespec on this stack; no signal mask is given.
    match errno::check(unsafe { syscall!(PPOLL, list, count, pointer, 0, 8) }) {
        Err(Errno::EINTR) => Ok(0),
        answer => answer,
    }
}
