//! What does a run cost while nothing happens, and how many system calls does
//! the shortest one make?
//!
//! Counts that no noise can change; times live in the benchmarks.

mod common;
mod kit;

use std::time::Duration;

use common::Run;
use kit::{have, supervisor};

/// Most system calls of corral's two processes and the newborn up to its exec,
/// for a command that does nothing (`execve` of corral itself included): in fallback
/// mode, and with a group.
const MOST_CALLS: [(&str, usize); 2] = [("fallback", 64), ("auto", 86)];

/// How often a process has been switched away from, by will or not.
fn switches(pid: i32) -> Vec<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it is alive");
    let counts: Vec<u64> = status
        .lines()
        .filter(|line| line.contains("ctxt_switches"))
        .map(|line| line.split_whitespace().last().unwrap().parse().unwrap())
        .collect();
    assert_eq!(counts.len(), 2, "{status}");
    counts
}

#[test]
fn a_waiting_run_does_not_wake_up() {
    for options in [&["--wall=30s"][..], &["--wall=30s", "--max-output=1M+1M"], &[]] {
        let mut run = Run::corral(options).fault("sleep_forever", &[]).start();
        run.ready();
        let both = [run.pid(), supervisor(&run)];
        // The last look at what has happened so far may still be under way.
        let mut before: Vec<_> = both.iter().map(|&pid| switches(pid)).collect();
        for _ in 0..100 {
            std::thread::sleep(Duration::from_millis(10));
            let now: Vec<_> = both.iter().map(|&pid| switches(pid)).collect();
            if now == before {
                break;
            }
            before = now;
        }
        std::thread::sleep(Duration::from_millis(700));
        let after: Vec<_> = both.iter().map(|&pid| switches(pid)).collect();
        assert_eq!(before, after, "{options:?}: somebody woke up");
        run.signal(common::Signal::KILL);
        let outcome = run.wait();
        assert!(outcome.ground.wait_empty(Duration::from_secs(15)));
    }
}

#[test]
fn a_run_that_does_nothing_makes_few_calls() {
    if !have(&["strace"]) {
        return;
    }
    for (mode, most) in MOST_CALLS {
        makes_few_calls(mode, most);
    }
}

fn makes_few_calls(mode: &str, most: usize) {
    let mode = format!("--cgroup-mode={mode}");
    let place = tempfile::tempdir().unwrap();
    let trace = place.path().join("trace");
    let corral = common::corral();
    let noop = env!("CARGO_BIN_EXE_noop");
    let words = ["strace", "-f", "-o", trace.to_str().unwrap(), corral.to_str().unwrap()];
    let outcome =
        Run::argv(words.into_iter().chain(["--wall", "10s", &mode, "--", noop])).no_record().run();
    outcome.assert_status(0);
    let text = std::fs::read_to_string(&trace).unwrap();
    let calls = text.lines().filter(|line| line.contains('(') && !line.contains("resumed>"));
    let calls = calls.count();
    println!("{calls} system calls\n{text}");
    assert!(calls <= most, "{calls} system calls, {mode}");
}
