//! What does /proc say about a process?
//!
//! A /proc is trusted only if it belongs to our own PID namespace: a number from
//! another one's would name a stranger. `NSpid` in /proc/self/status tells: it
//! lists our pid in every namespace from that of the mount down to our own, so
//! in our own /proc it is one number (proc_pid_status(5), 4.1).
//!
//! The parsers take bytes and are total: a process may call itself anything, so
//! the name in /proc/PID/stat ends at the last `)`, behind which only numbers
//! and a letter follow (proc_pid_stat(5)).
//!
//! May use: `sys`.

use core::ffi::CStr;

use crate::sys::errno::{Errno, Result};
use crate::sys::fd;
use crate::sys::fd::OwnedFd;
use crate::sys::file::{self, Open, Status};
use crate::sys::process;

/// Bytes of a name in /proc/PID/comm at most.
const NAME_BYTES: usize = 16;

/// What /proc/PID/stat says, as far as corral asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The pid.
    pub pid: i32,
    /// `comm`, padded with NUL.
    pub name: [u8; NAME_BYTES],
    /// State letter.
    pub state: u8,
    /// Parent.
    pub ppid: i32,
    /// Process group.
    pub pgid: i32,
    /// Session.
    pub sid: i32,
    /// User and system time in clock ticks.
    pub cpu_ticks: u64,
    /// The same of the children that it has waited for, and of theirs.
    pub waited_ticks: u64,
    /// Threads, the first one counted even when it has exited.
    pub threads: u64,
    /// Start time in clock ticks since boot.
    pub start: u64,
}

impl Stat {
    /// Whether any thread of it can still run. A process whose first thread has
    /// exited reads `Z` while the others run.
    #[must_use]
    pub const fn is_alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X' | b'x') || self.threads > 1
    }

    /// Whether it is stopped, by a signal or a tracer.
    #[must_use]
    pub const fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }

    /// `comm` without its padding.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.name.split(|&byte| byte == 0).next().unwrap_or_default()
    }
}

/// Parses the line of /proc/PID/stat.
#[must_use]
pub fn parse_stat(line: &[u8]) -> Option<Stat> {
    let open = line.iter().position(|&byte| byte == b'(')?;
    let close = line.iter().rposition(|&byte| byte == b')')?;
    let mut name = [0; NAME_BYTES];
    for (to, from) in name.iter_mut().zip(line.get(open + 1..close)?) {
        *to = *from;
    }
    let pid = number(line.get(..open)?.trim_ascii())?;
    let mut fields = line.get(close + 1..)?.trim_ascii().split(|&byte| byte == b' ');
    // Field numbers are those of proc_pid_stat(5); the state is field 3.
    let state = *fields.next()?.first()?;
    let ppid = number(fields.next()?)?;
    let pgid = number(fields.next()?)?;
    let sid = number(fields.next()?)?;
    let user: u64 = number(fields.nth(14 - 7)?)?;
    let system: u64 = number(fields.next()?)?;
    let waited: [u64; 2] = [number(fields.next()?)?, number(fields.next()?)?];
    let threads = number(fields.nth(20 - 18)?)?;
    let start = number(fields.nth(22 - 21)?)?;
    let cpu_ticks = user.saturating_add(system);
    let waited_ticks = waited[0].saturating_add(waited[1]);
    Some(Stat { pid, name, state, ppid, pgid, sid, cpu_ticks, waited_ticks, threads, start })
}

/// A decimal number, the whole of `text`; `-1` and the like are no number here,
/// but a tty-less process has none of those in the fields that are read.
pub(crate) fn number<T: TryFrom<u64>>(text: &[u8]) -> Option<T> {
    if text.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for &byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    T::try_from(value).ok()
}

/// The value of one line `KEY:\tvalue` of /proc/PID/status.
fn status_line<'t>(text: &'t [u8], key: &[u8]) -> Option<&'t [u8]> {
    text.split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(b":"))
        .map(<[u8]>::trim_ascii)
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty())
}

/// A short path, below /proc or as a cgroup has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path<const N: usize = 64> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Path<N> {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; N], length: 0 }
    }

    /// Appends; what does not fit would be another path, so it is none at all.
    pub(crate) fn text(mut self, text: &[u8]) -> Self {
        // One byte stays for the NUL.
        if self.length + text.len() < self.bytes.len() {
            for (to, from) in self.bytes.iter_mut().skip(self.length).zip(text) {
                *to = *from;
            }
            self.length += text.len();
        }
        self
    }

    pub(crate) fn pid(self, pid: i32) -> Self {
        self.number(pid.unsigned_abs().into())
    }

    pub(crate) fn number(self, mut left: u64) -> Self {
        let mut digits = [0u8; 20];
        let mut first = digits.len();
        loop {
            first = first.saturating_sub(1);
            if let Some(slot) = digits.get_mut(first) {
                *slot = b'0' + u8::try_from(left % 10).unwrap_or(0);
            }
            left /= 10;
            if left == 0 {
                break;
            }
        }
        self.text(digits.get(first..).unwrap_or_default())
    }

    pub(crate) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}

/// The /proc of our own PID namespace.
#[derive(Debug)]
pub struct Proc {
    dir: OwnedFd,
}

impl Proc {
    /// Opens it; `None` where /proc is missing, is something else, or belongs to
    /// another PID namespace.
    #[must_use]
    pub fn open() -> Option<Self> {
        let dir = file::open(file::CWD, c"/proc", Open::Place).ok()?;
        let proc = Self { dir };
        let mut buffer = [0; 2048];
        let status = proc.read(Path::<64>::new().text(b"self/status"), &mut buffer).ok()?;
        let mut pids = words(status_line(status, b"NSpid")?);
        let ours = pids.next().and_then(number) == Some(process::getpid());
        (ours && pids.next().is_none()).then_some(proc)
    }

    /// Reads one file, as much as fits.
    pub(crate) fn read<'b>(&self, path: Path, buffer: &'b mut [u8]) -> Result<&'b [u8]> {
        let file = file::open(self.dir.fd(), path.as_c_str(), Open::Read)?;
        let count = fd::read(file.fd(), buffer)?;
        Ok(buffer.get(..count).unwrap_or_default())
    }

    /// /proc/PID/stat; `None` when there is no such process, or it is hidden
    /// (`hidepid`).
    #[must_use]
    pub fn stat(&self, pid: i32) -> Option<Stat> {
        let mut buffer = [0; 512];
        let line = self.read(Path::<64>::new().pid(pid).text(b"/stat"), &mut buffer).ok()?;
        parse_stat(line).filter(|stat| stat.pid == pid)
    }

    /// The first word of the command line, as much as fits.
    #[must_use]
    pub fn argv0<'b>(&self, pid: i32, buffer: &'b mut [u8]) -> &'b [u8] {
        let line =
            self.read(Path::<64>::new().pid(pid).text(b"/cmdline"), buffer).unwrap_or_default();
        line.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    /// The kernel function that the process sleeps in; empty where unreadable.
    #[must_use]
    pub fn wchan<'b>(&self, pid: i32, buffer: &'b mut [u8]) -> &'b [u8] {
        let name =
            self.read(Path::<64>::new().pid(pid).text(b"/wchan"), buffer).unwrap_or_default();
        if name == b"0" { &[] } else { name }
    }

    /// Effective user and tracer (0: none) of a process.
    #[must_use]
    pub fn uid_and_tracer(&self, pid: i32) -> Option<(u32, i32)> {
        let mut buffer = [0; 2048];
        let text = self.read(Path::<64>::new().pid(pid).text(b"/status"), &mut buffer).ok()?;
        let uid = words(status_line(text, b"Uid")?).nth(1).and_then(number)?;
        let tracer = status_line(text, b"TracerPid").and_then(number).unwrap_or(0);
        Some((uid, tracer))
    }

    /// What program a process runs.
    ///
    /// # Errors
    /// EACCES where it is another user's, ENOENT for one that has ended.
    pub fn executable(&self, pid: i32) -> Result<Status> {
        file::status_at(self.dir.fd(), Path::<64>::new().pid(pid).text(b"/exe").as_c_str())
    }

    /// Calls `child` for each child of the process, all its threads together
    /// (/proc/PID/task/TID/children, 3.5, CONFIG_PROC_CHILDREN). The list may
    /// lack some while their siblings end.
    ///
    /// # Errors
    /// ENOENT: no such process, or a kernel without these lists.
    pub fn children(&self, pid: i32, threads: u64, child: &mut dyn FnMut(i32)) -> Result<()> {
        if threads <= 1 {
            return self.children_of_thread(pid, pid, child);
        }
        let path = Path::<64>::new().pid(pid).text(b"/task");
        self.numbers(path, &mut |tid| {
            // A thread that has just ended has handed its children on.
            let _ = self.children_of_thread(pid, tid, child);
        })
    }

    fn children_of_thread(&self, pid: i32, tid: i32, child: &mut dyn FnMut(i32)) -> Result<()> {
        let path = Path::<64>::new().pid(pid).text(b"/task/").pid(tid).text(b"/children");
        let file = file::open(self.dir.fd(), path.as_c_str(), Open::Read)?;
        let mut buffer = [0; 4096];
        let mut value = 0i32;
        loop {
            let count = fd::read(file.fd(), &mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            for &byte in buffer.get(..count).unwrap_or_default() {
                if byte.is_ascii_digit() {
                    value = value.saturating_mul(10).saturating_add(i32::from(byte - b'0'));
                } else {
                    child(value);
                    value = 0;
                }
            }
        }
    }

    /// Calls `each` for every process that is visible.
    ///
    /// # Errors
    /// ENOENT, EACCES.
    pub fn processes(&self, each: &mut dyn FnMut(i32)) -> Result<()> {
        self.numbers(Path::<64>::new().text(b"."), each)
    }

    fn numbers(&self, path: Path, each: &mut dyn FnMut(i32)) -> Result<()> {
        let dir = file::open(self.dir.fd(), path.as_c_str(), Open::Directory)?;
        let mut buffer = [0; 4096];
        loop {
            let count = file::read_entries(&dir, &mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            let entries = buffer.get(..count).unwrap_or_default();
            file::names(entries).filter_map(number).for_each(&mut *each);
        }
    }

    /// The process as an open directory, which takes signals as a pidfd does
    /// (pidfd_send_signal(2)) where pidfd_open(2) is refused.
    ///
    /// # Errors
    /// ENOENT.
    pub fn directory(&self, pid: i32) -> Result<OwnedFd> {
        file::open(self.dir.fd(), Path::<64>::new().pid(pid).as_c_str(), Open::Directory)
    }

    /// Whether this kernel has the lists that [`Proc::children`] reads.
    #[must_use]
    pub fn has_children_lists(&self) -> bool {
        let mut ignore = |_| {};
        self.children_of_thread(process::getpid(), process::getpid(), &mut ignore)
            != Err(Errno::ENOENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &[u8] = b"4711 (sleep) S 12 13 14 0 -1 4194304 103 0 0 0 7 5 1 2 20 0 3 0 \
        987654 2285568 226 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0\n";

    #[test]
    fn fields_of_a_stat_line() {
        let stat = parse_stat(LINE).expect("a good line");
        assert_eq!((stat.pid, stat.name()), (4711, &b"sleep"[..]));
        assert_eq!((stat.state, stat.ppid, stat.pgid, stat.sid), (b'S', 12, 13, 14));
        assert_eq!((stat.cpu_ticks, stat.waited_ticks), (12, 3));
        assert_eq!((stat.threads, stat.start), (3, 987_654));
        assert!(stat.is_alive() && !stat.is_stopped());
    }

    #[test]
    fn a_hostile_name_changes_nothing_behind_it() {
        let text = String::from_utf8_lossy(LINE).replace("(sleep)", "() R 1\n x)");
        let stat = parse_stat(text.as_bytes()).expect("a good line");
        assert_eq!((stat.name(), stat.ppid, stat.state), (&b") R 1\n x"[..], 12, b'S'));
    }

    #[test]
    fn a_zombie_with_threads_is_alive() {
        let zombie = String::from_utf8_lossy(LINE).replace(") S", ") Z");
        assert!(parse_stat(zombie.as_bytes()).expect("a good line").is_alive());
        let gone = zombie.replace("20 0 3 0", "20 0 1 0");
        assert!(!parse_stat(gone.as_bytes()).expect("a good line").is_alive());
    }

    #[test]
    fn every_cut_of_a_line_is_survived() {
        for end in 0..LINE.len() {
            let _ = parse_stat(&LINE[..end]);
        }
        assert_eq!(parse_stat(b"1 ) S ( 1 1 1"), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn paths() {
        let path = Path::<64>::new().pid(123).text(b"/task/").pid(0).text(b"/children");
        assert_eq!(path.as_c_str(), c"123/task/0/children");
        assert_eq!(Path::<64>::new().pid(i32::MAX).as_c_str(), c"2147483647");
        assert_eq!(Path::<64>::new().text(&[b'x'; 64]).as_c_str(), c"");
    }

    #[test]
    fn our_own_process() {
        let proc = Proc::open().expect("tests run with a /proc of their own");
        let stat = proc.stat(process::getpid()).expect("we exist");
        assert_eq!(stat.ppid, process::getppid());
        assert!(stat.threads >= 1 && stat.is_alive());
        let (uid, tracer) = proc.uid_and_tracer(process::getpid()).expect("we exist");
        assert_eq!((uid, tracer), (process::getuid(), 0));
        assert!(!proc.argv0(process::getpid(), &mut [0; 256]).is_empty());
        let mut seen = false;
        proc.processes(&mut |pid| seen |= pid == process::getpid()).expect("a readable /proc");
        assert!(seen);
    }

    #[test]
    fn children_of_all_threads_are_found() {
        let proc = Proc::open().expect("tests run with a /proc of their own");
        if !proc.has_children_lists() {
            return;
        }
        let mut child = std::process::Command::new("sleep").arg("20").spawn().expect("sleep");
        let mut found = Vec::new();
        // The test runs in a thread that is not the first.
        proc.children(process::getpid(), 2, &mut |pid| found.push(pid)).expect("our lists");
        child.kill().expect("our child");
        child.wait().expect("our child");
        assert!(found.contains(&child.id().cast_signed()));
    }
}
