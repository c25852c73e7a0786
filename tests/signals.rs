//! What do signals to corral do?
//!
//! Four cancel a run (unless they were ignored), each passed on as itself, and
//! corral dies of it; a second one ends the grace; others go to the command
//! alone; a stop stops the tree and only what was stopped is continued.

mod common;
mod kit;

use std::time::Duration;

use common::{Run, Signal, proc_state};
use kit::{PYTHON, assert_cancelled, assert_record, have, logger, number, supervisor, wait_pid};

const SOON: Duration = Duration::from_secs(15);

const CANCELLING: [(Signal, &str); 4] = [
    (Signal::TERM, "SIGTERM"),
    (Signal::INT, "SIGINT"),
    (Signal::HUP, "SIGHUP"),
    (Signal::QUIT, "SIGQUIT"),
];

fn state(pid: i32) -> Option<char> {
    proc_state(pid).map(|(_, state)| state)
}

#[test]
fn a_signal_is_passed_on_as_itself() {
    if !have(&[PYTHON]) {
        return;
    }
    for (signal, name) in CANCELLING {
        let mut run = Run::corral(&["--grace=30s"]).command(logger(&[name])).start();
        run.ready();
        run.signal(signal);
        let outcome = run.wait();
        assert_cancelled(&outcome, signal);
        assert_eq!(outcome.stdout, format!("ready\n{name}\n").into_bytes());
        // It exited by itself, in its handler: no success for all that.
        assert_eq!(outcome.record("/command_status/code"), 7);
        assert_eq!(outcome.record("/escalated"), false);
        let detail = outcome.record("/cause_detail").to_string();
        let sender = std::process::id().to_string();
        assert!(
            detail.contains(&name[3..]) || detail.contains(&signal.as_raw().to_string()),
            "{detail}"
        );
        assert!(detail.contains(&sender), "no sender in {detail}");
    }
}

#[test]
fn who_does_not_heed_it_is_killed_after_the_grace() {
    if !have(&[PYTHON]) {
        return;
    }
    for (signal, name) in CANCELLING {
        let mut run = Run::corral(&["--grace=300ms"]).command(logger(&[])).start();
        run.ready();
        run.signal(signal);
        let outcome = run.wait();
        assert_cancelled(&outcome, signal);
        assert_eq!(outcome.stdout, format!("ready\n{name}\n").into_bytes());
        assert_eq!(outcome.record("/escalated"), true);
        let waited =
            number(&outcome, "/steps_us/killed") - number(&outcome, "/steps_us/cause_seen");
        assert!(waited >= 300_000, "{waited}");
    }
}

#[test]
fn further_steps_follow_the_signal_that_came() {
    if !have(&[PYTHON]) {
        return;
    }
    // The first of `--signal` is replaced by the one that came.
    let mut run = Run::corral(&["--signal=TERM:300ms,USR1", "--grace=30s"])
        .command(logger(&["SIGUSR1"]))
        .start();
    run.ready();
    run.signal(Signal::INT);
    let outcome = run.wait();
    assert_cancelled(&outcome, Signal::INT);
    assert_eq!(outcome.stdout, b"ready\nSIGINT\nSIGUSR1\n");
}

#[test]
fn a_second_signal_ends_the_grace() {
    if !have(&[PYTHON]) {
        return;
    }
    for second in [Signal::TERM, Signal::INT] {
        let mut run = Run::corral(&["--grace=40s"]).command(logger(&[])).start();
        run.ready();
        run.signal(Signal::TERM);
        run.wait_line("SIGTERM");
        // Another one in between: this is no echo of the first.
        run.signal(Signal::USR1);
        run.wait_line("SIGUSR1");
        run.signal(second);
        let outcome = run.wait();
        assert!(outcome.elapsed < SOON, "{outcome:#?}");
        // The first cause wins, and nobody gets anything but SIGKILL now.
        assert_cancelled(&outcome, Signal::TERM);
        assert_eq!(outcome.stdout, b"ready\nSIGTERM\nSIGUSR1\n");
        assert_eq!(outcome.record("/escalated"), true);
    }
}

#[test]
fn a_signal_in_the_grace_of_a_limit_ends_the_grace() {
    if !have(&[PYTHON]) {
        return;
    }
    let mut run = Run::corral(&["--wall=300ms", "--grace=40s"]).command(logger(&[])).start();
    run.wait_line("SIGTERM");
    // The second one, whatever the cause was.
    run.signal(Signal::INT);
    run.signal(Signal::USR1);
    run.wait_line("SIGUSR1");
    run.signal(Signal::INT);
    let outcome = run.wait();
    assert!(outcome.elapsed < SOON, "the grace went on: {outcome:#?}");
    outcome.assert_status(124);
    outcome.assert_nothing_left();
    assert_record(&outcome, "wall", 124);
}

#[test]
fn a_signal_while_lingering_ends_linger_and_grace() {
    let mut run = Run::corral(&["--linger=40s", "--grace=40s"])
        .command(["sh", "-c", "(trap '' TERM INT; sleep 30) & echo command $$; exit 3"])
        .start();
    let command = wait_pid(&mut run, "command");
    run.wait_until("the command's end", |_| state(command).is_none());
    run.signal(Signal::TERM);
    let outcome = run.wait();
    assert!(outcome.elapsed < SOON, "{outcome:#?}");
    outcome.assert_status(3);
    outcome.assert_nothing_left();
    assert_record(&outcome, "exited", 3);
}

#[test]
fn an_ignored_signal_does_not_cancel() {
    if !have(&["env", PYTHON]) {
        return;
    }
    for (signal, name) in CANCELLING {
        let mut run = Run::argv(["env", &format!("--ignore-signal={}", &name[3..])])
            .args([common::corral().to_str().unwrap(), "--grace=300ms"])
            .args(logger(&[]))
            .start();
        run.ready();
        run.signal(signal);
        run.signal(Signal::USR1);
        run.wait_line("SIGUSR1");
        let other = if signal == Signal::TERM { Signal::HUP } else { Signal::TERM };
        run.signal(other);
        let outcome = run.wait();
        assert_eq!(outcome.signal, Some(other.as_raw()), "{outcome:#?}");
        outcome.assert_nothing_left();
        let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
        assert!(!text.contains(name), "{name} was passed on: {text}");
    }
}

#[test]
fn a_background_job_that_ignores_the_interrupt() {
    // What a shell starts with `&` ignores SIGINT.
    let mut run =
        Run::corral(&["--grace=300ms"]).command(["sh", "-c", "sleep 30 & sleep 30 & wait"]).start();
    // Ignoring it is what they do before they are `sleep`.
    run.wait_until("both jobs", |run| {
        run.members().iter().filter(|one| one.name == "sleep").count() == 2
    });
    run.signal(Signal::INT);
    let outcome = run.wait();
    assert_cancelled(&outcome, Signal::INT);
    assert_eq!(outcome.record("/escalated"), true);
}

#[test]
fn other_signals_go_to_the_command_alone() {
    if !have(&[PYTHON]) {
        return;
    }
    // Its child writes a log of its own.
    let text = "\"$P\" -c \"$L\" >\"$D/child\" & until [ -s \"$D/child\" ]; do :; done; \
                exec \"$P\" -c \"$L\"";
    let place = tempfile::tempdir().unwrap();
    let mut run = Run::corral(&["--grace=300ms"])
        .command(["sh", "-c", text])
        .env("P", PYTHON)
        .env("L", kit::LOGGER)
        .env("D", place.path())
        .start();
    run.ready();
    let mut wanted = vec!["ready"];
    for (signal, name) in [
        (Signal::USR1, "SIGUSR1"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::WINCH, "SIGWINCH"),
        (Signal::IO, "SIGPOLL"),
        (Signal::URG, "SIGURG"),
        (Signal::POWER, "SIGPWR"),
    ] {
        run.signal(signal);
        let seen = match name {
            "SIGPOLL" => ["SIGIO", "SIGPOLL"],
            other => [other, other],
        };
        run.wait_until(name, |run| {
            String::from_utf8_lossy(run.stdout()).lines().any(|line| seen.contains(&line))
        });
        wanted.push(name);
    }
    // Real-time ones, by number.
    for signal in [34, 35, 50, 64] {
        let pid = run.pid().to_string();
        Run::argv(["sh", "-c", &format!("kill -{signal} {pid}")]).run().assert_status(0);
        let names = match signal {
            34 => "SIGRTMIN".to_owned(),
            64 => "SIGRTMAX".to_owned(),
            other => format!("SIG{other}"),
        };
        run.wait_line(&names);
        wanted.push("rt");
    }
    run.signal(Signal::TERM);
    let outcome = run.wait();
    assert_cancelled(&outcome, Signal::TERM);
    let lines = String::from_utf8_lossy(&outcome.stdout).lines().count();
    assert_eq!(lines, wanted.len() + 1, "each once: {outcome:#?}");
    let child = std::fs::read_to_string(place.path().join("child")).unwrap();
    assert_eq!(child, "ready\nSIGTERM\n");
}

#[test]
fn a_forwarded_signal_may_end_the_command() {
    let mut run =
        Run::corral(&[]).command(["sh", "-c", "sleep 30 & echo ready; exec sleep 30"]).start();
    run.ready();
    run.wait_until("the exec", |run| {
        run.members().iter().filter(|one| one.name == "sleep").count() == 2
    });
    run.signal(Signal::USR1);
    let outcome = run.wait();
    outcome.assert_status(128 + 10);
    outcome.assert_nothing_left();
    assert_record(&outcome, "exited", 138);
    assert_eq!(outcome.record("/command_status/signal"), 10);
}

#[test]
fn cancelled_before_the_command_can_have_begun() {
    // At any moment of the start: cancelled, proved, never hung.
    for delay in [0, 200, 500, 1000, 2000, 4000] {
        let run = Run::corral(&["--grace=5s"]).command(["sleep", "30"]).start();
        std::thread::sleep(Duration::from_micros(delay));
        run.signal(Signal::TERM);
        let outcome = run.wait();
        assert_eq!(outcome.signal, Some(15), "{delay} µs: {outcome:#?}");
        outcome.assert_nothing_left();
    }
}

// ---------------------------------------------------------------------------

/// corral as a job of its own group under a shell of the same session, so that
/// its group is not orphaned; prints corral's pid.
fn job(command: &str) -> Run {
    let text = format!(
        "set -m; \"$C\" --grace=300ms -- sh -c '{command}' & echo corral $!; exec 2>/dev/null; \
         read x; wait"
    );
    Run::argv(["bash", "-c", &text]).stdin(common::Stdin::Open).before(|| {
        rustix::process::setsid()?;
        Ok(())
    })
}

#[test]
fn a_stop_stops_the_tree_and_a_continue_continues_it() {
    if !have(&["bash"]) {
        return;
    }
    let mut run = job("sleep 30 & echo child $!; setsid sleep 30 & echo detached $!; \
                       sleep 30 & kill -STOP $!; echo stopped $!; echo command $$; wait")
    .start();
    let corral = wait_pid(&mut run, "corral");
    let command = wait_pid(&mut run, "command");
    let [child, detached, stopped] =
        ["child", "detached", "stopped"].map(|name| kit::printed_pid(run.stdout(), name));
    run.wait_until("the one that was stopped before", |_| state(stopped) == Some('T'));
    let owner = supervisor(&run);
    for _ in 0..2 {
        run.signal_member(corral, Signal::TSTP);
        run.wait_until("the stop of all", |_| {
            [corral, command, child, detached, stopped].iter().all(|pid| state(*pid) == Some('T'))
        });
        assert_ne!(state(owner), Some('T'), "the supervisor never stops");
        run.signal_member(corral, Signal::CONT);
        run.wait_until("the continuing of all", |_| {
            [corral, command, child, detached]
                .iter()
                .all(|pid| state(*pid).is_some_and(|state| state != 'T'))
        });
        assert_eq!(state(stopped), Some('T'), "it was stopped by somebody else");
    }
    run.signal_member(corral, Signal::TERM);
    run.close_stdin();
    let outcome = run.wait();
    outcome.assert_nothing_left();
}

#[test]
fn a_limit_ends_a_stopped_run_at_once() {
    if !have(&["bash"]) {
        return;
    }
    let text = "set -m; \"$C\" --wall=1s --grace=300ms -- sh -c 'echo command $$; sleep 30' & \
                echo corral $!; read x; wait -f $!; echo rc $?";
    let mut run = Run::argv(["bash", "-c", text])
        .stdin(common::Stdin::Open)
        .before(|| {
            rustix::process::setsid()?;
            Ok(())
        })
        .start();
    let corral = wait_pid(&mut run, "corral");
    let command = wait_pid(&mut run, "command");
    run.signal_member(corral, Signal::TSTP);
    run.wait_until("the command's end", |_| state(command).is_none());
    // The monitor may still be stopped, as its shell asked; it returns then.
    if state(corral) == Some('T') {
        run.signal_member(corral, Signal::CONT);
    }
    run.close_stdin();
    let outcome = run.wait();
    outcome.assert_nothing_left();
    assert!(String::from_utf8_lossy(&outcome.stdout).contains("rc 124"), "{outcome:#?}");
}

#[test]
fn an_orphaned_group_cannot_be_stopped_by_its_terminal() {
    // The kernel drops SIGTSTP there, as nobody could continue it; the command
    // must not be left stopped either.
    let mut run = Run::corral(&["--grace=300ms"])
        .command(["sh", "-c", "echo ready; exec cat"])
        .stdin(common::Stdin::Open)
        .before(|| {
            rustix::process::setsid()?;
            Ok(())
        })
        .start();
    run.ready();
    // Time and again: a second stop may come while the first is being undone.
    for round in 0..25 {
        run.signal(Signal::TSTP);
        run.feed(format!("round {round}\n").as_bytes());
        run.wait_line(&format!("round {round}"));
    }
    run.close_stdin();
    let outcome = run.wait();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
}

#[test]
fn an_ignored_stop_stops_nothing() {
    if !have(&["env"]) {
        return;
    }
    let mut run = Run::argv(["env", "--ignore-signal=TSTP"])
        .args([common::corral().to_str().unwrap(), "--", "sh", "-c"])
        .args(["echo ready; exec cat"])
        .stdin(common::Stdin::Open)
        .start();
    run.ready();
    run.signal(Signal::TSTP);
    run.feed(b"on\n");
    run.wait_line("on");
    run.close_stdin();
    run.wait().assert_status(0);
}

#[test]
fn continuing_what_was_not_stopped_is_nothing() {
    if !have(&[PYTHON]) {
        return;
    }
    let mut run = Run::corral(&["--grace=300ms"]).command(logger(&[])).start();
    run.ready();
    run.signal(Signal::CONT);
    run.signal(Signal::USR1);
    run.wait_line("SIGUSR1");
    run.signal(Signal::TERM);
    let outcome = run.wait();
    assert_cancelled(&outcome, Signal::TERM);
}
