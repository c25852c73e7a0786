//! Given what just happened, what is to be done?
//!
//! The run as a state machine: [`step`] takes a state, a moment and an event and
//! returns the next state and what is to be done now. It knows no kernel: the
//! supervisor turns what ppoll reports into events, enacts the actions, and
//! feeds their results back as events.
//!
//! Invariants, walked exhaustively by the tests: no SIGKILL before the run is
//! marked over; the mark is set once, by the first cause; no step of the signals
//! is taken twice; never proved but by an empty tree; [`State::Done`] absorbs
//! everything; every path on which time goes on ends.
//!
//! [`State::deadline`] is the only source of the loop's timeout.
//!
//! May use: `core`, `cause`, `time`, `watch`.

use super::cause::Cause;
use super::time::{Instant, Span};
use super::watch::{Limits, Watch};

/// How far a proof that goes well may be prolonged.
pub const LONGEST_PROOF: Span = Span::from_secs(30);
/// The wait after the first pass of SIGKILL; it doubles from pass to pass.
const FIRST_PAUSE: Span = Span::from_millis(5);
/// What one process needs to die, about.
const DYING: Span = Span(80_000);
/// The longest wait between two passes.
const LONGEST_PAUSE: Span = Span::from_millis(64);
/// What a reader is given at least, however short the grace or late the end.
const LEAST_PATIENCE: Span = Span::from_millis(100);
/// Most steps before SIGKILL.
pub const MOST_STEPS: usize = 4;

/// What the run was asked to do, as far as time and signals go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// When `--wall` is over.
    pub wall: Option<Instant>,
    /// The others of the run in progress.
    pub limits: Limits,
    /// `--linger`.
    pub linger: Span,
    /// `--grace`.
    pub grace: Span,
    /// `--prove`.
    pub prove: Span,
    /// `--signal`: each with the wait after it, the last one's being the grace.
    pub steps: [(i32, Span); MOST_STEPS],
    /// How many of them.
    pub step_count: usize,
    /// `--leftovers=wait`.
    pub wait_for_leftovers: bool,
    /// `--signal-scope=command`: what outlives the command gets only SIGKILL.
    pub command_only: bool,
}

impl Rules {
    fn step(&self, index: usize) -> Option<(i32, Span)> {
        if index >= self.step_count {
            return None;
        }
        self.steps.get(index).copied()
    }

    /// How long a reader that took something is waited for once more.
    fn patience(&self) -> Span {
        self.grace.max(LEAST_PATIENCE)
    }

    /// Whether there is time between the first signal and SIGKILL.
    fn has_grace(&self) -> bool {
        self.step_count > 1 || self.grace > Span::ZERO
    }
}

/// Where the run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The command runs, or, under `--leftovers=wait`, what it left behind.
    Running {
        /// The command itself has ended.
        ended: bool,
        /// The clocks that stop with the run.
        watch: Watch,
    },
    /// The command has ended, and what is left may end by itself.
    Lingering {
        /// `exited` or `exec`.
        cause: Cause,
        /// Until then.
        until: Instant,
    },
    /// The signal of a step is out, and the tree has time to end.
    Grace {
        /// What ended the run.
        cause: Cause,
        /// When the run was marked over.
        since: Instant,
        /// Which step was taken.
        step: usize,
        /// When the next one is due.
        until: Instant,
        /// The next cancelling signal ends the grace.
        impatient: bool,
    },
    /// SIGKILL is out, and the end is to be proved.
    Killing {
        /// What ended the run.
        cause: Cause,
        /// When the run was marked over.
        since: Instant,
        /// When the first SIGKILL went out.
        began: Instant,
        /// When the proof is given up.
        until: Instant,
        /// When the next pass is due.
        next: Instant,
        /// The pause before it.
        pause: Span,
        /// How many the last pass found.
        alive: u64,
    },
    /// The tree is empty or given up, and output may be left to pass on.
    Draining {
        /// What ended the run.
        cause: Cause,
        /// Whether the end is proved.
        proved: bool,
        /// Until when a reader is waited for.
        until: Option<Instant>,
    },
    /// The run is over.
    Done {
        /// What ended it.
        cause: Cause,
        /// Whether the end is proved.
        proved: bool,
    },
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The command has ended; whether it never began (a failed exec).
    CommandEnded {
        /// Its exec failed.
        exec_failed: bool,
    },
    /// No child is left: nothing of the tree is alive.
    TreeEmpty,
    /// SIGTERM, SIGINT, SIGHUP or SIGQUIT came.
    Cancel {
        /// Which.
        signal: i32,
    },
    /// A limit was reached that others watch.
    Limit(Cause),
    /// The streams were looked at.
    Output {
        /// Bytes came from the command.
        seen: bool,
        /// Some are held because our reader takes none.
        held: bool,
    },
    /// What an agent's output says: the oldest call without a result is from then,
    /// and its last word.
    Agent {
        /// The call.
        oldest: Option<Instant>,
        /// The last word.
        result: Option<Instant>,
    },
    /// The tree has used so much CPU time, dead members included.
    Used(Span),
    /// One of corral's own two processes is gone.
    Lost {
        /// [`Cause::MonitorLost`] or [`Cause::SupervisorLost`].
        cause: Cause,
    },
    /// The signal of a step is out: its wait begins.
    Signalled,
    /// A pass of SIGKILL found so many.
    Pass {
        /// Processes that were alive.
        alive: u64,
    },
    /// A reader took some of what is left to pass on.
    Moved,
    /// Everything that can be passed on has been.
    Drained,
    /// Time went on.
    Tick,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The run is over for this cause: note it, and what is alive.
    MarkOver(Cause),
    /// Note what outlived the command.
    ListLeftovers,
    /// Measure the CPU time; answer with [`Event::Used`].
    Measure,
    /// Send this signal and SIGCONT, once to each process; answer with
    /// [`Event::Signalled`].
    Signal(i32),
    /// One pass of SIGKILL over all that is alive; answer with [`Event::Pass`].
    Kill,
    /// Note what may be alive.
    ListSurvivors,
    /// Pass on what is left; answer with [`Event::Drained`] when it is.
    Drain,
    /// Leave what is left.
    GiveUpOutput,
}

/// At most three things to do, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actions([Option<Action>; 3]);

impl Actions {
    const NONE: Self = Self([None; 3]);

    const fn one(action: Action) -> Self {
        Self([Some(action), None, None])
    }

    const fn two(first: Action, second: Action) -> Self {
        Self([Some(first), Some(second), None])
    }

    const fn after(self, first: Action) -> Self {
        let [second, third, _] = self.0;
        Self([Some(first), second, third])
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = Action> + use<> {
        self.0.into_iter().flatten()
    }
}

impl State {
    /// As the command is started.
    #[must_use]
    pub fn start(rules: &Rules, now: Instant) -> Self {
        Self::Running { ended: false, watch: Watch::new(&rules.limits, now) }
    }

    /// When the loop has to look again though nothing happens.
    #[must_use]
    pub fn deadline(&self, rules: &Rules) -> Option<Instant> {
        match *self {
            Self::Running { watch, .. } => {
                let clocks = watch.clocks().map(|(at, _)| at);
                let others = [rules.wall, watch.measure_at()];
                clocks.into_iter().chain(others).flatten().min()
            }
            // The wall limit ends the linger, though the cause stays.
            Self::Lingering { until, .. } => Some(rules.wall.map_or(until, |wall| until.min(wall))),
            Self::Grace { until, .. } => Some(until),
            Self::Killing { until, next, .. } => Some(until.min(next)),
            Self::Draining { until, .. } => until,
            Self::Done { .. } => None,
        }
    }

    /// Cause and proof, once the run is over.
    #[must_use]
    pub const fn done(&self) -> Option<(Cause, bool)> {
        match *self {
            Self::Done { cause, proved } => Some((cause, proved)),
            Self::Running { .. }
            | Self::Lingering { .. }
            | Self::Grace { .. }
            | Self::Killing { .. }
            | Self::Draining { .. } => None,
        }
    }
}

/// The one transition function.
#[must_use]
pub fn step(rules: &Rules, state: State, now: Instant, event: Event) -> (State, Actions) {
    match state {
        State::Running { ended, watch } => running(rules, ended, watch, now, event),
        State::Lingering { cause, until } => lingering(rules, cause, until, now, event),
        State::Grace { cause, since, step, until, impatient } => match event {
            Event::TreeEmpty => drain(rules, cause, since, now, true),
            Event::Signalled => {
                // A walk over a storm takes its time, which is none of theirs.
                let until = rules.step(step).map_or(until, |(_, wait)| now.plus(wait));
                (State::Grace { cause, since, step, until, impatient }, Actions::NONE)
            }
            Event::Lost { .. } => kill(rules, cause, since, now),
            Event::Cancel { .. } if impatient => kill(rules, cause, since, now),
            Event::Cancel { .. } => {
                (State::Grace { cause, since, step, until, impatient: true }, Actions::NONE)
            }
            Event::Tick if now >= until => {
                let next = step + 1;
                match rules.step(next) {
                    Some((signal, wait)) => {
                        let until = now.plus(wait);
                        let state = State::Grace { cause, since, step: next, until, impatient };
                        (state, Actions::one(Action::Signal(signal)))
                    }
                    None => kill(rules, cause, since, now),
                }
            }
            Event::CommandEnded { .. }
            | Event::Limit(_)
            | Event::Output { .. }
            | Event::Agent { .. }
            | Event::Used(_)
            | Event::Pass { .. }
            | Event::Moved
            | Event::Drained
            | Event::Tick => (state, Actions::NONE),
        },
        State::Killing { cause, since, began, until, next, pause, alive } => match event {
            Event::TreeEmpty => drain(rules, cause, since, now, true),
            Event::Pass { alive: found } => {
                let until = if found < alive {
                    until.max(now.plus(rules.prove).min(began.plus(LONGEST_PROOF)))
                } else {
                    until
                };
                // The dying need a moment each; looking earlier finds them again.
                let dying = Span(found.saturating_mul(DYING.0)).min(LONGEST_PAUSE);
                let next = now.plus(pause.max(dying));
                let pause = Span(pause.0.saturating_mul(2)).min(LONGEST_PAUSE);
                let alive = found;
                (State::Killing { cause, since, began, until, next, pause, alive }, Actions::NONE)
            }
            Event::Tick if now >= until => {
                let (state, actions) = drain(rules, cause, since, now, false);
                (state, actions.after(Action::ListSurvivors))
            }
            Event::Tick if now >= next => (state, Actions::one(Action::Kill)),
            Event::CommandEnded { .. }
            | Event::Cancel { .. }
            | Event::Limit(_)
            | Event::Output { .. }
            | Event::Agent { .. }
            | Event::Used(_)
            | Event::Signalled
            | Event::Lost { .. }
            | Event::Moved
            | Event::Drained
            | Event::Tick => (state, Actions::NONE),
        },
        State::Draining { cause, proved, until } => match event {
            Event::Drained => (State::Done { cause, proved }, Actions::NONE),
            Event::Moved => {
                // Only what takes nothing is given up; the wall limit stands.
                let later = now.plus(rules.patience());
                let prolonged = until.filter(|_| cause != Cause::Exited);
                let until = prolonged.map_or(until, |until| Some(until.max(later)));
                (State::Draining { cause, proved, until }, Actions::NONE)
            }
            Event::Tick if until.is_none_or(|until| now < until) => (state, Actions::NONE),
            Event::Tick | Event::Cancel { .. } | Event::Lost { .. } => {
                (State::Done { cause, proved }, Actions::one(Action::GiveUpOutput))
            }
            Event::CommandEnded { .. }
            | Event::TreeEmpty
            | Event::Limit(_)
            | Event::Output { .. }
            | Event::Agent { .. }
            | Event::Used(_)
            | Event::Signalled
            | Event::Pass { .. } => (state, Actions::NONE),
        },
        State::Done { .. } => (state, Actions::NONE),
    }
}

fn running(
    rules: &Rules,
    ended: bool,
    watch: Watch,
    now: Instant,
    event: Event,
) -> (State, Actions) {
    let state = State::Running { ended, watch };
    match event {
        Event::CommandEnded { exec_failed: false } if rules.wait_for_leftovers => {
            (State::Running { ended: true, watch }, Actions::NONE)
        }
        Event::CommandEnded { exec_failed } => {
            let cause = if exec_failed { Cause::Exec } else { Cause::Exited };
            let until = now.plus(rules.linger);
            (State::Lingering { cause, until }, Actions::one(Action::MarkOver(cause)))
        }
        // Without the command's end this cannot be: it is a child of ours. Its
        // status may have gone to somebody else all the same.
        Event::TreeEmpty => {
            let (state, actions) = drain(rules, Cause::Exited, now, now, true);
            (state, actions.after(Action::MarkOver(Cause::Exited)))
        }
        Event::Cancel { signal } => stop(rules, Cause::Cancelled { signal }, now),
        Event::Limit(cause) => stop(rules, cause, now),
        Event::Lost { cause } => {
            let (state, actions) = kill(rules, cause, now, now);
            (state, actions.after(Action::MarkOver(cause)))
        }
        Event::Output { seen, held } => {
            let watch = watch.output(&rules.limits, now, seen, held);
            (State::Running { ended, watch }, Actions::NONE)
        }
        Event::Agent { oldest, result } => {
            let watch = watch.agent(&rules.limits, oldest, result);
            (State::Running { ended, watch }, Actions::NONE)
        }
        Event::Used(used) => match watch.measured(&rules.limits, now, used) {
            Some(watch) => (State::Running { ended, watch }, Actions::NONE),
            None => stop(rules, Cause::Cpu, now),
        },
        Event::Tick => {
            // Of two that are over the one that was first; of a tie, in this order.
            let clocks = [(rules.wall, Cause::Wall)].into_iter().chain(watch.clocks());
            let over = clocks.filter_map(|(at, cause)| Some((at?, cause)));
            let first = over.min_by_key(|&(at, _)| at).filter(|&(at, _)| now >= at);
            if let Some((_, cause)) = first {
                stop(rules, cause, now)
            } else if watch.measure_at().is_some_and(|at| now >= at) {
                (state, Actions::one(Action::Measure))
            } else {
                (state, Actions::NONE)
            }
        }
        Event::Signalled | Event::Pass { .. } | Event::Moved | Event::Drained => {
            (state, Actions::NONE)
        }
    }
}

fn lingering(
    rules: &Rules,
    cause: Cause,
    until: Instant,
    now: Instant,
    event: Event,
) -> (State, Actions) {
    match event {
        Event::TreeEmpty => drain(rules, cause, now, now, true),
        Event::Tick if now >= until || rules.wall.is_some_and(|wall| now >= wall) => {
            let (state, actions) = signal(rules, cause, now);
            (state, actions.after(Action::ListLeftovers))
        }
        // Whoever cancels now wants it to end, not to begin ending.
        Event::Cancel { .. } | Event::Lost { .. } => {
            let (state, actions) = kill(rules, cause, now, now);
            (state, actions.after(Action::ListLeftovers))
        }
        Event::CommandEnded { .. }
        | Event::Limit(_)
        | Event::Output { .. }
        | Event::Agent { .. }
        | Event::Used(_)
        | Event::Signalled
        | Event::Pass { .. }
        | Event::Moved
        | Event::Drained
        | Event::Tick => (State::Lingering { cause, until }, Actions::NONE),
    }
}

/// Marks the run over and begins to stop it.
fn stop(rules: &Rules, cause: Cause, now: Instant) -> (State, Actions) {
    let (state, actions) = signal(rules, cause, now);
    (state, actions.after(Action::MarkOver(cause)))
}

/// The first step of the signals, or SIGKILL where there is no grace.
fn signal(rules: &Rules, cause: Cause, now: Instant) -> (State, Actions) {
    let nobody_to_ask = rules.command_only && matches!(cause, Cause::Exited | Cause::Exec);
    let first = rules.step(0).filter(|_| rules.has_grace() && !nobody_to_ask);
    let Some((first, wait)) = first else {
        return kill(rules, cause, now, now);
    };
    let (signal, impatient) = match cause {
        Cause::Cancelled { signal } => (signal, true),
        Cause::Exited | Cause::Exec => (first, true),
        Cause::Wall
        | Cause::Idle
        | Cause::Cpu
        | Cause::Tool
        | Cause::Result
        | Cause::Output
        | Cause::Memory
        | Cause::SupervisorLost
        | Cause::MonitorLost => (first, false),
    };
    let state = State::Grace { cause, since: now, step: 0, until: now.plus(wait), impatient };
    (state, Actions::one(Action::Signal(signal)))
}

fn kill(rules: &Rules, cause: Cause, since: Instant, now: Instant) -> (State, Actions) {
    let state = State::Killing {
        cause,
        since,
        began: now,
        until: now.plus(rules.prove),
        next: now,
        pause: FIRST_PAUSE,
        alive: u64::MAX,
    };
    (state, Actions::one(Action::Kill))
}

/// The tree is empty, or given up: what is left is output.
fn drain(
    rules: &Rules,
    cause: Cause,
    since: Instant,
    now: Instant,
    proved: bool,
) -> (State, Actions) {
    let until = match cause {
        Cause::Exited => rules.wall,
        Cause::Exec
        | Cause::Wall
        | Cause::Idle
        | Cause::Cpu
        | Cause::Tool
        | Cause::Result
        | Cause::Output
        | Cause::Memory
        | Cause::Cancelled { .. }
        | Cause::SupervisorLost
        | Cause::MonitorLost => Some(since.plus(rules.grace).max(now.plus(LEAST_PATIENCE))),
    };
    let state = State::Draining { cause, proved, until };
    if proved {
        (state, Actions::one(Action::Drain))
    } else {
        // What survives may write for ever; what is there now is passed on.
        (State::Done { cause, proved }, Actions::two(Action::Drain, Action::GiveUpOutput))
    }
}

#[cfg(test)]
mod tests;
