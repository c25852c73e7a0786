//! How does a descriptor that we inherited take bytes without ever blocking us?
//!
//! Its O_NONBLOCK belongs to everybody who has the open file, so it is never
//! touched. What is done instead depends on what the file is:
//!
//! - a pipe takes splice(2) with SPLICE_F_NONBLOCK, which waits for neither pipe
//!   whatever their flags. Each takes a page of the pipe, though, however few its
//!   bytes, and a reader that reads only after our end needs the room that the
//!   pipe has without us. So few bytes are written, which fills the last page up,
//!   into the same pipe opened again with O_NONBLOCK by way of /proc/self/fd.
//!   Where that cannot be (another user's pipe, no /proc), all is spliced, bytes
//!   of memory through a pipe of our own. Where splice is refused, by a filter
//!   say, what would be spliced is written as well;
//! - a regular file, and a memory device such as /dev/null, does not make its
//!   writer wait for a reader; where splice is EINVAL (O_APPEND, some file
//!   systems), write(2) serves;
//! - a socket takes send(2) with MSG_DONTWAIT;
//! - a terminal is opened again likewise, where that gives the same terminal
//!   (/dev/tty is another one in another session, and /dev/ptmx a new one each
//!   time);
//! - anything else, or a terminal that cannot be opened again, gets pieces so
//!   small that the room that poll(2) has just reported is enough for them. Who
//!   takes that room in between can still hold us; Linux has no call that cannot
//!   be held there.
//!
//! A disk that hangs is not covered: nothing but a process of its own would be.
//!
//! May use: `sys`.

#[cfg(test)]
mod tests;

use core::ffi::CStr;

use crate::sys::errno::{Errno, Result};
use crate::sys::event::{self, Wait};
use crate::sys::fd::{self, Fd, OwnedFd};
use crate::sys::file::{self, Kind, Open};
use crate::sys::terminal;

/// Major number of /dev/null, /dev/zero, /dev/full and their like.
const MEMORY_DEVICES: u32 = 1;
/// What a terminal of which poll(2) says that it has room takes at once: room is
/// given in steps of 256 bytes, and a tab may become 8 of them.
const LITTLE: usize = 32;
/// Of a pipe's pages; where they are larger, they are filled in steps of this.
const PAGE: usize = 4096;
/// After so many refusals with room reported and no byte taken, poll(2) is not
/// believed any more.
const MOST_REFUSALS: u8 = 3;

/// How bytes get into it.
#[derive(Debug)]
enum Way {
    /// Opened again; spliced into by its inherited number all the same, if at all.
    Pipe(Page),
    /// It cannot be opened again.
    SplicedPipe(Option<Chute>),
    File {
        splices: bool,
    },
    Socket,
    Terminal(OwnedFd),
    /// How much fits where there is room.
    Blocking(usize),
}

/// Whether it takes bytes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// As far as is known.
    Free,
    /// Not before poll(2) says so.
    Full,
    /// poll(2) says so, yet nothing is taken: to be tried now and then.
    Stalled,
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Took {
    /// So many bytes were passed on.
    Bytes(usize),
    /// The input has come to its end (splice only).
    End,
    /// The input has nothing now (splice only).
    NoInput,
    /// The outlet takes nothing now.
    Full,
    /// This pair cannot be spliced: from now on the bytes must be copied.
    Copy,
    /// The reader is gone, or the file takes no more.
    Broken,
}

/// An inherited descriptor that we write to.
#[derive(Debug)]
pub(super) struct Outlet {
    fd: Fd<'static>,
    way: Way,
    room: Room,
    refusals: u8,
}

impl Outlet {
    /// Finds the way. `chute` says whether bytes of memory will follow spliced
    /// ones.
    pub(super) fn new(fd: Fd<'static>, chute: bool) -> Result<Self> {
        let status = file::status(fd)?;
        let way = match status.kind {
            Kind::Fifo => match open_again(fd) {
                Some(own) => Way::Pipe(Page { own, filled: 0, splices: true }),
                None => Way::SplicedPipe(if chute { Some(Chute::new()?) } else { None }),
            },
            Kind::Socket => Way::Socket,
            Kind::Character if status.major != MEMORY_DEVICES => {
                open_again(fd).map_or(Way::Blocking(LITTLE), Way::Terminal)
            }
            Kind::Regular | Kind::Directory | Kind::Character | Kind::Other => {
                Way::File { splices: true }
            }
        };
        Ok(Self::with(fd, way))
    }

    const fn with(fd: Fd<'static>, way: Way) -> Self {
        Self { fd, way, room: Room::Free, refusals: 0 }
    }

    pub(super) const fn room(&self) -> Room {
        self.room
    }

    /// It has taken less than there was.
    pub(super) const fn fill(&mut self) {
        self.room = Room::Full;
    }

    /// Whether bytes can go from our pipe into it without being copied.
    pub(super) const fn splices(&self) -> bool {
        match &self.way {
            Way::Pipe(page) => page.splices,
            Way::SplicedPipe(_) => true,
            Way::File { splices } => *splices,
            Way::Socket | Way::Terminal(_) | Way::Blocking(_) => false,
        }
    }

    /// Whether few bytes are to be copied into it, though it splices. It may then
    /// have room of which poll(2) says nothing: that left in its last page.
    pub(super) const fn copies_few(&self) -> bool {
        matches!(self.way, Way::Pipe(_))
    }

    /// What to wait for: room, when bytes are `waiting` for it; else only that
    /// the reader goes away, where poll(2) can say so. (A hang-up of a terminal
    /// may pass; a master side has one before its slave is opened.)
    pub(super) const fn wait(&self, waiting: bool) -> Wait {
        let fd = self.file();
        match self.room {
            Room::Stalled => Wait::NOTHING,
            Room::Full => Wait::writable(fd),
            Room::Free if waiting => Wait::writable(fd),
            Room::Free if self.has_reader() => Wait::gone(fd),
            Room::Free => Wait::NOTHING,
        }
    }

    /// Takes what the wait has brought; whether there still is a reader.
    pub(super) const fn heed(&mut self, ready: Wait) -> bool {
        if ready.is_closed() || (self.has_reader() && ready.is_gone()) {
            return false;
        }
        if ready.fired() || matches!(self.room, Room::Stalled) {
            self.room = Room::Free;
        }
        true
    }

    /// Moves bytes from `pipe` into it, `most` at most.
    pub(super) fn splice(&mut self, pipe: Fd<'_>, most: usize) -> Took {
        let answer = fd::splice(pipe, self.fd, most);
        if let Way::Pipe(page) = &mut self.way {
            page.filled = 0;
        }
        match answer {
            Ok(0) => Took::End,
            // The same answer for an empty input and for a full outlet.
            Err(Errno::EAGAIN) if fd::readable_bytes(pipe) == Ok(0) => Took::NoInput,
            Err(Errno::EINVAL | Errno::ENOSYS | Errno::EPERM) => {
                match &mut self.way {
                    Way::Pipe(Page { splices, .. }) | Way::File { splices } => *splices = false,
                    way => *way = Way::Blocking(PAGE),
                }
                Took::Copy
            }
            answer => self.judge(answer),
        }
    }

    /// Writes as many of `bytes` as it takes now. What it did not take has to
    /// come first the next time.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Took {
        let answer = match &mut self.way {
            Way::SplicedPipe(chute) => {
                chute.as_mut().ok_or(Errno::EBADF).and_then(|chute| chute.put(bytes, self.fd))
            }
            Way::File { .. } => fd::write(self.fd, bytes),
            Way::Socket => fd::send(self.fd, bytes),
            Way::Pipe(page) => page.put(bytes),
            Way::Terminal(own) => fd::write(own.fd(), bytes),
            Way::Blocking(most) => write_little(self.fd, bytes, *most),
        };
        if matches!(self.way, Way::SplicedPipe(_)) && answer.is_err_and(Errno::is_refused) {
            // What is in the chute is the first of `bytes`: nothing of it has gone.
            self.way = Way::Blocking(PAGE);
            return Took::Copy;
        }
        self.judge(answer)
    }

    const fn judge(&mut self, answer: Result<usize>) -> Took {
        match answer {
            Ok(count) if count > 0 => {
                self.refusals = 0;
                Took::Bytes(count)
            }
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR) => {
                self.refusals = self.refusals.saturating_add(1);
                self.room = if self.refusals < MOST_REFUSALS { Room::Full } else { Room::Stalled };
                Took::Full
            }
            Err(_) => Took::Broken,
        }
    }

    /// The open file that is written and waited for.
    const fn file(&self) -> Fd<'_> {
        match &self.way {
            Way::Pipe(page) => page.own.fd(),
            Way::Terminal(own) => own.fd(),
            Way::SplicedPipe(_) | Way::File { .. } | Way::Socket | Way::Blocking(_) => self.fd,
        }
    }

    const fn has_reader(&self) -> bool {
        matches!(self.way, Way::Pipe(_) | Way::SplicedPipe(_) | Way::Socket)
    }
}

/// A pipe, opened again, and how far its last page is filled: as far as we know,
/// since others may write too. The kernel adds to the last page what a write has
/// beyond whole pages, but only if all of that fits: else the rest of the page
/// stays unused.
#[derive(Debug)]
struct Page {
    own: OwnedFd,
    /// 0: full, gone or unknown.
    filled: usize,
    /// What is not few is spliced.
    splices: bool,
}

impl Page {
    /// Fills the last page up first, unless the reader has taken it.
    fn put(&mut self, bytes: &[u8]) -> Result<usize> {
        let to = self.own.fd();
        if self.filled > 0 && fd::readable_bytes(to) == Ok(0) {
            self.filled = 0;
        }
        let mut count = 0;
        if self.filled > 0
            && let Some(first) = bytes.get(..PAGE - self.filled)
        {
            count = fd::write(to, first)?;
            self.filled = 0;
        }
        match fd::write(to, bytes.get(count..).unwrap_or_default()) {
            Ok(more) => {
                self.filled = (self.filled + more) % PAGE;
                Ok(count + more)
            }
            Err(_) if count > 0 => Ok(count),
            Err(errno) => Err(errno),
        }
    }
}

/// A pipe of our own by which bytes of memory get spliced.
#[derive(Debug)]
struct Chute {
    lower: OwnedFd,
    upper: OwnedFd,
    /// How many bytes are in it.
    held: usize,
}

impl Chute {
    fn new() -> Result<Self> {
        let (lower, upper) = fd::pipe()?;
        fd::set_nonblocking(&upper)?;
        Ok(Self { lower, upper, held: 0 })
    }

    /// What is in it are the first of `bytes`, from earlier attempts.
    fn put(&mut self, bytes: &[u8], to: Fd<'_>) -> Result<usize> {
        if self.held == 0 {
            self.held = fd::write(self.upper.fd(), bytes)?;
        }
        let count = fd::splice(self.lower.fd(), to, self.held)?;
        self.held = self.held.saturating_sub(count);
        Ok(count)
    }
}

/// The pipe or terminal behind `fd` as an open file of our own, non-blocking. Who
/// may not write to `fd` does not get to write by this way either.
fn open_again(fd: Fd<'_>) -> Option<OwnedFd> {
    let number = u32::try_from(fd.number()).ok()?;
    let (status, device) = (file::status(fd).ok()?, terminal::device(fd));
    if fd::is_writable(fd) != Ok(true) || (status.kind != Kind::Fifo && device.is_err()) {
        return None;
    }
    let mut path = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0";
    let mut digits = [0; super::MOST_DIGITS];
    super::copy(path.get_mut(14..24)?, super::decimal(number.into(), &mut digits));
    let own = file::open(file::CWD, CStr::from_bytes_until_nul(&path).ok()?, Open::Write).ok()?;
    let is_same = file::status(own.fd()) == Ok(status) && terminal::device(own.fd()) == device;
    is_same.then_some(own)
}

/// Writes so little that it fits, if there is room at all.
fn write_little(to: Fd<'_>, bytes: &[u8], most: usize) -> Result<usize> {
    let mut wait = [Wait::writable(to)];
    event::ppoll(&mut wait, Some(0))?;
    if wait.iter().any(|wait| wait.is_writable()) {
        fd::write(to, bytes.get(..most).unwrap_or(bytes))
    } else {
        Err(Errno::EAGAIN)
    }
}
