//! How is a text written to a descriptor that others share, without ever
//! waiting past a deadline?
//!
//! O_NONBLOCK belongs to the open file, and an inherited one is shared with
//! processes that do not expect it, so its flags are never changed. What each
//! kind of file offers instead:
//! - a socket: send(2) with MSG_DONTWAIT;
//! - a pipe: splice(2) with SPLICE_F_NONBLOCK, out of a pipe of our own. The
//!   pages move whole, so a line of up to a page is not torn;
//! - a terminal or other device: an open file of our own, by way of
//!   /proc/self/fd. poll(2) alone is not enough: it says POLLOUT for a terminal
//!   with room for one byte, and a longer write then sleeps;
//! - where that cannot be had (no /proc, EACCES, a seccomp filter): poll(2) and
//!   a write so short that it fits, in terminals one byte;
//! - a regular file: write(2). A disk that hangs is not cut short here.
//!
//! The caller blocks or ignores SIGPIPE, SIGXFSZ and SIGTTOU; their errors are
//! reported. Opening /proc/self/fd/N is described in proc(5).
//! May use: `sys`, `policy::time`.

use core::ffi::CStr;

use crate::policy::time::{Instant, Span};
use crate::sys::errno::{Errno, Result};
use crate::sys::event::{Wait, ppoll};
use crate::sys::fd::{self, Fd, OwnedFd};
use crate::sys::file::{self, Kind, Open, Status};
use crate::sys::terminal;
use crate::sys::time::{Clock, now};

/// What goes through our own pipe at once: a page everywhere, and PIPE_BUF.
const PIECE: usize = 4096;

/// How long to stand back when poll(2) says yes and the write says no.
const PAUSE: Span = Span::from_millis(5);

/// Writes all of `bytes` to `fd`, or fails with ETIMEDOUT at the deadline.
///
/// # Errors
/// ETIMEDOUT, EPIPE, EBADF, ENOSPC, EIO, …
pub fn put(fd: Fd<'_>, bytes: &[u8], deadline: Instant) -> Result<()> {
    Outlet::new(fd).put(bytes, deadline)
}

/// A descriptor and the way to write to it.
#[derive(Debug)]
pub struct Outlet<'a> {
    way: Way<'a>,
    failed: Option<Errno>,
}

#[derive(Debug)]
enum Way<'a> {
    /// Regular files do not make their writers wait.
    Plain(Fd<'a>),
    Socket(Fd<'a>),
    /// Through a pipe of our own: its read end, its write end.
    Pipe(Fd<'a>, OwnedFd, OwnedFd),
    /// A non-blocking open file that nobody shares.
    Own(OwnedFd),
    /// After a poll, at most so many bytes.
    Polled(Fd<'a>, usize),
}

impl Outlet<'static> {
    /// An open file that corral opened itself, with O_NONBLOCK.
    #[must_use]
    pub const fn own(file: OwnedFd) -> Self {
        Self { way: Way::Own(file), failed: None }
    }
}

impl<'a> Outlet<'a> {
    /// Looks at `fd` and chooses.
    #[must_use]
    pub fn new(fd: Fd<'a>) -> Self {
        Self { way: Way::to(fd), failed: None }
    }

    /// Writes all of `bytes`. What a failed call has written of them is not
    /// known, so every later call fails in the same way.
    ///
    /// # Errors
    /// As [`put()`].
    pub fn put(&mut self, bytes: &[u8], deadline: Instant) -> Result<()> {
        if let Some(errno) = self.failed {
            return Err(errno);
        }
        let answer = self.put_all(bytes, deadline);
        self.failed = answer.err();
        answer
    }

    fn put_all(&mut self, mut left: &[u8], deadline: Instant) -> Result<()> {
        let mut ready_in_vain = false;
        while !left.is_empty() {
            match self.way.write(left) {
                Ok(0) => return Err(Errno::EIO),
                Ok(count) => {
                    left = left.get(count..).unwrap_or_default();
                    ready_in_vain = false;
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    ready_in_vain = wait(self.way.fd(), deadline, ready_in_vain)?;
                }
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

impl<'a> Way<'a> {
    fn to(fd: Fd<'a>) -> Self {
        // A closed number: the write will say EBADF.
        let Ok(status) = file::status(fd) else {
            return Self::Plain(fd);
        };
        match status.kind {
            Kind::Regular | Kind::Directory => Self::Plain(fd),
            Kind::Socket => Self::Socket(fd),
            Kind::Fifo => match fd::pipe() {
                Ok((from, to)) => Self::Pipe(fd, from, to),
                Err(_) => Self::Polled(fd, PIECE),
            },
            Kind::Character | Kind::Other => match reopen(fd, &status) {
                Ok(file) => Self::Own(file),
                Err(_) if terminal::modes(fd).is_ok() => Self::Polled(fd, 1),
                Err(_) => Self::Polled(fd, PIECE),
            },
        }
    }

    const fn fd(&self) -> Fd<'_> {
        match self {
            Self::Plain(fd) | Self::Socket(fd) | Self::Pipe(fd, ..) | Self::Polled(fd, _) => *fd,
            Self::Own(file) => file.fd(),
        }
    }

    /// Writes some of `bytes` without waiting; EAGAIN where nothing can go now.
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match self {
            Self::Plain(fd) => fd::write(*fd, bytes),
            Self::Own(file) => fd::write(file.fd(), bytes),
            Self::Socket(fd) => fd::send(*fd, bytes),
            Self::Polled(fd, most) => {
                let mut waits = [Wait::writable(*fd)];
                if ppoll(&mut waits, Some(0))? == 0 {
                    return Err(Errno::EAGAIN);
                }
                fd::write(*fd, bytes.get(..*most).unwrap_or(bytes))
            }
            Self::Pipe(fd, from, to) => {
                let fd = *fd;
                match through_pipe(fd, from, to, bytes) {
                    // Refused or impossible. Nothing of `bytes` has gone out,
                    // and what lies in our own pipe is forgotten with it.
                    Err(Errno::EINVAL | Errno::ENOSYS | Errno::EPERM) => {
                        *self = Self::Polled(fd, PIECE);
                        self.write(bytes)
                    }
                    answer => answer,
                }
            }
        }
    }
}

/// Moves the first bytes through our own pipe. After EAGAIN they stay in it,
/// and the next call, with the same bytes again, only moves them on.
fn through_pipe(fd: Fd<'_>, from: &OwnedFd, to: &OwnedFd, bytes: &[u8]) -> Result<usize> {
    if fd::readable_bytes(from.fd())? == 0 {
        fd::write(to.fd(), bytes.get(..PIECE).unwrap_or(bytes))?;
    }
    fd::splice(from.fd(), fd, PIECE)
}

/// Waits until `fd` may be writable. `ready_in_vain` says that it was so before
/// and the write could not go all the same; the answer is for the next call.
fn wait(fd: Fd<'_>, deadline: Instant, ready_in_vain: bool) -> Result<bool> {
    if ready_in_vain {
        let pause = PAUSE.min(left_until(deadline)?);
        ppoll(&mut [], Some(pause.0))?;
    }
    let mut waits = [Wait::writable(fd)];
    Ok(ppoll(&mut waits, Some(left_until(deadline)?.0))? > 0)
}

fn left_until(deadline: Instant) -> Result<Span> {
    match deadline.since(Instant(now(Clock::Monotonic))) {
        Span::ZERO => Err(Errno::ETIMEDOUT),
        left => Ok(left),
    }
}

/// Opens the same device anew, non-blocking. Not a pseudo-terminal's master:
/// opening that makes a new terminal.
fn reopen(fd: Fd<'_>, status: &Status) -> Result<OwnedFd> {
    if terminal::is_master(fd) {
        return Err(Errno::ENXIO);
    }
    let mut path = [0; 32];
    let file = file::open(file::CWD, proc_path(fd.number(), &mut path)?, Open::Write)?;
    // What is mounted on /proc may be anything.
    if file::status(file.fd())?.identity == status.identity { Ok(file) } else { Err(Errno::ENXIO) }
}

/// `/proc/self/fd/N`.
fn proc_path(number: i32, path: &mut [u8; 32]) -> Result<&CStr> {
    const DIRECTORY: &[u8] = b"/proc/self/fd/";
    let mut number = u32::try_from(number).map_err(|_| Errno::EBADF)?;
    // From the end: NUL, digits, directory.
    *path = [0; 32];
    let mut start = path.len() - 1;
    loop {
        start -= 1;
        let [digit, ..] = (number % 10).to_le_bytes();
        if let Some(to) = path.get_mut(start) {
            *to = b'0' + digit;
        }
        number /= 10;
        if number == 0 {
            break;
        }
    }
    start = start.saturating_sub(DIRECTORY.len());
    for (to, from) in path.iter_mut().skip(start).zip(DIRECTORY) {
        *to = *from;
    }
    let text = path.get(start..).unwrap_or_default();
    CStr::from_bytes_with_nul(text).map_err(|_| Errno::EINVAL)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::{AsFd, AsRawFd};
    use std::os::unix::net::UnixStream;

    use nix::pty::{OpenptyResult, openpty};
    use nix::sys::termios::{FlowArg, tcflow};

    use super::*;

    fn inherited(fd: &impl AsRawFd) -> Fd<'static> {
        Fd::inherited(fd.as_raw_fd())
    }

    fn soon() -> Instant {
        Instant(now(Clock::Monotonic)).plus(Span::from_millis(100))
    }

    fn later() -> Instant {
        Instant(now(Clock::Monotonic)).plus(Span::from_secs(20))
    }

    fn stopped_terminal() -> OpenptyResult {
        let pty = openpty(None, None).expect("a pseudo-terminal");
        tcflow(&pty.slave, FlowArg::TCOOFF).expect("a terminal that stops");
        pty
    }

    #[test]
    fn a_path_below_proc() {
        let mut path = [0xff; 32];
        assert_eq!(proc_path(0, &mut path), Ok(c"/proc/self/fd/0"));
        assert_eq!(proc_path(i32::MAX, &mut path), Ok(c"/proc/self/fd/2147483647"));
        assert_eq!(proc_path(-1, &mut path), Err(Errno::EBADF));
    }

    #[test]
    fn a_pipe_gets_everything_in_order() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let sent: Vec<u8> = (0..300_000u32).map(|n| n.to_le_bytes()[n as usize % 3]).collect();
        let copy = sent.clone();
        let thread = std::thread::spawn(move || put(inherited(&writer), &copy, later()));
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        assert_eq!(thread.join().unwrap(), Ok(()));
        assert!(got == sent);
    }

    #[test]
    fn a_full_pipe_times_out_and_stays_blocking() {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(&[b'x'; 65536]).unwrap();
        let mut outlet = Outlet::new(inherited(&writer));
        assert_eq!(outlet.put(b"late", soon()), Err(Errno::ETIMEDOUT));
        let flags = fd::status_flags(inherited(&writer)).unwrap();
        assert_eq!(flags & linux_raw_sys::general::O_NONBLOCK, 0);
        // Room comes too late: nothing more of it is written.
        let mut all = [0; 65536];
        reader.read_exact(&mut all).unwrap();
        assert_eq!(outlet.put(b"later", later()), Err(Errno::ETIMEDOUT));
        drop((outlet, writer));
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"");
    }

    #[test]
    fn a_full_pipe_without_splice_times_out_too() {
        let (_reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(&[b'x'; 65536]).unwrap();
        let way = Way::Polled(inherited(&writer), PIECE);
        let mut outlet = Outlet { way, failed: None };
        assert_eq!(outlet.put(b"late", soon()), Err(Errno::ETIMEDOUT));
    }

    #[test]
    fn a_pipe_without_a_reader() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        assert_eq!(put(inherited(&writer), b"x", later()), Err(Errno::EPIPE));
    }

    #[test]
    fn a_pipe_that_cannot_be_spliced_to_falls_back() {
        // A read end is no place to splice to: EBADF, as write(2) says.
        let (reader, _writer) = std::io::pipe().unwrap();
        assert_eq!(put(inherited(&reader), b"x", later()), Err(Errno::EBADF));
        // A regular file in the pipe's place: splice works or answers EINVAL
        // (O_APPEND); either way each byte arrives once.
        let path = std::env::temp_dir().join(format!("corral-put-{}", std::process::id()));
        let file = std::fs::File::options().append(true).create(true).open(&path).unwrap();
        let (from, to) = fd::pipe().unwrap();
        let mut outlet = Outlet { way: Way::Pipe(inherited(&file), from, to), failed: None };
        assert_eq!(outlet.put(b"once", later()), Ok(()));
        assert!(matches!(outlet.way, Way::Polled(..)));
        assert_eq!(std::fs::read(&path).unwrap(), b"once");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_full_socket_times_out() {
        let (near, far) = UnixStream::pair().unwrap();
        assert_eq!(put(inherited(&near), &[b'x'; 1 << 24], soon()), Err(Errno::ETIMEDOUT));
        drop(far);
        assert_eq!(put(inherited(&near), b"x", later()), Err(Errno::EPIPE));
    }

    #[test]
    fn a_stopped_terminal_times_out_and_a_running_one_does_not() {
        let pty = stopped_terminal();
        let slave = inherited(&pty.slave);
        assert!(matches!(Outlet::new(slave).way, Way::Own(_)), "reopened by /proc");
        assert_eq!(put(slave, b"corral: wait\n", soon()), Err(Errno::ETIMEDOUT));
        let mut polled = Outlet { way: Way::Polled(slave, 1), failed: None };
        assert_eq!(polled.put(b"corral: wait\n", soon()), Err(Errno::ETIMEDOUT));

        tcflow(&pty.slave, FlowArg::TCOON).unwrap();
        assert_eq!(put(slave, b"one\n", later()), Ok(()));
        let mut polled = Outlet { way: Way::Polled(slave, 1), failed: None };
        assert_eq!(polled.put(b"two\n", later()), Ok(()));
        let mut got = [0; 10];
        let mut master = std::fs::File::from(pty.master);
        master.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"one\r\ntwo\r\n");
    }

    #[test]
    fn a_terminal_that_nobody_reads_times_out() {
        let pty = openpty(None, None).unwrap();
        let text = [b'x'; 1 << 20];
        assert_eq!(put(inherited(&pty.slave), &text, soon()), Err(Errno::ETIMEDOUT));
    }

    #[test]
    fn a_master_is_not_opened_anew() {
        let pty = openpty(None, None).unwrap();
        let outlet = Outlet::new(Fd::inherited(pty.master.as_fd().as_raw_fd()));
        assert!(matches!(outlet.way, Way::Polled(_, 1)));
    }

    #[test]
    fn a_number_that_is_not_open() {
        assert_eq!(put(Fd::inherited(1_000_000), b"x", later()), Err(Errno::EBADF));
    }

    #[test]
    fn a_full_device() {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        assert_eq!(put(inherited(&full), b"x", later()), Err(Errno::ENOSPC));
    }
}
