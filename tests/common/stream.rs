//! What came on one stream of a run, and is that all?
//!
//! A pipe's read end, never blocking: bytes, "again" or the end of file, which
//! comes when nobody holds the other end any more (pipe(7)).

use std::os::fd::OwnedFd;

/// One stream of output.
pub(super) struct Stream {
    /// `None` at its end, and where it is not a pipe of ours.
    pub(super) fd: Option<OwnedFd>,
    /// The first of it.
    pub(super) kept: Vec<u8>,
    /// All that came.
    pub(super) total: u64,
    /// Most bytes that are kept.
    pub(super) keep: usize,
}

impl Stream {
    /// Reads what is there, a bounded lot of it.
    pub(super) fn read(&mut self) {
        let mut buffer = [0; 1 << 16];
        for _ in 0..64 {
            let Some(fd) = &self.fd else { return };
            match rustix::io::read(fd, &mut buffer) {
                Ok(0) => self.fd = None,
                Ok(n) => {
                    self.total += n as u64;
                    let room = self.keep.saturating_sub(self.kept.len()).min(n);
                    self.kept.extend_from_slice(&buffer[..room]);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(e) => panic!("reading output: {e}"),
            }
        }
    }

    pub(super) fn has_line(&self, line: &str) -> bool {
        self.kept.split(|byte| *byte == b'\n').any(|found| found == line.as_bytes())
    }
}
