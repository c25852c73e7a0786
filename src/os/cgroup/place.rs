//! Where is corral's own cgroup?
//!
//! /proc/self/cgroup names it (`0::/a/b`, cgroups(7)), /proc/self/mountinfo says
//! where a cgroup2 is mounted and which part of it (proc_pid_mountinfo(5)): on
//! /sys/fs/cgroup, below it beside the old controllers (hybrid), anywhere else;
//! whole, or in a container only the part below some group. Both files are read
//! as seen from our own cgroup namespace. A mount may be hidden below another
//! one, so the place is only believed when it is open and is a cgroup2.
//!
//! May use: `sys`.

use core::ffi::CStr;

use super::Obstacle;
use crate::sys::fd::{self, OwnedFd};
use crate::sys::file::{self, CWD, Open};

/// Longest line that is read, and longest path (PATH_MAX).
const LONGEST: usize = 4096;

/// Opens the directory of corral's own cgroup, where groups can be made.
#[inline(never)] // its buffers are three pages of stack
pub(super) fn own() -> Result<OwnedFd, Obstacle> {
    let mut bytes = [0; LONGEST];
    let own = own_path(&mut bytes)?;
    let Some(mut mounts) = Lines::open(c"/proc/self/mountinfo") else {
        return Err(Obstacle::NoProc);
    };
    let mut obstacle = Obstacle::NoMount;
    while let Some(line) = mounts.next() {
        let Some(mount) = Mount::parse(line) else {
            continue;
        };
        let mut buffer = [0; LONGEST];
        let Some(path) = mount.path_of(own, &mut buffer) else {
            if obstacle == Obstacle::NoMount {
                obstacle = Obstacle::Unseen;
            }
            continue;
        };
        match open(path) {
            Ok(dir) => return Ok(dir),
            Err(found) => obstacle = found,
        }
    }
    Err(obstacle)
}

/// Opens a cgroup directory in which corral may make groups.
pub(super) fn open(path: &CStr) -> Result<OwnedFd, Obstacle> {
    let dir = file::open(CWD, path, Open::Place).map_err(Obstacle::from)?;
    if !file::is_cgroup2(dir.fd()) {
        return Err(Obstacle::NotCgroup);
    }
    file::may_create_in(&dir)?;
    // Whoever enters a group below must be allowed to write this one as well.
    file::may_write(dir.fd(), c"cgroup.procs")?;
    Ok(dir)
}

/// The path after `0::`.
fn own_path(buffer: &mut [u8; LONGEST]) -> Result<&[u8], Obstacle> {
    let Some(mut lines) = Lines::open(c"/proc/self/cgroup") else {
        return Err(Obstacle::NoProc);
    };
    while let Some(line) = lines.next() {
        let Some(path) = line.strip_prefix(b"0::") else {
            continue;
        };
        // A path that climbs leads out of what is mounted.
        if path.split(|&byte| byte == b'/').any(|part| part == b"..") {
            return Err(Obstacle::Unseen);
        }
        let to = buffer.get_mut(..path.len()).ok_or(Obstacle::Unseen)?;
        to.copy_from_slice(path);
        return Ok(to);
    }
    Err(Obstacle::NoMount)
}

/// One cgroup2 in mountinfo; both paths with their escapes.
#[derive(Debug, PartialEq, Eq)]
struct Mount<'l> {
    root: &'l [u8],
    point: &'l [u8],
}

impl<'l> Mount<'l> {
    /// `None` for any other file system. Fields: id, parent, device, root, point,
    /// options, some optional ones, `-`, type, …
    fn parse(line: &'l [u8]) -> Option<Self> {
        let mut fields = line.split(|&byte| byte == b' ');
        let (root, point) = (fields.nth(3)?, fields.next()?);
        fields.find(|&field| field == b"-")?;
        (fields.next()? == b"cgroup2").then_some(Self { root, point })
    }

    /// Where the group `own` is below this mount, if it is.
    fn path_of<'b>(&self, own: &[u8], buffer: &'b mut [u8; LONGEST]) -> Option<&'b CStr> {
        let mut below = own.iter().copied().peekable();
        if self.root != b"/" {
            for byte in unescaped(self.root) {
                below.next_if_eq(&byte)?;
            }
            if below.peek().is_some_and(|&byte| byte != b'/') {
                return None;
            }
        }
        let mut length = 0;
        for byte in unescaped(self.point).chain(below) {
            // One byte stays for the NUL.
            *buffer.get_mut(length)? = byte;
            length += 1;
        }
        *buffer.get_mut(length)? = 0;
        CStr::from_bytes_until_nul(buffer).ok()
    }
}

/// Undoes `\040` and its like: a backslash and three octal digits.
fn unescaped(mut text: &[u8]) -> impl Iterator<Item = u8> {
    core::iter::from_fn(move || {
        let (&first, rest) = text.split_first()?;
        text = rest;
        if first == b'\\'
            && let [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', rest @ ..] = text
        {
            text = rest;
            return Some(((a - b'0') << 6) | ((b - b'0') << 3) | (c - b'0'));
        }
        Some(first)
    })
}

/// The lines of a kernel file, one by one; what is longer than the buffer is
/// passed over.
struct Lines {
    file: OwnedFd,
    buffer: [u8; LONGEST],
    start: usize,
    end: usize,
    cut: bool,
}

impl Lines {
    fn open(path: &CStr) -> Option<Self> {
        let file = file::open(CWD, path, Open::Read).ok()?;
        Some(Self { file, buffer: [0; LONGEST], start: 0, end: 0, cut: false })
    }

    fn next(&mut self) -> Option<&[u8]> {
        loop {
            let held = self.buffer.get(self.start..self.end)?;
            if let Some(length) = held.iter().position(|&byte| byte == b'\n') {
                let line = self.start..self.start + length;
                self.start += length + 1;
                if core::mem::take(&mut self.cut) {
                    continue;
                }
                return self.buffer.get(line);
            }
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if self.end == self.buffer.len() {
                (self.end, self.cut) = (0, true);
            }
            let count = fd::read(self.file.fd(), self.buffer.get_mut(self.end..)?).ok()?;
            if count == 0 {
                return None;
            }
            self.end += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(line: &[u8], own: &[u8]) -> Option<std::ffi::CString> {
        let mut buffer = [0; LONGEST];
        Mount::parse(line)?.path_of(own, &mut buffer).map(ToOwned::to_owned)
    }

    #[test]
    fn the_usual_mounts() {
        let unified = b"30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw";
        assert_eq!(place(unified, b"/"), Some(c"/sys/fs/cgroup/".into()));
        assert_eq!(place(unified, b"/a.slice/b"), Some(c"/sys/fs/cgroup/a.slice/b".into()));
        let hybrid = b"31 24 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";
        assert_eq!(place(hybrid, b"/x"), Some(c"/sys/fs/cgroup/unified/x".into()));
    }

    #[test]
    fn no_cgroup2() {
        assert_eq!(place(b"30 23 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw", b"/"), None);
        assert_eq!(place(b"30 23 0:26 / /cgroup2 rw - cgroup cgroup2 rw", b"/"), None);
        assert_eq!(place(b"30 23 0:26 / /x rw", b"/"), None);
        assert_eq!(place(b"", b"/"), None);
    }

    #[test]
    fn a_part_of_it() {
        let part = b"30 23 0:26 /a/b /mnt rw - cgroup2 none rw";
        assert_eq!(place(part, b"/a/b"), Some(c"/mnt".into()));
        assert_eq!(place(part, b"/a/b/c"), Some(c"/mnt/c".into()));
        assert_eq!(place(part, b"/a/bc"), None);
        assert_eq!(place(part, b"/a"), None);
    }

    #[test]
    fn escapes() {
        let line = br"30 23 0:26 /a\040b /mnt\011\134x rw master:1 propagate_from:2 - cgroup2 n rw";
        assert_eq!(place(line, b"/a b/c"), Some(c"/mnt\t\\x/c".into()));
        let other = br"30 23 0:26 / /m\04 rw - cgroup2 n rw";
        assert_eq!(place(other, b"/\\040"), Some(c"/m\\04/\\040".into()));
    }

    #[test]
    fn a_path_that_does_not_fit() {
        let line = b"30 23 0:26 / /mnt rw - cgroup2 n rw";
        assert_eq!(place(line, &[b'x'; LONGEST - 4]), None);
        assert!(place(line, &[b'x'; LONGEST - 5]).is_some());
    }

    #[test]
    fn long_lines_are_passed_over() {
        let dir = tempfile::tempdir().expect("a place for files");
        let path = dir.path().join("lines");
        let text = format!("one\n{}\ntwo\n{}", "x".repeat(3 * LONGEST), "y".repeat(9));
        std::fs::write(&path, text).expect("a writable file");
        let path = std::ffi::CString::new(path.to_str().expect("plain")).expect("no NUL");
        let mut lines = Lines::open(&path).expect("it is there");
        assert_eq!(lines.next(), Some(&b"one"[..]));
        assert_eq!(lines.next(), Some(&b"two"[..]));
        assert_eq!(lines.next(), None);
    }
}
