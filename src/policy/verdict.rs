//! Which exit status follows?
//!
//! The one place where corral's own statuses are numbers. They leave the
//! command's common ones alone; 124 to 127 mean what timeout(1) and the shell
//! mean by them.
//!
//! May use: `core`, `cause`.

use super::cause::Cause;

/// The run would be 0, but its record could not be completed.
pub const RECORD_INCOMPLETE: u8 = 118;
/// `--leftovers=fail`: it would be 0, but processes were left behind.
pub const LEFTOVERS: u8 = 119;
/// The end is not proved: something may be alive.
pub const NOT_PROVED: u8 = 120;
/// `--output-limit`.
pub const OUTPUT: u8 = 121;
/// `--mem`.
pub const MEMORY: u8 = 122;
/// `--idle`, `--tool-limit`, `--after-result`.
pub const STUCK: u8 = 123;
/// `--wall`, `--cpu`.
pub const TIME: u8 = 124;
/// corral could not start the run, or was misused.
pub const MISUSE: u8 = 125;
/// The command was found but could not be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub const NOT_FOUND: u8 = 127;
/// Added to a signal's number.
pub const SIGNALLED: u8 = 128;
/// One of corral's own two processes was killed and the end is proved: the
/// status of a process that died of SIGKILL.
pub const LOST: u8 = SIGNALLED + 9;

/// How the command itself ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandStatus {
    /// It exited with this code.
    Code(u8),
    /// It died of this signal; whether it dumped core.
    Signal(i32, bool),
}

impl CommandStatus {
    /// The status that a shell would show for it.
    #[must_use]
    pub const fn as_status(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal, _) => signalled(signal),
        }
    }
}

/// 128 + N.
#[must_use]
pub const fn signalled(signal: i32) -> u8 {
    let [low, ..] = signal.to_le_bytes();
    SIGNALLED.saturating_add(low & 0x7f)
}

/// What a finished run is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What ended it.
    pub cause: Cause,
    /// Whether nothing of it is alive, for certain.
    pub proved: bool,
    /// How the command ended, where that is known.
    pub command: Option<CommandStatus>,
    /// For [`Cause::Exec`]: whether the command was not found at all.
    pub not_found: bool,
    /// `--leftovers=fail`, and there were some.
    pub failing_leftovers: bool,
    /// The command's status is one that counts as 0.
    pub as_success: bool,
}

/// The exit status of a run, the record's own fate aside.
#[must_use]
pub const fn status(outcome: &Outcome) -> u8 {
    if !outcome.proved {
        return NOT_PROVED;
    }
    match outcome.cause {
        Cause::Exited => match outcome.command {
            Some(_) if outcome.as_success => 0,
            Some(CommandStatus::Code(0)) if outcome.failing_leftovers => LEFTOVERS,
            Some(command) => command.as_status(),
            // Proved, yet the status went to somebody else (a tracer): no
            // success may be claimed for the command.
            None => NOT_PROVED,
        },
        Cause::Exec if outcome.not_found => NOT_FOUND,
        Cause::Exec => NOT_EXECUTABLE,
        Cause::Wall | Cause::Cpu => TIME,
        Cause::Idle | Cause::Tool | Cause::Result => STUCK,
        Cause::Output => OUTPUT,
        Cause::Memory => MEMORY,
        Cause::Cancelled { signal } => signalled(signal),
        Cause::SupervisorLost | Cause::MonitorLost => LOST,
    }
}

/// The status once the record has been written or not.
#[must_use]
pub const fn with_record(status: u8, complete: bool) -> u8 {
    if status == 0 && !complete { RECORD_INCOMPLETE } else { status }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Outcome = Outcome {
        cause: Cause::Exited,
        proved: true,
        command: Some(CommandStatus::Code(0)),
        not_found: false,
        failing_leftovers: false,
        as_success: false,
    };

    #[test]
    fn the_commands_own_status_passes() {
        for code in 0..=255 {
            let outcome = Outcome { command: Some(CommandStatus::Code(code)), ..BASE };
            assert_eq!(status(&outcome), code);
        }
        let killed = Outcome { command: Some(CommandStatus::Signal(15, false)), ..BASE };
        assert_eq!(status(&killed), 143);
    }

    #[test]
    fn an_unproved_end_overrides_everything() {
        let causes = [
            Cause::Exited,
            Cause::Exec,
            Cause::Wall,
            Cause::Idle,
            Cause::Cpu,
            Cause::Tool,
            Cause::Result,
            Cause::Output,
            Cause::Memory,
            Cause::Cancelled { signal: 2 },
            Cause::SupervisorLost,
            Cause::MonitorLost,
        ];
        for cause in causes {
            assert_eq!(status(&Outcome { cause, proved: false, ..BASE }), NOT_PROVED);
        }
    }

    #[test]
    fn a_limit_hides_the_commands_zero() {
        assert_eq!(status(&Outcome { cause: Cause::Wall, ..BASE }), TIME);
        assert_eq!(status(&Outcome { cause: Cause::Cpu, ..BASE }), TIME);
        for cause in [Cause::Idle, Cause::Tool, Cause::Result] {
            assert_eq!(status(&Outcome { cause, ..BASE }), STUCK);
        }
        assert_eq!(status(&Outcome { cause: Cause::Output, ..BASE }), OUTPUT);
        assert_eq!(status(&Outcome { cause: Cause::Memory, ..BASE }), MEMORY);
        let cancelled = Outcome { cause: Cause::Cancelled { signal: 15 }, ..BASE };
        assert_eq!(status(&cancelled), 143);
    }

    #[test]
    fn leftovers_fail_only_a_success() {
        let failing = Outcome { failing_leftovers: true, ..BASE };
        assert_eq!(status(&failing), LEFTOVERS);
        let code = Some(CommandStatus::Code(7));
        assert_eq!(status(&Outcome { command: code, ..failing }), 7);
    }

    #[test]
    fn what_counts_as_success_is_one_if_it_is_the_commands_own() {
        let lucky = Outcome { as_success: true, ..BASE };
        for command in [CommandStatus::Code(7), CommandStatus::Signal(15, false)] {
            assert_eq!(status(&Outcome { command: Some(command), ..lucky }), 0);
        }
        assert_eq!(status(&Outcome { proved: false, ..lucky }), NOT_PROVED);
        assert_eq!(status(&Outcome { cause: Cause::MonitorLost, ..lucky }), LOST);
    }

    #[test]
    fn exec_failures() {
        let exec = Outcome { cause: Cause::Exec, command: None, ..BASE };
        assert_eq!(status(&exec), NOT_EXECUTABLE);
        assert_eq!(status(&Outcome { not_found: true, ..exec }), NOT_FOUND);
    }

    #[test]
    fn an_incomplete_record_spoils_only_a_success() {
        assert_eq!(with_record(0, false), RECORD_INCOMPLETE);
        assert_eq!(with_record(0, true), 0);
        assert_eq!(with_record(7, false), 7);
    }
}
