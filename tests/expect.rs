//! What must corral report for each fault?
//!
//! One row a test, at least one a fault, from the contract alone: what ends the
//! run, the exit status, the cause, who survives, whether SIGKILL was needed, a
//! bound on the time that only a hang passes, and whether a group of the run's own
//! changes any of that. `faults.rs` runs them, in both modes.

#![allow(dead_code, reason = "a test target of its own, and a module of faults.rs")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// What ends the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The command, by ending.
    Itself,
    /// `--wall`, one second (on slow machines more).
    Wall,
    /// SIGTERM to corral once the trap is set.
    Term,
}

/// What becomes of a row in enforced mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforced {
    /// The same.
    Same,
    /// It is not run, since this would not be the same test.
    Never(&'static str),
}

/// How corral ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// With this exit status.
    Exit(i32),
    /// By this signal; the record says 128 more.
    Signal(i32),
}

/// What is on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// Exactly this.
    Text(&'static str),
    /// So many bytes.
    Bytes(u64),
    /// Whatever came through.
    Anything,
}

/// One test.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The test.
    pub name: &'static str,
    /// The fault's file.
    pub fault: &'static str,
    pub arguments: &'static [&'static str],
    /// corral's, beside those that `by` brings along.
    pub options: &'static [&'static str],
    pub by: By,
    pub ends: Ends,
    pub cause: &'static str,
    /// How many are alive at the return, and named in the record.
    pub survivors: usize,
    /// Whether SIGKILL was needed; `None` where both can happen.
    pub escalated: Option<bool>,
    /// How many outlived a command that ended by itself; `None` where nobody
    /// can say.
    pub leftovers: Option<usize>,
    pub says: Says,
    /// Seconds.
    pub within: u64,
    /// Takes the machine for itself.
    pub alone: bool,
    pub enforced: Enforced,
}

/// A grace that no test waits for: whoever heeds the first signal ends at once.
const LONG: &[&str] = &["--grace", "25s"];
/// A grace that is waited for.
const SHORT: &[&str] = &["--grace", "300ms"];
/// The same, and a proof that is soon given up.
const UNPROVED: &[&str] = &["--grace", "300ms", "--prove", "500ms"];
const READY: Says = Says::Text("ready\n");

/// Ended by corral, and all of it.
const fn ended(fault: &'static str, by: By, escalated: bool) -> Row {
    let (ends, cause) = match by {
        By::Itself => (Ends::Exit(0), "exited"),
        By::Wall => (Ends::Exit(124), "wall"),
        By::Term => (Ends::Signal(15), "cancelled"),
    };
    Row {
        name: fault,
        fault,
        arguments: &[],
        options: if escalated { SHORT } else { LONG },
        by,
        ends,
        cause,
        survivors: 0,
        escalated: Some(escalated),
        leftovers: None,
        says: READY,
        within: 20,
        alone: false,
        enforced: Enforced::Same,
    }
}

/// Ended by itself with this status, leaving so many to be stopped.
const fn exited(fault: &'static str, status: i32, leftovers: usize) -> Row {
    let leftovers = Some(leftovers);
    Row { ends: Ends::Exit(status), leftovers, ..ended(fault, By::Itself, false) }
}

/// A proof that cannot be had.
const fn unproved(fault: &'static str) -> Row {
    let row = ended(fault, By::Term, true);
    Row { ends: Ends::Exit(120), survivors: 1, options: UNPROVED, ..row }
}

/// The same row as another test.
const fn also(name: &'static str, options: &'static [&'static str], row: Row) -> Row {
    Row { name, options, ..row }
}

const STORM: Row = Row {
    options: &["--grace", "300ms", "--prove", "20s"],
    escalated: None,
    within: 40,
    alone: true,
    ..ended("fork_storm", By::Term, true)
};
const CROWD: Row = Row { arguments: &["300"], ..ended("crowd", By::Term, false) };
const HUGE: Row = Row { says: Says::Bytes(50_000_006), ..exited("huge_line", 0, 0) };
const FLOOD: Row = Row { says: Says::Anything, ..ended("flood", By::Wall, false) };
const NONBLOCK: Row = Row { says: Says::Bytes(1_048_582), ..exited("nonblock_stdio", 0, 0) };
const LATE: Row = Row {
    options: &["--linger", "20s"],
    says: Says::Text("ready\nlast line\n"),
    ..exited("late_output", 0, 0)
};
const STAY: Row = ended("setsid_double_fork", By::Wall, false);
const HOPPER: Row = Row { escalated: None, ..STORM };

pub const ROWS: &[Row] = &[
    // The first signal is enough.
    exited("exit_clean", 0, 0),
    Row { name: "exit_with_7", arguments: &["7"], ..exited("exit_clean", 7, 0) },
    ended("sleep_forever", By::Wall, false),
    Row { says: Says::Text("ready\ncleaned up\n"), ..ended("clean_up", By::Wall, false) },
    ended("memory_hog", By::Term, false),
    ended("busy", By::Wall, false),
    ended("close_stdio", By::Term, false),
    ended("stop_self", By::Wall, false),
    ended("zombie_parent", By::Term, false),
    CROWD,
    Row { name: "crowd_chain", arguments: &["300", "chain"], ..CROWD },
    // It is not.
    ended("ignore_term", By::Wall, true),
    ended("block_term", By::Term, true),
    Row { says: Says::Text("ready\nsignal 15\n"), ..ended("count_signals", By::Term, true) },
    ended("stopped_children", By::Term, true),
    ended("vfork_stopped", By::Term, true),
    ended("leader_thread_gone", By::Term, true),
    ended("nested_subreaper", By::Term, true),
    ended("own_pid_namespace", By::Term, true),
    ended("hostile_name", By::Term, true),
    ended("traced_by_corral", By::Term, true),
    // New ones come while the old ones go.
    ended("fork_race", By::Term, true),
    ended("fork_on_term", By::Term, true),
    Row { name: "fork_storm_tree", arguments: &["tree"], ..STORM },
    Row { name: "fork_storm_comets", arguments: &["comets"], ..STORM },
    Row { name: "pid_hopper", fault: "pid_hopper", ..HOPPER },
    Row {
        name: "pid_hopper_left",
        fault: "pid_hopper",
        arguments: &["20000", "left"],
        by: By::Itself,
        ends: Ends::Exit(0),
        cause: "exited",
        ..HOPPER
    },
    // The command ends and something stays.
    exited("pipe_holder", 0, 1),
    Row {
        ends: Ends::Exit(119),
        ..also("pipe_holder_fails", &["--leftovers", "fail"], exited("pipe_holder", 0, 1))
    },
    exited("setsid_double_fork", 0, 1),
    Row { name: "setsid_double_fork_stays", arguments: &["stay"], ..STAY },
    Row { leftovers: Some(3), ..ended("clone_parent", By::Itself, true) },
    exited("kill_group", 137, 0),
    Row { name: "kill_group_term", arguments: &["15"], ..exited("kill_group", 143, 0) },
    LATE,
    // Output, inherited and relayed.
    HUGE,
    FLOOD,
    NONBLOCK,
    also("huge_line_relayed", &["--output-limit", "1G"], HUGE),
    also("flood_relayed", &["--max-output", "64K", "--grace", "25s"], FLOOD),
    also("nonblock_stdio_relayed", &["--output-limit", "1G"], NONBLOCK),
    also("late_output_relayed", &["--linger", "20s", "--output-limit", "1G"], LATE),
    also("pipe_holder_relayed", &["--output-limit", "1G"], exited("pipe_holder", 0, 1)),
    also(
        "close_stdio_relayed",
        &["--grace", "25s", "--output-limit", "1G"],
        ended("close_stdio", By::Term, false),
    ),
    // Against corral itself.
    Row {
        ends: Ends::Exit(137),
        cause: "supervisor_lost",
        escalated: None,
        ..ended("kill_parent", By::Itself, true)
    },
    Row {
        ends: Ends::Signal(9),
        enforced: Enforced::Never("nobody is left to remove the group"),
        ..ended("kill_everything", By::Itself, false)
    },
    // Only with something outside.
    ended("leave_cgroup", By::Term, false),
    exited("leave_group", 0, 2),
    ended("threaded_subgroup", By::Term, false),
    Row { name: "threaded_subgroup_leaderless", ..ended("threaded_subgroup", By::Term, false) },
    ended("nested_groups", By::Term, false),
    ended("frozen_subgroup", By::Term, true),
    Row { survivors: 1, ..ended("inherited_child", By::Wall, false) },
    Row { says: Says::Anything, ..unproved("outside_tracer") },
    unproved("v1_frozen"),
    Row {
        enforced: Enforced::Never("its user may not make a group here"),
        ..unproved("setuid_child")
    },
    // Limits that nobody sets here.
    Row { arguments: &["16"], ..exited("oom_child", 0, 0) },
    Row {
        arguments: &["50"],
        says: Says::Text("ready\nchildren 50\n"),
        ..exited("fork_to_limit", 0, 0)
    },
];

/// The row of a test.
pub fn row(name: &str) -> &'static Row {
    ROWS.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no row for {name}"))
}

/// Faults, rows and Cargo.toml name the same.
#[test]
fn each_fault_has_a_row_and_a_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files: BTreeSet<String> = fs::read_dir(root.join("faults"))
        .unwrap()
        .filter_map(|entry| Some(entry.unwrap().file_name().to_str()?.strip_suffix(".rs")?.into()))
        .collect();
    let rows: BTreeSet<String> = ROWS.iter().map(|row| row.fault.into()).collect();
    assert_eq!(rows, files);
    let names: BTreeSet<&str> = ROWS.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), ROWS.len(), "two rows of one name");

    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let targets: BTreeSet<String> = manifest
        .split("[[bin]]")
        .filter_map(|bin| bin.split_once("path = \"faults/")?.1.split_once(".rs\""))
        .map(|(name, _)| name.into())
        .collect();
    assert_eq!(targets, files);
    for name in &files {
        let target = format!(
            "[[bin]]\nname = \"{name}\"\npath = \"faults/{name}.rs\"\n\
             test = false\nbench = false\nrequired-features = [\"faults\"]\n"
        );
        assert!(manifest.contains(&target), "the target of {name} is not like the others");
    }
}

/// Each says what it does, what is asked of corral, and why it is there.
#[test]
fn each_fault_explains_itself() {
    for row in ROWS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("faults").join(row.fault);
        let text = fs::read_to_string(path.with_extension("rs")).unwrap();
        let order = ["//! Does: ", "//! corral must: ", "//! Exists: "].map(|part| text.find(part));
        assert!(order[0] == Some(0) && order.is_sorted(), "{}: {order:?}", row.fault);
        assert!(text.lines().count() <= 80, "{} does too much", row.fault);
    }
}
