//! How does a process come to be the init of a PID namespace of its own?
//!
//! Whatever is started in the namespace ends with its init, whoever ended that:
//! the kernel sees to it, and nobody in it can join one outside (setns(2): only
//! descendants of one's own). With it comes a mount namespace, so that /proc can
//! show these processes and no others, and for who may not make them otherwise a
//! user namespace, in which nobody but the caller exists.
//!
//! Rests on: pid_namespaces(7) (the init's end is SIGKILL for all), a process that
//! writes its own ids as the one line of its maps (user_namespaces(7)).
//!
//! May use: `sys`.

use core::ffi::CStr;

use super::procfs::Path;
use crate::sys::errno::{Errno, Result};
use crate::sys::fd;
use crate::sys::file::{self, Open};
use crate::sys::mount;
use crate::sys::process::{self, Forked, Namespaces};

/// Where it is looked for.
const PROC: &CStr = c"/proc";

/// The namespaces as whoever is their init has to finish them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// User and group of the caller, where there is a user namespace.
    ids: Option<(u32, u32)>,
}

/// Why there is no such namespace: the kernel's answer, and what would help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The kernel's answer.
    pub errno: Errno,
    /// For a person.
    pub advice: &'static str,
}

/// Makes a copy of this process that is the init of a new PID namespace. In the
/// child [`Unfinished::finish`] comes first of all.
///
/// # Errors
/// The host forbids it, or has no more room for it.
pub fn fork() -> core::result::Result<(Forked, Unfinished), Refused> {
    match process::fork_into(Namespaces::Pid) {
        Ok(forked) => return Ok((forked, Unfinished { ids: None })),
        Err(Errno::EPERM) => {}
        Err(errno) => return Err(refused(errno)),
    }
    // In the namespace nobody knows who it was.
    let ids = Some((process::geteuid(), process::getegid()));
    match process::fork_into(Namespaces::PidAndUser) {
        Ok(forked) => Ok((forked, Unfinished { ids })),
        Err(errno) => Err(refused(errno)),
    }
}

fn refused(errno: Errno) -> Refused {
    let advice = match errno {
        Errno::EPERM => {
            "run as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone, the \
             container's seccomp profile)"
        }
        Errno::ENOSPC => "raise sysctl user.max_user_namespaces and user.max_pid_namespaces",
        Errno::EINVAL => {
            "start corral in its own PID namespace (unshare --fork), on a kernel with PID and user \
             namespaces"
        }
        _ => "raise the limits on processes and memory",
    };
    Refused { errno, advice }
}

impl Unfinished {
    /// Maps the ids, and mounts the /proc of the namespace where one of another
    /// is mounted.
    ///
    /// # Errors
    /// The host forbids it.
    pub fn finish(self) -> core::result::Result<(), Refused> {
        if let Some((user, group)) = self.ids {
            // Only who may be looked at owns its own files in /proc.
            process::set_dumpable(true);
            let mapped = map(user, group);
            process::set_dumpable(false);
            mapped.map_err(|errno| Refused {
                errno,
                advice: "mount /proc, and allow user namespaces their privileges (sysctl \
                         kernel.apparmor_restrict_unprivileged_userns)",
            })?;
        }
        match mount::keep_to_ourselves(PROC) {
            // Nothing there that could tell of other processes.
            Err(Errno::EINVAL | Errno::ENOENT) => Ok(()),
            Err(errno) => Err(errno),
            Ok(()) => mount::proc(PROC),
        }
        .map_err(|errno| Refused {
            errno,
            advice: "allow mounting, and uncover what is masked below /proc (docker run \
                     --security-opt systempaths=unconfined)",
        })
    }
}

/// The caller's ids are the same inside, and there are no others. Without the first file
/// the third may not be written (user_namespaces(7)).
fn map(user: u32, group: u32) -> Result<()> {
    write(c"/proc/self/setgroups", b"deny")?;
    write(c"/proc/self/uid_map", line(user).as_c_str().to_bytes())?;
    write(c"/proc/self/gid_map", line(group).as_c_str().to_bytes())
}

/// One id, inside as outside.
fn line(id: u32) -> Path {
    Path::new().number(id.into()).text(b" ").number(id.into()).text(b" 1")
}

fn write(path: &CStr, text: &[u8]) -> Result<()> {
    let file = file::open(file::CWD, path, Open::Write)?;
    fd::write_all(file.fd(), text)
}
