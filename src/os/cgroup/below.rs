//! What has the command made below its group?
//!
//! The command may make groups of its own, as deep as it likes, with hostile
//! permissions. They are listed as paths relative to ours, a parent always before
//! what is below it, so that backwards they can be removed. A directory without
//! any below it says so by its link count, which the kernel keeps (kernfs).
//!
//! May use: `sys`.

use core::ffi::CStr;

use crate::sys::errno::{Errno, Result};
use crate::sys::fd::{Fd, OwnedFd};
use crate::sys::file::{self, Open};
use crate::sys::memory::List;

/// Longer paths are opened in pieces (PATH_MAX is 4096, a name has 255 at most).
const PIECE: usize = 3000;

/// The groups below one, itself first.
pub(super) struct Below {
    /// Paths, each with its NUL.
    paths: List<u8>,
}

impl Below {
    /// Looks for them.
    ///
    /// # Errors
    /// ENOMEM; what cannot be opened is left out.
    pub(super) fn of(top: &OwnedFd) -> Result<Self> {
        let mut below = Self { paths: List::new() };
        below.add(b"", b".")?;
        enable(top);
        let mut position = 0;
        while let Some(path) = below.at(position) {
            let next = position + path.count_bytes() + 1;
            if let Ok(dir) = open(top, path)
                && file::status(dir.fd()).is_ok_and(|status| status.links > 2)
            {
                enable(&dir);
                below.add_entries(position, &dir)?;
            }
            position = next;
        }
        Ok(below)
    }

    /// Every path, parents first.
    pub(super) fn paths(&self) -> impl DoubleEndedIterator<Item = &CStr> {
        let paths = self.paths.split_inclusive(|&byte| byte == 0);
        paths.filter_map(|path| CStr::from_bytes_with_nul(path).ok())
    }

    fn at(&self, position: usize) -> Option<&CStr> {
        CStr::from_bytes_until_nul(self.paths.get(position..)?).ok()
    }

    fn add_entries(&mut self, parent: usize, dir: &OwnedFd) -> Result<()> {
        let mut buffer = [0; 4096];
        loop {
            let count = file::read_entries(dir, &mut buffer).unwrap_or(0);
            if count == 0 {
                return Ok(());
            }
            for name in file::directories(buffer.get(..count).unwrap_or_default()) {
                let mut index = parent;
                while let Some(&byte) = self.paths.get(index).filter(|&&byte| byte != 0) {
                    self.paths.push(byte)?;
                    index += 1;
                }
                self.add(b"/", name)?;
            }
        }
    }

    fn add(&mut self, separator: &[u8], name: &[u8]) -> Result<()> {
        for &byte in separator.iter().chain(name).chain(b"\0") {
            self.paths.push(byte)?;
        }
        Ok(())
    }
}

/// Opens a group below `top` for reading its entries, whatever its mode.
pub(super) fn open(top: &OwnedFd, path: &CStr) -> Result<OwnedFd> {
    near(top, path, &mut |at, path| open_here(at, path))
}

/// Removes an empty group below `top`.
pub(super) fn remove(top: &OwnedFd, path: &CStr) -> Result<()> {
    near(top, path, &mut file::remove_directory)
}

/// Lets its owner, who we are, do everything in a group below `top`.
pub(super) fn unlock(top: &OwnedFd, path: &CStr) -> Result<()> {
    near(top, path, &mut |at, path| file::set_mode_at(at, path, 0o700))
}

/// Lets its owner, who we are, go through a group that is open for reading; a
/// place (O_PATH), as corral's own group is, stays as it is.
pub(super) fn enable(dir: &OwnedFd) {
    if file::may_create_in(dir) == Err(Errno::EACCES) {
        let _ = file::set_mode(dir, 0o700);
    }
}

fn open_here(at: Fd<'_>, path: &CStr) -> Result<OwnedFd> {
    match file::open(at, path, Open::Directory) {
        Err(Errno::EACCES) => {
            file::set_mode_at(at, path, 0o700)?;
            file::open(at, path, Open::Directory)
        }
        answer => answer,
    }
}

/// Does `what` with a path, from as near as its length demands.
fn near<R>(
    top: &OwnedFd,
    mut path: &CStr,
    what: &mut dyn FnMut(Fd<'_>, &CStr) -> Result<R>,
) -> Result<R> {
    let mut base = None;
    while path.count_bytes() > PIECE {
        let bytes = path.to_bytes_with_nul();
        let head = bytes.get(..PIECE).unwrap_or_default();
        let slash = head.iter().rposition(|&byte| byte == b'/').ok_or(Errno::ENAMETOOLONG)?;
        let mut piece = [0; PIECE];
        for (to, from) in piece.iter_mut().zip(head.iter().take(slash)) {
            *to = *from;
        }
        let piece = CStr::from_bytes_until_nul(&piece).map_err(|_| Errno::ENAMETOOLONG)?;
        let next = open_here(base.as_ref().unwrap_or(top).fd(), piece)?;
        base = Some(next);
        let rest = bytes.get(slash + 1..).unwrap_or_default();
        path = CStr::from_bytes_with_nul(rest).map_err(|_| Errno::ENAMETOOLONG)?;
    }
    what(base.as_ref().unwrap_or(top).fd(), path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::file::CWD;

    fn top(dir: &tempfile::TempDir) -> OwnedFd {
        let path = dir.path().to_str().expect("plain");
        let path = std::ffi::CString::new(path).expect("no NUL");
        file::open(CWD, &path, Open::Directory).expect("it is there")
    }

    #[test]
    fn parents_come_first_and_go_last() {
        let dir = tempfile::tempdir().expect("a place for directories");
        std::fs::create_dir_all(dir.path().join("a/b/c")).expect("writable");
        std::fs::create_dir_all(dir.path().join("d")).expect("writable");
        let top = top(&dir);
        let below = Below::of(&top).expect("memory");
        let paths: Vec<_> = below.paths().map(|path| path.to_str().expect("plain")).collect();
        let place = |path| paths.iter().position(|&found| found == path).expect(path);
        assert_eq!(paths.len(), 5);
        assert_eq!(place("."), 0);
        assert!(place("./a") < place("./a/b") && place("./a/b") < place("./a/b/c"));
        assert!(place("./d") > 0);
        for path in below.paths().skip(1).collect::<Vec<_>>().into_iter().rev() {
            remove(&top, path).expect("empty by now");
        }
        assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 0);
    }

    #[test]
    fn deeper_than_any_path_may_be_long() {
        let dir = tempfile::tempdir().expect("a place for directories");
        let top = top(&dir);
        let name = std::ffi::CString::new("x".repeat(250)).expect("no NUL");
        let mut at = top.fd();
        let mut levels: Vec<OwnedFd> = Vec::new();
        for _ in 0..40 {
            file::make_directory(at, &name).expect("writable");
            levels.push(file::open(at, &name, Open::Directory).expect("just made"));
            at = Fd::inherited(levels.last().expect("one").fd().number());
        }
        let below = Below::of(&top).expect("memory");
        assert_eq!(below.paths().count(), 41);
        for path in below.paths().skip(1).collect::<Vec<_>>().into_iter().rev() {
            remove(&top, path).expect("empty by now");
        }
    }
}
