//! What run does the command line mean?
//!
//! May use: `policy` types.

use core::ffi::CStr;

use crate::policy::time::Span;

/// Most `--label` options.
pub const MOST_LABELS: usize = 16;
/// Most steps of `--signal`.
pub const MOST_SIGNALS: usize = 4;
/// Longest run id.
pub const RUN_ID_BYTES: usize = 64;

/// The words of a command line, wherever they are kept.
pub trait Words {
    /// Word `index`, `argv[0]` being 0; `None` behind the last.
    fn word(&self, index: usize) -> Option<&'static CStr>;
}

/// One signal before SIGKILL, and the wait after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalStep {
    /// Its number.
    pub signal: i32,
    /// How long to wait before the next step; `None` in the last one, whose
    /// wait is the grace.
    pub wait: Option<Span>,
}

/// The signals before SIGKILL, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signals {
    /// The first `count` are meant.
    pub steps: [SignalStep; MOST_SIGNALS],
    /// How many.
    pub count: usize,
}

/// Whom the first signals go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every process.
    Tree,
    /// The command alone.
    Command,
}

/// What becomes of processes that outlive the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftovers {
    /// They are stopped.
    Stop,
    /// They are stopped, and a success becomes a failure.
    Fail,
    /// They are waited for.
    Wait,
}

/// `--max-output HEAD[+TAIL]`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxOutput {
    /// Passed on as they come.
    pub head: u64,
    /// Passed on at the end.
    pub tail: Option<u64>,
}

/// Where the record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A path.
    Path(&'static CStr),
    /// An inherited descriptor above 2.
    Fd(i32),
}

/// `--cgroup-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Enforced where it can be had.
    Auto,
    /// Enforced or nothing.
    Enforced,
    /// No cgroup.
    Fallback,
}

/// `--at-exit`: what the init of a machine does after the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtExit {
    /// It turns the power off; `auto` as well.
    PowerOff,
    /// It exits, on which the kernel panics.
    Exit,
    /// It reboots.
    Reboot,
    /// It halts.
    Halt,
}

/// One `--label KEY=VALUE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Before the first `=`.
    pub key: &'static [u8],
    /// After it.
    pub value: &'static [u8],
}

/// A run as asked for. Everything in it is copied or lives on the initial stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Index of COMMAND among the words of the command line.
    pub command: usize,
    /// `--wall`.
    pub wall: Option<Span>,
    /// `--idle`.
    pub idle: Option<Span>,
    /// `--cpu`.
    pub cpu: Option<Span>,
    /// `--tool-limit`.
    pub tool_limit: Option<Span>,
    /// `--tool`: names, divided by commas.
    pub tools: &'static [u8],
    /// `--after-result`.
    pub after_result: Option<Span>,
    /// `--grace`.
    pub grace: Span,
    /// `--prove`.
    pub prove: Span,
    /// `--linger`.
    pub linger: Span,
    /// `--signal`.
    pub signals: Signals,
    /// `--signal-scope`.
    pub scope: Scope,
    /// `--leftovers`.
    pub leftovers: Leftovers,
    /// `--max-output`.
    pub max_output: Option<MaxOutput>,
    /// `--output-limit`.
    pub output_limit: Option<u64>,
    /// `--mem`, in bytes. Parsing takes it anywhere; whether it can be enforced
    /// on this host, and so whether the run may start, is not decided there.
    pub mem: Option<u64>,
    /// `--pids`; as for `--mem`.
    pub pids: Option<u64>,
    /// `--json`.
    pub json: Option<Target>,
    /// `--run-id`.
    pub run_id: Option<&'static [u8]>,
    /// `--label`: the first `label_count` are meant.
    pub labels: [Label; MOST_LABELS],
    /// How many labels.
    pub label_count: usize,
    /// `--redact-argv`.
    pub redact_argv: bool,
    /// `--pid-namespace`; whether it can be had is not decided by parsing.
    pub pid_namespace: bool,
    /// `--at-exit`.
    pub at_exit: AtExit,
    /// `--no-new-privs`.
    pub no_new_privs: bool,
    /// `--close-fds`.
    pub close_fds: bool,
    /// `--cgroup-mode`; whether it can be had is not decided by parsing.
    pub mode: Mode,
    /// `--cgroup-parent`.
    pub cgroup_parent: Option<&'static CStr>,
    /// `--quiet`.
    pub quiet: bool,
    /// As tini: no signal cancels, each is passed on to the command.
    pub verbatim: bool,
    /// Signals are passed on to the command's whole process group.
    pub to_group: bool,
    /// The signal that corral is to get when its parent dies.
    pub parent_death: Option<i32>,
    /// A bit for each status of the command that counts as 0.
    pub success: [u64; 4],
}

impl Plan {
    /// A run without any option.
    pub const DEFAULT: Self = Self {
        command: 0,
        wall: None,
        idle: None,
        cpu: None,
        tool_limit: None,
        tools: b"WebFetch,WebSearch",
        after_result: None,
        grace: Span::from_secs(1),
        prove: Span::from_secs(5),
        linger: Span::from_millis(100),
        signals: Signals { steps: [SignalStep { signal: 15, wait: None }; MOST_SIGNALS], count: 1 },
        scope: Scope::Tree,
        leftovers: Leftovers::Stop,
        max_output: None,
        output_limit: None,
        mem: None,
        pids: None,
        json: None,
        run_id: None,
        labels: [Label { key: &[], value: &[] }; MOST_LABELS],
        label_count: 0,
        redact_argv: false,
        pid_namespace: false,
        at_exit: AtExit::PowerOff,
        no_new_privs: false,
        close_fds: false,
        mode: Mode::Auto,
        cgroup_parent: None,
        quiet: false,
        verbatim: false,
        to_group: false,
        parent_death: None,
        success: [0; 4],
    };

    /// Whether this status of the command counts as 0.
    #[must_use]
    pub fn is_success(&self, status: u8) -> bool {
        let bits = self.success.get(usize::from(status / 64));
        bits.is_some_and(|bits| bits >> (status % 64) & 1 != 0)
    }

    /// Whether corral has to read what the command writes.
    #[must_use]
    pub const fn reads(&self) -> bool {
        self.tool_limit.is_some() || self.after_result.is_some()
    }

    /// Whether corral has to see the command's output.
    #[must_use]
    pub const fn relays(&self) -> bool {
        self.reads()
            || self.idle.is_some()
            || self.max_output.is_some()
            || self.output_limit.is_some()
    }
}
