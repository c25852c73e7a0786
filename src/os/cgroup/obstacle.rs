//! Why can there be no group, and what would help?
//!
//! The same text stands in the record as the reason of the fallback, and in the
//! refusal of a run that needs a group.
//!
//! May use: `sys`.

use crate::sys::errno::Errno;

/// Why there is no group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// No cgroup2 is mounted.
    NoMount,
    /// None that is mounted shows our own group.
    Unseen,
    /// No /proc says which that is.
    NoProc,
    /// `--cgroup-parent` is something else.
    NotCgroup,
    /// It is mounted read-only.
    ReadOnly,
    /// We may make no group there, or not enter it.
    NotWritable,
    /// Groups there are threaded or invalid.
    Threaded,
    /// The memory controller is not there.
    NoMemory,
    /// The pids controller is not there.
    NoPids,
    /// Other processes keep the controllers off.
    Busy,
    /// Anything else.
    Refused(Errno),
}

impl From<Errno> for Obstacle {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::EROFS => Self::ReadOnly,
            Errno::EACCES | Errno::EPERM => Self::NotWritable,
            errno => Self::Refused(errno),
        }
    }
}

impl Obstacle {
    /// What it is, as an errno and its text.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::NoMount => "ENOENT (no cgroup2 is mounted)",
            Self::Unseen => "ENOENT (no cgroup2 mount shows the own cgroup)",
            Self::NoProc => "ENOENT (no /proc tells the own cgroup)",
            Self::NotCgroup => "EINVAL (not a cgroup2 directory)",
            Self::ReadOnly => "EROFS (cgroup2 is read-only)",
            Self::NotWritable => "EACCES (the parent cgroup is not writable)",
            Self::Threaded => "EOPNOTSUPP (the parent cgroup is threaded)",
            Self::NoMemory => "ENOENT (no memory controller in the parent cgroup)",
            Self::NoPids => "ENOENT (no pids controller in the parent cgroup)",
            Self::Busy => "EBUSY (other processes in the parent cgroup keep controllers off)",
            Self::Refused(errno) => errno.text(),
        }
    }

    /// What would remove it.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::NoMount | Self::Unseen => "mount cgroup2 on /sys/fs/cgroup",
            Self::NoProc => "mount /proc, or name a directory with --cgroup-parent",
            Self::NotCgroup => "name a directory below a cgroup2 mount",
            Self::ReadOnly => "mount it read-write",
            Self::NotWritable | Self::Busy => {
                "run it as corral-enforced, or delegate a cgroup and name it with --cgroup-parent"
            }
            Self::Threaded => "name another one with --cgroup-parent",
            Self::NoMemory | Self::NoPids => {
                "run it as corral-enforced, or turn the controller on above it"
            }
            Self::Refused(Errno::EAGAIN) => {
                "raise cgroup.max.depth or cgroup.max.descendants above it"
            }
            Self::Refused(_) => "name another place with --cgroup-parent",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_obstacle_says_what_it_is_and_what_to_do() {
        let obstacles = [
            Obstacle::NoMount,
            Obstacle::Unseen,
            Obstacle::NoProc,
            Obstacle::NotCgroup,
            Obstacle::ReadOnly,
            Obstacle::NotWritable,
            Obstacle::Threaded,
            Obstacle::NoMemory,
            Obstacle::NoPids,
            Obstacle::Busy,
            Obstacle::Refused(Errno::EAGAIN),
            Obstacle::Refused(Errno::ENOENT),
        ];
        for obstacle in obstacles {
            assert!(obstacle.text().starts_with('E') && obstacle.text().contains(" ("));
            assert!(!obstacle.advice().is_empty() && !obstacle.advice().contains('\n'));
        }
    }
}
