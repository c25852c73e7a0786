//! What time is it?
//!
//! Raw clock_gettime(2), without the vDSO: corral asks a few times in a run.
//! May use: `errno`.

use linux_raw_sys::general as raw;
use sc::syscall;

use super::errno::{self};

/// Which clock (clock_gettime(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Never set, stands still in suspend: what limits are measured on.
    Monotonic,
    /// Counts suspend; the clock of start times in /proc.
    Boot,
    /// Wall-clock time since 1970, UTC.
    Real,
}

/// Nanoseconds on `clock`.
#[must_use]
pub fn now(clock: Clock) -> u64 {
    let id = match clock {
        Clock::Monotonic => raw::CLOCK_MONOTONIC,
        Clock::Boot => raw::CLOCK_BOOTTIME,
        Clock::Real => raw::CLOCK_REALTIME,
    };
    let mut time = raw::__kernel_timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec. The three clocks always exist, so
    // there is no error to report.
    let _ = errno::check(unsafe { syscall!(CLOCK_GETTIME, id, &raw mut time) });
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}
