//! Does the ground truth see what is left? A blind one would pass every test.

mod common;

use std::time::Duration;

use common::{NOBODY, Run, Signal, Stdin, children, root_or_skip};

#[test]
fn a_clean_run() {
    let outcome = Run::fault_alone("exit_clean", &["7"]).run();
    outcome.assert_status(7);
    assert_eq!(outcome.stdout, b"ready\n");
    outcome.assert_nothing_left();
}

#[test]
fn survivors_are_seen_and_then_ended() {
    let script = "sleep 9 & (setsid sleep 8 >/dev/null 2>&1 &); exit 3";
    let outcome = Run::shell(script).marker().run();
    outcome.assert_status(3);
    assert!(!outcome.eof, "the first sleep holds stdout");
    let pids: Vec<i32> = outcome.survivors.iter().map(|survivor| survivor.pid).collect();
    assert_eq!(pids.len(), 2, "{outcome:?}");
    assert!(!outcome.ground.wait_empty(Duration::ZERO));
    let group = outcome.ground.group().map(ToOwned::to_owned);
    drop(outcome);
    assert!(pids.into_iter().all(|pid| common::Survivor::read(pid).is_none()));
    assert!(group.is_none_or(|group| !group.exists()));
}

#[test]
fn a_silent_survivor_does_not_hold_the_output() {
    let outcome = Run::shell("exec >/dev/null 2>&1; sleep 8 &").run();
    assert!(outcome.eof && outcome.survivors.len() == 1, "{outcome:?}");
}

#[test]
fn streams_and_signals() {
    let bytes = vec![b'x'; 300_000];
    let outcome = Run::shell("cat; kill -TERM $$").stdin(Stdin::Bytes(bytes.clone())).run();
    assert_eq!((outcome.status, outcome.signal), (None, Some(15)), "{outcome:?}");
    assert!(outcome.stdout == bytes && outcome.eof);

    let mut run = Run::shell("echo ready; cat; exit 5").stdin(Stdin::Open).start();
    run.ready();
    run.wait_until("the cat", |run| children(run.pid()).len() == 1);
    run.feed(b"abc");
    run.close_stdin();
    let outcome = run.wait();
    outcome.assert_status(5);
    assert_eq!(outcome.stdout, b"ready\nabc");

    let run = Run::argv(["sleep", "30"]).start();
    run.signal(Signal::INT);
    assert_eq!(run.wait().signal, Some(2));
}

#[test]
fn another_user() {
    if !root_or_skip() {
        return;
    }
    let outcome = Run::fault_alone("exit_clean", &["4"]).uid(NOBODY).run();
    outcome.assert_status(4);
    let outcome = Run::shell("id -u; id -G").uid(NOBODY).run();
    assert_eq!(outcome.stdout, b"65534\n65534\n");
}

#[test]
#[should_panic(expected = "hung")]
fn a_hang_is_a_failure() {
    Run::shell("sleep 20").limit(Duration::from_millis(300)).run();
}
