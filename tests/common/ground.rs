//! What is left of a run, told by somebody whom corral cannot fool?
//!
//! A cgroup2 directory made for one run and entered before exec: members are
//! inherited by every fork, setsid, reparenting and PID namespace, so the list
//! of the whole subtree (corral may have made groups below) is what is alive.
//! A zombie is not listed; a process whose first thread has exited is
//! (cgroups(7)). Where no cgroup2 can be written, the write end of a pipe takes
//! its place: the read end is at its end of file only when nobody holds the
//! other one, `/proc/*/fd` names the holders.
//!
//! Leaves out: a process that moved itself to another cgroup; a test for that
//! asks for the marker as well.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::no_newborn;

/// A process that is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    pub pid: i32,
    /// `comm`, whatever is in it.
    pub name: String,
    /// State letter of its first thread.
    pub state: char,
    /// Effective user.
    pub uid: u32,
    /// Threads, an exited first one counted.
    pub threads: usize,
}

impl Survivor {
    /// What /proc says about `pid`; `None` when it is gone, or a zombie of
    /// which no thread can run.
    pub fn read(pid: i32) -> Option<Self> {
        let (name, state) = proc_state(pid)?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let uid = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        let uid = uid.split_whitespace().nth(1)?.parse().ok()?;
        let threads: Vec<char> = fs::read_dir(format!("/proc/{pid}/task"))
            .ok()?
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(|tid| Some(proc_state(tid)?.1))
            .collect();
        let runs = threads.iter().any(|state| !matches!(state, 'Z' | 'X'));
        runs.then_some(Self { pid, name, state, uid, threads: threads.len() })
    }
}

/// `comm` and state letter of a process or thread, if there is one.
pub fn proc_state(pid: i32) -> Option<(String, char)> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name may hold anything, a `)` too: it ends at the last one.
    let (start, end) = (stat.find('(')?, stat.rfind(')')?);
    Some((stat[start + 1..end].to_owned(), stat[end + 1..].trim_start().chars().next()?))
}

/// The children of all threads of a process.
pub fn children(pid: i32) -> Vec<i32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|list| {
            list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()
        })
        .collect()
}

struct Marker {
    read: OwnedFd,
    /// How /proc/PID/fd shows it.
    link: String,
}

/// The ground of one run. Dropping it ends whatever stands on it.
pub struct Ground {
    group: Option<PathBuf>,
    marker: Option<Marker>,
}

/// What the newborn needs to get onto its ground.
pub struct Entry {
    pub procs: Option<File>,
    pub marker: Option<OwnedFd>,
}

impl Ground {
    /// A new one; with a marker where asked for or where there is no cgroup2.
    pub fn new(with_marker: bool) -> (Self, Entry) {
        let (group, procs) = make_group().unzip();
        let mut ground = Self { group, marker: None };
        let mut entry = Entry { procs, marker: None };
        if with_marker || ground.group.is_none() {
            let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
            let (read, write) = rustix::pipe::pipe_with(flags).unwrap();
            let link = format!("pipe:[{}]", rustix::fs::fstat(&read).unwrap().st_ino);
            ground.marker = Some(Marker { read, link });
            entry.marker = Some(write);
        }
        (ground, entry)
    }

    /// The cgroup that this test itself is in.
    pub fn home() -> Option<PathBuf> {
        own_group()
    }

    /// Where cgroup2 is mounted.
    pub fn mount() -> Option<PathBuf> {
        Some(own_group_and_mount()?.1)
    }

    /// The groups that were made below it and are still there.
    pub fn groups(&self) -> Vec<PathBuf> {
        let mut groups = self.group.as_deref().map(directories).unwrap_or_default();
        let mut next = 0;
        while let Some(group) = groups.get(next) {
            let below = directories(group);
            groups.extend(below);
            next += 1;
        }
        groups
    }

    /// Fails if there is one.
    #[track_caller]
    pub fn assert_no_group(&self) {
        let groups = self.groups();
        assert!(groups.is_empty(), "still there: {groups:?}, with {:#?}", self.members());
    }

    /// The cgroup, if that is what the ground is made of.
    pub fn group(&self) -> Option<&Path> {
        self.group.as_deref()
    }

    /// Who is alive on it, in the order of the pids.
    pub fn members(&self) -> Vec<Survivor> {
        self.pids().into_iter().filter_map(Survivor::read).collect()
    }

    fn pids(&self) -> BTreeSet<i32> {
        let mut pids = BTreeSet::new();
        if let Some(group) = &self.group {
            list(group, &mut pids);
        }
        if let Some(marker) = self.marker.as_ref().filter(|marker| !marker.at_end()) {
            pids.extend(marker.holders());
        }
        pids
    }

    /// Waits until nobody is left; whether that came true in time.
    pub fn wait_empty(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let events = self.group.as_ref().and_then(|dir| File::open(dir.join("cgroup.events")).ok());
        loop {
            if self.members().is_empty() {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            // Events of a group come late and only for the last member's end,
            // so this looks again soon in any case.
            let mut wait: Vec<PollFd<'_>> = Vec::new();
            wait.extend(events.as_ref().map(|fd| PollFd::new(fd, PollFlags::PRI)));
            let soon = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
            let _ = poll(&mut wait, Some(&soon));
        }
    }

    /// SIGKILL for all of it, until it is empty or `limit` is over.
    pub fn end(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        loop {
            if let Some(group) = &self.group {
                // Before 5.14 there is no cgroup.kill: frozen, nothing forks.
                if write(&group.join("cgroup.kill"), "1").is_err() {
                    let _ = write(&group.join("cgroup.freeze"), "1");
                }
            }
            // cgroup.kill passes over a process whose first thread has exited.
            let doomed: Vec<(i32, OwnedFd)> = self
                .pids()
                .into_iter()
                .filter_map(|pid| {
                    let fd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
                    Some((pid, fd))
                })
                .collect();
            // Listed with its pidfd open: the pid was not reused meanwhile.
            let still = self.pids();
            for (_, fd) in doomed.iter().filter(|(pid, _)| still.contains(pid)) {
                let _ = pidfd_send_signal(fd, Signal::KILL);
            }
            if self.wait_empty(Duration::from_millis(100)) {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
        }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if !self.end(Duration::from_secs(10)) {
            let left = self.members();
            let _ = writeln!(io::stderr(), "the ground of a run cannot be cleared: {left:?}");
        }
        if let Some(group) = &self.group {
            remove(group);
        }
    }
}

impl Marker {
    /// Whether nobody holds the other end.
    fn at_end(&self) -> bool {
        let _guard = no_newborn();
        matches!(rustix::io::read(&self.read, &mut [0; 1]), Ok(0))
    }

    /// Who does, as far as /proc shows it.
    fn holders(&self) -> Vec<i32> {
        let own = std::process::id().cast_signed();
        let Ok(proc) = fs::read_dir("/proc") else {
            return Vec::new();
        };
        proc.flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid| *pid != own)
            .filter(|pid| {
                fs::read_dir(format!("/proc/{pid}/fd")).is_ok_and(|fds| {
                    fds.flatten().any(|fd| {
                        fs::read_link(fd.path()).is_ok_and(|to| to == Path::new(&self.link))
                    })
                })
            })
            .collect()
    }
}

impl Entry {
    /// In the newborn, before its exec: nothing here allocates.
    pub fn enter(&self) -> io::Result<()> {
        if let Some(procs) = &self.procs {
            rustix::io::write(procs, b"0")?;
        }
        if let Some(marker) = &self.marker {
            // Out of the way of everything, and kept open by whoever execs.
            let copy = rustix::io::fcntl_dupfd_cloexec(marker, 200)?;
            rustix::io::fcntl_setfd(&copy, rustix::io::FdFlags::empty())?;
            std::mem::forget(copy);
        }
        Ok(())
    }
}

/// Makes a group below the one that this test is in, where it may.
fn make_group() -> Option<(PathBuf, File)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = own_group()?.join(format!("corral-test-{}-{number}", std::process::id()));
    fs::create_dir(&path).ok()?;
    let procs = path.join("cgroup.procs");
    // Writing is tried for real, with a process that is in the way of nobody.
    match fs::OpenOptions::new().read(true).write(true).open(&procs) {
        Ok(procs) => Some((path, procs)),
        Err(_) => {
            let _ = fs::remove_dir(&path);
            None
        }
    }
}

/// The directory of this process's cgroup, wherever cgroup2 is mounted.
fn own_group() -> Option<PathBuf> {
    Some(own_group_and_mount()?.0)
}

fn own_group_and_mount() -> Option<(PathBuf, PathBuf)> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::"))?.to_owned();
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    mounts.lines().find_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        filesystem.starts_with("cgroup2 ").then_some(())?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let below = Path::new(&own).strip_prefix(root).ok()?;
        Some((Path::new(point).join(below), point.into()))
    })
}

/// All pids of a group and of those below it.
fn list(group: &Path, pids: &mut BTreeSet<i32>) {
    if let Ok(text) = fs::read_to_string(group.join("cgroup.procs")) {
        pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
    } else if let Ok(text) = fs::read_to_string(group.join("cgroup.threads")) {
        // A threaded group refuses to list processes (EOPNOTSUPP).
        pids.extend(text.lines().filter_map(|line| thread_group(line.parse().ok()?)));
    }
    for below in directories(group) {
        list(&below, pids);
    }
}

fn thread_group(tid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

fn directories(group: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(group) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

fn remove(group: &Path) {
    for below in directories(group) {
        remove(&below);
    }
    let _ = fs::remove_dir(group);
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}
