//! Groups of cgroup v2, as a command may make them below its own.

use super::{AT_FDCWD, CANNOT, O_RDONLY, O_WRONLY, close, exit, open, read, syscall, write};

/// The path of a group, or of a file of one.
#[derive(Clone, Copy)]
pub struct Group {
    path: [u8; 1024],
    length: usize,
}

impl Group {
    /// The group that this process is in; `mount` is where cgroup2 is mounted.
    pub fn own(mount: Option<&[u8]>) -> Self {
        let mut text = [0; 4096];
        let file = open(b"/proc/self/cgroup\0", O_RDONLY) as i32;
        let length = usize::try_from(read(file, &mut text)).unwrap_or(0);
        close(file);
        let mut lines = text[..length].split(|byte| *byte == b'\n');
        let Some(path) = lines.find_map(|line| line.strip_prefix(b"0::")) else {
            cannot(b"cannot find the own group\n");
        };
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let usual: [&[u8]; 2] = [b"/sys/fs/cgroup/unified", b"/sys/fs/cgroup"];
        for mount in mount.iter().chain(&usual) {
            let group = Self { path: [0; 1024], length: 0 }.and(mount).and(path);
            let procs = group.open(b"cgroup.procs");
            if procs >= 0 {
                close(procs);
                return group;
            }
        }
        cannot(b"cannot write to the own group\n")
    }

    fn and(mut self, more: &[u8]) -> Self {
        self.path[self.length..][..more.len()].copy_from_slice(more);
        self.length += more.len();
        self
    }

    /// The one above.
    pub fn above(mut self) -> Self {
        while self.length > 0 && self.path[self.length] != b'/' {
            self.path[self.length] = 0;
            self.length -= 1;
        }
        self.path[self.length] = 0;
        self
    }

    /// A new one below.
    pub fn make(&self, name: &[u8]) -> Self {
        let group = self.and(b"/").and(name);
        // SAFETY: the path ends in NUL.
        if unsafe { syscall!(MKDIRAT, AT_FDCWD, group.path.as_ptr(), 0o755) } != 0 {
            cannot(b"cannot make a group\n");
        }
        group
    }

    /// Opens one of its files for writing.
    pub fn open(&self, file: &[u8]) -> i32 {
        open(&self.and(b"/").and(file).path, O_WRONLY) as i32
    }

    /// Writes to one of its files.
    pub fn put(&self, file: &[u8], text: &[u8]) -> bool {
        let fd = self.open(file);
        let done = fd >= 0 && write(fd, text) == text.len() as isize;
        close(fd);
        done
    }

    /// Writes, or ends this program as one that cannot be.
    pub fn must_put(&self, file: &[u8], text: &[u8]) {
        if !self.put(file, text) {
            cannot(b"cannot write to a file of a group\n");
        }
    }

    /// Reads one of its files; how much of `text` is filled.
    pub fn get<'a>(&self, file: &[u8], text: &'a mut [u8]) -> &'a [u8] {
        let fd = open(&self.and(b"/").and(file).path, O_RDONLY) as i32;
        let length = usize::try_from(read(fd, text)).unwrap_or(0);
        close(fd);
        &text[..length]
    }

    /// Takes all rights to it, or to one of its files, away.
    pub fn forbid(&self, file: &[u8]) {
        let path = self.and(b"/").and(file).path;
        // SAFETY: the path ends in NUL.
        unsafe { syscall!(FCHMODAT, AT_FDCWD, path.as_ptr(), 0) };
    }
}

/// Ends a fault that this host does not let happen.
pub fn cannot(line: &[u8]) -> ! {
    write(2, line);
    exit(CANNOT)
}
