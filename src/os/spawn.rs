//! How is the command started, and how does it say that it could not be?
//!
//! The newborn shares our memory until its exec, on a stack of its own, so
//! nothing is copied and a large corral would not start slower. It sets itself
//! up, looks the command up in PATH as execvp(3) does, and where no exec
//! succeeds it writes one [`Failure`] into a close-on-exec pipe: the pipe's end
//! of file is the exec's success, so nothing is guessed from a status.
//!
//! Order in the newborn: parent-death signal first and our pid checked after it
//! (prctl(2): else our death in between would go unnoticed), then session and
//! terminal, descriptors, privileges, and the signal mask last, so that a signal
//! cannot end it half made.
//!
//! May use: `sys`.

use core::ffi::CStr;

use crate::sys::errno::{Errno, Result};
use crate::sys::fd::{self, Fd, OwnedFd};
use crate::sys::process::{self, Forked};
use crate::sys::signal::{self, SignalSet};
use crate::sys::start::{Args, Environment};
use crate::sys::terminal;

/// Where execvp(3) looks when there is no PATH.
const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";
/// Longest path that can be tried (PATH_MAX).
const PATH_BYTES: usize = 4096;

/// What a newborn needs to know. Copied onto its stack.
#[derive(Clone, Copy, Debug)]
pub struct Newborn {
    /// COMMAND and its arguments.
    pub args: Args,
    /// Its environment.
    pub environment: Environment,
    /// Our pid, as it sees it.
    pub parent: i32,
    /// Descriptors to become its 1 and 2.
    pub ends: [Option<i32>; 2],
    /// Where it writes `0` to enter its group.
    pub group: Option<i32>,
    /// Its memory is limited, so it may share none of ours: an OOM kill would
    /// take us along.
    pub memory_limit: bool,
    /// `--no-new-privs`.
    pub no_new_privs: bool,
    /// `--close-fds`.
    pub close_fds: bool,
    /// Its stdin is a terminal that is to be its session's own.
    pub take_terminal: bool,
    /// Write end of the report pipe.
    report: i32,
}

/// What failed in the newborn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The group could not be entered.
    Group,
    /// `--no-new-privs` could not be set.
    Privileges,
    /// `--close-fds` could not be done.
    Descriptors,
    /// The exec itself.
    Exec,
}

/// A newborn's last words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Where it stood.
    pub stage: Stage,
    /// The kernel's answer.
    pub errno: Errno,
}

impl Failure {
    fn to_bytes(self) -> [u8; 3] {
        let [low, high] = self.errno.number().to_le_bytes();
        let stage = match self.stage {
            Stage::Group => 0,
            Stage::Privileges => 1,
            Stage::Descriptors => 2,
            Stage::Exec => 3,
        };
        [stage, low, high]
    }

    /// Reads what a newborn wrote; `None` for the nothing of a success.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let [stage, low, high] = *bytes else {
            return None;
        };
        let stage = match stage {
            0 => Stage::Group,
            1 => Stage::Privileges,
            2 => Stage::Descriptors,
            _ => Stage::Exec,
        };
        Some(Self { stage, errno: Errno::from_number(u16::from_le_bytes([low, high])) })
    }
}

/// A started command.
#[derive(Debug)]
pub struct Spawned {
    /// Its pid.
    pub pid: i32,
    /// Its pidfd, where the kernel gives one.
    pub pidfd: Option<OwnedFd>,
    /// Read end of the report pipe: end of file once the exec has succeeded.
    pub report: OwnedFd,
}

impl Newborn {
    /// A newborn for this command line and environment.
    #[must_use]
    pub const fn new(args: Args, environment: Environment, parent: i32) -> Self {
        Self {
            args,
            environment,
            parent,
            ends: [None; 2],
            group: None,
            memory_limit: false,
            no_new_privs: false,
            close_fds: false,
            take_terminal: false,
            report: -1,
        }
    }

    /// Starts it.
    ///
    /// # Errors
    /// EMFILE, EAGAIN, ENOMEM.
    pub fn spawn(mut self) -> Result<Spawned> {
        let (report, write_end) = fd::pipe()?;
        // Whoever gets hold of the write end must not hold us.
        fd::set_nonblocking(&report)?;
        self.report = write_end.fd().number();
        let (pid, pidfd) = if self.memory_limit {
            match process::fork()? {
                Forked::Child => live(&self),
                Forked::Parent(pid, pidfd) => (pid, pidfd),
            }
        } else {
            process::clone_sharing_memory(self, live)?
        };
        Ok(Spawned { pid, pidfd, report })
    }
}

/// The newborn's whole life.
fn live(newborn: &Newborn) -> ! {
    // Refused by a seccomp filter at worst; the supervisor's end is then noticed
    // by the monitor, as everything else below it is.
    let _ = process::set_parent_death_signal(process::SIGKILL);
    if process::getppid() != newborn.parent {
        process::exit(127);
    }
    process::setsid();
    if newborn.take_terminal {
        let _ = terminal::own(fd::STDIN);
    }
    let failure = match prepare(newborn) {
        Ok(()) => Failure { stage: Stage::Exec, errno: exec(newborn) },
        Err(failure) => failure,
    };
    let _ = fd::write(Fd::inherited(newborn.report), &failure.to_bytes());
    process::exit(127)
}

fn prepare(newborn: &Newborn) -> core::result::Result<(), Failure> {
    let failed = |stage| move |errno| Failure { stage, errno };
    // First of all, so that everything it uses is the group's. Never by
    // CLONE_INTO_CGROUP, see `cgroup`.
    if let Some(entry) = newborn.group {
        fd::write(Fd::inherited(entry), b"0").map_err(failed(Stage::Group))?;
    }
    for (number, end) in (1..).zip(newborn.ends) {
        if let Some(end) = end {
            fd::install(Fd::inherited(end), number).map_err(failed(Stage::Descriptors))?;
        }
    }
    if newborn.close_fds {
        close_inherited(newborn.report).map_err(failed(Stage::Descriptors))?;
    }
    if newborn.no_new_privs {
        process::set_no_new_privs().map_err(failed(Stage::Privileges))?;
    }
    signal::block_exactly(SignalSet::EMPTY);
    Ok(())
}

/// Leaves 0, 1, 2 and, until the exec, the report pipe.
fn close_inherited(report: i32) -> Result<()> {
    let (report, last) = (report.cast_unsigned(), u32::MAX);
    match fd::close_range(3, last, true) {
        // 5.10 knows the call but not the flag.
        Err(Errno::EINVAL) => {
            if report > 3 {
                fd::close_range(3, report - 1, false)?;
            }
            fd::close_range(report + 1, last, false)
        }
        Err(errno) if errno.is_refused() => {
            // One by one, as many as this process may have.
            for number in 3..process::most_descriptors() {
                let _ = fd::set_cloexec(Fd::inherited(number), true);
            }
            Ok(())
        }
        answer => answer,
    }
}

/// As execvp(3): a name with a slash is a path, any other is looked up in PATH;
/// what is found but not executable is remembered; a text without `#!` is run by
/// /bin/sh. Returns why nothing could be executed.
fn exec(newborn: &Newborn) -> Errno {
    let Some(name) = newborn.args.get(0) else {
        return Errno::ENOENT;
    };
    if name.is_empty() {
        return Errno::ENOENT;
    }
    if name.to_bytes().contains(&b'/') {
        exec_file(newborn, name)
    } else {
        in_path(&newborn.environment, name, &mut |file| exec_file(newborn, file))
    }
}

/// Tries `name` in every directory of PATH, until one answers more than that it
/// is not there. Returns why none could be executed.
#[inline(never)] // its buffer would be a page of the stack of whoever needs none
pub fn in_path(
    environment: &Environment,
    name: &CStr,
    exec: &mut dyn FnMut(&CStr) -> Errno,
) -> Errno {
    let path = environment.get(b"PATH").map_or(DEFAULT_PATH, CStr::to_bytes);
    let mut answer = Errno::ENOENT;
    for directory in path.split(|&byte| byte == b':') {
        let mut buffer = [0; PATH_BYTES];
        let Some(file) = join(directory, name.to_bytes(), &mut buffer) else {
            continue;
        };
        match exec(file) {
            // Not here; the rest are what glibc passes over too.
            Errno::ENOENT | Errno::ENOTDIR | Errno::ESTALE | Errno::ENODEV | Errno::ETIMEDOUT => {}
            Errno::EACCES => answer = Errno::EACCES,
            other => return other,
        }
    }
    answer
}

fn exec_file(newborn: &Newborn, file: &CStr) -> Errno {
    match process::execve(file, &newborn.args, &newborn.environment) {
        Errno::ENOEXEC => {
            // As execvp(3) does for a text without `#!`.
            let shell = c"/bin/sh";
            let rest = (1..).map_while(|index| newborn.args.get(index));
            let mut words = [shell, file].into_iter().chain(rest);
            process::execve_words(shell, &mut words, &newborn.environment)
        }
        errno => errno,
    }
}

/// `directory/name`, the current directory where the first is empty; `None`
/// where it is too long.
fn join<'b>(directory: &[u8], name: &[u8], buffer: &'b mut [u8]) -> Option<&'b CStr> {
    let slash: &[u8] = if directory.is_empty() { b"" } else { b"/" };
    let mut length = 0;
    for part in [directory, slash, name, b"\0"] {
        let end = length + part.len();
        buffer.get_mut(length..end)?.copy_from_slice(part);
        length = end;
    }
    CStr::from_bytes_with_nul(buffer.get(..length)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined() {
        let mut buffer = [0; 16];
        assert_eq!(join(b"/bin", b"ls", &mut buffer), Some(c"/bin/ls"));
        assert_eq!(join(b"", b"ls", &mut buffer), Some(c"ls"));
        assert_eq!(join(b"/a-long-directory", b"ls", &mut buffer), None);
        assert_eq!(join(b"/exactly-11", b"ls", &mut [0; 15]), Some(c"/exactly-11/ls"));
        assert_eq!(join(b"/exactly-11", b"ls", &mut [0; 14]), None);
    }

    #[test]
    fn last_words_survive_the_pipe() {
        for stage in [Stage::Group, Stage::Privileges, Stage::Descriptors, Stage::Exec] {
            let failure = Failure { stage, errno: Errno::ENOEXEC };
            assert_eq!(Failure::from_bytes(&failure.to_bytes()), Some(failure));
        }
        assert_eq!(Failure::from_bytes(&[]), None);
    }
}
