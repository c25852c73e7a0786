//! What do all of corral's processes know of the run, and how do they tell it?
//!
//! [`Run`] is made before the first fork, so that whoever is left can write the
//! record and the line on stderr.
//!
//! May use: all layers below the processes.

use core::ffi::CStr;

use crate::cli::plan::{AtExit, Leftovers, Mode, Plan, Scope, Target, Words};
use crate::cli::signals;
use crate::os::cgroup::{Group, Obstacle, Wanted};
use crate::os::namespace::{self, Refused, Unfinished};
use crate::os::power;
use crate::os::put::put;
use crate::os::sink::{self, Sink};
use crate::policy::machine::Rules;
use crate::policy::time::{Instant, Span};
use crate::policy::verdict;
use crate::policy::watch::{CpuLimit, Limits};
use crate::report::record::{Record, Text};
use crate::report::{json, message};
use crate::sys::errno::Errno;
use crate::sys::fd::STDERR;
use crate::sys::power::End;
use crate::sys::process::{self, Forked};
use crate::sys::start::{Args, Start};
use crate::sys::time::{self, Clock};

/// How long a text for a person may wait for stderr.
const TELLING: Span = Span::from_millis(200);
/// How long the record may wait for its reader or disk.
pub const WRITING: Span = Span::from_secs(5);

/// The run as every process of corral knows it.
pub struct Run {
    /// What was asked for.
    pub plan: Plan,
    /// The command line and the environment.
    pub start: Start,
    /// Its id.
    pub id: Text<64>,
    /// Real user.
    pub uid: u32,
    /// Whoever started corral.
    pub parent_pid: i32,
    /// Which of 0, 1, 2 are open.
    pub open: [bool; 3],
    /// Its cgroup; `None` in fallback mode.
    pub group: Option<Group>,
    /// Why there is none, if one was looked for.
    pub obstacle: Option<Obstacle>,
    /// Where the record goes.
    pub sink: Option<Sink>,
    /// When corral began, on the monotonic clock.
    pub began: Instant,
    /// And on the wall clock; only the record asks.
    pub began_at: u64,
}

impl Words for Args {
    fn word(&self, index: usize) -> Option<&'static CStr> {
        self.get(index)
    }
}

/// The monotonic clock.
#[must_use]
pub fn now() -> Instant {
    Instant(time::now(Clock::Monotonic))
}

impl Run {
    /// What the machine is to keep to, once the clock has started.
    #[must_use]
    pub fn rules(&self, started: Instant) -> Rules {
        let plan = &self.plan;
        let steps = plan.signals.steps.map(|step| (step.signal, step.wait.unwrap_or(plan.grace)));
        Rules {
            wall: plan.wall.map(|wall| started.plus(wall)),
            limits: Limits {
                idle: plan.idle,
                tool: plan.tool_limit,
                result: plan.after_result,
                cpu: plan.cpu.map(|limit| CpuLimit { limit, processors: process::processors() }),
            },
            linger: plan.linger,
            grace: plan.grace,
            prove: plan.prove,
            steps,
            step_count: plan.signals.count,
            wait_for_leftovers: plan.leftovers == Leftovers::Wait,
            command_only: plan.scope == Scope::Command,
        }
    }

    /// Tells the person and the program how it ended. Returns the exit status,
    /// which the record's own fate may change.
    #[inline(never)] // see `say`
    pub fn tell(&mut self, record: &Record<'_>) -> u8 {
        say(|out| message::run_line(record, signals::name, out));
        let Some(sink) = self.sink.take() else {
            return record.exit_status;
        };
        let written = sink.fill(now().plus(WRITING), &mut |out| {
            json::write(record, signals::name, out);
        });
        match written {
            Ok(()) => record.exit_status,
            Err(errno) => {
                let advice = sink::advice(errno);
                complain("write the record to", self.json_name(), errno.text(), advice);
                verdict::with_record(record.exit_status, false)
            }
        }
    }

    /// Makes the group, or notes why there is none. Returns the exit status
    /// where the run may not do without.
    ///
    /// # Errors
    /// 125: it was asked for, or a limit needs it.
    pub fn take_group(&mut self) -> Result<(), u8> {
        let plan = &self.plan;
        let needs: [(bool, &[u8]); 4] = [
            (plan.mem.is_some(), b"--mem"),
            (plan.pids.is_some(), b"--pids"),
            (plan.cgroup_parent.is_some(), b"--cgroup-parent"),
            (plan.mode == Mode::Enforced, b"--cgroup-mode=enforced"),
        ];
        let wanted = Wanted {
            parent: plan.cgroup_parent,
            id: self.id.as_bytes(),
            memory: plan.mem,
            pids: plan.pids,
        };
        let (text, advice) = if plan.mode == Mode::Fallback {
            ("EINVAL (--cgroup-mode=fallback uses no cgroup)", "leave one of the two out")
        } else {
            match Group::make(&wanted) {
                Ok(group) => {
                    self.group = Some(group);
                    return Ok(());
                }
                Err(obstacle) => {
                    self.obstacle = Some(obstacle);
                    (obstacle.text(), obstacle.advice())
                }
            }
        };
        let second = self.obstacle == Some(Obstacle::NoPids);
        let mut needs = needs.iter().skip(usize::from(second));
        let Some((_, option)) = needs.find(|(needed, _)| *needed) else {
            return Ok(());
        };
        let (what, object) = match (plan.cgroup_parent, self.obstacle) {
            (Some(path), Some(_)) if *option == b"--cgroup-parent" => {
                ("make a cgroup in", path.to_bytes())
            }
            _ => ("enforce", *option),
        };
        complain(what, object, text, advice);
        Err(verdict::MISUSE)
    }

    /// Forks a process of corral's own; the supervisor is the init of a PID
    /// namespace where that was asked for.
    ///
    /// # Errors
    /// The exit status: 125.
    pub fn fork(&self, supervisor: bool) -> Result<(Forked, Option<Unfinished>), u8> {
        if supervisor && self.plan.pid_namespace {
            let (forked, unfinished) = namespace::fork().map_err(no_namespace)?;
            return Ok((forked, Some(unfinished)));
        }
        let advice = "raise the limits on open files and processes";
        process::fork()
            .map(|forked| (forked, None))
            .map_err(|errno| refuse("start", b"the supervisor", errno, advice))
    }

    /// Leaves nothing of a group that the supervisor has not taken away: one of a
    /// run that was not started, and what corral did to its own group.
    pub fn give_back(&self, status: u8) {
        if let Some(group) = &self.group {
            if status == verdict::MISUSE {
                let _ = group.remove();
            }
            group.retire();
        }
    }

    /// Why there is no group.
    #[must_use]
    pub fn fallback_reason(&self) -> &'static str {
        self.obstacle.map_or("asked for", Obstacle::text)
    }

    /// What `--json` was given.
    #[must_use]
    pub fn json_name(&self) -> &[u8] {
        match self.plan.json {
            Some(target) => target_name(target),
            None => b"nowhere",
        }
    }
}

/// A record's destination as the user named it.
#[must_use]
pub const fn target_name(target: Target) -> &'static [u8] {
    match target {
        Target::Path(path) => path.to_bytes(),
        Target::Fd(_) => b"the descriptor of --json",
    }
}

/// Writes one text to stderr, without waiting for it for ever.
#[inline(never)] // its line would be on the stack of runs that say nothing
pub fn say(text: impl FnOnce(&mut dyn FnMut(&[u8]))) {
    let mut line = Text::<2048>::EMPTY;
    text(&mut |bytes| line.push(bytes));
    if !line.as_bytes().is_empty() {
        // Whoever closed stderr does not want to be told.
        let _ = put(STDERR, line.as_bytes(), now().plus(TELLING));
    }
}

/// Says what could not be done: `corral: cannot WHAT OBJECT: ERROR; ADVICE`.
pub fn complain(what: &str, object: &[u8], error: &str, advice: &str) {
    say(|out| message::cannot(what, object, error, advice, out));
}

/// Ends corral with `status`, and as the init of a machine that as well.
pub fn leave(at_exit: AtExit, status: u8) -> ! {
    let how = match at_exit {
        AtExit::PowerOff => Some(End::PowerOff),
        AtExit::Reboot => Some(End::Restart),
        AtExit::Halt => Some(End::Halt),
        AtExit::Exit => None,
    };
    if let Some(how) = how
        && power::is_machine_init()
    {
        refuse("end", b"this machine", power::end(how), "give its init the right to reboot(2)");
    }
    process::exit(status)
}

/// The status of a run without the PID namespace that it needs.
#[must_use]
pub fn no_namespace(refused: Refused) -> u8 {
    refuse("make", b"a PID namespace", refused.errno, refused.advice)
}

/// The status of a run that could not be started, and why.
pub fn refuse(what: &str, object: &[u8], errno: Errno, advice: &str) -> u8 {
    complain(what, object, errno.text(), advice);
    verdict::MISUSE
}
