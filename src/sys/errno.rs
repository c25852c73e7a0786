//! What went wrong in the kernel, as a value with its name?
//!
//! The names and numbers are those of errno(3); the texts are what a person
//! reads after the name. Only what corral can meet has a text of its own, the
//! rest is shown by number.
//!
//! May use: `linux-raw-sys`.

use linux_raw_sys::errno as raw;

/// An error number of the kernel (errno(3)), never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(u16);

/// The result of a system call.
pub type Result<T> = core::result::Result<T, Errno>;

macro_rules! known {
    ($($name:ident $text:literal,)*) => {
        impl Errno {
            $(
                #[doc = $text]
                #[expect(clippy::cast_possible_truncation, reason = "errno values end at 4095")]
                pub const $name: Self = Self(raw::$name as u16);
            )*
        }

        /// Those that have a text, in the order of [`TEXTS`].
        const KNOWN: &[Errno] = &[$(Errno::$name),*];

        /// The texts, a line each: a table of them would weigh as much again.
        const TEXTS: &str = concat!($(stringify!($name), " (", $text, ")\n",)*);
    };
}

known! {
    E2BIG "argument list too long",
    EACCES "permission denied",
    EAGAIN "resource temporarily unavailable",
    EBADF "bad file descriptor",
    EBUSY "device or resource busy",
    ECHILD "no child processes",
    ECONNREFUSED "connection refused",
    ECONNRESET "connection reset by peer",
    EDQUOT "disk quota exceeded",
    EEXIST "file exists",
    EFAULT "bad address",
    EFBIG "file too large",
    EINTR "interrupted system call",
    EINVAL "invalid argument",
    EIO "input/output error",
    EISDIR "is a directory",
    ELIBBAD "accessing a corrupted shared library",
    ELOOP "too many levels of symbolic links",
    EMFILE "too many open files",
    ENAMETOOLONG "file name too long",
    ENFILE "too many open files in system",
    ENODEV "no such device",
    ENOENT "no such file or directory",
    ENOEXEC "exec format error",
    ENOMEM "cannot allocate memory",
    ENOSPC "no space left on device",
    ENOSYS "function not implemented",
    ENOTDIR "not a directory",
    ENOTTY "inappropriate ioctl for device",
    ENXIO "no such device or address",
    EOPNOTSUPP "operation not supported",
    EPERM "operation not permitted",
    EPIPE "broken pipe",
    EROFS "read-only file system",
    ESPIPE "illegal seek",
    ESRCH "no such process",
    ESTALE "stale file handle",
    ETIMEDOUT "connection timed out",
    ETXTBSY "text file busy",
    EXDEV "invalid cross-device link",
}

impl Errno {
    /// The kernel's name and what it means, as `ENOENT (no such file or
    /// directory)`; `errno` alone where corral has no text for it.
    #[must_use]
    pub fn text(self) -> &'static str {
        let place = KNOWN.iter().position(|&known| known == self);
        place.and_then(|place| TEXTS.split('\n').nth(place)).unwrap_or("errno")
    }

    /// The kernel's name alone, as `ENOENT`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.text().split(' ').next().unwrap_or_default()
    }

    /// The error with this number, as one process tells another.
    #[must_use]
    pub const fn from_number(number: u16) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Whether the call is missing: an old kernel (ENOSYS), or a seccomp filter
    /// that answers EPERM to what it does not know.
    #[must_use]
    pub const fn is_refused(self) -> bool {
        matches!(self, Self::ENOSYS | Self::EPERM)
    }
}

/// Turns a raw return value into a result: the kernel returns -4095 to -1 for
/// errors (syscall(2)).
#[expect(clippy::cast_possible_truncation, reason = "an errno is below 4096")]
pub(super) const fn check(value: usize) -> Result<usize> {
    if value > usize::MAX - 4095 { Err(Errno(value.wrapping_neg() as u16)) } else { Ok(value) }
}

/// As [`check`], for calls whose result is a small non-negative number (a
/// descriptor, a pid) or nothing.
#[expect(clippy::cast_possible_truncation, reason = "the kernel returns an int here")]
#[expect(clippy::cast_possible_wrap, reason = "and a non-negative one")]
pub(super) const fn check_i32(value: usize) -> Result<i32> {
    match check(value) {
        Ok(value) => Ok(value as i32),
        Err(errno) => Err(errno),
    }
}

/// As [`check`], for calls that return nothing.
pub(super) const fn check_unit(value: usize) -> Result<()> {
    match check(value) {
        Ok(_) => Ok(()),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_range_is_the_last_4095_values() {
        assert_eq!(check(usize::MAX), Err(Errno::from_number(1)));
        assert_eq!(check(usize::MAX - 4094), Err(Errno::from_number(4095)));
        assert_eq!(check(usize::MAX - 4095), Ok(usize::MAX - 4095));
        assert_eq!(check(0), Ok(0));
    }

    #[test]
    fn names_and_texts() {
        assert_eq!(Errno::ENOENT.name(), "ENOENT");
        assert_eq!(Errno::ENOENT.text(), "ENOENT (no such file or directory)");
        assert_eq!(Errno::from_number(4000).text(), "errno");
    }
}
