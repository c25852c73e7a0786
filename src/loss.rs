//! What is done when the supervisor is killed?
//!
//! Its orphans are the children of the monitor or the guard by then, whichever
//! stands above it: both are subreapers with no other children. They are ended
//! at once, proved as always, and reported with what is still known.
//!
//! Rests on: orphans going to the nearest living subreaper before the dead
//! supervisor can be reaped (prctl(2), PR_SET_CHILD_SUBREAPER).
//!
//! May use: everything.

use crate::policy::cause::Cause;
use crate::policy::machine::{self, Action, Event, State};
use crate::policy::verdict::{self, Outcome};
use crate::report::record::{Detail, Listing, MOST_LISTED, Output, Record, Steps};
use crate::run::{Run, now};
use crate::sweep::{Reaped, Seen, Sweep};
use crate::sys::event::{self, Wait};
use crate::sys::process;
use crate::sys::signal::{self, SignalSet};
use crate::sys::time::{self, Clock};

/// Ends everything below this process and reports it. Returns the exit status.
pub fn end_orphans(run: &mut Run) -> u8 {
    const CAUSE: Cause = Cause::SupervisorLost;
    let began = now();
    let rules = run.rules(began);
    let mut sweep = Sweep::new(0, run.start.ticks_per_second, run.group.take());
    sweep.interest.counts = run.sink.is_some();
    let mut steps = Steps { started: Some(run.began), cause_seen: Some(began), ..Steps::default() };
    sweep.hurry();
    let (mut tree, mut survivors) = (Seen::default(), Seen::default());
    let mut escalated = false;
    // Without it the loop looks at the tree at each of its own deadlines.
    let children = signal::signalfd(SignalSet::EMPTY.with(process::SIGCHLD)).ok();

    let mut state = State::start(&rules, began);
    let mut event = Some(Event::Lost { cause: CAUSE });
    let proved = loop {
        if let Some((_, proved)) = state.done() {
            break proved;
        }
        let Some(now_due) = event.take() else {
            let mut waits = [children.as_ref().map_or(Wait::NOTHING, |fd| Wait::readable(fd.fd()))];
            let timeout = state.deadline(&rules).map(|deadline| deadline.since(now()).0);
            let _ = event::ppoll(&mut waits, timeout);
            while children.as_ref().and_then(signal::receive).is_some() {}
            event = Some(match sweep.reap() {
                Reaped::Empty => Event::TreeEmpty,
                Reaped::Outside | Reaped::Some | Reaped::More => Event::Tick,
            });
            continue;
        };
        let (next, actions) = machine::step(&rules, state, now(), now_due);
        state = next;
        for action in actions.iter() {
            match action {
                Action::MarkOver(_) => tree = sweep.list(MOST_LISTED),
                Action::Kill => {
                    let at = now();
                    let alive = sweep.kill_pass();
                    if alive > 0 {
                        escalated = true;
                        steps.killed.get_or_insert(at);
                    }
                    event = Some(Event::Pass { alive });
                }
                Action::ListSurvivors => survivors = sweep.list_survivors(MOST_LISTED),
                Action::Drain => event = Some(Event::Drained),
                // A loss is killed at once, and the relay died with the
                // supervisor.
                Action::ListLeftovers
                | Action::Measure
                | Action::Signal(_)
                | Action::GiveUpOutput => {}
            }
        }
    };
    if proved {
        steps.tree_empty = Some(now());
        steps.group_removed = steps.tree_empty.filter(|_| sweep.is_enforced());
    } else {
        sweep.count();
    }
    sweep.retire();
    steps.returned = Some(now());
    let outcome = Outcome {
        cause: CAUSE,
        proved,
        command: None,
        not_found: false,
        failing_leftovers: false,
        as_success: false,
    };
    let plan = run.plan;
    let (id, args) = (run.id, run.start.args);
    let record = Record {
        plan: &plan,
        run_id: id.as_bytes(),
        uid: run.uid,
        parent_pid: run.parent_pid,
        fallback_reason: (!sweep.is_enforced()).then(|| run.fallback_reason()),
        cause: CAUSE,
        detail: Detail::None,
        exit_status: verdict::status(&outcome),
        command_status: None,
        escalated,
        proved,
        started_at: run.began_at,
        ended_at: time::now(Clock::Real),
        steps,
        output: Output::default(),
        usage: sweep.usage(),
        tree_at_cause: tree.listing(),
        leftovers: Listing::EMPTY,
        survivors: survivors.listing(),
        errors: &[],
        signalled: 0,
        words: &args,
    };
    run.tell(&record)
}
