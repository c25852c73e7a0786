//! How are files opened, looked at, renamed and removed?
//!
//! Everything is relative to a directory descriptor, so that what was checked
//! at the start is what is written at the end, wherever the command moved it.
//!
//! Sources: open(2), stat(2), statfs(2), readlink(2), rename(2), mkdir(2),
//! unlink(2), getdents(2), access(2), chmod(2). May use: `errno`, `fd`.

use core::ffi::CStr;

use linux_raw_sys::general as raw;
use sc::syscall;

use super::errno::{self, Result};
use super::fd::{Fd, OwnedFd};

/// The current directory, where a directory descriptor is wanted.
pub const CWD: Fd<'static> = Fd::inherited(raw::AT_FDCWD);

/// How to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// For reading.
    Read,
    /// A directory, for its entries.
    Directory,
    /// A place only: no reading or writing, EBADF for both (O_PATH).
    Place,
    /// For writing, never waiting for a FIFO's reader and never becoming a
    /// controlling terminal.
    Write,
    /// A new file for writing that must not exist yet, mode 0600.
    Create,
}

/// Opens `path` below `dir`, close-on-exec.
///
/// # Errors
/// ENOENT, EACCES, ENXIO (a FIFO without a reader), EEXIST, …
pub fn open(dir: Fd<'_>, path: &CStr, how: Open) -> Result<OwnedFd> {
    let flags = raw::O_CLOEXEC
        | raw::O_NOCTTY
        | match how {
            Open::Read => raw::O_RDONLY,
            Open::Directory => raw::O_RDONLY | raw::O_DIRECTORY,
            Open::Place => raw::O_PATH,
            Open::Write => raw::O_WRONLY | raw::O_NONBLOCK,
            Open::Create => raw::O_WRONLY | raw::O_CREAT | raw::O_EXCL | raw::O_NOFOLLOW,
        };
    // SAFETY: `path` ends in NUL; the rest are integers.
    let opened = unsafe { syscall!(OPENAT, dir.number(), path.as_ptr(), flags, 0o600) };
    errno::check_i32(opened).map(OwnedFd::new)
}

/// What kind of file it is (the S_IFMT bits of `st_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A pipe or FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A character device, terminals too.
    Character,
    /// Anything else.
    Other,
}

/// What stat(2) says, as far as corral asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Device and inode: the file's identity.
    pub identity: (u64, u64),
    /// Its kind.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// How many names it has.
    pub links: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// What driver a device file stands for, 0 for others.
    pub major: u32,
}

const fn status_of(stat: &raw::stat) -> Status {
    let kind = match stat.st_mode & raw::S_IFMT {
        raw::S_IFREG => Kind::Regular,
        raw::S_IFDIR => Kind::Directory,
        raw::S_IFIFO => Kind::Fifo,
        raw::S_IFSOCK => Kind::Socket,
        raw::S_IFCHR => Kind::Character,
        _ => Kind::Other,
    };
    Status {
        identity: (stat.st_dev, stat.st_ino),
        kind,
        mode: stat.st_mode & 0o7777,
        links: links(stat),
        uid: stat.st_uid,
        gid: stat.st_gid,
        major: major(stat.st_rdev),
    }
}

#[cfg_attr(target_arch = "x86_64", expect(clippy::unnecessary_cast, reason = "u32 elsewhere"))]
const fn links(stat: &raw::stat) -> u64 {
    stat.st_nlink as u64
}

/// The major number in a device number as stat(2) encodes it: bits 8 to 19.
const fn major(device: u64) -> u32 {
    ((device >> 8) & 0xfff) as u32
}

/// What an open file is.
///
/// # Errors
/// EBADF.
pub fn status(fd: Fd<'_>) -> Result<Status> {
    let mut stat = core::mem::MaybeUninit::<raw::stat>::uninit();
    // SAFETY: the kernel fills one `struct stat`.
    errno::check_unit(unsafe { syscall!(FSTAT, fd.number(), stat.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so the whole struct is written.
    Ok(status_of(unsafe { stat.assume_init_ref() }))
}

/// What the file behind `path` is, links followed.
///
/// # Errors
/// ENOENT, EACCES, ESRCH (for links below /proc).
pub fn status_at(dir: Fd<'_>, path: &CStr) -> Result<Status> {
    let mut stat = core::mem::MaybeUninit::<raw::stat>::uninit();
    let to = stat.as_mut_ptr();
    // SAFETY: `path` ends in NUL and the kernel fills one `struct stat`.
    let done = unsafe { syscall!(NEWFSTATAT, dir.number(), path.as_ptr(), to, 0) };
    errno::check_unit(done)?;
    // SAFETY: the call succeeded, so the whole struct is written.
    Ok(status_of(unsafe { stat.assume_init_ref() }))
}

/// Where an open file stands (lseek(2)); `None` where it has no position.
#[must_use]
pub fn position(fd: Fd<'_>) -> Option<usize> {
    // SAFETY: three integers.
    errno::check(unsafe { syscall!(LSEEK, fd.number(), 0, raw::SEEK_CUR) }).ok()
}

/// Reads the target of the symbolic link `path`; what does not fit is cut.
///
/// # Errors
/// EINVAL (not a link), ENOENT, EACCES.
pub fn read_link<'b>(dir: Fd<'_>, path: &CStr, buffer: &'b mut [u8]) -> Result<&'b [u8]> {
    let (to, most) = (buffer.as_mut_ptr(), buffer.len());
    // SAFETY: `path` ends in NUL; the kernel writes at most `most` bytes.
    let read = unsafe { syscall!(READLINKAT, dir.number(), path.as_ptr(), to, most) };
    let count = errno::check(read)?;
    Ok(buffer.get(..count).unwrap_or_default())
}

/// Whether this process, as its effective user, may make files in `dir`
/// (faccessat2(2) W_OK|X_OK, 5.8; where it is refused, faccessat(2), which asks
/// for the real user).
///
/// # Errors
/// EACCES, EROFS.
pub fn may_create_in(dir: &OwnedFd) -> Result<()> {
    access(dir.fd(), c".", raw::W_OK | raw::X_OK)
}

/// As [`may_create_in`]: whether it may write the file `path`.
///
/// # Errors
/// ENOENT, EACCES, EROFS.
pub fn may_write(dir: Fd<'_>, path: &CStr) -> Result<()> {
    access(dir, path, raw::W_OK)
}

fn access(dir: Fd<'_>, path: &CStr, mode: u32) -> Result<()> {
    let (at, path) = (dir.number(), path.as_ptr());
    // SAFETY: the path ends in NUL; the rest are integers.
    let asked = unsafe { syscall!(FACCESSAT2, at, path, mode, raw::AT_EACCESS) };
    match errno::check_unit(asked) {
        Err(errno::Errno::ENOSYS | errno::Errno::EPERM) => {}
        answer => return answer,
    }
    // SAFETY: as above.
    errno::check_unit(unsafe { syscall!(FACCESSAT, at, path, mode) })
}

/// Whether an open file lies in a cgroup v2 file system (fstatfs(2)).
#[must_use]
pub fn is_cgroup2(fd: Fd<'_>) -> bool {
    let mut stat = core::mem::MaybeUninit::<raw::statfs>::uninit();
    // SAFETY: the kernel fills one `struct statfs`.
    let done = errno::check_unit(unsafe { syscall!(FSTATFS, fd.number(), stat.as_mut_ptr()) });
    if done.is_err() {
        return false;
    }
    // SAFETY: the call succeeded, so the whole struct is written.
    let stat = unsafe { stat.assume_init_ref() };
    stat.f_type == i64::from(raw::CGROUP2_SUPER_MAGIC)
}

/// Makes a directory, mode 0755 less the umask.
///
/// # Errors
/// EEXIST, EACCES, EROFS, ENOSPC, EAGAIN (a cgroup that may have no more below).
pub fn make_directory(dir: Fd<'_>, path: &CStr) -> Result<()> {
    // SAFETY: `path` ends in NUL.
    errno::check_unit(unsafe { syscall!(MKDIRAT, dir.number(), path.as_ptr(), 0o755) })
}

/// Removes an empty directory; a cgroup is empty when nothing lives in it and
/// none is below it.
///
/// # Errors
/// EBUSY (a cgroup that is not empty), ENOENT, EACCES, …
pub fn remove_directory(dir: Fd<'_>, path: &CStr) -> Result<()> {
    let flags = raw::AT_REMOVEDIR;
    // SAFETY: `path` ends in NUL.
    errno::check_unit(unsafe { syscall!(UNLINKAT, dir.number(), path.as_ptr(), flags) })
}

/// Sets the permission bits of the file behind `path`.
///
/// # Errors
/// EPERM, EROFS, ENOENT.
pub fn set_mode_at(dir: Fd<'_>, path: &CStr, mode: u32) -> Result<()> {
    // SAFETY: `path` ends in NUL; the rest are integers.
    errno::check_unit(unsafe { syscall!(FCHMODAT, dir.number(), path.as_ptr(), mode) })
}

/// Renames within one directory, replacing what is there.
///
/// # Errors
/// EBUSY and EXDEV (a mount point), EACCES, …
pub fn rename(dir: &OwnedFd, from: &CStr, to: &CStr) -> Result<()> {
    let at = dir.fd().number();
    // SAFETY: both paths end in NUL.
    errno::check_unit(unsafe { syscall!(RENAMEAT, at, from.as_ptr(), at, to.as_ptr()) })
}

/// Removes a file that corral made.
///
/// # Errors
/// ENOENT, EACCES, …
pub fn unlink(dir: &OwnedFd, path: &CStr) -> Result<()> {
    // SAFETY: `path` ends in NUL.
    errno::check_unit(unsafe { syscall!(UNLINKAT, dir.fd().number(), path.as_ptr(), 0) })
}

/// Cuts a regular file to nothing.
///
/// # Errors
/// EINVAL, EPERM, …
pub fn truncate(fd: &OwnedFd) -> Result<()> {
    // SAFETY: two integers.
    errno::check_unit(unsafe { syscall!(FTRUNCATE, fd.fd().number(), 0) })
}

/// Sets permission bits.
///
/// # Errors
/// EPERM, EROFS.
pub fn set_mode(fd: &OwnedFd, mode: u32) -> Result<()> {
    // SAFETY: two integers.
    errno::check_unit(unsafe { syscall!(FCHMOD, fd.fd().number(), mode) })
}

/// Sets owner and group.
///
/// # Errors
/// EPERM.
pub fn set_owner(fd: &OwnedFd, uid: u32, gid: u32) -> Result<()> {
    // SAFETY: three integers.
    errno::check_unit(unsafe { syscall!(FCHOWN, fd.fd().number(), uid, gid) })
}

/// Reads directory entries (getdents64(2)); 0 at the end. [`names`] walks them.
///
/// # Errors
/// ENOENT (the directory is gone), ENOTDIR.
pub fn read_entries(dir: &OwnedFd, buffer: &mut [u8]) -> Result<usize> {
    let (to, most) = (buffer.as_mut_ptr(), buffer.len());
    // SAFETY: the kernel writes at most `most` bytes into `buffer`.
    errno::check(unsafe { syscall!(GETDENTS64, dir.fd().number(), to, most) })
}

/// The names in what [`read_entries`] has read.
pub fn names(entries: &[u8]) -> impl Iterator<Item = &[u8]> {
    typed_names(entries).map(|(name, _)| name)
}

/// As [`names`], of directories alone, without `.` and `..`.
pub fn directories(entries: &[u8]) -> impl Iterator<Item = &[u8]> {
    const DT_DIR: u8 = 4;
    typed_names(entries)
        .filter(|&(name, kind)| kind == DT_DIR && name != b"." && name != b"..")
        .map(|(name, _)| name)
}

/// `struct linux_dirent64`: record length at byte 16, type at 18, name from byte
/// 19 to a NUL.
fn typed_names(mut entries: &[u8]) -> impl Iterator<Item = (&[u8], u8)> {
    core::iter::from_fn(move || {
        let length = u16::from_ne_bytes([*entries.get(16)?, *entries.get(17)?]);
        let (record, rest) = entries.split_at_checked(usize::from(length))?;
        entries = rest;
        let (kind, name) = record.get(18..)?.split_first()?;
        let end = name.iter().position(|&byte| byte == 0)?;
        Some((name.get(..end)?, *kind))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_real_directory() {
        let dir = open(CWD, c"src/sys", Open::Directory).expect("tests run in the package root");
        let mut buffer = [0; 4096];
        let read = read_entries(&dir, &mut buffer).expect("a readable directory");
        let found: Vec<_> = names(&buffer[..read]).collect();
        assert!(found.contains(&&b"file.rs"[..]) && found.contains(&&b".."[..]));
        let src = open(CWD, c"src", Open::Directory).expect("tests run in the package root");
        let read = read_entries(&src, &mut buffer).expect("a readable directory");
        let found: Vec<_> = directories(&buffer[..read]).collect();
        assert!(found.contains(&&b"sys"[..]) && !found.contains(&&b"lib.rs"[..]));
        assert!(!found.contains(&&b".."[..]));
    }

    #[test]
    fn a_cut_entry_ends_the_names() {
        assert_eq!(names(&[0; 18]).count(), 0);
        assert_eq!(names(&[0xff; 64]).count(), 0);
    }

    #[test]
    fn a_place_is_neither_read_nor_written() {
        let place = open(CWD, c"/", Open::Place).expect("the root exists");
        assert_eq!(crate::sys::fd::write(place.fd(), b"x"), Err(errno::Errno::EBADF));
        assert_eq!(crate::sys::fd::read(place.fd(), &mut [0]), Err(errno::Errno::EBADF));
    }
}
