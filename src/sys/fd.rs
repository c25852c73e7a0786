//! How are descriptors owned, copied and written to?
//!
//! [`OwnedFd`] closes on drop; [`Fd`] is a borrowed number, valid while its
//! owner lives or, for 0, 1 and 2, by the convention of every Unix program
//! (`os::host` plugs the closed ones). Every descriptor that corral makes is
//! close-on-exec.
//!
//! Sources: open(2), pipe(2), splice(2), fcntl(2), close_range(2) (5.9),
//! send(2). May use: `errno`.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use linux_raw_sys::{general as raw, ioctl, net};
use sc::syscall;

use super::errno::{self, Errno, Result};

/// A descriptor of this process, closed when dropped.
#[derive(Debug)]
pub struct OwnedFd(i32);

/// A borrowed descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Fd<'a>(i32, PhantomData<&'a OwnedFd>);

/// Standard input.
pub const STDIN: Fd<'static> = Fd(0, PhantomData);
/// Standard output.
pub const STDOUT: Fd<'static> = Fd(1, PhantomData);
/// Standard error.
pub const STDERR: Fd<'static> = Fd(2, PhantomData);

/// The highest number that this process was ever given; zero for none, so that
/// no page of initialised data has to be copied for it.
static HIGHEST: AtomicI32 = AtomicI32::new(0);
/// Which of the first 64 numbers it was ever given: those were not inherited.
static MADE: AtomicU64 = AtomicU64::new(0);

/// The highest descriptor that this process has made for itself.
#[must_use]
pub fn highest() -> i32 {
    HIGHEST.load(Ordering::Relaxed).max(2)
}

/// Whether this process has made a descriptor with this number, as far as that
/// is remembered.
#[must_use]
pub fn was_made(number: i32) -> bool {
    matches!(number, 0..64) && MADE.load(Ordering::Relaxed) >> number & 1 == 1
}

impl OwnedFd {
    /// Takes ownership of a number that the kernel has just returned.
    pub(super) fn new(number: i32) -> Self {
        // Load and store, since this process has one thread; a read-modify-write
        // would need libc's help on AArch64 (outline atomics).
        if number > highest() {
            HIGHEST.store(number, Ordering::Relaxed);
        }
        if matches!(number, 0..64) {
            MADE.store(MADE.load(Ordering::Relaxed) | 1 << number, Ordering::Relaxed);
        }
        Self(number)
    }

    /// Borrows it.
    #[must_use]
    pub const fn fd(&self) -> Fd<'_> {
        Fd(self.0, PhantomData)
    }

    /// Gives the number up without closing it.
    #[must_use]
    pub const fn into_raw(self) -> i32 {
        let number = self.0;
        core::mem::forget(self);
        number
    }
}

impl Drop for OwnedFd {
    fn drop(&mut self) {
        // Its error says nothing useful: the number is free in any case.
        close_number(self.0);
    }
}

impl Fd<'_> {
    /// A descriptor that the user named by number (`fd:N`), inherited and never
    /// closed by corral.
    #[must_use]
    pub const fn inherited(number: i32) -> Fd<'static> {
        Fd(number, PhantomData)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }
}

/// Closes descriptors `first..=last` (close_range(2), 5.9), or marks them
/// close-on-exec (5.11).
///
/// # Errors
/// ENOSYS or EPERM where the call is missing, EINVAL where the flag is.
pub fn close_range(first: u32, last: u32, cloexec_only: bool) -> Result<()> {
    /// `CLOSE_RANGE_CLOEXEC` of `linux/close_range.h`, which linux-raw-sys does
    /// not carry.
    const CLOEXEC: u32 = 1 << 2;
    let flags = if cloexec_only { CLOEXEC } else { 0 };
    // SAFETY: three integers; the caller owns what it closes.
    errno::check_unit(unsafe { syscall!(CLOSE_RANGE, first, last, flags) })
}

/// Closes one number, whoever owns it (in a newborn, or for inherited ones).
#[inline(never)] // each drop of a descriptor would hold a copy
pub fn close_number(number: i32) {
    // SAFETY: an integer; EBADF is the only error, and harmless.
    let _ = unsafe { syscall!(CLOSE, number) };
}

fn fcntl(fd: Fd<'_>, command: u32, argument: usize) -> Result<i32> {
    // SAFETY: only commands whose argument is an integer are passed here.
    errno::check_i32(unsafe { syscall!(FCNTL, fd.0, command, argument) })
}

/// Sets or clears close-on-exec (F_SETFD). It belongs to this process's number,
/// not to the open file.
///
/// # Errors
/// EBADF.
pub fn set_cloexec(fd: Fd<'_>, on: bool) -> Result<()> {
    let flag = if on { raw::FD_CLOEXEC } else { 0 };
    fcntl(fd, raw::F_SETFD, flag as usize).map(|_| ())
}

/// Whether it is open and not close-on-exec (F_GETFD).
#[must_use]
pub fn survives_exec(fd: Fd<'_>) -> bool {
    fcntl(fd, raw::F_GETFD, 0).is_ok_and(|flags| flags.cast_unsigned() & raw::FD_CLOEXEC == 0)
}

/// The open file's status flags (F_GETFL).
///
/// # Errors
/// EBADF.
pub fn status_flags(fd: Fd<'_>) -> Result<u32> {
    fcntl(fd, raw::F_GETFL, 0).map(i32::cast_unsigned)
}

/// Makes an open file that corral itself made non-blocking (F_SETFL). Never for
/// inherited ones: the flag is shared with every process that has the file.
///
/// # Errors
/// EBADF.
pub fn set_nonblocking(fd: &OwnedFd) -> Result<()> {
    fcntl(fd.fd(), raw::F_SETFL, raw::O_NONBLOCK as usize).map(|_| ())
}

/// Asks for a pipe of `bytes` (F_SETPIPE_SZ).
///
/// # Errors
/// EPERM above the user's limit; the pipe is then as it was.
pub fn set_pipe_size(fd: &OwnedFd, bytes: u32) -> Result<()> {
    fcntl(fd.fd(), raw::F_SETPIPE_SZ, bytes as usize).map(|_| ())
}

/// Whether the two are one open file (F_DUPFD_QUERY, 6.10), `None` where the
/// kernel cannot say.
#[must_use]
pub fn same_by_query(a: Fd<'_>, b: Fd<'_>) -> Option<bool> {
    fcntl(a, raw::F_DUPFD_QUERY, b.0.cast_unsigned() as usize).ok().map(|answer| answer == 1)
}

/// As [`same_by_query`], by kcmp(2) (KCMP_FILE; needs CONFIG_KCMP).
#[must_use]
pub fn same_by_kcmp(pid: i32, a: Fd<'_>, b: Fd<'_>) -> Option<bool> {
    const KCMP_FILE: usize = 0;
    // SAFETY: five integers.
    let answer = unsafe { syscall!(KCMP, pid, pid, KCMP_FILE, a.0, b.0) };
    errno::check(answer).ok().map(|order| order == 0)
}

/// A copy above 2 that is close-on-exec (F_DUPFD_CLOEXEC).
///
/// # Errors
/// EBADF, EMFILE.
pub fn duplicate(fd: Fd<'_>) -> Result<OwnedFd> {
    fcntl(fd, raw::F_DUPFD_CLOEXEC, 3).map(OwnedFd::new)
}

/// Makes `number` another name of `fd`, kept over exec; what it was is closed
/// (dup3(2); where they are equal, close-on-exec is cleared).
///
/// # Errors
/// EBADF, EBUSY.
pub fn install(fd: Fd<'_>, number: i32) -> Result<()> {
    if fd.0 == number {
        return set_cloexec(fd, false);
    }
    // SAFETY: three integers; only newborns, which own their table, call this.
    errno::check_unit(unsafe { syscall!(DUP3, fd.0, number, 0) })
}

/// A close-on-exec pipe: read end, write end (pipe2(2)).
///
/// # Errors
/// EMFILE, ENFILE.
pub fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0i32; 2];
    // SAFETY: the kernel writes two ints into `ends`.
    errno::check_unit(unsafe { syscall!(PIPE2, ends.as_mut_ptr(), raw::O_CLOEXEC) })?;
    Ok((OwnedFd::new(ends[0]), OwnedFd::new(ends[1])))
}

/// A pair of connected close-on-exec sockets that keep message boundaries and
/// report the other end's death (socketpair(2), AF_UNIX, SOCK_SEQPACKET).
///
/// # Errors
/// EMFILE, ENFILE.
pub fn socketpair() -> Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0i32; 2];
    let kind = net::SOCK_SEQPACKET | raw::O_CLOEXEC;
    // SAFETY: the kernel writes two ints into `ends`.
    let made = unsafe { syscall!(SOCKETPAIR, net::AF_UNIX, kind, 0, ends.as_mut_ptr()) };
    errno::check_unit(made)?;
    Ok((OwnedFd::new(ends[0]), OwnedFd::new(ends[1])))
}

/// Reads at most `buffer.len()` bytes (read(2)).
///
/// # Errors
/// EAGAIN, EINTR, EIO, …
pub fn read(fd: Fd<'_>, buffer: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes at most `buffer.len()` bytes into `buffer`.
    errno::check(unsafe { syscall!(READ, fd.0, buffer.as_mut_ptr(), buffer.len()) })
}

/// Reads from `offset` on, wherever the file stands (pread(2)).
///
/// # Errors
/// ESPIPE, ENODEV (a kernel file whose object is gone), …
pub fn read_at(fd: Fd<'_>, buffer: &mut [u8], offset: usize) -> Result<usize> {
    let (to, most) = (buffer.as_mut_ptr(), buffer.len());
    // SAFETY: the kernel writes at most `most` bytes into `buffer`.
    errno::check(unsafe { syscall!(PREAD64, fd.number(), to, most, offset) })
}

/// Writes at most `bytes.len()` bytes (write(2)). Blocks where the file does.
///
/// # Errors
/// EAGAIN, EINTR, EPIPE, ENOSPC, …
pub fn write(fd: Fd<'_>, bytes: &[u8]) -> Result<usize> {
    // SAFETY: the kernel reads at most `bytes.len()` bytes from `bytes`.
    errno::check(unsafe { syscall!(WRITE, fd.0, bytes.as_ptr(), bytes.len()) })
}

/// Sends without blocking, whatever the socket's flags (send(2),
/// MSG_DONTWAIT | MSG_NOSIGNAL).
///
/// # Errors
/// ENOTSOCK, EAGAIN, EPIPE, …
pub fn send(fd: Fd<'_>, bytes: &[u8]) -> Result<usize> {
    let flags = net::MSG_DONTWAIT | net::MSG_NOSIGNAL;
    // SAFETY: the kernel reads at most `bytes.len()` bytes; no address is given.
    errno::check(unsafe { syscall!(SENDTO, fd.0, bytes.as_ptr(), bytes.len(), flags, 0, 0) })
}

/// Receives one message without blocking; 0 when the other end is closed
/// (recv(2), MSG_DONTWAIT).
///
/// # Errors
/// EAGAIN, ECONNRESET.
pub fn receive(fd: Fd<'_>, buffer: &mut [u8]) -> Result<usize> {
    let (to, most) = (buffer.as_mut_ptr(), buffer.len());
    // SAFETY: the kernel writes at most `most` bytes into `buffer`.
    errno::check(unsafe { syscall!(RECVFROM, fd.0, to, most, net::MSG_DONTWAIT, 0, 0) })
}

/// Moves at most `most` bytes from one to the other, one of them a pipe, without
/// blocking on a pipe (splice(2)). 0 at the end of input.
///
/// # Errors
/// EAGAIN when nothing can move now; EINVAL where the pair cannot be spliced
/// (an O_APPEND file, say); EPIPE.
pub fn splice(from: Fd<'_>, to: Fd<'_>, most: usize) -> Result<usize> {
    /// `SPLICE_F_MOVE | SPLICE_F_NONBLOCK` of `fcntl.h`.
    const FLAGS: usize = 1 | 2;
    // SAFETY: both offset pointers are null, as pipes demand.
    errno::check(unsafe { syscall!(SPLICE, from.0, 0, to.0, 0, most, FLAGS) })
}

/// How many bytes wait in a pipe (ioctl FIONREAD).
///
/// # Errors
/// EBADF, ENOTTY.
pub fn readable_bytes(fd: Fd<'_>) -> Result<u32> {
    let mut count = 0u32;
    // SAFETY: FIONREAD writes one int.
    errno::check_unit(unsafe { syscall!(IOCTL, fd.0, ioctl::FIONREAD, &raw mut count) })?;
    Ok(count)
}

/// Writes all of `bytes`, for files that do not block for long.
///
/// # Errors
/// As [`write`]; a write of nothing is reported as EIO, so that this ends.
pub fn write_all(fd: Fd<'_>, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match write(fd, bytes) {
            Ok(0) => return Err(Errno::EIO),
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Whether the descriptor was opened for writing (F_GETFL; an O_PATH one was
/// not, whatever its access mode says).
///
/// # Errors
/// EBADF: it is not open.
pub fn is_writable(fd: Fd<'_>) -> Result<bool> {
    let flags = status_flags(fd)?;
    let access = flags & raw::O_ACCMODE;
    Ok(flags & raw::O_PATH == 0 && (access == raw::O_WRONLY || access == raw::O_RDWR))
}
