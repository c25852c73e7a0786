//! How is a run carried out from the command's start to the proof of its end?
//!
//! The supervisor owns the run. It is forked from the monitor (or the guard
//! between them), leads a session of its own under another name, has no
//! inherited children and is the child subreaper of everything that the command
//! starts. One ppoll loop waits, turns what is ready into events for the machine
//! and enacts the actions that come back; it decides nothing itself.
//!
//! Ready sources are looked at in one order, so that ties have one answer: the
//! command's end, the census of the tree (reaping), what the monitor says and
//! its loss, the streams, the clock.
//!
//! Rests on: pidfd readiness (5.3), SIGCHLD through signalfd(2), wait4(2) with
//! __WALL answering ECHILD when nothing below a subreaper is left.
//!
//! May use: everything.

mod ending;

use crate::agent::Agent;
use crate::channel::{Channel, Heard, Message};
use crate::cli::plan::Scope;
use crate::os::cgroup::Watch;
use crate::os::host;
use crate::os::namespace::Unfinished;
use crate::os::procfs::Proc;
use crate::os::spawn::{Failure, Newborn};
use crate::os::tree::SUPERVISOR_NAME;
use crate::policy::cause::Cause;
use crate::policy::machine::{self, Action, Event, Rules, State};
use crate::policy::time::{Instant, Span};
use crate::relay::{Relay, WAITS};
use crate::report::record::{self, Detail, MOST_LISTED, Steps, Text};
use crate::run::{self, Run, now};
use crate::sweep::{Interest, Reaped, Seen, Sweep};
use crate::sys::errno::Errno;
use crate::sys::event::{self, Wait};
use crate::sys::fd::{self, OwnedFd, STDERR, STDOUT};
use crate::sys::process::{self, Ended};
use crate::sys::signal::{self, Received};

/// How many processes are described when only a person will read it.
const FEW: usize = 4;
/// How long the loop rests where it cannot wait, in nanoseconds.
const BLIND: u64 = 5_000_000;
/// How long the pause between two looks at a group that cannot be removed may
/// become, as a power of two in ms.
const LONGEST_LOOK: u32 = 10;
/// What the loop waits for besides the relay.
const OWN_WAITS: usize = 6;

/// What comes with the fork.
pub struct Ties {
    /// To the monitor.
    pub channel: Channel,
    /// The monitor itself, where the kernel gives a pidfd.
    pub monitor: Option<OwnedFd>,
    /// Reads the blocked signals of whoever asks: here only SIGCHLD counts.
    pub signals: OwnedFd,
    /// The command's session is to get the terminal on stdin.
    pub hand_terminal: bool,
    /// This process is the init of a namespace that it has to finish.
    pub namespace: Option<Unfinished>,
}

/// The run in progress.
struct Supervisor {
    run: Run,
    ties: Ties,
    rules: Rules,
    state: State,
    /// When the loop last woke: one moment for all that is looked at then.
    now: Instant,
    sweep: Sweep,
    /// Tells when the group becomes empty, once no child is left.
    occupied: Option<Watch>,
    /// How often it seemed empty and could not be removed.
    looks: u32,
    relay: Option<Relay>,
    pidfd: Option<OwnedFd>,
    report: Option<OwnedFd>,
    failure: Option<Failure>,
    cancelled_by: Option<Received>,
    monitor_is_gone: bool,
    /// When to look although nothing may be ready.
    again: Option<Instant>,
    steps: Steps,
    detail: Detail,
    /// How many the last pass of SIGKILL found.
    alive: u64,
    escalated: bool,
    signalled: u64,
    tree_at_cause: Seen,
    leftovers: Seen,
    survivors: Seen,
    errors: [Option<Text<128>>; record::MOST_ERRORS],
}

/// Carries out the run in this newly forked process and ends it.
pub fn supervise(run: Run, ties: Ties) -> ! {
    // Before the command can send anything to corral's group or name.
    process::setsid();
    process::set_name(SUPERVISOR_NAME);
    match Supervisor::start(run, ties) {
        // It is never dropped: the kernel closes everything at once, and the
        // monitor wakes once.
        Ok(mut supervisor) => process::exit(supervisor.carry_on()),
        Err(status) => process::exit(status),
    }
}

/// A reason why nothing was run.
fn not_started(what: &str, advice: &str) -> impl FnOnce(Errno) -> u8 {
    move |errno| run::refuse(what, b"", errno, advice)
}

impl Supervisor {
    fn start(mut run: Run, ties: Ties) -> Result<Self, u8> {
        if let Some(namespace) = ties.namespace {
            namespace.finish().map_err(run::no_namespace)?;
        }
        process::set_child_subreaper()
            .map_err(not_started("become a child subreaper", "allow prctl(2) in this sandbox"))?;
        let advice = "raise the limit on open files";
        let mut relay = None;
        if run.plan.relays() {
            let [_, out, err] = run.open;
            let outlets = [out.then_some(STDOUT), err.then_some(STDERR)];
            let plan = &run.plan;
            let made = Relay::new(outlets, plan.max_output, plan.output_limit, plan.quiet)
                .map_err(not_started("make the pipes for the command's output", advice))?;
            relay = Some(made);
        }
        if let Some(relay) = relay.as_mut().filter(|_| run.plan.reads()) {
            let agent = Agent::new(run.plan.tools);
            relay.listen(agent.map_err(not_started("read the command's output", "free memory"))?);
        }
        if run.plan.cpu.is_some() && run.group.is_none() && Proc::open().is_none() {
            let advice = "mount /proc, or run corral where it can make a cgroup";
            return Err(run::refuse("enforce", b"--cpu", Errno::ENOENT, advice));
        }
        let args = run.start.args.from(run.plan.command);
        let mut newborn = Newborn::new(args, run.start.environment, process::getpid());
        newborn.ends = relay.as_ref().map_or([None; 2], Relay::ends);
        newborn.group = run.group.as_ref().map(|group| group.entry().number());
        newborn.memory_limit = run.plan.mem.is_some();
        newborn.no_new_privs = run.plan.no_new_privs;
        newborn.close_fds = run.plan.close_fds;
        newborn.take_terminal = ties.hand_terminal;
        let started = now();
        let spawned = newborn.spawn().map_err(|errno| {
            let advice = match errno {
                Errno::EMFILE | Errno::ENFILE => advice,
                _ => "raise the limit on processes or memory",
            };
            run::refuse("start", b"the command", errno, advice)
        })?;
        if let Some(relay) = &mut relay {
            relay.close_ends();
        }
        host::close_inherited();
        let steps = Steps { started: Some(started), spawned: Some(now()), ..Steps::default() };
        let mut sweep = Sweep::new(spawned.pid, run.start.ticks_per_second, run.group.take());
        let (counts, memory) = (run.sink.is_some(), run.plan.mem.is_some());
        sweep.interest = Interest { counts, memory };
        sweep.is_init = run.plan.pid_namespace;
        let rules = run.rules(started);
        Ok(Self {
            rules,
            state: State::start(&rules, started),
            now: started,
            sweep,
            occupied: None,
            looks: 0,
            relay,
            pidfd: spawned.pidfd,
            report: Some(spawned.report),
            failure: None,
            cancelled_by: None,
            monitor_is_gone: false,
            again: None,
            steps,
            detail: Detail::None,
            alive: 0,
            escalated: false,
            signalled: 0,
            tree_at_cause: Seen::default(),
            leftovers: Seen::default(),
            survivors: Seen::default(),
            errors: [None; record::MOST_ERRORS],
            run,
            ties,
        })
    }

    /// The loop.
    fn carry_on(&mut self) -> u8 {
        loop {
            if let Some((cause, proved)) = self.state.done() {
                return self.finish(cause, proved);
            }
            let mut waits = self.waits();
            let deadline = min(self.state.deadline(&self.rules), self.again);
            let timeout = deadline.map(|deadline| deadline.since(self.now).0);
            let answer = event::ppoll(&mut waits, timeout);
            self.now = now();
            if answer.is_err() {
                // Out of kernel memory, or a limit on open files that somebody
                // set below what we wait for: look at everything now and then.
                let _ = event::ppoll(&mut [], Some(BLIND));
                waits = [Wait::NOTHING; OWN_WAITS + WAITS];
                self.again = Some(self.now);
                self.hear_monitor();
            }
            self.look(&waits);
        }
    }

    fn waits(&self) -> [Wait; OWN_WAITS + WAITS] {
        let mut waits = [Wait::NOTHING; OWN_WAITS + WAITS];
        let [command, children, group, channel, monitor, report, relayed @ ..] = &mut waits;
        if let Some(watch) = &self.occupied {
            *group = watch.wait();
        }
        *children = Wait::readable(self.ties.signals.fd());
        if let Some(pidfd) = &self.pidfd {
            *command = Wait::readable(pidfd.fd());
        }
        if !self.monitor_is_gone {
            *channel = Wait::readable(self.ties.channel.fd());
            if let Some(pidfd) = &self.ties.monitor {
                *monitor = Wait::readable(pidfd.fd());
            }
        }
        // Only the record wants to know the moment of the exec.
        if let (Some(pipe), Some(_)) = (&self.report, &self.run.sink) {
            *report = Wait::readable(pipe.fd());
        }
        if let Some(relay) = &self.relay {
            relay.waits(relayed);
        }
        waits
    }

    /// Looks at everything that is ready, in the documented order.
    fn look(&mut self, waits: &[Wait; OWN_WAITS + WAITS]) {
        let [command, children, group, channel, monitor, report, relayed @ ..] = waits;
        let again = self.again.take_if(|again| *again <= self.now).is_some();
        if report.fired() {
            self.hear_report();
        }
        if children.fired() {
            while signal::receive(&self.ties.signals).is_some() {}
        }
        if command.fired() {
            // Once: a dead process whose tracer holds it stays readable.
            self.pidfd = None;
        }
        let killing = matches!(self.state, State::Killing { .. });
        if command.fired() || children.fired() || group.fired() || killing || again {
            self.census(command.fired());
        }
        if channel.fired() {
            self.hear_monitor();
        }
        if monitor.fired() {
            self.lose(Cause::MonitorLost);
        }
        let draining = matches!(self.state, State::Draining { .. });
        if relayed.iter().any(|wait| wait.fired()) || draining || again {
            self.move_bytes(relayed);
        }
        if self.state.deadline(&self.rules).is_some_and(|deadline| self.now >= deadline) {
            self.feed(Event::Tick);
        }
    }

    /// Asks for another look after so long, though nothing may be ready then.
    fn look_again(&mut self, after: Span) {
        self.again = min(self.again, Some(self.now.plus(after)));
    }

    /// Reaps what has ended. `ended`: the command is dead, reaped or not.
    fn census(&mut self, ended: bool) {
        let reaped = self.sweep.reap();
        if self.sweep.out_of_memory {
            // Before the command's end, which is its consequence.
            self.feed(Event::Limit(Cause::Memory));
        }
        let ended = ended || self.sweep.command_ended.is_some();
        if ended && self.steps.command_ended.is_none() {
            self.hear_report();
            self.steps.command_ended = Some(self.now);
            let killed = matches!(self.sweep.command_ended, Some(Ended::Signal(..)));
            // The end of the report was the end of the newborn, as far as one knows.
            self.steps.executed = self.steps.executed.filter(|&at| !killed || at < self.now);
            self.pidfd = None;
            self.feed(Event::CommandEnded { exec_failed: self.failure.is_some() });
        }
        match reaped {
            Reaped::Empty => {
                self.steps.tree_empty.get_or_insert(self.now);
                if self.sweep.is_enforced() {
                    self.steps.group_removed.get_or_insert_with(now);
                }
                self.occupied = None;
                self.feed(Event::TreeEmpty);
            }
            Reaped::Outside => self.wait_for_group(),
            Reaped::Some => {}
            Reaped::More => self.look_again(Span::ZERO),
        }
    }

    /// No child is left, but there are others in the group: their end is told by
    /// the group, not to us. Where it seems empty already the kernel is late.
    fn wait_for_group(&mut self) {
        if self.occupied.is_none() {
            self.occupied = self.sweep.group().and_then(|group| group.watch().ok());
        }
        if !self.occupied.as_ref().is_some_and(Watch::is_occupied) {
            // The file of a group that somebody else has removed is always ready.
            self.occupied = None;
            self.looks = self.looks.saturating_add(1);
            self.look_again(Span::from_millis(1 << self.looks.min(LONGEST_LOOK)));
        }
    }

    /// The newborn's last words, or the end of file of its exec.
    fn hear_report(&mut self) {
        let Some(pipe) = self.report.take() else {
            return;
        };
        let mut bytes = [0; 3];
        let count = fd::read(pipe.fd(), &mut bytes).unwrap_or(0);
        self.failure = Failure::from_bytes(bytes.get(..count).unwrap_or_default());
        if self.failure.is_none() && self.run.sink.is_some() {
            self.steps.executed = Some(self.now);
        }
    }

    fn hear_monitor(&mut self) {
        loop {
            match self.ties.channel.hear() {
                Heard::Nothing => return,
                Heard::Closed => return self.lose(Cause::MonitorLost),
                Heard::Message(Message::Cancel(signal)) => {
                    self.cancelled_by = Some(signal);
                    self.feed(Event::Cancel { signal: signal.signal });
                }
                Heard::Message(Message::Forward(Received { signal, .. })) => {
                    if self.run.plan.to_group {
                        self.sweep.signal_group(signal);
                    } else {
                        self.sweep.signal_command(signal);
                    }
                }
                Heard::Message(Message::Stop) => {
                    // Once it is to end, nobody is held up by a stop.
                    if matches!(self.state, State::Running { .. } | State::Lingering { .. }) {
                        self.sweep.stop_tree();
                    }
                    self.ties.channel.say(Message::Stopped);
                }
                Heard::Message(Message::Continue) => self.sweep.continue_tree(),
                Heard::Message(Message::GuardLost) => self.lose(Cause::SupervisorLost),
                Heard::Message(Message::Stopped | Message::Guarded | Message::Verdict { .. }) => {}
            }
        }
    }

    fn lose(&mut self, cause: Cause) {
        self.monitor_is_gone |= cause == Cause::MonitorLost;
        self.feed(Event::Lost { cause });
    }

    fn move_bytes(&mut self, ready: &[Wait; WAITS]) {
        let draining = matches!(self.state, State::Draining { .. });
        let Some(relay) = &mut self.relay else {
            if draining {
                self.feed(Event::Drained);
            }
            return;
        };
        relay.set_time(self.now);
        let progress = if draining { relay.drain(ready) } else { relay.turn(ready) };
        let said = relay.agent().map(|agent| Event::Agent {
            oldest: agent.oldest().map(|call| call.since),
            result: agent.result(),
        });
        if draining && progress.moved {
            self.feed(Event::Moved);
        }
        if let Some(said) = said {
            self.feed(said);
        }
        if self.rules.limits.idle.is_some() {
            self.feed(Event::Output { seen: progress.seen > 0, held: progress.held });
        }
        if progress.over_limit {
            self.feed(Event::Limit(Cause::Output));
        }
        if progress.drained {
            self.feed(Event::Drained);
        }
        if let Some(after) = progress.retry {
            self.look_again(after);
        }
    }

    /// One event for the machine, and what follows from it.
    fn feed(&mut self, event: Event) {
        let (state, actions) = machine::step(&self.rules, self.state, self.now, event);
        self.state = state;
        for action in actions.iter() {
            self.enact(action);
        }
    }

    fn enact(&mut self, action: Action) {
        self.carry_out(action);
        // A walk over a large tree takes its time.
        if !matches!(action, Action::MarkOver(Cause::Exited) | Action::Drain) {
            self.now = now();
        }
        match action {
            Action::Kill => self.feed(Event::Pass { alive: self.alive }),
            Action::Signal(_) => self.feed(Event::Signalled),
            Action::Measure => {
                let used = self.sweep.cpu_time_ns();
                self.feed(Event::Used(Span(used)));
            }
            Action::MarkOver(_)
            | Action::ListLeftovers
            | Action::ListSurvivors
            | Action::Drain
            | Action::GiveUpOutput => {}
        }
    }

    fn carry_out(&mut self, action: Action) {
        if !matches!(
            action,
            Action::MarkOver(Cause::Exited | Cause::Exec) | Action::Drain | Action::Measure
        ) {
            self.sweep.hurry();
        }
        let most = if self.run.sink.is_some() { MOST_LISTED } else { FEW };
        match action {
            Action::MarkOver(cause) => {
                self.steps.cause_seen = Some(self.now);
                self.detail = self.detail_of(cause);
                if !matches!(cause, Cause::Exited | Cause::Exec) {
                    self.tree_at_cause = self.sweep.list(most);
                }
            }
            // Its answer is an event.
            Action::Measure => {}
            Action::ListLeftovers => self.leftovers = self.sweep.list(most),
            Action::Signal(signal) => {
                let first = self.steps.first_signal.is_none();
                let reached = match self.run.plan.scope {
                    Scope::Tree => self.sweep.signal_tree(signal, first),
                    Scope::Command => {
                        let reached = self.sweep.signal_command(signal);
                        self.sweep.signal_command(process::SIGCONT);
                        u64::from(reached)
                    }
                };
                if first {
                    self.signalled = reached;
                    self.steps.first_signal = Some(now());
                }
            }
            Action::Kill => {
                let at = now();
                self.alive = self.sweep.kill_pass();
                if self.alive > 0 {
                    self.escalated = true;
                    self.steps.killed.get_or_insert(at);
                }
            }
            Action::ListSurvivors => {
                self.survivors = self.sweep.list_survivors(MOST_LISTED);
                self.blame_tracers();
                self.blame_group();
            }
            Action::Drain => {
                self.move_bytes(&[Wait::NOTHING; WAITS]);
            }
            Action::GiveUpOutput => {
                if let Some(relay) = &mut self.relay {
                    relay.give_up();
                }
            }
        }
    }

    fn detail_of(&self, cause: Cause) -> Detail {
        match (cause, self.failure, self.cancelled_by) {
            (Cause::Exec, Some(Failure { errno, .. }), _) => {
                Detail::Exec { name: errno.name(), text: errno.text() }
            }
            (Cause::Cancelled { .. }, _, Some(Received { signal, pid, uid, .. })) => {
                Detail::Signal { signal, pid, uid }
            }
            (Cause::Tool, ..) => {
                let agent = self.relay.as_ref().and_then(Relay::agent);
                agent.and_then(Agent::oldest).map_or(Detail::None, |call| Detail::Tool {
                    name: call.name,
                    age_ms: self.now.since(call.since).0 / 1_000_000,
                })
            }
            _ => Detail::None,
        }
    }
}

/// The earlier of the two, where there are two.
fn min(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (some, None) | (None, some) => some,
    }
}
