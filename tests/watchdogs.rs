//! Is a run ended that is silent, or works, for too long, and no other?
//!
//! `--idle` and `--cpu`, in both modes where both matter. The clocks themselves are
//! tested where they are (`policy::watch`); here it is what winds them: bytes of
//! either stream, a reader that takes none, and the work of the living and the dead.

mod common;
mod kit;

use common::{Outcome, Run};
use kit::{assert_record, assert_refused, have, number, only_line, script};

const MODES: [&str; 2] = ["--cgroup-mode=fallback", "--cgroup-mode=enforced"];

fn assert_over(outcome: &Outcome, cause: &str, status: u8, line: &str) {
    outcome.assert_nothing_left();
    outcome.assert_status(status.into());
    assert_record(outcome, cause, status.into());
    assert!(only_line(outcome).starts_with(line), "{outcome:#?}");
    assert!(number(outcome, "/tree_at_cause_total") > 0, "{outcome:#?}");
}

/// Milliseconds from the start to the cause.
fn seen_after(outcome: &Outcome) -> u64 {
    number(outcome, "/steps_us/cause_seen") / 1000
}

#[test]
fn silence_ends_a_run() {
    for mode in MODES {
        let outcome = script(&["--idle=300ms", mode], "echo once; exec sleep 60").run();
        assert_over(&outcome, "idle", 123, "corral: idle limit of 300ms reached: stopped ");
        assert_eq!(outcome.stdout, b"once\n");
        assert_eq!(outcome.record("/limits/idle_ns"), 300_000_000);
        assert!(seen_after(&outcome) >= 300, "{outcome:#?}");
    }
}

#[test]
fn silence_from_the_start_ends_a_run() {
    let outcome = script(&["--idle=300ms"], "exec sleep 60 >&- 2>&-").run();
    assert_over(&outcome, "idle", 123, "corral: idle limit of 300ms reached: stopped ");
}

#[test]
fn a_byte_on_either_stream_is_no_silence() {
    // Four seconds, no newline, and each stream alone silent for longer than the limit.
    let text = "for fd in 1 2 1 2; do for i in 1 2; do sleep 0.5; printf . >&$fd; done; done; \
                exec sleep 60";
    let outcome = script(&["--idle=1900ms"], text).run();
    outcome.assert_status(123);
    assert_record(&outcome, "idle", 123);
    assert_eq!(outcome.stdout, b"....");
    assert!(outcome.stderr.starts_with("....corral: idle limit of 1.9s"), "{outcome:#?}");
    assert!(seen_after(&outcome) >= 5900, "{outcome:#?}");
}

#[test]
fn a_blocked_reader_is_no_silence() {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let options = ["--idle=1s", "--wall=3s", "--grace=300ms"];
    let outcome = script(&options, "ulimit -t 20; exec yes").stdout(write).run();
    outcome.assert_nothing_left();
    outcome.assert_status(124);
    assert_record(&outcome, "wall", 124);
    drop(read);
}

#[test]
fn what_is_waited_for_may_not_be_silent_either() {
    let options = ["--idle=300ms", "--leftovers=wait"];
    let outcome = script(&options, "sleep 60 & exit 0").run();
    assert_over(&outcome, "idle", 123, "corral: idle limit of 300ms reached: stopped ");
    assert_eq!(outcome.record("/command_status/code"), 0);
}

/// Somebody's work, all of whose processes end by themselves in seconds.
const WORK: [(&str, &str); 4] = [
    ("one process", "ulimit -t 20; while :; do :; done"),
    ("two sessions", "ulimit -t 20; setsid sh -c 'while :; do :; done' & while :; do :; done"),
    (
        "the dead that were waited for",
        "while :; do sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done'; done",
    ),
    (
        "the dead whose parents were dead",
        "while :; do \
             (setsid sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo' &) | cat; \
         done >/dev/null",
    ),
];

#[test]
fn work_ends_a_run() {
    for (what, text) in WORK {
        for mode in MODES {
            let outcome = script(&["--cpu=1s", "--wall=20s", mode], text).run();
            assert_eq!(outcome.status, Some(124), "{what}: {outcome:#?}");
            assert_over(&outcome, "cpu", 124, "corral: CPU limit of 1s reached: stopped ");
            assert_eq!(outcome.record("/limits/cpu_ns"), 1_000_000_000);
            let used = number(&outcome, "/usage/cpu_user_us");
            let used = used + number(&outcome, "/usage/cpu_system_us");
            assert!(used >= 990_000, "{what}: {outcome:#?}");
        }
    }
}

#[test]
fn who_sleeps_does_not_work() {
    for mode in MODES {
        let outcome = script(&["--cpu=500ms", mode], "sleep 1.5; exit 7").run();
        outcome.assert_status(7);
        assert_record(&outcome, "exited", 7);
    }
}

#[test]
fn work_that_nobody_can_see_is_not_limited() {
    if !have(&["unshare"]) || !common::root_or_skip() {
        return;
    }
    let corral = common::corral();
    let hide = "mount -t tmpfs none /proc || exit 77; exec \"$0\" \"$@\"";
    let words = ["unshare", "-m", "--propagation", "private", "sh", "-c", hide];
    let options = ["--cgroup-mode=fallback", "--cpu=1s", "--", "true"];
    let outcome = Run::argv(words).args([corral.as_os_str()]).args(options).run();
    let line = assert_refused(&outcome);
    assert!(line.starts_with("corral: cannot enforce --cpu: ENOENT"), "{line}");
    assert!(line.ends_with("; mount /proc, or run corral where it can make a cgroup"), "{line}");
}
