//! The machine walked through every sequence of events, and its promises one by
//! one.

use super::*;
use crate::policy::watch::CpuLimit;

const RULES: Rules = Rules {
    wall: Some(Instant(1_000_000_000)),
    limits: Limits { idle: None, cpu: None, tool: None, result: None },
    linger: Span::from_millis(100),
    grace: Span::from_millis(500),
    prove: Span::from_millis(400),
    steps: [(15, Span::from_millis(300)), (2, Span::from_millis(500)), (0, Span(0)), (0, Span(0))],
    step_count: 2,
    wait_for_leftovers: false,
    command_only: false,
};

/// Rules with all clocks.
const WATCHED: Rules = Rules {
    limits: Limits {
        idle: Some(Span::from_millis(600)),
        cpu: Some(CpuLimit { limit: Span::from_millis(1600), processors: 2 }),
        tool: Some(Span::from_millis(300)),
        result: Some(Span::from_millis(200)),
    },
    ..RULES
};

const EVENTS: [Event; 18] = [
    Event::Agent { oldest: Some(Instant(0)), result: None },
    Event::Agent { oldest: None, result: Some(Instant(0)) },
    Event::Output { seen: true, held: false },
    Event::Output { seen: false, held: true },
    Event::Used(Span::from_millis(900)),
    Event::Signalled,
    Event::Moved,
    Event::CommandEnded { exec_failed: false },
    Event::CommandEnded { exec_failed: true },
    Event::TreeEmpty,
    Event::Cancel { signal: 2 },
    Event::Limit(Cause::Output),
    Event::Lost { cause: Cause::MonitorLost },
    Event::Lost { cause: Cause::SupervisorLost },
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
            Action::Measure => assert_eq!(path.marked, 0, "measured after the run is over"),
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
        let base = Rules { wait_for_leftovers, ..RULES };
        [
            base,
            Rules { wall: None, ..base },
            Rules { wait_for_leftovers, ..WATCHED },
            Rules { step_count: 1, grace: Span::ZERO, ..base },
            Rules { linger: Span::ZERO, prove: Span::ZERO, ..base },
        ]
    })
}

#[test]
fn every_sequence_of_events_keeps_the_invariants() {
    let mut count = 0;
    for rules in every_kind_of_rules() {
        walk(&rules, State::start(&rules, Instant(0)), Instant(0), 5, Path::default(), &mut count);
    }
    assert!(count > 500_000, "the walk was cut short: {count}");
}

/// Every state from which the clock alone moves the run on reaches the end.
#[test]
fn every_path_on_which_time_goes_on_ends() {
    for rules in every_kind_of_rules() {
        let starts = EVENTS.into_iter().flat_map(|first| EVENTS.map(|second| (first, second)));
        for (first, second) in starts {
            let mut now = Instant(0);
            let (state, _) = step(&rules, State::start(&rules, Instant(0)), now, first);
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
                if actions.iter().any(|action| action == Action::Measure) {
                    state = step(&rules, state, now, Event::Used(Span::ZERO)).0;
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
    let mut state = State::start(rules, Instant(0));
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
    let (state, actions) = run(&RULES, &[(5, ENDED), (5, Event::TreeEmpty), (5, Event::Drained)]);
    assert_eq!(state, State::Done { cause: Cause::Exited, proved: true });
    assert_eq!(actions, [Action::MarkOver(Cause::Exited), Action::Drain]);
}

#[test]
fn the_wall_limit_takes_each_step_once_and_then_kills() {
    let ticks: Vec<_> = (0..110).map(|n| (1000 + n * 10, Event::Tick)).collect();
    let (state, actions) = run(&RULES, &ticks);
    assert!(matches!(state, State::Killing { cause: Cause::Wall, .. }), "{state:?}");
    let expected =
        [Action::MarkOver(Cause::Wall), Action::Signal(15), Action::Signal(2), Action::Kill];
    assert_eq!(actions.get(..4), Some(&expected[..]));
    assert!(actions.iter().skip(4).all(|&action| action == Action::Kill));
}

#[test]
fn the_wait_after_a_signal_begins_when_it_is_out() {
    let (state, _) = run(&RULES, &[(1000, Event::Tick), (3000, Event::Signalled)]);
    assert_eq!(state.deadline(&RULES), Some(Instant(3_300_000_000)));
}

#[test]
fn the_tree_empty_in_grace_ends_it_at_once_without_a_kill() {
    let (state, actions) =
        run(&RULES, &[(1000, Event::Tick), (1001, Event::TreeEmpty), (1001, Event::Drained)]);
    assert_eq!(state, State::Done { cause: Cause::Wall, proved: true });
    assert!(!actions.contains(&Action::Kill));
}

#[test]
fn the_signal_that_came_is_the_first_passed_on_and_a_second_ends_the_grace() {
    let cancel = Event::Cancel { signal: 1 };
    let (_, actions) = run(&RULES, &[(10, cancel), (20, cancel)]);
    let cause = Cause::Cancelled { signal: 1 };
    assert_eq!(actions, [Action::MarkOver(cause), Action::Signal(1), Action::Kill]);
}

#[test]
fn after_the_limit_only_the_second_cancel_ends_the_grace() {
    let cancel = Event::Cancel { signal: 15 };
    let (state, actions) = run(&RULES, &[(1000, Event::Tick), (1010, cancel)]);
    assert!(matches!(state, State::Grace { .. }) && !actions.contains(&Action::Kill));
    let (_, actions) = run(&RULES, &[(1000, Event::Tick), (1010, cancel), (1011, cancel)]);
    assert!(actions.contains(&Action::Kill));
}

#[test]
fn after_the_commands_end_one_cancel_skips_linger_and_grace() {
    let cancel = Event::Cancel { signal: 15 };
    let expected = [Action::MarkOver(Cause::Exited), Action::ListLeftovers, Action::Kill];
    assert_eq!(run(&RULES, &[(5, ENDED), (6, cancel)]).1, expected);
}

#[test]
fn leftovers_get_their_signals_after_the_linger() {
    let (_, actions) = run(&RULES, &[(5, ENDED), (104, Event::Tick), (105, Event::Tick)]);
    let expected = [Action::MarkOver(Cause::Exited), Action::ListLeftovers, Action::Signal(15)];
    assert_eq!(actions, expected);
}

#[test]
fn waiting_for_leftovers_keeps_the_limits() {
    let rules = Rules { wait_for_leftovers: true, ..RULES };
    let (state, _) = run(&rules, &[(5, ENDED), (500, Event::Tick), (1000, Event::Tick)]);
    assert!(matches!(state, State::Grace { cause: Cause::Wall, .. }));
    let (state, _) = run(&rules, &[(5, ENDED), (6, Event::TreeEmpty), (6, Event::Drained)]);
    assert_eq!(state, State::Done { cause: Cause::Exited, proved: true });
}

#[test]
fn no_grace_means_sigkill_at_once() {
    let rules = Rules { step_count: 1, grace: Span::ZERO, ..RULES };
    let (_, actions) = run(&rules, &[(1000, Event::Tick)]);
    assert_eq!(actions, [Action::MarkOver(Cause::Wall), Action::Kill]);
}

#[test]
fn what_outlives_the_command_is_not_asked_under_the_commands_scope() {
    let rules = Rules { command_only: true, ..RULES };
    let (_, actions) = run(&rules, &[(5, ENDED), (105, Event::Tick)]);
    let expected = [Action::MarkOver(Cause::Exited), Action::ListLeftovers, Action::Kill];
    assert_eq!(actions, expected);
    let (_, actions) = run(&rules, &[(1000, Event::Tick)]);
    assert_eq!(actions, [Action::MarkOver(Cause::Wall), Action::Signal(15)]);
}

#[test]
fn silence_is_a_cause_unless_a_reader_keeps_the_bytes_back() {
    let limits = Limits { cpu: None, ..WATCHED.limits };
    let rules = Rules { limits, ..RULES };
    let seen = Event::Output { seen: true, held: false };
    let held = Event::Output { seen: false, held: true };
    let idle = [Action::MarkOver(Cause::Idle), Action::Signal(15)];
    assert_eq!(run(&rules, &[(599, Event::Tick), (600, Event::Tick)]).1, idle);
    assert_eq!(run(&rules, &[(300, seen), (899, Event::Tick)]).1, []);
    assert_eq!(run(&rules, &[(300, seen), (900, Event::Tick)]).1, idle);
    assert_eq!(run(&rules, &[(300, held), (999, Event::Tick)]).1, []);
    // Once the run is over no late byte begins anything anew.
    let late = [(600, Event::Tick), (610, seen), (899, Event::Tick), (900, Event::Tick)];
    assert_eq!(run(&rules, &late).1, [&idle[..], &[Action::Signal(2)]].concat());
}

#[test]
fn of_two_clocks_the_first_is_the_cause_and_of_a_tie_the_wall() {
    let cause = |idle: u64| {
        let limits = Limits { idle: Some(Span::from_millis(idle)), ..RULES.limits };
        run(&Rules { limits, ..RULES }, &[(2000, Event::Tick)]).1.first().copied()
    };
    assert_eq!(cause(999), Some(Action::MarkOver(Cause::Idle)));
    assert_eq!(cause(1000), Some(Action::MarkOver(Cause::Wall)));
    assert_eq!(cause(1001), Some(Action::MarkOver(Cause::Wall)));
}

#[test]
fn a_tool_and_a_last_word_are_causes_until_they_are_taken_back() {
    let at = |millis: u64| Some(Instant(millis * 1_000_000));
    let limits = Limits { idle: None, cpu: None, ..WATCHED.limits };
    let rules = Rules { limits, ..RULES };
    let says = |oldest, result| Event::Agent { oldest, result };
    let cause = |events: &[(u64, Event)]| run(&rules, events).1.first().copied();
    let called = (100, says(at(100), None));
    assert_eq!(cause(&[called, (399, Event::Tick)]), None);
    assert_eq!(cause(&[called, (400, Event::Tick)]), Some(Action::MarkOver(Cause::Tool)));
    assert_eq!(cause(&[called, (390, says(None, None)), (400, Event::Tick)]), None);
    let done = (100, says(at(100), at(150)));
    assert_eq!(cause(&[done, (350, Event::Tick)]), Some(Action::MarkOver(Cause::Result)));
    // Nothing that is said after the end begins anything anew.
    let (state, _) = run(&rules, &[called, (400, Event::Tick)]);
    assert_eq!(run(&rules, &[called, (400, Event::Tick), (410, says(at(410), None))]).0, state);
}

#[test]
fn cpu_time_is_a_cause_once_it_is_used() {
    let used = |millis| Event::Used(Span::from_millis(millis));
    let seen = Event::Output { seen: true, held: false };
    let start = [(500, seen), (800, Event::Tick), (800, used(1590))];
    let (state, actions) = run(&WATCHED, &start);
    assert_eq!(actions, [Action::Measure]);
    assert_eq!(state.deadline(&WATCHED), Some(Instant(810_000_000)));
    let more = [&start[..], &[(810, Event::Tick), (810, used(1600))]].concat();
    let (_, actions) = run(&WATCHED, &more);
    let cpu = [Action::MarkOver(Cause::Cpu), Action::Signal(15)];
    assert_eq!(actions, [&[Action::Measure, Action::Measure], &cpu[..]].concat());
    // An answer that comes late is no cause.
    assert!(!run(&WATCHED, &[(5, ENDED), (6, used(9000))]).1.contains(&cpu[0]));
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
    let start = [(3, Event::Lost { cause: Cause::MonitorLost })];
    let until = |events: &[(u64, Event)]| match run(&RULES, &[&start[..], events].concat()).0 {
        State::Killing { until, .. } => until,
        other => panic!("{other:?}"),
    };
    let first = until(&[]);
    assert_eq!(first, Instant(403_000_000));
    assert_eq!(until(&[(100, Event::Pass { alive: 5 })]), Instant(500_000_000));
    let stuck = [(100, Event::Pass { alive: 5 }), (300, Event::Pass { alive: 5 })];
    assert_eq!(until(&stuck), Instant(500_000_000));
}

#[test]
fn the_wall_limit_ends_the_linger_but_is_not_the_cause() {
    let rules = Rules { linger: Span::from_secs(60), ..RULES };
    let (state, _) = run(&rules, &[(5, ENDED)]);
    assert_eq!(state.deadline(&rules), rules.wall);
    let (state, actions) = run(&rules, &[(5, ENDED), (1000, Event::Tick)]);
    assert!(matches!(state, State::Grace { cause: Cause::Exited, .. }), "{state:?}");
    assert!(actions.contains(&Action::ListLeftovers));
}

#[test]
fn a_reader_that_takes_something_is_waited_for_again() {
    let start = [(1000, Event::Tick), (1400, Event::TreeEmpty)];
    let (state, _) = run(&RULES, &start);
    assert_eq!(state.deadline(&RULES), Some(Instant(1_500_000_000)));
    let (state, _) = run(&RULES, &[&start[..], &[(1450, Event::Moved)]].concat());
    assert_eq!(state.deadline(&RULES), Some(Instant(1_950_000_000)));
    // However late the end, a reader gets a moment.
    let late = [(1000, Event::Tick), (1700, Event::TreeEmpty)];
    assert_eq!(run(&RULES, &late).0.deadline(&RULES), Some(Instant(1_800_000_000)));
    // After the command's own end the wall limit stands.
    let ended = [(5, ENDED), (5, Event::TreeEmpty), (900, Event::Moved)];
    assert_eq!(run(&RULES, &ended).0.deadline(&RULES), RULES.wall);
}

#[test]
fn an_unproved_end_lists_its_survivors() {
    let lost = Event::Lost { cause: Cause::MonitorLost };
    let (state, actions) = run(&RULES, &[(0, lost), (400, Event::Tick)]);
    assert_eq!(state, State::Done { cause: Cause::MonitorLost, proved: false });
    assert!(actions.contains(&Action::ListSurvivors));
}

#[test]
fn a_reader_that_takes_nothing_is_given_up_one_grace_after_the_cause() {
    let cancel = Event::Cancel { signal: 15 };
    let (state, _) = run(&RULES, &[(10, cancel), (20, Event::TreeEmpty)]);
    assert_eq!(state.deadline(&RULES), Some(Instant(510_000_000)));
    let (state, _) = run(&RULES, &[(10, ENDED), (10, Event::TreeEmpty)]);
    assert_eq!(state.deadline(&RULES), RULES.wall);
    let endless = Rules { wall: None, ..RULES };
    let (state, _) = run(&endless, &[(10, ENDED), (10, Event::TreeEmpty)]);
    assert_eq!(state.deadline(&endless), None);
    let (state, actions) = run(&endless, &[(10, ENDED), (10, Event::TreeEmpty), (99, cancel)]);
    assert_eq!(state, State::Done { cause: Cause::Exited, proved: true });
    assert!(actions.contains(&Action::GiveUpOutput));
}
