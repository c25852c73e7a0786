//! Where is the record written, and how is it never half there?
//!
//! A sink is prepared before the command starts, when a mistake still costs
//! nothing, and filled when the run is over. Preparing leaves no trace on disk.
//!
//! A regular file, or one that does not exist yet, is replaced: the text goes
//! into a temporary file beside it, which is renamed over it (rename(2)). The
//! directory is held open from the start, so the command cannot move the record
//! elsewhere. Where a rename cannot work (a bind-mounted file is EBUSY, another's
//! file in a sticky directory EPERM) the file opened at the start is rewritten in
//! place. Anything else (FIFO, device, descriptor) is written to directly, until
//! the deadline.
//!
//! Symbolic links are resolved by hand, as the kernel does it (at most 40,
//! path_resolution(7)), since a rename would replace the link. The kernel is
//! asked first, by open(2), so what its link protection forbids stays forbidden.
//! `/dev/stdout` and the like mean the descriptor itself: opened anew, a file
//! would be written from its beginning.
//!
//! Left out: fsync(2) (a disk that hangs would hold the run), and a deadline for
//! regular files. May use: `sys`, `put`, `policy::time`.

use core::ffi::CStr;

use super::put::Outlet;
use crate::policy::time::Instant;
use crate::sys::errno::{Errno, Result};
use crate::sys::fd::{self, Fd, OwnedFd};
use crate::sys::file::{self, Kind, Open, Status};
use crate::sys::time::{Clock, now};

/// Longest name in a directory (NAME_MAX of `limits.h`).
const NAME_MAX: usize = 255;
/// Longest path with its NUL (PATH_MAX of `limits.h`).
const PATH_MAX: usize = 4096;
/// Most links on the way (MAXSYMLINKS of the kernel).
const MOST_LINKS: usize = 40;
/// What a temporary name has around the name: two dots, 16 digits, `.tmp`.
const AROUND: usize = 1 + 1 + 16 + 4;
/// Most temporary names that are tried.
const MOST_NAMES: usize = 16;
/// Mode of a new record: it may hold secrets of the command line.
const PRIVATE: u32 = 0o600;

/// What a sink is filled with: a function that hands its text, piece by piece,
/// to the function it is given. It may be called twice, and must then give the
/// same text.
pub type Fill<'a> = &'a mut dyn FnMut(&mut dyn FnMut(&[u8]));

/// A destination that was found good.
#[derive(Debug)]
pub struct Sink(Way);

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is no allocator to box it with")]
enum Way {
    /// Rename over `name` in `dir`; where that cannot work, rewrite `old`.
    Replace { dir: OwnedFd, name: Name, old: Option<Old> },
    /// Rewrite it.
    InPlace(OwnedFd),
    /// Write to it.
    Direct(Outlet<'static>),
}

/// The file that was there at the start.
#[derive(Debug)]
struct Old {
    file: OwnedFd,
    status: Status,
}

/// Prepares the file at `path`.
///
/// # Errors
/// What would keep the record from being written; see [`advice`].
#[inline(never)] // its paths would be on the stack of runs without a record
pub fn prepare_path(path: &CStr) -> Result<Sink> {
    let found = resolve(path);
    if let Ok(Found::Descriptor(number)) = found {
        return prepare_descriptor(number);
    }
    let file = match file::open(file::CWD, path, Open::Write) {
        Ok(file) => file,
        Err(Errno::ENOENT) => {
            // Missing, or a link to what is missing.
            let Found::Place(dir, name) = found? else {
                return Err(Errno::ENOENT);
            };
            file::may_create_in(&dir)?;
            return Ok(Sink(Way::Replace { dir, name, old: None }));
        }
        Err(errno) => return Err(errno),
    };
    let status = file::status(file.fd())?;
    match status.kind {
        Kind::Regular => {}
        Kind::Fifo | Kind::Character | Kind::Socket => {
            return Ok(Sink(Way::Direct(Outlet::own(file))));
        }
        // A record over the head of a disk is nobody's wish.
        Kind::Directory | Kind::Other => return Err(Errno::EINVAL),
    }
    Ok(Sink(match found {
        Ok(Found::Place(dir, name)) if is_at(&dir, &name, &status) => {
            Way::Replace { dir, name, old: Some(Old { file, status }) }
        }
        _ => Way::InPlace(file),
    }))
}

/// Prepares an inherited descriptor. One above 2 is kept from the command.
///
/// # Errors
/// EBADF: it is not open, or not for writing.
pub fn prepare_descriptor(number: i32) -> Result<Sink> {
    let fd = Fd::inherited(number);
    if !fd::is_writable(fd)? {
        return Err(Errno::EBADF);
    }
    if number <= 2 {
        return Ok(Sink(Way::Direct(Outlet::new(fd))));
    }
    fd::set_cloexec(fd, true)?;
    // A number of our own, which no clean-up of inherited ones can close.
    Ok(Sink(Way::Direct(Outlet::own(fd::duplicate(fd)?))))
}

/// What a user can do about a failure of this file's functions; empty where
/// there is nothing to say.
#[must_use]
pub const fn advice(errno: Errno) -> &'static str {
    match errno {
        Errno::ENOENT | Errno::ENOTDIR => "make its directory first",
        Errno::EACCES | Errno::EPERM => "check the permissions of the file and its directory",
        Errno::EROFS => "name a place that can be written to",
        Errno::EISDIR | Errno::EINVAL => "name a file, a FIFO or fd:N",
        Errno::ENXIO => "start the reader of the FIFO first",
        Errno::EBADF => "open it for writing in the shell, as in 3>FILE",
        Errno::ENAMETOOLONG => "choose a shorter name",
        Errno::ENOSPC | Errno::EDQUOT => "make room",
        Errno::EPIPE => "keep its reader running until corral has returned",
        Errno::ETIMEDOUT => "read from it faster",
        Errno::EAGAIN | Errno::ETXTBSY => "another process holds it: name another file",
        _ => "",
    }
}

impl Sink {
    /// Writes the text. A sink that is dropped instead leaves everything as it
    /// was. The deadline is for what has a reader; see the head of the file.
    ///
    /// # Errors
    /// The file that is to be replaced is then as it was, and no temporary one
    /// is left; one rewritten in place is empty.
    #[inline(never)] // as `prepare_path`
    pub fn fill(self, deadline: Instant, text: Fill<'_>) -> Result<()> {
        match self.0 {
            Way::Direct(mut outlet) => buffered(&mut |bytes| outlet.put(bytes, deadline), text),
            Way::InPlace(file) => rewrite(&file, text),
            Way::Replace { dir, name, old: None } => replace(&dir, &name, None, text),
            Way::Replace { dir, name, old: Some(old) } => {
                match replace(&dir, &name, Some(&old.status), text) {
                    Err(
                        Errno::EACCES | Errno::EBUSY | Errno::EPERM | Errno::EROFS | Errno::EXDEV,
                    ) => rewrite(&old.file, text),
                    answer => answer,
                }
            }
        }
    }
}

/// Whether the file can be replaced under this name: it is what the kernel
/// found, and the directory takes new files.
fn is_at(dir: &OwnedFd, name: &Name, status: &Status) -> bool {
    file::status_at(dir.fd(), name.as_c()).is_ok_and(|found| found.identity == status.identity)
        && file::may_create_in(dir).is_ok()
}

fn replace(dir: &OwnedFd, name: &Name, old: Option<&Status>, text: Fill<'_>) -> Result<()> {
    let (file, temporary) = create(dir, name)?;
    let _ = file::set_mode(&file, mode_for(&file, old));
    let answer = buffered(&mut |bytes| fd::write_all(file.fd(), bytes), text)
        .and_then(|()| file::rename(dir, temporary.as_c(), name.as_c()));
    if answer.is_err() {
        let _ = file::unlink(dir, temporary.as_c());
    }
    answer
}

/// Gives `file` the owner of the old one, as far as that is allowed, and says
/// which mode is then right: a group that is not the old one gets nothing.
fn mode_for(file: &OwnedFd, old: Option<&Status>) -> u32 {
    /// "As it is", for chown(2).
    const SAME: u32 = u32::MAX;
    let Some(old) = old else { return PRIVATE };
    let mode = old.mode & 0o777;
    if file::set_owner(file, old.uid, old.gid).is_ok()
        || file::set_owner(file, SAME, old.gid).is_ok()
    {
        mode
    } else {
        mode & !0o070
    }
}

/// Makes the temporary file. The time in its name lets nobody make it first.
fn create(dir: &OwnedFd, name: &Name) -> Result<(OwnedFd, Name)> {
    let mut keep = NAME_MAX - AROUND;
    for _ in 0..MOST_NAMES {
        let temporary = name.temporary(keep, now(Clock::Monotonic));
        match file::open(dir.fd(), temporary.as_c(), Open::Create) {
            Err(Errno::EEXIST) => {}
            // Some file systems have shorter names.
            Err(Errno::ENAMETOOLONG) if keep > 0 => keep = 0,
            answer => return answer.map(|file| (file, temporary)),
        }
    }
    Err(Errno::EEXIST)
}

fn rewrite(file: &OwnedFd, text: Fill<'_>) -> Result<()> {
    file::truncate(file)?;
    let answer = buffered(&mut |bytes| fd::write_all(file.fd(), bytes), text);
    if answer.is_err() {
        // Nothing is better than half a record.
        let _ = file::truncate(file);
    }
    answer
}

/// Collects the pieces of `text` and hands them on in larger ones. The first
/// failure is the answer, and what comes after it is dropped.
fn buffered(put: &mut dyn FnMut(&[u8]) -> Result<()>, text: Fill<'_>) -> Result<()> {
    let mut buffer = [0; 4096];
    let mut used = 0;
    let mut answer = Ok(());
    text(&mut |mut piece| {
        while answer.is_ok() && !piece.is_empty() {
            let room = buffer.get_mut(used..).unwrap_or_default();
            let count = room.len().min(piece.len());
            let (now, rest) = piece.split_at_checked(count).unwrap_or_default();
            for (to, from) in room.iter_mut().zip(now) {
                *to = *from;
            }
            used += count;
            piece = rest;
            if used == buffer.len() {
                answer = put(&buffer);
                used = 0;
            }
        }
    });
    answer?;
    put(buffer.get(..used).unwrap_or_default())
}

/// What a path means.
#[expect(clippy::large_enum_variant, reason = "there is no allocator to box it with")]
enum Found {
    /// A descriptor of this process.
    Descriptor(i32),
    /// A name in a directory: no link, though perhaps nothing yet.
    Place(OwnedFd, Name),
}

fn resolve(path: &CStr) -> Result<Found> {
    let mut text = [0; PATH_MAX];
    let mut length = path.count_bytes();
    if length == 0 {
        return Err(Errno::ENOENT);
    }
    if length >= text.len() {
        return Err(Errno::ENAMETOOLONG);
    }
    for (to, from) in text.iter_mut().zip(path.to_bytes()) {
        *to = *from;
    }
    let mut base: Option<OwnedFd> = None;
    for _ in 0..=MOST_LINKS {
        let bytes = text.get(..length).unwrap_or_default();
        if let Some(number) = standard(bytes) {
            return Ok(Found::Descriptor(number));
        }
        let slash = bytes.iter().rposition(|&byte| byte == b'/');
        let start = slash.map_or(0, |at| at + 1);
        let name = Name::new(bytes.get(start..).unwrap_or_default())?;
        let dir = match (slash, base) {
            (None, Some(dir)) => dir,
            (None, None) => file::open(file::CWD, c".", Open::Place)?,
            (Some(_), base) => {
                // With its slash, so that it must be a directory.
                if let Some(end) = text.get_mut(start) {
                    *end = 0;
                }
                let parent = CStr::from_bytes_until_nul(&text).map_err(|_| Errno::EINVAL)?;
                let at = base.as_ref().map_or(file::CWD, OwnedFd::fd);
                file::open(at, parent, Open::Place)?
            }
        };
        if let Some(number) = name.as_number()
            && is_own_table(&dir)
        {
            return Ok(Found::Descriptor(number));
        }
        length = match file::read_link(dir.fd(), name.as_c(), &mut text) {
            Ok(target) => target.len(),
            Err(Errno::EINVAL | Errno::ENOENT) => return Ok(Found::Place(dir, name)),
            Err(errno) => return Err(errno),
        };
        if length >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        base = Some(dir);
    }
    Err(Errno::ELOOP)
}

/// The descriptor that a path means by convention, with or without a /proc.
fn standard(path: &[u8]) -> Option<i32> {
    match path {
        b"/dev/stdin" => Some(0),
        b"/dev/stdout" => Some(1),
        b"/dev/stderr" => Some(2),
        _ => path
            .strip_prefix(b"/dev/fd/")
            .or_else(|| path.strip_prefix(b"/proc/self/fd/"))
            .and_then(descriptor_number),
    }
}

/// Whether `dir` is /proc/self/fd, by whatever path it was reached.
fn is_own_table(dir: &OwnedFd) -> bool {
    match (file::status(dir.fd()), file::status_at(file::CWD, c"/proc/self/fd")) {
        (Ok(dir), Ok(table)) => dir.identity == table.identity,
        _ => false,
    }
}

/// A decimal number without sign or leading zeros, as the kernel names it.
fn descriptor_number(text: &[u8]) -> Option<i32> {
    if text.is_empty() || (text.len() > 1 && text.starts_with(b"0")) {
        return None;
    }
    text.iter().try_fold(0i32, |number, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(i32::from(digit))
    })
}

/// A name in a directory, with its NUL.
#[derive(Debug)]
struct Name {
    bytes: [u8; NAME_MAX + 1],
    length: usize,
}

impl Name {
    const EMPTY: Self = Self { bytes: [0; NAME_MAX + 1], length: 0 };

    fn new(text: &[u8]) -> Result<Self> {
        if text.is_empty() {
            // "/" or "dir/".
            return Err(Errno::EISDIR);
        }
        if text.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let mut name = Self::EMPTY;
        name.push(text);
        Ok(name)
    }

    /// `.NAME.TIME.tmp`, with at most `keep` bytes of the name.
    fn temporary(&self, keep: usize, time: u64) -> Self {
        let own = self.bytes.get(..self.length.min(keep)).unwrap_or_default();
        let mut name = Self::EMPTY;
        name.push(b".");
        name.push(own);
        name.push(b".");
        for byte in time.to_be_bytes() {
            for digit in [byte >> 4, byte & 0xf] {
                name.push(&[if digit < 10 { b'0' + digit } else { b'a' - 10 + digit }]);
            }
        }
        name.push(b".tmp");
        name
    }

    fn push(&mut self, text: &[u8]) {
        for (to, from) in self.bytes.iter_mut().take(NAME_MAX).skip(self.length).zip(text) {
            *to = *from;
            self.length += 1;
        }
    }

    fn as_c(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }

    fn as_number(&self) -> Option<i32> {
        descriptor_number(self.as_c().to_bytes())
    }
}

#[cfg(test)]
mod tests;
