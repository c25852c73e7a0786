//! How does corral get a cgroup of its own where systemd runs?
//!
//! Under the name `corral-enforced` it starts itself again inside a transient
//! scope with `Delegate=yes`, by way of systemd-run(1), which keeps process,
//! descriptors and environment and only moves us. There `--cgroup-mode=enforced`
//! finds a group that is ours alone, controllers included. The second start goes
//! by the file's own name; where that is `corral-enforced` too, that option is how
//! it is told from the first.
//!
//! systemd-run would pass on neither the command line as it is (it expands `$`,
//! from 254 on where asked, later unless asked not to) nor keep it to itself (it
//! describes the scope with it, in the journal, and fails where it is no UTF-8).
//! So it is told not to.
//!
//! systemd-run ends with 1 when nobody answers it, which is no status of ours. So
//! it is asked first to run something harmless, in silence and for a bounded
//! time, and only when that works it gets the whole command line.
//!
//! May use: `sys`, `os`, `cli`, `policy`, `run`.

use core::ffi::CStr;

use crate::cli::base_name;
use crate::cli::plan::{Mode, Plan};
use crate::os::spawn;
use crate::policy::verdict;
use crate::run;
use crate::sys::errno::{self, Errno};
use crate::sys::event::{self, Wait};
use crate::sys::fd::{self, Fd, STDERR, STDOUT};
use crate::sys::file::{self, CWD, Open};
use crate::sys::process::{self, Ended, Forked, Waited};
use crate::sys::signal;
use crate::sys::start::Start;

const SYSTEMD_RUN: &CStr = c"systemd-run";
/// The longest path that the kernel takes, and a NUL.
const FILE_BYTES: usize = 4096;
const NAME: &[u8] = b"corral-enforced";
/// What versions before 254 do anyway, and refuse to be told.
const LITERALLY: &CStr = c"--expand-environment=no";
/// How long systemd may take to make a scope, in nanoseconds.
const LONGEST: u64 = 30_000_000_000;

/// Whether this start is to be the first of two.
#[must_use]
pub fn is_asked_for(start: &Start, plan: &Plan) -> bool {
    base_name(start.args.get(0).unwrap_or_default()) == NAME
        && (plan.mode != Mode::Enforced || !is_the_files_name())
}

#[inline(never)] // its buffer would be a page of the stack of all runs
fn is_the_files_name() -> bool {
    // Without /proc there is no scope to be had, nor a group.
    itself(&mut [0; FILE_BYTES]).map_or(true, |file| base_name(file) == NAME)
}

/// Where the file is that we are.
fn itself(buffer: &mut [u8; FILE_BYTES]) -> errno::Result<&CStr> {
    let most = FILE_BYTES - 1;
    file::read_link(CWD, c"/proc/self/exe", buffer.get_mut(..most).unwrap_or_default())?;
    Ok(CStr::from_bytes_until_nul(buffer).unwrap_or_default())
}

/// Starts corral again inside a scope; returns only where that cannot be, with
/// 125.
#[inline(never)]
pub fn enter(start: &Start, plan: &Plan) -> u8 {
    if plan.mode == Mode::Fallback {
        let advice = "leave --cgroup-mode out, or call it corral";
        run::complain("start", NAME, "EINVAL (--cgroup-mode=fallback)", advice);
        return verdict::MISUSE;
    }
    let mut buffer = [0; FILE_BYTES];
    let itself = match itself(&mut buffer) {
        Ok(itself) => itself,
        Err(errno) => return run::refuse("find", b"corral itself", errno, "mount /proc"),
    };
    // An option is given once: where it is there already, it is not added.
    let first = usize::from(plan.mode == Mode::Enforced);
    let words = |index| match index + first {
        0 => Some(c"--cgroup-mode=enforced"),
        index => start.args.get(index),
    };
    // Where it is ignored, how a probe ended would be lost.
    signal::set_default(process::SIGCHLD);
    let failed = match probe(start, itself, Some(LITERALLY)) {
        Ok(true) => systemd_run(start, itself, Some(LITERALLY), &words),
        Ok(false) => match probe(start, itself, None) {
            Ok(true) => systemd_run(start, itself, None, &words),
            Ok(false) => Errno::ECONNREFUSED,
            Err(errno) => errno,
        },
        Err(errno) => errno,
    };
    let advice = match failed {
        Errno::ENOENT => "install systemd, or delegate a cgroup and name it with --cgroup-parent",
        _ => "see what systemd-run --scope true says, with --user unless root",
    };
    run::refuse("make a scope with", b"systemd-run", failed, advice)
}

/// Whether systemd makes scopes, asked with this option. It says no to one that
/// it does not know as it does to everything else.
fn probe(start: &Start, itself: &CStr, option: Option<&CStr>) -> errno::Result<bool> {
    let (child, pidfd) = match process::fork()? {
        Forked::Parent(child, pidfd) => (child, pidfd),
        Forked::Child => {
            let version = |index| (index == 0).then_some(c"--version");
            let answer = silence().map(|()| systemd_run(start, itself, option, &version));
            process::exit(if answer == Ok(Errno::ENOENT) { 127 } else { 126 })
        }
    };
    if let Some(pidfd) = &pidfd {
        let mut waits = [Wait::readable(pidfd.fd())];
        if event::ppoll(&mut waits, Some(LONGEST)) == Ok(0) {
            let _ = signal::kill(child, process::SIGKILL);
        }
    }
    match process::wait_for(child) {
        Waited::Reaped(_, Ended::Code(code @ (0 | 1))) => Ok(code == 0),
        Waited::Reaped(_, Ended::Code(127)) => Err(Errno::ENOENT),
        _ => Err(Errno::ECONNREFUSED),
    }
}

fn silence() -> errno::Result<()> {
    let nothing = file::open(CWD, c"/dev/null", Open::Write)?;
    for fd in [STDOUT, STDERR] {
        fd::install(Fd::inherited(nothing.fd().number()), fd.number())?;
    }
    Ok(())
}

/// Becomes systemd-run; returns only on failure.
fn systemd_run<'w>(
    start: &Start,
    itself: &'w CStr,
    option: Option<&'w CStr>,
    words: &dyn Fn(usize) -> Option<&'w CStr>,
) -> Errno {
    let head: [&CStr; 7] = [
        SYSTEMD_RUN,
        c"--scope",
        c"--quiet",
        c"--collect",
        c"--description=corral",
        c"-p",
        c"Delegate=yes",
    ];
    let user = (process::getuid() != 0).then_some(c"--user");
    spawn::in_path(&start.environment, SYSTEMD_RUN, &mut |file| {
        let given = (0..).map_while(words);
        let mut all =
            head.into_iter().chain(user).chain(option).chain([c"--", itself]).chain(given);
        process::execve_words(file, &mut all, &start.environment)
    })
}
