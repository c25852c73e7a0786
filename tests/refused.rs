//! What if the kernel, or a seccomp filter, knows a newer call not?
//!
//! Each call with a fallback answers ENOSYS or EPERM (`common::refuse`), in corral
//! and in everything below it. A tree is ended and a clean run is clean all the
//! same, and the fault table holds in both modes: all of it where all of these
//! calls are refused; where one is, the rows that stand for its uses, or with
//! `CORRAL_TEST_REFUSED=all` in the environment all of it too.

mod common;
mod expect;
mod kit;

use std::time::Duration;

use common::refuse::{CALLS, ERRORS};
use common::{Run, root_or_skip};
use expect::ROWS;
use kit::{assert_record, test_executable};

/// Everything to be ended, however it detached, and the last words of a trap.
const TREE: &str = "trap 'echo ended; exit 0' TERM; setsid sleep 30 & sleep 30 & wait";

/// Rows that start, look, signal, stop, relay and outrun.
const SOME: [&str; 9] = [
    "close_stdio_relayed",
    "count_signals",
    "exit_with_7",
    "flood_relayed",
    "fork_storm_tree",
    "kill_parent",
    "setsid_double_fork",
    "stopped_children",
    "traced_by_corral",
];

/// A whole table where both processors are busy.
const LIMIT: Duration = Duration::from_secs(540);

fn everything() -> String {
    CALLS.map(|call| call.0).join(",")
}

/// One at a time, and all together, with each error.
fn each_refusal(mut run: impl FnMut(&str)) {
    let alone = CALLS.map(|call| call.0.to_owned());
    for calls in alone.into_iter().chain([everything()]) {
        ERRORS.iter().for_each(|(error, _)| run(&format!("{calls}:{error}")));
    }
}

#[test]
fn a_tree_is_ended_without_them() {
    if !root_or_skip() {
        return;
    }
    each_refusal(|refused| {
        let run = Run::corral(&["--wall=600ms", "--grace=20s", "--close-fds", "--max-output=1M"]);
        let outcome = run.command(["sh", "-c", TREE]).refusing(refused).run();
        assert_eq!(outcome.status, Some(124), "{refused}: {outcome:#?}");
        outcome.assert_nothing_left();
        assert_eq!(outcome.stdout, b"ended\n", "{refused}: {outcome:#?}");
        assert_record(&outcome, "wall", 124);
        assert_eq!(outcome.record("/proved"), true, "{refused}: {outcome:#?}");
        assert_eq!(outcome.record("/escalated"), false, "{refused}: {outcome:#?}");
    });
}

#[test]
fn a_clean_run_is_clean_without_them() {
    if !root_or_skip() {
        return;
    }
    each_refusal(|refused| {
        let outcome =
            Run::corral(&[]).command(["sh", "-c", "echo hi; exit 7"]).refusing(refused).run();
        assert_eq!(outcome.status, Some(7), "{refused}: {outcome:#?}");
        assert_eq!((&outcome.stdout[..], &outcome.stderr[..]), (&b"hi\n"[..], ""), "{refused}");
    });
}

#[test]
fn the_fault_table_without_them() {
    if !root_or_skip() {
        return;
    }
    let all = std::env::var("CORRAL_TEST_REFUSED").is_ok_and(|asked| asked == "all");
    each_refusal(|refused| {
        let names = |rows: &[&str], mode| -> Vec<String> {
            rows.iter().map(|row| format!("{mode}::{row}")).collect()
        };
        let rows: Vec<_> = if all || refused.starts_with(&everything()) {
            ROWS.iter().map(|row| row.name).collect()
        } else {
            SOME.to_vec()
        };
        let run = Run::argv([test_executable("faults")]).args(["--exact"]);
        let run = run.args(names(&rows, "fallback")).args(names(&rows, "enforced"));
        let outcome = run.env("CORRAL_TEST_REFUSE", refused).limit(LIMIT).run();
        let said = String::from_utf8_lossy(&outcome.stdout);
        assert_eq!(outcome.status, Some(0), "{refused}: {said} {}", outcome.stderr);
        let held = said.lines().filter(|line| line.ends_with(" ... ok")).count();
        assert_eq!(held, 2 * rows.len(), "{refused}: {said}");
    });
}
