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
//! May use: `core`, `cause`, `time`.

use super::cause::Cause;
use super::time::{Instant, Span};

/// How far a proof that goes well may be prolonged.
pub const LONGEST_PROOF: Span = Span::from_secs(30);
/// The wait after the first pass of SIGKILL; it doubles from pass to pass.
const FIRST_PAUSE: Span = Span::from_millis(2);
/// What one process needs to die, about.
const DYING: Span = Span(40_000);
/// The longest wait between two passes.
const LONGEST_PAUSE: Span = Span::from_millis(64);
/// Most steps before SIGKILL.
pub const MOST_STEPS: usize = 4;

/// What the run was asked to do, as far as time and signals go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// When `--wall` is over.
    pub wall: Option<Instant>,
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
    /// `--output-limit` was passed.
    OutputLimit,
    /// One of corral's own two processes is gone.
    Lost {
        /// [`Cause::MonitorLost`] or [`Cause::SupervisorLost`].
        cause: Cause,
    },
    /// A pass of SIGKILL found so many.
    Pass {
        /// Processes that were alive.
        alive: u64,
    },
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
    /// Send this signal and SIGCONT, once to each process.
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
    /// Before the command is started.
    pub const START: Self = Self::Running { ended: false };

    /// When the loop has to look again though nothing happens.
    #[must_use]
    pub fn deadline(&self, rules: &Rules) -> Option<Instant> {
        match *self {
            Self::Running { .. } => rules.wall,
            Self::Lingering { until, .. } | Self::Grace { until, .. } => Some(until),
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
        State::Running { ended } => running(rules, ended, now, event),
        State::Lingering { cause, until } => lingering(rules, cause, until, now, event),
        State::Grace {
            cause,
            since,
            step,
            until,
            impatient,
        } => match event {
            Event::TreeEmpty => drain(rules, cause, since, true),
            Event::Lost { .. } => kill(rules, cause, since, now),
            Event::Cancel { .. } if impatient => kill(rules, cause, since, now),
            Event::Cancel { .. } => (
                State::Grace {
                    cause,
                    since,
                    step,
                    until,
                    impatient: true,
                },
                Actions::NONE,
            ),
            Event::Tick if now >= until => {
                let next = step + 1;
                match rules.step(next) {
                    Some((signal, wait)) => {
                        let until = now.plus(wait);
                        let state = State::Grace {
                            cause,
                            since,
                            step: next,
                            until,
                            impatient,
                        };
                        (state, Actions::one(Action::Signal(signal)))
                    }
                    None => kill(rules, cause, since, now),
                }
            }
            Event::CommandEnded { .. }
            | Event::OutputLimit
            | Event::Pass { .. }
            | Event::Drained
            | Event::Tick => (state, Actions::NONE),
        },
        State::Killing {
            cause,
            since,
            began,
            until,
            next,
            pause,
            alive,
        } => match event {
            Event::TreeEmpty => drain(rules, cause, since, true),
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
                (
                    State::Killing {
                        cause,
                        since,
                        began,
                        until,
                        next,
                        pause,
                        alive,
                    },
                    Actions::NONE,
                )
            }
            Event::Tick if now >= until => {
                let (state, actions) = drain(rules, cause, since, false);
                (state, actions.after(Action::ListSurvivors))
            }
            Event::Tick if now >= next => (state, Actions::one(Action::Kill)),
            Event::CommandEnded { .. }
            | Event::Cancel { .. }
            | Event::OutputLimit
            | Event::Lost { .. }
            | Event::Drained
            | Event::Tick => (state, Actions::NONE),
        },
        State::Draining {
            cause,
            proved,
            until,
        } => match event {
            Event::Drained => (State::Done { cause, proved }, Actions::NONE),
            Event::Tick if until.is_none_or(|until| now < until) => (state, Actions::NONE),
            Event::Tick | Event::Cancel { .. } | Event::Lost { .. } => (
                State::Done { cause, proved },
                Actions::one(Action::GiveUpOutput),
            ),
            Event::CommandEnded { .. }
            | Event::TreeEmpty
            | Event::OutputLimit
            | Event::Pass { .. } => (state, Actions::NONE),
        },
        State::Done { .. } => (state, Actions::NONE),
    }
}

fn running(rules: &Rules, ended: bool, now: Instant, event: Event) -> (State, Actions) {
    let state = State::Running { ended };
    match event {
        Event::CommandEnded { exec_failed: false } if rules.wait_for_leftovers => {
            (State::Running { ended: true }, Actions::NONE)
        }
        Event::CommandEnded { exec_failed } => {
            let cause = if exec_failed {
                Cause::Exec
            } else {
                Cause::Exited
            };
            let until = now.plus(rules.linger);
            (
                State::Lingering { cause, until },
                Actions::one(Action::MarkOver(cause)),
            )
        }
        // Without the command's end this cannot be: it is a child of ours. Its
        // status may have gone to somebody else all the same.
        Event::TreeEmpty => {
            let (state, actions) = drain(rules, Cause::Exited, now, true);
            (state, actions.after(Action::MarkOver(Cause::Exited)))
        }
        Event::Cancel { signal } => stop(rules, Cause::Cancelled { signal }, now),
        Event::OutputLimit => stop(rules, Cause::Output, now),
        Event::Lost { cause } => {
            let (state, actions) = kill(rules, cause, now, now);
            (state, actions.after(Action::MarkOver(cause)))
        }
        Event::Tick if rules.wall.is_some_and(|wall| now >= wall) => stop(rules, Cause::Wall, now),
        Event::Pass { .. } | Event::Drained | Event::Tick => (state, Actions::NONE),
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
        Event::TreeEmpty => drain(rules, cause, now, true),
        Event::Tick if now >= until => {
            let (state, actions) = signal(rules, cause, now);
            (state, actions.after(Action::ListLeftovers))
        }
        // Whoever cancels now wants it to end, not to begin ending.
        Event::Cancel { .. } | Event::Lost { .. } => {
            let (state, actions) = kill(rules, cause, now, now);
            (state, actions.after(Action::ListLeftovers))
        }
        Event::CommandEnded { .. }
        | Event::OutputLimit
        | Event::Pass { .. }
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
    let first = rules
        .step(0)
        .filter(|_| rules.has_grace() && !nobody_to_ask);
    let Some((first, wait)) = first else {
        return kill(rules, cause, now, now);
    };
    let (signal, impatient) = match cause {
        Cause::Cancelled { signal } => (signal, true),
        Cause::Exited | Cause::Exec => (first, true),
        Cause::Wall | Cause::Output | Cause::SupervisorLost | Cause::MonitorLost => (first, false),
    };
    let state = State::Grace {
        cause,
        since: now,
        step: 0,
        until: now.plus(wait),
        impatient,
    };
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
fn drain(rules: &Rules, cause: Cause, since: Instant, proved: bool) -> (State, Actions) {
    let until = match cause {
        Cause::Exited => rules.wall,
        Cause::Exec
        | Cause::Wall
        | Cause::Output
        | Cause::Cancelled { .. }
        | Cause::SupervisorLost
        | Cause::MonitorLost => Some(since.plus(rules.grace)),
    };
    let state = State::Draining {
        cause,
        proved,
        until,
    };
    if proved {
        (state, Actions::one(Action::Drain))
    } else {
        // What survives may write for ever; what is there now is passed on.
        (
            State::Done { cause, proved },
            Actions::two(Action::Drain, Action::GiveUpOutput),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules {
        wall: Some(Instant(1_000_000_000)),
        linger: Span::from_millis(100),
        grace: Span::from_millis(500),
        prove: Span::from_millis(400),
        steps: [
            (15, Span::from_millis(300)),
            (2, Span::from_millis(500)),
            (0, Span(0)),
            (0, Span(0)),
        ],
        step_count: 2,
        wait_for_leftovers: false,
        command_only: false,
    };

    const EVENTS: [Event; 11] = [
        Event::CommandEnded { exec_failed: false },
        Event::CommandEnded { exec_failed: true },
        Event::TreeEmpty,
        Event::Cancel { signal: 2 },
        Event::OutputLimit,
        Event::Lost {
            cause: Cause::MonitorLost,
        },
        Event::Lost {
            cause: Cause::SupervisorLost,
        },
        Event::Pass { alive: 3 },
        Event::Pass { alive: 0 },
        Event::Drained,
        Event::Tick,
    ];

    /// What has been done on one path.
    #[derive(Clone, Copy, Default)]
    struct Path {
        marked: u32,
        cause: Option<Cause>,
        kills: u32,
        signals: u32,
        listed: u32,
        empty: bool,
    }

    fn enact(path: &mut Path, state: &State, actions: Actions, event: Event) {
        path.empty |= event == Event::TreeEmpty;
        for action in actions.iter() {
            match action {
                Action::MarkOver(cause) => {
                    path.marked += 1;
                    path.cause = Some(cause);
                }
                Action::Kill => {
                    assert_eq!(path.marked, 1, "SIGKILL before the run is marked over");
                    path.kills += 1;
                }
                Action::Signal(_) => {
                    assert_eq!(path.marked, 1, "a signal before the run is marked over");
                    assert_eq!(path.kills, 0, "a signal after SIGKILL");
                    path.signals += 1;
                }
                Action::ListLeftovers => {
                    assert!(matches!(path.cause, Some(Cause::Exited | Cause::Exec)));
                    path.listed += 1;
                }
                Action::ListSurvivors => assert!(path.kills > 0),
                Action::Drain | Action::GiveUpOutput => {}
            }
        }
        assert!(path.marked <= 1, "marked over twice");
        assert!(path.signals <= 2, "a step taken twice");
        assert!(path.listed <= 1, "leftovers listed twice");
        if let State::Draining { proved, cause, .. } | State::Done { proved, cause } = *state {
            assert!(!proved || path.empty, "proved without an empty tree");
            assert_eq!(Some(cause), path.cause, "the first cause wins");
        }
    }

    fn walk(rules: &Rules, state: State, now: Instant, depth: u32, path: Path, count: &mut u64) {
        *count += 1;
        if depth == 0 {
            return;
        }
        for event in EVENTS {
            // Time passes to the deadline where there is one, so that Tick has
            // something to do; other events come a little later.
            let at = match (event, state.deadline(rules)) {
                (Event::Tick, Some(deadline)) => deadline.max(now),
                _ => now.plus(Span::from_millis(1)),
            };
            let (next, actions) = step(rules, state, at, event);
            if state.done().is_some() {
                assert_eq!(next, state, "Done absorbs everything");
                assert_eq!(actions, Actions::NONE, "Done does nothing");
                continue;
            }
            let mut path = path;
            enact(&mut path, &next, actions, event);
            walk(rules, next, at, depth - 1, path, count);
        }
    }

    fn every_kind_of_rules() -> impl Iterator<Item = Rules> {
        [true, false].into_iter().flat_map(|wait_for_leftovers| {
            let base = Rules {
                wait_for_leftovers,
                ..RULES
            };
            [
                base,
                Rules { wall: None, ..base },
                Rules {
                    step_count: 1,
                    grace: Span::ZERO,
                    ..base
                },
                Rules {
                    linger: Span::ZERO,
                    prove: Span::ZERO,
                    ..base
                },
            ]
        })
    }

    #[test]
    fn every_sequence_of_events_keeps_the_invariants() {
        let mut count = 0;
        for rules in every_kind_of_rules() {
            walk(
                &rules,
                State::START,
                Instant(0),
                6,
                Path::default(),
                &mut count,
            );
        }
        assert!(count > 1_000_000, "the walk was cut short: {count}");
    }

    /// Every state from which the clock alone moves the run on reaches the end.
    #[test]
    fn every_path_on_which_time_goes_on_ends() {
        for rules in every_kind_of_rules() {
            let starts = EVENTS
                .into_iter()
                .flat_map(|first| EVENTS.map(|second| (first, second)));
            for (first, second) in starts {
                let mut now = Instant(0);
                let (state, _) = step(&rules, State::START, now, first);
                let (mut state, _) = step(&rules, state, now, second);
                let mut alive = 1000u64;
                for _ in 0..10_000 {
                    let Some(deadline) = state.deadline(&rules) else {
                        break;
                    };
                    now = deadline.max(now);
                    let (next, actions) = step(&rules, state, now, Event::Tick);
                    state = next;
                    if actions.iter().any(|action| action == Action::Kill) {
                        alive = alive.saturating_sub(1);
                        state = step(&rules, state, now, Event::Pass { alive }).0;
                    }
                }
                let waits_for_the_command = matches!(state, State::Running { .. });
                let waits_for_a_reader = matches!(state, State::Draining { until: None, .. });
                assert!(
                    state.done().is_some()
                        || rules.wall.is_none() && (waits_for_the_command || waits_for_a_reader),
                    "{first:?} {second:?} stands at {state:?}"
                );
            }
        }
    }

    fn run(rules: &Rules, events: &[(u64, Event)]) -> (State, Vec<Action>) {
        let mut state = State::START;
        let mut all = Vec::new();
        for &(millis, event) in events {
            let (next, actions) = step(rules, state, Instant(millis * 1_000_000), event);
            state = next;
            all.extend(actions.iter());
        }
        (state, all)
    }

    const ENDED: Event = Event::CommandEnded { exec_failed: false };

    #[test]
    fn a_clean_run_does_nothing_but_drain() {
        let (state, actions) = run(
            &RULES,
            &[(5, ENDED), (5, Event::TreeEmpty), (5, Event::Drained)],
        );
        assert_eq!(
            state,
            State::Done {
                cause: Cause::Exited,
                proved: true
            }
        );
        assert_eq!(actions, [Action::MarkOver(Cause::Exited), Action::Drain]);
    }

    #[test]
    fn the_wall_limit_takes_each_step_once_and_then_kills() {
        let ticks: Vec<_> = (0..110).map(|n| (1000 + n * 10, Event::Tick)).collect();
        let (state, actions) = run(&RULES, &ticks);
        assert!(
            matches!(
                state,
                State::Killing {
                    cause: Cause::Wall,
                    ..
                }
            ),
            "{state:?}"
        );
        let expected = [
            Action::MarkOver(Cause::Wall),
            Action::Signal(15),
            Action::Signal(2),
            Action::Kill,
        ];
        assert_eq!(actions.get(..4), Some(&expected[..]));
        assert!(actions.iter().skip(4).all(|&action| action == Action::Kill));
    }

    #[test]
    fn the_tree_empty_in_grace_ends_it_at_once_without_a_kill() {
        let (state, actions) = run(
            &RULES,
            &[
                (1000, Event::Tick),
                (1001, Event::TreeEmpty),
                (1001, Event::Drained),
            ],
        );
        assert_eq!(
            state,
            State::Done {
                cause: Cause::Wall,
                proved: true
            }
        );
        assert!(!actions.contains(&Action::Kill));
    }

    #[test]
    fn the_signal_that_came_is_the_first_passed_on_and_a_second_ends_the_grace() {
        let cancel = Event::Cancel { signal: 1 };
        let (_, actions) = run(&RULES, &[(10, cancel), (20, cancel)]);
        let cause = Cause::Cancelled { signal: 1 };
        assert_eq!(
            actions,
            [Action::MarkOver(cause), Action::Signal(1), Action::Kill]
        );
    }

    #[test]
    fn after_the_limit_only_the_second_cancel_ends_the_grace() {
        let cancel = Event::Cancel { signal: 15 };
        let (state, actions) = run(&RULES, &[(1000, Event::Tick), (1010, cancel)]);
        assert!(matches!(state, State::Grace { .. }) && !actions.contains(&Action::Kill));
        let (_, actions) = run(
            &RULES,
            &[(1000, Event::Tick), (1010, cancel), (1011, cancel)],
        );
        assert!(actions.contains(&Action::Kill));
    }

    #[test]
    fn after_the_commands_end_one_cancel_skips_linger_and_grace() {
        let cancel = Event::Cancel { signal: 15 };
        let expected = [
            Action::MarkOver(Cause::Exited),
            Action::ListLeftovers,
            Action::Kill,
        ];
        assert_eq!(run(&RULES, &[(5, ENDED), (6, cancel)]).1, expected);
    }

    #[test]
    fn leftovers_get_their_signals_after_the_linger() {
        let (_, actions) = run(
            &RULES,
            &[(5, ENDED), (104, Event::Tick), (105, Event::Tick)],
        );
        let expected = [
            Action::MarkOver(Cause::Exited),
            Action::ListLeftovers,
            Action::Signal(15),
        ];
        assert_eq!(actions, expected);
    }

    #[test]
    fn waiting_for_leftovers_keeps_the_limits() {
        let rules = Rules {
            wait_for_leftovers: true,
            ..RULES
        };
        let (state, _) = run(
            &rules,
            &[(5, ENDED), (500, Event::Tick), (1000, Event::Tick)],
        );
        assert!(matches!(
            state,
            State::Grace {
                cause: Cause::Wall,
                ..
            }
        ));
        let (state, _) = run(
            &rules,
            &[(5, ENDED), (6, Event::TreeEmpty), (6, Event::Drained)],
        );
        assert_eq!(
            state,
            State::Done {
                cause: Cause::Exited,
                proved: true
            }
        );
    }

    #[test]
    fn no_grace_means_sigkill_at_once() {
        let rules = Rules {
            step_count: 1,
            grace: Span::ZERO,
            ..RULES
        };
        let (_, actions) = run(&rules, &[(1000, Event::Tick)]);
        assert_eq!(actions, [Action::MarkOver(Cause::Wall), Action::Kill]);
    }

    #[test]
    fn what_outlives_the_command_is_not_asked_under_the_commands_scope() {
        let rules = Rules {
            command_only: true,
            ..RULES
        };
        let (_, actions) = run(&rules, &[(5, ENDED), (105, Event::Tick)]);
        let expected = [
            Action::MarkOver(Cause::Exited),
            Action::ListLeftovers,
            Action::Kill,
        ];
        assert_eq!(actions, expected);
        let (_, actions) = run(&rules, &[(1000, Event::Tick)]);
        assert_eq!(actions, [Action::MarkOver(Cause::Wall), Action::Signal(15)]);
    }

    #[test]
    fn a_loss_kills_at_once() {
        for cause in [Cause::MonitorLost, Cause::SupervisorLost] {
            let (_, actions) = run(&RULES, &[(3, Event::Lost { cause })]);
            assert_eq!(actions, [Action::MarkOver(cause), Action::Kill]);
        }
    }

    #[test]
    fn the_proof_is_prolonged_only_while_fewer_are_left() {
        let start = [(
            3,
            Event::Lost {
                cause: Cause::MonitorLost,
            },
        )];
        let until = |events: &[(u64, Event)]| match run(&RULES, &[&start[..], events].concat()).0 {
            State::Killing { until, .. } => until,
            other => panic!("{other:?}"),
        };
        let first = until(&[]);
        assert_eq!(first, Instant(403_000_000));
        assert_eq!(
            until(&[(100, Event::Pass { alive: 5 })]),
            Instant(500_000_000)
        );
        let stuck = [
            (100, Event::Pass { alive: 5 }),
            (300, Event::Pass { alive: 5 }),
        ];
        assert_eq!(until(&stuck), Instant(500_000_000));
    }

    #[test]
    fn an_unproved_end_lists_its_survivors() {
        let lost = Event::Lost {
            cause: Cause::MonitorLost,
        };
        let (state, actions) = run(&RULES, &[(0, lost), (400, Event::Tick)]);
        assert_eq!(
            state,
            State::Done {
                cause: Cause::MonitorLost,
                proved: false
            }
        );
        assert!(actions.contains(&Action::ListSurvivors));
    }

    #[test]
    fn a_reader_that_takes_nothing_is_given_up_one_grace_after_the_cause() {
        let cancel = Event::Cancel { signal: 15 };
        let (state, _) = run(&RULES, &[(10, cancel), (20, Event::TreeEmpty)]);
        assert_eq!(state.deadline(&RULES), Some(Instant(510_000_000)));
        let (state, _) = run(&RULES, &[(10, ENDED), (10, Event::TreeEmpty)]);
        assert_eq!(state.deadline(&RULES), RULES.wall);
        let endless = Rules {
            wall: None,
            ..RULES
        };
        let (state, _) = run(&endless, &[(10, ENDED), (10, Event::TreeEmpty)]);
        assert_eq!(state.deadline(&endless), None);
        let (state, actions) = run(
            &endless,
            &[(10, ENDED), (10, Event::TreeEmpty), (99, cancel)],
        );
        assert_eq!(
            state,
            State::Done {
                cause: Cause::Exited,
                proved: true
            }
        );
        assert!(actions.contains(&Action::GiveUpOutput));
    }
}
