//! What is told once the run is over?
//!
//! The verdict to the monitor, the line to the person and the record, and in it who
//! is to blame where the end could not be proved.
//!
//! May use: as [`super`].

use super::Supervisor;
use crate::agent::Agent;
use crate::channel::Message;
use crate::cli::plan::Leftovers;
use crate::os::spawn::Stage;
use crate::policy::cause::Cause;
use crate::policy::verdict::{self, CommandStatus, Outcome};
use crate::relay::Relay;
use crate::report::decimal::Decimal;
use crate::report::record::{self, Record, Text};
use crate::run::{self, now};
use crate::sys::errno::Errno;
use crate::sys::process::Ended;
use crate::sys::time::{self, Clock};

impl Supervisor {
    /// A stranger that traces a survivor is why it cannot be reaped.
    pub(super) fn blame_tracers(&mut self) {
        for index in 0..self.survivors.first.len() {
            let Some(pid) = self.survivors.first.get(index).map(|process| process.pid) else {
                return;
            };
            let tracer = self.sweep.tracer_of(pid);
            if tracer != 0 {
                let mut text = Text::EMPTY;
                text.push(b"process ");
                text.push(Decimal::of(pid.unsigned_abs().into()).as_bytes());
                text.push(b" is held by its tracer ");
                text.push(Decimal::of(tracer.unsigned_abs().into()).as_bytes());
                self.note(text);
            }
        }
    }

    /// Nothing lives in the group, and yet it is there.
    pub(super) fn blame_group(&mut self) {
        if let (Some(errno), Some(group)) = (self.sweep.stuck, self.sweep.group()) {
            let mut text = Text::EMPTY;
            text.push(b"cannot remove the cgroup ");
            text.push(group.name().to_bytes());
            text.push(b": ");
            text.push(errno.text().as_bytes());
            self.note(text);
        }
    }

    fn note(&mut self, text: Text<128>) {
        if let Some(slot) = self.errors.iter_mut().find(|slot| slot.is_none()) {
            *slot = Some(text);
        }
    }

    /// The run is over: tells everybody, and returns the exit status.
    pub(super) fn finish(&mut self, cause: Cause, proved: bool) -> u8 {
        if let Some(failure) = self.failure.filter(|failure| failure.stage != Stage::Exec) {
            let what = match failure.stage {
                Stage::Group => "move into the cgroup",
                Stage::Privileges => "set --no-new-privs for",
                Stage::Descriptors | Stage::Exec => "set up the descriptors of",
            };
            return run::refuse(what, b"the command", failure.errno, "nothing was run");
        }
        let agent = self.relay.as_ref().and_then(Relay::agent);
        let untracked = agent.map_or(0, Agent::untracked);
        if untracked > 0 {
            let mut text = Text::EMPTY;
            text.push(b"too many tool calls at once: not tracked were ");
            text.push(Decimal::of(untracked).as_bytes());
            self.note(text);
        }
        let command = self.sweep.command_ended.map(|ended| match ended {
            Ended::Code(code) => CommandStatus::Code(code),
            Ended::Signal(signal, core_dumped) => CommandStatus::Signal(signal, core_dumped),
        });
        let command = if self.failure.is_some() { None } else { command };
        let failing_leftovers =
            self.run.plan.leftovers == Leftovers::Fail && self.leftovers.total > 0;
        let not_found = self.failure.is_some_and(|failure| failure.errno == Errno::ENOENT);
        let as_success =
            command.is_some_and(|command| self.run.plan.is_success(command.as_status()));
        let outcome = Outcome { cause, proved, command, not_found, failing_leftovers, as_success };
        let status = verdict::status(&outcome);
        let clean = cause == Cause::Exited && proved && self.leftovers.total == 0;
        if !clean || self.run.sink.is_some() {
            let signal = match cause {
                Cause::Cancelled { signal } if proved => signal,
                _ => 0,
            };
            let restore_terminal = !clean;
            self.ties.channel.say(Message::Verdict { status, signal, restore_terminal });
        }
        let written = self.run.sink.is_some();
        if written && !proved {
            self.sweep.count();
        }
        let usage = if written { self.sweep.usage() } else { record::Usage::default() };
        let real = if written { time::now(Clock::Real) } else { 0 };
        if self.monitor_is_gone {
            self.sweep.retire();
        }
        self.steps.returned = Some(now());
        let plan = self.run.plan;
        let (id, args) = (self.run.id, self.run.start.args);
        let record = Record {
            plan: &plan,
            run_id: id.as_bytes(),
            uid: self.run.uid,
            parent_pid: self.run.parent_pid,
            fallback_reason: (!self.sweep.is_enforced()).then(|| self.run.fallback_reason()),
            cause,
            detail: self.detail,
            exit_status: status,
            command_status: command,
            escalated: self.escalated,
            proved,
            started_at: self.run.began_at,
            ended_at: real,
            steps: self.steps,
            output: self.relay.as_ref().map(Relay::counts).unwrap_or_default(),
            usage,
            tree_at_cause: self.tree_at_cause.listing(),
            leftovers: self.leftovers.listing(),
            survivors: self.survivors.listing(),
            errors: &self.errors,
            signalled: self.signalled,
            words: &args,
        };
        self.run.tell(&record)
    }
}
