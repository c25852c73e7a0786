//! What is known of a run when it is over?
//!
//! One structure with every fact of the record (`--json`) and of the line on
//! stderr; the supervisor fills it, `json` and `message` write it.
//!
//! May use: `policy` and `cli` types.

use crate::cli::plan::{Plan, Words};
use crate::policy::cause::Cause;
use crate::policy::time::Instant;
use crate::policy::verdict::CommandStatus;

/// Most processes described in one list of the record.
pub const MOST_LISTED: usize = 64;
/// Most texts in `errors`.
pub const MOST_ERRORS: usize = 8;

/// A short text, cut where it does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    length: usize,
}

impl<const N: usize> Text<N> {
    /// No text.
    pub const EMPTY: Self = Self { bytes: [0; N], length: 0 };

    /// The first N bytes of `bytes`.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let mut text = Self::EMPTY;
        text.push(bytes);
        text
    }

    /// Appends as much as fits.
    pub fn push(&mut self, bytes: &[u8]) {
        append(&mut self.bytes, &mut self.length, bytes);
    }

    /// What is in it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// One function for texts of any size, which saves kilobytes.
#[inline(never)]
fn append(to: &mut [u8], length: &mut usize, bytes: &[u8]) {
    for (to, from) in to.iter_mut().skip(*length).zip(bytes) {
        *to = *from;
        *length += 1;
    }
}

/// How far a process has moved from the command's session and group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detached {
    /// In the command's group.
    No,
    /// In another group of its session.
    Group,
    /// In another session.
    Session,
    /// Not in the run's cgroup any more.
    Cgroup,
}

impl Detached {
    /// Its name in the record.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Group => "group",
            Self::Session => "session",
            Self::Cgroup => "cgroup",
        }
    }
}

/// One process as the record shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its pid in corral's PID namespace.
    pub pid: i32,
    /// `comm`.
    pub name: Text<16>,
    /// The first word of its command line.
    pub argv0: Text<64>,
    /// Effective user, where /proc shows it.
    pub uid: Option<u32>,
    /// State letter of /proc/PID/stat, `?` where it cannot be read.
    pub state: u8,
    /// Kernel function it sleeps in, empty where unreadable.
    pub wchan: Text<32>,
    /// Since its start.
    pub age_ms: u64,
    /// User and system time together.
    pub cpu_ms: u64,
    /// Parent.
    pub ppid: i32,
    /// Process group.
    pub pgid: i32,
    /// Session.
    pub sid: i32,
    /// Against the command's own session and group.
    pub detached: Detached,
}

/// A list of processes: how many there were, and the first of them.
#[derive(Clone, Copy, Debug)]
pub struct Listing<'a> {
    /// At most [`MOST_LISTED`] of them.
    pub first: &'a [Process],
    /// All of them.
    pub total: u64,
}

impl Listing<'_> {
    /// Nobody.
    pub const EMPTY: Self = Self { first: &[], total: 0 };
}

/// Moments of the run, where they came.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps {
    /// Just before the command's clone: the zero of the others.
    pub started: Option<Instant>,
    /// The newborn exists.
    pub spawned: Option<Instant>,
    /// Its exec has succeeded.
    pub executed: Option<Instant>,
    /// It has ended.
    pub command_ended: Option<Instant>,
    /// The run was marked over.
    pub cause_seen: Option<Instant>,
    /// The first signal went out.
    pub first_signal: Option<Instant>,
    /// The first SIGKILL went out.
    pub killed: Option<Instant>,
    /// Nothing of the tree was left.
    pub tree_empty: Option<Instant>,
    /// The group was removed.
    pub group_removed: Option<Instant>,
    /// The record was made.
    pub returned: Option<Instant>,
}

/// Bytes that went through the relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Whether corral stood between at all; the rest is zero if not.
    pub relayed: bool,
    /// Read from the command's stdout; `None` when it shares a pipe with stderr.
    pub stdout_bytes: Option<u64>,
    /// Read from the command's stderr; `None` likewise.
    pub stderr_bytes: Option<u64>,
    /// Passed on, both together.
    pub passed_bytes: u64,
    /// Left out, both together: over a limit, or given up.
    pub dropped_bytes: u64,
    /// Of these, what a reader did not take in time.
    pub given_up_bytes: u64,
}

/// What the kernel counted for the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// User time in µs.
    pub cpu_user_us: u64,
    /// System time in µs.
    pub cpu_system_us: u64,
    /// Largest resident set of one process, in bytes.
    pub max_rss_bytes: u64,
    /// Processes that corral reaped.
    pub processes_reaped: u64,
    /// Most memory of the group at once, in bytes.
    pub memory_peak_bytes: Option<u64>,
    /// Most processes and threads in the group at once.
    pub pids_peak: Option<u64>,
    /// Processes of the group that the OOM killer ended.
    pub oom_kills: Option<u64>,
    /// Forks that `--pids` refused.
    pub pids_refused: Option<u64>,
}

/// What the cause was in particular.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// For `tool`: which has had no result, and for how long.
    Tool {
        /// The tool's name.
        name: Text<64>,
        /// Milliseconds since its call was read.
        age_ms: u64,
    },
    /// Nothing more to say.
    None,
    /// The cancelling signal and its sender, where the kernel told.
    Signal {
        /// Which signal.
        signal: i32,
        /// Sender's pid; 0: unknown, the kernel or a terminal.
        pid: i32,
        /// Sender's user.
        uid: u32,
    },
    /// Why exec failed: the error's name and text.
    Exec {
        /// As `ENOENT`.
        name: &'static str,
        /// As `ENOENT (no such file or directory)`.
        text: &'static str,
    },
}

/// Everything about one run.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    /// The run as asked for.
    pub plan: &'a Plan,
    /// The run's id.
    pub run_id: &'a [u8],
    /// Real user of corral.
    pub uid: u32,
    /// corral's parent.
    pub parent_pid: i32,
    /// Why there is no group, `None` in enforced mode.
    pub fallback_reason: Option<&'a str>,
    /// What ended it.
    pub cause: Cause,
    /// And in particular.
    pub detail: Detail,
    /// The exit status of corral.
    pub exit_status: u8,
    /// The command's own, where known.
    pub command_status: Option<CommandStatus>,
    /// Whether SIGKILL was needed.
    pub escalated: bool,
    /// Whether the end is proved.
    pub proved: bool,
    /// Wall-clock time of the start, nanoseconds since 1970.
    pub started_at: u64,
    /// Of the end.
    pub ended_at: u64,
    /// Moments.
    pub steps: Steps,
    /// Bytes.
    pub output: Output,
    /// Resources.
    pub usage: Usage,
    /// What was alive when the run was marked over, for any cause but `exited`.
    pub tree_at_cause: Listing<'a>,
    /// What outlived the command and the linger.
    pub leftovers: Listing<'a>,
    /// What may still be alive.
    pub survivors: Listing<'a>,
    /// What went wrong on the way.
    pub errors: &'a [Option<Text<128>>],
    /// How many processes the first signal went to.
    pub signalled: u64,
    /// The words of corral's command line; the command begins at
    /// `plan.command`.
    pub words: &'a dyn Words,
}
