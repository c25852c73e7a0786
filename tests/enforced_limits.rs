//! Do `--mem` and `--pids` hold for the whole tree, or is nothing run?
//!
//! Where the group that a run is started in has the controllers, the limits are
//! real and what they did is in the status and the record. Where it has not
//! (a hybrid host, a delegation without them), the same tests ask for the
//! honest refusal, in every mode: 125, with the controller's name.

mod common;
mod kit;

use std::fs;
use std::path::Path;
use std::time::Duration;

use common::{Ground, Outcome, Run, Signal};
use kit::{assert_record, assert_refused, number, only_line};

const SOON: Duration = Duration::from_secs(20);
const MIB: u64 = 1 << 20;

fn controllers(group: &Path, file: &str) -> String {
    fs::read_to_string(group.join(file)).unwrap().trim().to_owned()
}

/// Whether the group has them all; the first that it has not.
fn missing<'a>(group: Option<&Path>, wanted: &[&'a str]) -> Option<&'a str> {
    let has = group.map(|group| controllers(group, "cgroup.controllers")).unwrap_or_default();
    wanted.iter().find(|want| !has.split(' ').any(|one| one == **want)).copied()
}

/// Which controllers these options need.
fn needs(options: &[&str]) -> Vec<&'static str> {
    let asked = |option: &str| options.iter().any(|given| given.starts_with(option));
    [("--mem", "memory"), ("--pids", "pids")]
        .iter()
        .filter(|(option, _)| asked(option))
        .map(|(_, controller)| *controller)
        .collect()
}

/// Runs a fault with limits, or sees it refused: `None`.
fn limited(options: &[&str], name: &str, arguments: &[&str]) -> Option<Outcome> {
    let outcome = Run::corral(options).fault(name, arguments).run();
    let lacks = missing(outcome.ground.group(), &needs(options));
    outcome.assert_no_group();
    if let Some(group) = outcome.ground.group() {
        assert_eq!(controllers(group, "cgroup.subtree_control"), "", "{outcome:#?}");
    }
    if let Some(controller) = lacks {
        let line = assert_refused(&outcome);
        assert!(line.contains(controller), "no {controller} in {line}");
        let option = if controller == "memory" { "--mem" } else { "--pids" };
        assert!(line.contains(option), "no {option} in {line}");
        return None;
    }
    outcome.assert_nothing_left();
    assert!(outcome.elapsed < SOON, "{outcome:#?}");
    assert_eq!(outcome.record("/mode"), "enforced", "{outcome:#?}");
    assert_eq!(outcome.record("/proved"), true, "{outcome:#?}");
    number(&outcome, "/steps_us/group_removed");
    Some(outcome)
}

/// A number that older kernels do not know.
#[track_caller]
fn peak(outcome: &Outcome, pointer: &str) -> Option<u64> {
    (!outcome.record(pointer).is_null()).then(|| number(outcome, pointer))
}

#[test]
fn more_memory_than_allowed() {
    for mode in ["--cgroup-mode=enforced", "--cgroup-mode=auto"] {
        // The hog itself is the command; or a child, whose end its parent hides.
        for (name, ready) in [("memory_hog", ""), ("oom_child", "ready\n")] {
            let Some(outcome) = limited(&[mode, "--mem=48M"], name, &["256"]) else { continue };
            outcome.assert_status(122);
            assert_record(&outcome, "memory", 122);
            assert_eq!(outcome.stdout, ready.as_bytes(), "{outcome:#?}");
            assert!(number(&outcome, "/usage/oom_kills") >= 1, "{outcome:#?}");
            if let Some(peak) = peak(&outcome, "/usage/memory_peak_bytes") {
                assert!((24 * MIB..=64 * MIB).contains(&peak), "{peak}: {outcome:#?}");
            }
            assert_eq!(number(&outcome, "/limits/mem_bytes"), 48 * MIB);
            assert!(only_line(&outcome).contains("memory"), "{outcome:#?}");
        }
    }
}

#[test]
fn as_much_memory_as_allowed() {
    let options = ["--cgroup-mode=enforced", "--mem=256M"];
    let mut run = Run::corral(&options).fault("memory_hog", &["32"]).start();
    if missing(run.ground().group(), &["memory"]).is_none() {
        // Once it has all that it wants.
        run.ready();
        run.signal(Signal::TERM);
        let outcome = run.wait();
        kit::assert_cancelled(&outcome, Signal::TERM);
        assert_eq!(outcome.record("/usage/oom_kills"), 0);
        if let Some(peak) = peak(&outcome, "/usage/memory_peak_bytes") {
            assert!((32 * MIB..=64 * MIB).contains(&peak), "{peak}: {outcome:#?}");
        }
    } else {
        assert!(assert_refused(&run.wait()).contains("memory"));
    }
    if let Some(outcome) = limited(&["--mem=256M"], "oom_child", &["32"]) {
        outcome.assert_status(0);
        assert_record(&outcome, "exited", 0);
        assert_eq!((outcome.stderr.as_str(), outcome.record("/usage/oom_kills")), ("", &0.into()));
    }
}

/// The whole tree goes with the one that was too much.
#[test]
fn who_else_is_there_when_memory_ends() {
    let hog = common::fault("memory_hog");
    let text = "setsid sleep 30 & trap '' TERM; \"$H\" 256; echo went on; sleep 30";
    let options = ["--mem=48M", "--grace=300ms"];
    let run = Run::corral(&options).command(["sh", "-c", text]).env("H", hog);
    let outcome = run.run();
    if missing(outcome.ground.group(), &["memory"]).is_some() {
        assert!(assert_refused(&outcome).contains("memory"));
        return;
    }
    outcome.assert_status(122);
    outcome.assert_nothing_left();
    assert_record(&outcome, "memory", 122);
    assert!(outcome.elapsed < SOON, "{outcome:#?}");
    outcome.assert_no_group();
}

/// A limit that the command sets below its group is its own business.
#[test]
fn a_limit_of_the_commands_own() {
    if !common::root_or_skip() {
        return;
    }
    let text = "G=\"$M$(sed -n 's/^0:://p' /proc/self/cgroup)\"; mkdir $G/a $G/b; \
                echo 0 >$G/a/cgroup.procs; echo +memory >$G/cgroup.subtree_control || exit 9; \
                echo 16M >$G/b/memory.max; echo 0 >$G/b/memory.swap.max; \
                (echo 0 >$G/b/cgroup.procs; exec \"$H\" 64); test $? = 137 && exit 7";
    let run = Run::corral(&["--mem=192M"]).command(["sh", "-c", text]);
    let run = run.env("H", common::fault("memory_hog"));
    let outcome = run.env("M", common::Ground::mount().unwrap_or_default()).run();
    if missing(outcome.ground.group(), &["memory"]).is_some() {
        assert!(assert_refused(&outcome).contains("memory"));
        return;
    }
    outcome.assert_status(7);
    outcome.assert_nothing_left();
    assert_record(&outcome, "exited", 7);
    outcome.assert_no_group();
}

#[test]
fn more_processes_than_allowed() {
    for mode in ["--cgroup-mode=enforced", "--cgroup-mode=auto"] {
        let Some(outcome) = limited(&[mode, "--pids=20"], "fork_to_limit", &[]) else { continue };
        outcome.assert_status(0);
        assert_record(&outcome, "exited", 0);
        // Itself among the twenty, and at most a helper of corral's.
        let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
        let count: u64 = text.trim().rsplit(' ').next().unwrap().parse().unwrap();
        assert!((17..=19).contains(&count), "{outcome:#?}");
        assert!(number(&outcome, "/usage/pids_refused") >= 1, "{outcome:#?}");
        if let Some(peak) = peak(&outcome, "/usage/pids_peak") {
            assert!((17..=20).contains(&peak), "{outcome:#?}");
        }
        assert_eq!(number(&outcome, "/limits/pids"), 20);
    }
    if let Some(outcome) = limited(&["--pids=400"], "fork_to_limit", &["50"]) {
        outcome.assert_status(0);
        assert_eq!(outcome.stdout, b"ready\nchildren 50\n");
        assert_eq!(outcome.record("/usage/pids_refused"), 0);
        assert_eq!(outcome.stderr, "");
    }
}

/// At its limit, where corral itself must not need one more.
#[test]
fn a_storm_within_its_limit() {
    let options = ["--pids=100", "--wall=1s", "--grace=300ms", "--prove=20s"];
    if let Some(outcome) = limited(&options, "fork_storm", &["tree"]) {
        outcome.assert_status(124);
        assert_record(&outcome, "wall", 124);
    }
}

#[test]
fn both_limits() {
    if let Some(outcome) = limited(&["--mem=64M", "--pids=10"], "fork_to_limit", &[]) {
        outcome.assert_status(0);
        assert!(number(&outcome, "/usage/pids_refused") >= 1, "{outcome:#?}");
        assert_eq!(outcome.record("/usage/oom_kills"), 0);
    }
}

/// Only corral's own processes may be moved out of the way.
#[test]
fn a_stranger_in_the_group() {
    for option in ["--mem=64M", "--pids=20"] {
        let text = format!(
            "sleep 30 & echo group; cat /proc/$!/cgroup; \
             \"$C\" {option} -- echo run; s=$?; cat /proc/$!/cgroup; kill $!; exit $s"
        );
        let outcome = Run::shell(&text).run();
        outcome.assert_status(125);
        let name = option.split('=').next().unwrap();
        assert!(only_line(&outcome).contains(name), "{outcome:#?}");
        let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
        assert!(!text.contains("run\n"), "{text}");
        let groups: Vec<&str> = text.lines().filter(|line| line.starts_with("0::")).collect();
        assert!(matches!(groups[..], [before, after] if before == after), "moved: {text}");
        outcome.assert_no_group();
        if let Some(group) = outcome.ground.group() {
            assert_eq!(controllers(group, "cgroup.subtree_control"), "", "{outcome:#?}");
        }
    }
}

/// Where nobody has to be moved.
#[test]
fn limits_below_a_named_parent() {
    let parent = Ground::new(false).0;
    let Some(group) = parent.group() else {
        return common::skip("no cgroup2 is writable");
    };
    let place = format!("--cgroup-parent={}", group.display());
    let options = ["--cgroup-mode=enforced", &place, "--pids=20", "--mem=64M"];
    let outcome = Run::corral(&options).fault("fork_to_limit", &[]).marker().run();
    // (Its controllers stay on: another run's limits may hang on them.)
    parent.assert_no_group();
    if missing(Some(group), &["memory", "pids"]).is_some() {
        let line = assert_refused(&outcome);
        assert!(line.contains("memory") || line.contains("pids"), "{line}");
        return;
    }
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    assert!(number(&outcome, "/usage/pids_refused") >= 1, "{outcome:#?}");
}

/// A limit is never left out.
#[test]
fn limits_without_a_group() {
    for option in ["--mem=64M", "--pids=20"] {
        let outcome =
            Run::corral(&["--cgroup-mode=fallback", option]).command(["echo", "run"]).run();
        let line = assert_refused(&outcome);
        assert!(line.contains(option.split('=').next().unwrap()), "{line}");
    }
}

/// Without limits a group counts nothing that it cannot.
#[test]
fn usage_without_limits() {
    let outcome = Run::corral(&["--cgroup-mode=auto"]).fault("exit_clean", &[]).run();
    outcome.assert_status(0);
    let without = missing(outcome.ground.group(), &["memory"]).is_some();
    if without {
        for key in ["memory_peak_bytes", "oom_kills"] {
            assert!(outcome.record(&format!("/usage/{key}")).is_null(), "{key}: {outcome:#?}");
        }
    }
}
