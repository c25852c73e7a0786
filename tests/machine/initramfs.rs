//! What does a guest have in its root?
//!
//! A newc archive (Documentation/driver-api/early-userspace/buffer-format.rst of
//! the kernel), made in memory: busybox, the program to start, and each program
//! of ours at the path that it has out here, because the tests know corral and
//! the faults by absolute paths. What is linked dynamically brings its loader
//! and libraries along. Debug information stays at home: it is nine tenths of
//! the bytes, and a guest keeps all of them in memory.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const DEVICE: u32 = 0o020_000;

/// An archive on its way.
#[derive(Clone, Default)]
pub struct Initramfs {
    bytes: Vec<u8>,
    made: BTreeSet<PathBuf>,
}

impl Initramfs {
    /// One entry; its number is its place, so that no two are hard links.
    fn entry(&mut self, path: &Path, mode: u32, device: (u32, u32), content: &[u8]) {
        let name = path.to_str().expect("a name in UTF-8").trim_start_matches('/');
        let (number, size) = (self.made.len(), content.len());
        let (major, minor) = device;
        let header = format!(
            "070701{number:08x}{mode:08x}{:08x}{:08x}{:08x}{:08x}{size:08x}{:08x}{:08x}{major:08x}{minor:08x}{:08x}{:08x}{name}\0",
            0, // owner
            0, // group
            1, // links
            0, // time
            0, // device that it was on
            0,
            name.len() + 1,
            0, // checksum, not in this format
        );
        self.bytes.extend_from_slice(header.as_bytes());
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// Whether `path` is new; makes what lies above it.
    fn claim(&mut self, path: &Path) -> bool {
        if let Some(above) = path.parent().filter(|above| *above != Path::new("/")) {
            self.directory(above);
        }
        self.made.insert(path.to_owned())
    }

    pub fn directory(&mut self, path: impl AsRef<Path>) {
        if self.claim(path.as_ref()) {
            self.entry(path.as_ref(), DIRECTORY | 0o755, (0, 0), b"");
        }
    }

    pub fn file(&mut self, path: impl AsRef<Path>, mode: u32, content: &[u8]) {
        if self.claim(path.as_ref()) {
            self.entry(path.as_ref(), FILE | mode, (0, 0), content);
        }
    }

    pub fn link(&mut self, path: impl AsRef<Path>, to: &str) {
        if self.claim(path.as_ref()) {
            self.entry(path.as_ref(), LINK | 0o777, (0, 0), to.as_bytes());
        }
    }

    /// A character device.
    pub fn device(&mut self, path: impl AsRef<Path>, major: u32, minor: u32) {
        if self.claim(path.as_ref()) {
            self.entry(path.as_ref(), DEVICE | 0o666, (major, minor), b"");
        }
    }

    /// A program of this machine at its own path, with what it is linked to.
    pub fn program(&mut self, path: &Path) {
        self.program_at(path, path);
    }

    /// The same at another path.
    pub fn program_at(&mut self, path: &Path, at: impl AsRef<Path>) {
        self.file(at, 0o755, &stripped(path));
        for library in libraries(path) {
            self.file(&library, 0o755, &fs::read(&library).unwrap());
        }
    }

    /// A static program of this machine at another path: one below /tmp would be
    /// gone where systemd has cleared that.
    pub fn static_program(&mut self, path: &Path, at: impl AsRef<Path>) {
        assert!(libraries(path).is_empty(), "{} needs libraries", path.display());
        self.file(at, 0o755, &stripped(path));
    }

    /// The archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry(Path::new("TRAILER!!!"), 0, (0, 0), b"");
        self.bytes
    }
}

/// The file without its debug information; whole where that cannot be taken off.
fn stripped(path: &Path) -> Vec<u8> {
    let copy = tempfile::NamedTempFile::new().unwrap();
    let done = Command::new("strip").arg("-o").arg(copy.path()).arg(path).output();
    let from = if done.is_ok_and(|output| output.status.success()) { copy.path() } else { path };
    fs::read(from).unwrap()
}

/// The loader and the libraries, as the loader itself finds them.
fn libraries(path: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(path).output().unwrap();
    // "not a dynamic executable" is a failure, and no line has a path.
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(PathBuf::from)
        .collect()
}
