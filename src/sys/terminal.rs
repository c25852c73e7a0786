//! How are a terminal's modes and its session handled?
//!
//! Sources: ioctl_tty(2). May use: `errno`, `fd`.

use linux_raw_sys::{general as raw, ioctl};
use sc::syscall;

use super::errno::{self, Result};
use super::fd::Fd;

/// A terminal's modes.
#[derive(Clone, Copy)]
pub struct Modes(raw::termios);

/// Reads the modes (TCGETS).
///
/// # Errors
/// ENOTTY: no terminal.
pub fn modes(fd: Fd<'_>) -> Result<Modes> {
    let mut modes = core::mem::MaybeUninit::<raw::termios>::zeroed();
    // SAFETY: the kernel fills one `struct termios`.
    errno::check_unit(unsafe { syscall!(IOCTL, fd.number(), ioctl::TCGETS, modes.as_mut_ptr()) })?;
    // SAFETY: zeroed plain integers are a value, and the kernel has filled them.
    Ok(Modes(unsafe { modes.assume_init() }))
}

/// Sets the modes at once, without waiting for output (TCSETS).
///
/// # Errors
/// EIO, ENOTTY.
pub fn set_modes(fd: Fd<'_>, modes: &Modes) -> Result<()> {
    // SAFETY: the kernel reads one `struct termios`.
    errno::check_unit(unsafe { syscall!(IOCTL, fd.number(), ioctl::TCSETS, &raw const modes.0) })
}

/// The terminal's foreground process group (TIOCGPGRP).
///
/// # Errors
/// ENOTTY: no terminal, or not the controlling one of our session.
pub fn foreground_group(fd: Fd<'_>) -> Result<i32> {
    let mut group = 0i32;
    // SAFETY: the kernel writes one pid_t.
    errno::check_unit(unsafe { syscall!(IOCTL, fd.number(), ioctl::TIOCGPGRP, &raw mut group) })?;
    Ok(group)
}

/// Makes a group of our session the foreground one (TIOCSPGRP). The caller has
/// SIGTTOU blocked.
///
/// # Errors
/// EPERM: no such group in our session.
pub fn set_foreground_group(fd: Fd<'_>, group: i32) -> Result<()> {
    // SAFETY: the kernel reads one pid_t.
    errno::check_unit(unsafe { syscall!(IOCTL, fd.number(), ioctl::TIOCSPGRP, &raw const group) })
}

/// Gives up the controlling terminal (TIOCNOTTY). In a session leader this also
/// hangs up the foreground group: SIGHUP and SIGCONT.
///
/// # Errors
/// ENOTTY.
pub fn disown(fd: Fd<'_>) -> Result<()> {
    // SAFETY: no argument.
    errno::check_unit(unsafe { syscall!(IOCTL, fd.number(), ioctl::TIOCNOTTY, 0) })
}

/// Makes it the controlling terminal of this session leader (TIOCSCTTY).
///
/// # Errors
/// EPERM: it is another session's.
pub fn own(fd: Fd<'_>) -> Result<()> {
    // SAFETY: an integer argument: do not steal.
    errno::check_unit(unsafe { syscall!(IOCTL, fd.number(), ioctl::TIOCSCTTY, 0) })
}

/// Which terminal it is: its device number, whatever name it was opened by
/// (TIOCGDEV, 2.6.38).
///
/// # Errors
/// ENOTTY: no terminal.
pub fn device(fd: Fd<'_>) -> Result<u32> {
    let mut number = 0u32;
    // SAFETY: the kernel writes one unsigned int.
    errno::check_unit(unsafe { syscall!(IOCTL, fd.number(), ioctl::TIOCGDEV, &raw mut number) })?;
    Ok(number)
}

/// Whether it is the master of a pseudo-terminal (TIOCGPTN knows no other).
#[must_use]
pub fn is_master(fd: Fd<'_>) -> bool {
    let mut number = 0u32;
    // SAFETY: the kernel writes one unsigned int.
    let asked = unsafe { syscall!(IOCTL, fd.number(), ioctl::TIOCGPTN, &raw mut number) };
    errno::check_unit(asked).is_ok()
}
