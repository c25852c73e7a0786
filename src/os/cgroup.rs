//! How does a run live in a cgroup of its own, and how does that end?
//!
//! A group is made as a child of corral's own (or of `--cgroup-parent`), the
//! command enters it before its exec by writing `0` into `cgroup.procs`, and
//! whatever it starts is born in it. Two things are certain about a group that no
//! walk over processes can give: one write ends everything in it, also what is
//! being forked, and the kernel removes it only when nothing lives in it.
//!
//! What rests on what:
//! - Never CLONE_INTO_CGROUP: on common kernels the newborn is killed at birth
//!   when the groups have seen different numbers of `cgroup.kill`.
//! - `cgroup.kill` (5.14) passes over a process whose first thread has ended while
//!   others run, on most kernels: what is still listed is to be killed by pidfd.
//!   Where the file is missing the group is frozen, so that nothing is born, and
//!   everybody listed is killed.
//! - The proof is rmdir(2): its check is made under the kernel's own lock, while
//!   `populated` can be late. An unreaped zombie does not count as living.
//! - A group may be made and yet take nobody (threaded, or invalid below one that
//!   has processes), so its `cgroup.type` is believed and nothing else.
//!
//! May use: `sys`.

mod below;
mod control;
mod obstacle;
mod place;

use core::ffi::CStr;

use self::below::Below;
use self::control::Leaf;
pub use self::obstacle::Obstacle;
use super::procfs::{Path, number};
use crate::sys::errno::{Errno, Result};
use crate::sys::event::{self, Wait};
use crate::sys::fd::{self, Fd, OwnedFd};
use crate::sys::file::{self, Open};

/// How often one looks, 1 ms apart, whether a group is frozen.
const FREEZING: u32 = 200;
/// How many names are tried for a group.
const NAMES: i32 = 100;
/// The kernel takes no larger `pids.max`; there are never as many processes.
const MOST_PIDS: u64 = 4_194_304;

/// How the names of our groups begin.
const PREFIX: &[u8] = b"corral-";

/// Room for a group's name: `corral-`, a run id of 64 bytes and a number.
type Name = Path<96>;

/// What a group is to be like.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Where, if not below corral's own group.
    pub parent: Option<&'static CStr>,
    /// The run's id, for its name.
    pub id: &'a [u8],
    /// Most memory, in bytes.
    pub memory: Option<u64>,
    /// Most processes and threads.
    pub pids: Option<u64>,
}

/// What the kernel has counted in a group; `None` where it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// User time in µs.
    pub cpu_user_us: Option<u64>,
    /// System time in µs.
    pub cpu_system_us: Option<u64>,
    /// Most memory at once, in bytes (5.19).
    pub memory_peak: Option<u64>,
    /// Most processes and threads at once (6.1).
    pub pids_peak: Option<u64>,
    /// Processes that the OOM killer ended.
    pub oom_kills: Option<u64>,
    /// Forks that `pids.max` refused.
    pub pids_refused: Option<u64>,
}

/// Whether a group is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// It is: nothing lives in it.
    Gone,
    /// Something does.
    Occupied,
    /// Nothing does, and yet it cannot be removed.
    Stuck(Errno),
}

/// A group of the run's own.
#[derive(Debug)]
pub struct Group {
    parent: OwnedFd,
    name: Name,
    dir: OwnedFd,
    entry: OwnedFd,
    /// `cgroup.kill`, open from the start: the command could leave us without a
    /// free descriptor. `None` where the kernel has none.
    kill: Option<OwnedFd>,
    leaf: Option<Leaf>,
}

impl Group {
    /// Makes one, with its limits set and nobody in it.
    ///
    /// # Errors
    /// What stands in the way. Nothing that was made is left then.
    #[inline(never)]
    pub fn make(wanted: &Wanted<'_>) -> core::result::Result<Self, Obstacle> {
        let parent = match wanted.parent {
            Some(path) => place::open(path)?,
            None => place::own()?,
        };
        let leaf = control::turn_on(&parent, wanted)?;
        match Self::make_in(&parent, wanted) {
            Ok((name, dir, entry)) => {
                let kill = file::open(dir.fd(), c"cgroup.kill", Open::Write).ok();
                Ok(Self { parent, name, dir, entry, kill, leaf })
            }
            Err(obstacle) => {
                if let Some(leaf) = leaf {
                    leaf.leave(&parent);
                }
                Err(obstacle)
            }
        }
    }

    fn make_in(
        parent: &OwnedFd,
        wanted: &Wanted<'_>,
    ) -> core::result::Result<(Name, OwnedFd, OwnedFd), Obstacle> {
        let name = make_child(parent, wanted.id, b"")?;
        let made = (|| {
            let dir = file::open(parent.fd(), name.as_c_str(), Open::Directory)?;
            let mut buffer = [0; 32];
            if read(&dir, c"cgroup.type", &mut buffer)? != b"domain\n" {
                return Err(Obstacle::Threaded);
            }
            if let Some(most) = wanted.memory {
                write_number(&dir, c"memory.max", most)?;
                write(&dir, c"memory.oom.group", b"1")?;
                match write(&dir, c"memory.swap.max", b"0") {
                    // A kernel without swap.
                    Ok(()) | Err(Errno::ENOENT) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            if let Some(most) = wanted.pids {
                write_number(&dir, c"pids.max", most.min(MOST_PIDS))?;
            }
            let entry = file::open(dir.fd(), c"cgroup.procs", Open::Write)?;
            Ok((name, dir, entry))
        })();
        if made.is_err() {
            let _ = file::remove_directory(parent.fd(), name.as_c_str());
        }
        made
    }

    /// Where a process writes `0` to enter.
    #[must_use]
    pub const fn entry(&self) -> Fd<'_> {
        self.entry.fd()
    }

    /// SIGKILL to everybody in it at once, where the kernel can; else they are
    /// frozen, and so cannot fork while they are killed one by one. Whether it
    /// could.
    pub fn kill(&self) -> bool {
        if let Some(kill) = &self.kill
            && fd::write(kill.fd(), b"1").is_ok()
        {
            return true;
        }
        let _ = write(&self.dir, c"cgroup.freeze", b"1");
        for _ in 0..FREEZING {
            if self.event(b"frozen") != Some(0) {
                break;
            }
            let _ = event::ppoll(&mut [], Some(1_000_000));
        }
        false
    }

    fn event(&self, key: &[u8]) -> Option<u64> {
        let mut buffer = [0; 128];
        keyed(read(&self.dir, c"cgroup.events", &mut buffer).ok()?, key)
    }

    /// Opens the file that tells when the group becomes empty (POLLPRI; it may
    /// come late).
    ///
    /// # Errors
    /// ENOENT: the group is gone.
    pub fn watch(&self) -> Result<Watch> {
        open_file(&self.dir, c"cgroup.events", Open::Read).map(Watch)
    }

    /// Calls `each` with the pid of every process in it and in the groups below;
    /// 0 for one whose pid our PID namespace has no number for.
    pub fn members(&self, each: &mut dyn FnMut(i32)) {
        let Ok(below) = Below::of(&self.dir) else {
            return;
        };
        for path in below.paths() {
            if let Ok(dir) = below::open(&self.dir, path) {
                // EOPNOTSUPP in a threaded group: its processes are listed above.
                let _ = processes(&dir, each);
            }
        }
    }

    /// Whether this process is in it, now.
    #[must_use]
    pub fn lists(&self, pid: i32) -> bool {
        let mut found = false;
        self.members(&mut |member| found |= member == pid);
        found
    }

    /// User and system time used in it so far, in microseconds.
    #[must_use]
    pub fn cpu_time(&self) -> [Option<u64>; 2] {
        let mut buffer = [0; 1024];
        let text = read(&self.dir, c"cpu.stat", &mut buffer).unwrap_or_default();
        [keyed(text, b"user_usec"), keyed(text, b"system_usec")]
    }

    /// What was counted in it.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut buffer = [0; 1024];
        let mut counts = Counts::default();
        [counts.cpu_user_us, counts.cpu_system_us] = self.cpu_time();
        let mut single = |file| {
            let text = read(&self.dir, file, &mut buffer).ok()?;
            number(text.trim_ascii_end())
        };
        counts.memory_peak = single(c"memory.peak");
        counts.pids_peak = single(c"pids.peak");
        counts.oom_kills = self.oom_kills();
        counts.pids_refused = self.pids_refused();
        counts
    }

    /// How many processes of it the OOM killer has ended; `None` without the
    /// memory controller.
    fn oom_kills(&self) -> Option<u64> {
        let mut buffer = [0; 512];
        keyed(read(&self.dir, c"memory.events", &mut buffer).ok()?, b"oom_kill")
    }

    /// Whether the OOM killer has acted in it for want of memory here or above. A
    /// limit that the command has set below is the command's own business: the
    /// kernel counts `oom` where the limit is and in all above that.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        if self.oom_kills().is_none_or(|kills| kills == 0) {
            return false;
        }
        let mut buffer = [0; 512];
        let mut ooms = |file| keyed(read(&self.dir, file, &mut buffer).ok()?, b"oom");
        ooms(c"memory.events") == Some(0) || ooms(c"memory.events.local") != Some(0)
    }

    /// Until 6.12 the kernel counts where the fork was, then where the limit is,
    /// and has a file more.
    fn pids_refused(&self) -> Option<u64> {
        let mut buffer = [0; 128];
        let mut of = |dir: &OwnedFd| keyed(read(dir, c"pids.events", &mut buffer).ok()?, b"max");
        let here = of(&self.dir)?;
        if file::may_write(self.dir.fd(), c"pids.events.local") != Err(Errno::ENOENT) {
            return Some(here);
        }
        let below = Below::of(&self.dir).ok()?;
        let more = below.paths().skip(1).filter_map(|path| of(&below::open(&self.dir, path).ok()?));
        Some(here + more.sum::<u64>())
    }

    /// Removes it, and what is below it, if nothing lives there.
    pub fn remove(&self) -> Removal {
        match self.remove_itself() {
            Err(Errno::EBUSY) => {}
            answer => return answer.map_or_else(Removal::Stuck, |()| Removal::Gone),
        }
        if self.event(b"populated") != Some(0) {
            return Removal::Occupied;
        }
        if let Ok(below) = Below::of(&self.dir) {
            for path in below.paths() {
                let _ = below::unlock(&self.dir, path);
            }
            for path in below.paths().rev() {
                // The last is `.` itself; what cannot go keeps what is above it.
                let _ = below::remove(&self.dir, path);
            }
        }
        self.remove_itself().map_or_else(Removal::Stuck, |()| Removal::Gone)
    }

    fn remove_itself(&self) -> Result<()> {
        match file::remove_directory(self.parent.fd(), self.name.as_c_str()) {
            Err(Errno::ENOENT) => Ok(()),
            answer => answer,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &CStr {
        self.name.as_c_str()
    }

    /// Gives corral's own group back as it was, if this is the last process of
    /// ours; to be called once the group is gone.
    pub fn retire(&self) {
        if let Some(leaf) = &self.leaf {
            leaf.leave(&self.parent);
        }
    }
}

/// Tells when a group becomes empty.
#[derive(Debug)]
pub struct Watch(OwnedFd);

impl Watch {
    /// What to wait for.
    #[must_use]
    pub const fn wait(&self) -> Wait {
        Wait::changed(self.0.fd())
    }

    /// Takes note of what has changed; only what changes afterwards is told.
    /// Whether something lives in the group.
    #[must_use]
    pub fn is_occupied(&self) -> bool {
        let mut buffer = [0; 128];
        let count = fd::read_at(self.0.fd(), &mut buffer, 0).unwrap_or(0);
        keyed(buffer.get(..count).unwrap_or_default(), b"populated") == Some(1)
    }
}

/// Makes a group of a name that nobody has.
fn make_child(parent: &OwnedFd, id: &[u8], end: &[u8]) -> Result<Name> {
    let base = Name::new().text(PREFIX).text(id);
    let mut name = base.text(end);
    for again in 2..NAMES {
        match file::make_directory(parent.fd(), name.as_c_str()) {
            Err(Errno::EEXIST) => name = base.text(b".").pid(again).text(end),
            answer => return answer.map(|()| name),
        }
    }
    Err(Errno::EEXIST)
}

/// The pids in `cgroup.procs` of one group.
fn processes(dir: &OwnedFd, each: &mut dyn FnMut(i32)) -> Result<()> {
    let file = open_file(dir, c"cgroup.procs", Open::Read)?;
    let mut buffer = [0; 4096];
    let mut value = 0i32;
    loop {
        let count = fd::read(file.fd(), &mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        for &byte in buffer.get(..count).unwrap_or_default() {
            if byte == b'\n' {
                each(core::mem::take(&mut value));
            } else {
                value = value.wrapping_mul(10).wrapping_add((byte & 15).into());
            }
        }
    }
}

/// Opens a file of a group, whatever mode the command has given it or the group.
fn open_file(dir: &OwnedFd, name: &CStr, how: Open) -> Result<OwnedFd> {
    match file::open(dir.fd(), name, how) {
        Err(Errno::EACCES) => {
            below::enable(dir);
            file::set_mode_at(dir.fd(), name, 0o600)?;
            file::open(dir.fd(), name, how)
        }
        answer => answer,
    }
}

fn read<'b>(dir: &OwnedFd, name: &CStr, buffer: &'b mut [u8]) -> Result<&'b [u8]> {
    let file = open_file(dir, name, Open::Read)?;
    let count = fd::read(file.fd(), buffer)?;
    Ok(buffer.get(..count).unwrap_or_default())
}

fn write(dir: &OwnedFd, name: &CStr, text: &[u8]) -> Result<()> {
    let file = open_file(dir, name, Open::Write)?;
    fd::write(file.fd(), text).map(|_| ())
}

fn write_number(dir: &OwnedFd, name: &CStr, value: u64) -> Result<()> {
    write(dir, name, Path::<64>::new().number(value).as_c_str().to_bytes())
}

/// The value of one line `KEY VALUE`.
fn keyed(text: &[u8], key: &[u8]) -> Option<u64> {
    text.split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(b" "))
        .and_then(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_by_their_keys() {
        let text = b"low 0\nhigh 1\nmax 2\noom 3\noom_kill 4\noom_group_kill 5\n";
        assert_eq!(keyed(text, b"oom_kill"), Some(4));
        assert_eq!(keyed(text, b"oom"), Some(3));
        assert_eq!(keyed(text, b"oom_"), None);
        assert_eq!(keyed(b"max x\n", b"max"), None);
        assert_eq!(keyed(b"", b"max"), None);
    }
}
