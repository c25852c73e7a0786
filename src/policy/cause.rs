//! What ended the run?
//!
//! The first cause wins; later ones change nothing but a record. Sources that
//! are ready in the same instant are looked at in one documented order (see
//! `supervisor`), so ties have one answer too.
//!
//! May use: `core` alone.

/// What ended a run, in the words of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The command ended by itself.
    Exited,
    /// The command could not be started.
    Exec,
    /// `--wall`.
    Wall,
    /// `--idle`.
    Idle,
    /// `--cpu`.
    Cpu,
    /// `--tool-limit`.
    Tool,
    /// `--after-result`.
    Result,
    /// `--output-limit`.
    Output,
    /// With `--mem`, the OOM killer acted in the group.
    Memory,
    /// A cancelling signal came.
    Cancelled {
        /// Which.
        signal: i32,
    },
    /// The process that owns the run was killed.
    SupervisorLost,
    /// The process that the user knows was killed.
    MonitorLost,
}

impl Cause {
    /// Its name in the record and on stderr.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Exec => "exec",
            Self::Wall => "wall",
            Self::Idle => "idle",
            Self::Cpu => "cpu",
            Self::Tool => "tool",
            Self::Result => "result",
            Self::Output => "output",
            Self::Memory => "memory",
            Self::Cancelled { .. } => "cancelled",
            Self::SupervisorLost => "supervisor_lost",
            Self::MonitorLost => "monitor_lost",
        }
    }
}
