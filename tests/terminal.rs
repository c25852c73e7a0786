//! Is a terminal left as it was found, and does the person at it stay in
//! command?
//!
//! Ctrl-C ends the whole thing and what runs it, Ctrl-Z stops and `fg` goes on,
//! a command killed in raw mode leaves no raw terminal behind, a stopped
//! terminal holds nothing up, and as the leader of the terminal's session
//! corral hands it on (`docker run -it`).

mod common;
mod kit;
mod pty;

use std::time::Duration;

use rustix::termios::{Action, LocalModes, Winsize, tcflow, tcsetwinsize};

use common::{Run, Signal, Survivor};
use kit::{LOGGER, PYTHON, have, printed_pid};
use pty::{Terminal, settings};

const SOON: Duration = Duration::from_secs(15);

/// A shell script on a terminal.
fn shell(terminal: &Terminal, program: &str, text: &str) -> Run {
    let run = Run::argv([program, "-c", text]).env("P", PYTHON).env("L", LOGGER);
    terminal.attach(run)
}

#[test]
fn the_interrupt_key() {
    let terminal = Terminal::new();
    let text = "trap 'echo interrupted' INT; \
                \"$C\" --grace=300ms sh -c 'sleep 30 & setsid sleep 30 & echo ready; sleep 31'; \
                echo rc=$?";
    let mut run = shell(&terminal, "sh", text).start();
    terminal.wait(&mut run, "ready");
    terminal.type_(b"\x03");
    let outcome = run.wait();
    outcome.assert_nothing_left();
    assert!(outcome.elapsed < SOON);
    let shown = terminal.shown();
    assert!(shown.contains("interrupted") && shown.contains("rc=130"), "{shown}");
}

#[test]
fn the_interrupt_key_ends_the_loop_around() {
    if !have(&["bash"]) {
        return;
    }
    // bash goes on after a status of 130, and ends after a death by SIGINT.
    let terminal = Terminal::new();
    let text = "for i in 1 2 3; do \"$C\" sh -c 'echo ready; sleep 30'; done; echo behind";
    let mut run = shell(&terminal, "bash", text).start();
    terminal.wait(&mut run, "ready");
    terminal.type_(b"\x03");
    let outcome = run.wait();
    assert_eq!(outcome.signal, Some(2), "{}", terminal.shown());
    outcome.assert_nothing_left();
    let shown = terminal.shown();
    assert_eq!(shown.matches("ready").count(), 1, "{shown}");
    assert!(!shown.contains("behind"), "{shown}");
}

#[test]
fn the_interrupt_key_comes_once() {
    if !have(&[PYTHON]) {
        return;
    }
    let terminal = Terminal::new();
    let text = "trap : INT QUIT; \"$C\" --grace=20s \"$P\" -c \"$L\" SIGINT; echo rc=$?; \
                \"$C\" --grace=20s \"$P\" -c \"$L\" SIGQUIT; echo rc=$?";
    let mut run = shell(&terminal, "sh", text).start();
    terminal.wait(&mut run, "ready");
    terminal.type_(b"\x03");
    terminal.wait(&mut run, "rc=130");
    run.wait_until("the second one", |_| terminal.shown().matches("ready").count() == 2);
    terminal.type_(b"\x1c");
    let outcome = run.wait();
    outcome.assert_nothing_left();
    let shown = terminal.shown();
    for name in ["SIGINT\n", "SIGQUIT\n"] {
        assert_eq!(shown.matches(name).count(), 1, "{shown}");
    }
    assert!(shown.contains("rc=131"), "{shown}");
}

#[test]
fn the_command_reads_and_sets_the_terminal() {
    let terminal = Terminal::new();
    let before = settings(&terminal.modes());
    let text = "\"$C\" --wall=30s sh -c 'stty -echo; echo ready; read x; stty echo; \
                echo got $x; test -t 0 && test -t 1 && test -t 2'; echo rc=$?";
    let mut run = shell(&terminal, "sh", text).start();
    terminal.wait(&mut run, "ready");
    terminal.type_(b"hello\n");
    let outcome = run.wait();
    outcome.assert_nothing_left();
    let shown = terminal.shown();
    assert!(shown.contains("got hello\nrc=0"), "{shown}");
    assert_eq!(settings(&terminal.modes()), before);
}

#[test]
fn the_modes_are_restored_after_a_kill() {
    let cases = [
        ("--wall=600ms", "trap \"\" TERM; stty raw -echo; echo raw; sleep 30", "rc=124"),
        ("--wall=600ms --signal=INT", "stty raw -echo; echo raw; exec sleep 30", "rc=124"),
        ("--output-limit=200", "stty raw -echo; yes", "rc=121"),
    ];
    for (options, command, rc) in cases {
        let terminal = Terminal::new();
        let before = settings(&terminal.modes());
        let text = format!("\"$C\" {options} --grace=300ms sh -c '{command}'; echo rc=$?");
        let outcome = shell(&terminal, "sh", &text).run();
        outcome.assert_nothing_left();
        let shown = terminal.shown();
        assert!(shown.contains(rc), "{shown}");
        assert_eq!(settings(&terminal.modes()), before, "{options}: {shown}");
    }
}

#[test]
fn the_modes_are_restored_after_a_cancel_and_a_loss() {
    for (signal, whom) in
        [(Signal::TERM, "monitor"), (Signal::HUP, "monitor"), (Signal::KILL, "supervisor")]
    {
        let terminal = Terminal::new();
        let before = settings(&terminal.modes());
        let text = "\"$C\" --grace=300ms \
                    sh -c 'trap \"\" TERM HUP; stty raw -echo; echo ready; sleep 30'; echo rc=$?";
        let mut run = shell(&terminal, "sh", text).start();
        terminal.wait(&mut run, "ready");
        assert_ne!(settings(&terminal.modes()), before);
        let pid = match whom {
            "monitor" => {
                let named = run.members().into_iter().find(|one| one.name == "corral");
                named.expect("a corral").pid
            }
            _ => kit::supervisor(&run),
        };
        run.signal_member(pid, signal);
        let outcome = run.wait();
        outcome.assert_nothing_left();
        assert_eq!(settings(&terminal.modes()), before, "{signal:?} to the {whom}");
    }
}

#[test]
fn modes_that_a_command_leaves_on_purpose_stay() {
    let terminal = Terminal::new();
    let outcome = shell(&terminal, "sh", "\"$C\" stty -echo; echo rc=$?").run();
    outcome.assert_nothing_left();
    assert!(terminal.shown().contains("rc=0"));
    assert!(!terminal.modes().local_modes.contains(LocalModes::ECHO));
}

#[test]
fn modes_are_not_restored_from_the_background() {
    if !have(&["bash"]) {
        return;
    }
    // Somebody else has the terminal now: it is theirs to set.
    let terminal = Terminal::new();
    let text = "set -m; \"$C\" --wall=900ms --grace=300ms \
                sh -c 'trap \"\" TERM; echo >\"$D/ready\"; sleep 30' & \
                until [ -e \"$D/ready\" ]; do :; done; stty -echo; wait $!; echo rc=$?";
    let place = tempfile::tempdir().unwrap();
    let outcome = shell(&terminal, "bash", text).env("D", place.path()).run();
    outcome.assert_nothing_left();
    let shown = terminal.shown();
    assert!(shown.contains("rc=124"), "{shown}");
    assert!(
        !terminal.modes().local_modes.contains(LocalModes::ECHO),
        "what the foreground had set was undone"
    );
}

#[test]
fn a_terminal_that_is_stopped() {
    // Ctrl-S: every write to it blocks, corral's own line too.
    for options in ["", "--max-output=1M", "--max-output=10+10", "--output-limit=1G"] {
        let terminal = Terminal::new();
        let text = format!(
            "\"$C\" --wall=2s --grace=300ms {options} \
             sh -c 'sleep 30 & echo ready; read x </dev/null; i=0; \
             while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; sleep 30'; echo $? >\"$D/rc\""
        );
        let place = tempfile::tempdir().unwrap();
        let mut run = shell(&terminal, "sh", &text).env("D", place.path()).start();
        terminal.wait(&mut run, "ready");
        tcflow(terminal.slave(), Action::OOff).unwrap();
        let outcome = run.wait();
        outcome.assert_nothing_left();
        assert!(outcome.elapsed < SOON, "{options}: {outcome:#?}");
        let rc = std::fs::read_to_string(place.path().join("rc")).unwrap();
        assert_eq!(rc, "124\n", "{options}");
    }
}

#[test]
fn a_terminal_that_is_stopped_while_a_leftover_is_named() {
    let terminal = Terminal::new();
    let place = tempfile::tempdir().unwrap();
    let text = "\"$C\" sh -c 'sleep 30 & echo ready; until [ -e \"$D/go\" ]; do :; done; exit 3'; \
                echo $? >\"$D/rc\"";
    let mut run = shell(&terminal, "sh", text).env("D", place.path()).start();
    terminal.wait(&mut run, "ready");
    tcflow(terminal.slave(), Action::OOff).unwrap();
    std::fs::write(place.path().join("go"), "").unwrap();
    let outcome = run.wait();
    outcome.assert_nothing_left();
    assert!(outcome.elapsed < SOON);
    let rc = std::fs::read_to_string(place.path().join("rc")).unwrap();
    assert_eq!(rc, "3\n");
}

#[test]
fn a_terminal_that_nobody_reads() {
    // Its buffer is full after some kilobytes.
    let terminal = Terminal::new();
    let text = "\"$C\" --wall=900ms --grace=300ms --max-output=1G yes; exit $?";
    let outcome = shell(&terminal, "sh", text).run();
    outcome.assert_nothing_left();
    outcome.assert_status(124);
    assert!(outcome.elapsed < SOON);
}

#[test]
fn the_stop_key_and_the_foreground() {
    if !have(&["bash"]) {
        return;
    }
    let terminal = Terminal::new();
    let text = "set -m; \"$C\" --grace=300ms sh -c 'sleep 30 & echo child $!; echo command $$; \
                echo ready; read x; echo got $x; exit 5'; \
                echo stopped=$?; read y; fg >/dev/null; echo rc=$?";
    let mut run = shell(&terminal, "bash", text).start();
    terminal.wait(&mut run, "ready");
    let shown = terminal.shown().into_bytes();
    let pids = [printed_pid(&shown, "child"), printed_pid(&shown, "command")];
    terminal.type_(b"\x1a");
    terminal.wait(&mut run, "stopped=148");
    for pid in pids {
        assert_eq!(common::proc_state(pid).map(|(_, state)| state), Some('T'));
    }
    terminal.type_(b"go on\n");
    run.wait_until("the tree going on", |_| {
        pids.iter().all(|pid| common::proc_state(*pid).is_some_and(|(_, state)| state != 'T'))
    });
    terminal.type_(b"more\n");
    let outcome = run.wait();
    outcome.assert_nothing_left();
    let shown = terminal.shown();
    assert!(shown.contains("got more") && shown.contains("rc=5"), "{shown}");
}

#[test]
fn a_hangup() {
    // The terminal goes away under a shell with a run in it.
    let terminal = Terminal::new();
    let text = "\"$C\" --grace=300ms sh -c 'trap \"\" HUP; setsid sleep 30 & echo ready; sleep 30'; echo behind";
    let mut run = shell(&terminal, "sh", text).start();
    terminal.wait(&mut run, "ready");
    drop(terminal);
    let outcome = run.wait();
    assert!(outcome.ground.wait_empty(Duration::from_secs(10)), "{:#?}", outcome.ground.members());
}

#[test]
fn a_hangup_that_is_ignored() {
    // nohup: the command goes on, and so does corral.
    let terminal = Terminal::new();
    let place = tempfile::tempdir().unwrap();
    let text = "trap '' HUP; exec \"$C\" sh -c 'echo ready; \
                until [ -e \"$D/go\" ]; do sleep 0.05; done; echo on >\"$D/on\"; exit 0' ";
    let mut run = shell(&terminal, "sh", text).env("D", place.path()).start();
    terminal.wait(&mut run, "ready");
    drop(terminal);
    std::fs::write(place.path().join("go"), "").unwrap();
    let outcome = run.wait();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    assert!(place.path().join("on").exists());
}

#[test]
fn a_new_size() {
    if !have(&[PYTHON]) {
        return;
    }
    // The terminal's signal reaches its foreground group alone, where the
    // command is not; corral passes it on.
    let terminal = Terminal::new();
    let text = "\"$C\" \"$P\" -c \"$L\" SIGWINCH; echo rc=$?";
    let mut run = shell(&terminal, "sh", text).start();
    terminal.wait(&mut run, "ready");
    let size = Winsize { ws_row: 33, ws_col: 77, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal.master(), size).unwrap();
    terminal.wait(&mut run, "SIGWINCH");
    let outcome = run.wait();
    outcome.assert_nothing_left();
    let shown = terminal.shown();
    assert!(shown.contains("rc=7"), "{shown}");
}

/// corral itself as the leader of the terminal's session.
fn leader(terminal: &Terminal, options: &[&str]) -> Run {
    terminal.attach(Run::corral(options).env("P", PYTHON).env("L", LOGGER))
}

#[test]
fn a_session_leader_hands_its_terminal_on() {
    if !have(&[PYTHON]) {
        return;
    }
    let terminal = Terminal::new();
    let text = "
import os
tty = os.open('/dev/tty', os.O_RDWR)
print('mine' if os.tcgetpgrp(tty) == os.getpgrp() and os.getsid(0) == os.getpid() else 'not mine')";
    let outcome = leader(&terminal, &[]).command([PYTHON, "-c", text]).run();
    let shown = terminal.shown();
    assert!(shown.contains("mine") && !shown.contains("not mine"), "{shown}");
    outcome.assert_status(0);
    outcome.assert_nothing_left();
}

#[test]
fn a_session_leaders_command_gets_the_keys_itself() {
    if !have(&[PYTHON]) {
        return;
    }
    let terminal = Terminal::new();
    let mut run = leader(&terminal, &[]).command(kit::logger(&["SIGQUIT"])).start();
    terminal.wait(&mut run, "ready");
    terminal.type_(b"\x03");
    terminal.wait(&mut run, "SIGINT");
    terminal.type_(b"\x1c");
    let outcome = run.wait();
    // Not cancelled: the command heard it, once, and exited by itself.
    outcome.assert_status(7);
    outcome.assert_nothing_left();
    assert_eq!(outcome.record("/cause"), "exited");
    let shown = terminal.shown();
    assert_eq!(shown.matches("SIGINT\n").count(), 1, "{shown}");
}

#[test]
fn a_session_leaders_command_has_job_control() {
    if !have(&["bash"]) {
        return;
    }
    let terminal = Terminal::new();
    let text = "set -m; sleep 30 & sh -c 'echo asks; read x; echo got $x'; echo rc=$?; \
                sh -c 'echo waits; sleep 30'; echo rc=$?; exit 4";
    let mut run = leader(&terminal, &[]).command(["bash", "-c", text]).start();
    terminal.wait(&mut run, "asks");
    terminal.type_(b"this\n");
    terminal.wait(&mut run, "rc=0");
    terminal.wait(&mut run, "waits");
    // Stopped between vfork and exec, a child would hold its shell in D state.
    run.wait_until("the second sleep", |run| {
        run.members().iter().filter(|one| one.name == "sleep").count() == 2
    });
    terminal.type_(b"\x1a");
    terminal.wait(&mut run, "rc=148");
    let outcome = run.wait();
    outcome.assert_status(4);
    outcome.assert_nothing_left();
    assert!(terminal.shown().contains("got this"));
}

#[test]
fn a_session_leader_still_obeys_and_limits() {
    for (options, cancel, status, signal) in [
        (&["--wall=700ms", "--grace=300ms"][..], false, Some(124), None),
        (&["--grace=300ms"], true, None, Some(15)),
    ] {
        let terminal = Terminal::new();
        let mut run = leader(&terminal, options)
            .command([
                "sh",
                "-c",
                "trap '' TERM HUP; stty -echo; setsid sleep 30 & echo ready; sleep 30",
            ])
            .start();
        terminal.wait(&mut run, "ready");
        if cancel {
            run.signal(Signal::TERM);
        }
        let outcome = run.wait();
        assert_eq!((outcome.status, outcome.signal), (status, signal), "{outcome:#?}");
        outcome.assert_nothing_left();
    }
}

#[test]
fn a_session_leader_loses_its_terminal() {
    let terminal = Terminal::new();
    let mut run = leader(&terminal, &["--grace=300ms"])
        .command(["sh", "-c", "echo command $$; setsid sleep 30 & echo ready; sleep 30"])
        .start();
    terminal.wait(&mut run, "ready");
    let command = printed_pid(terminal.shown().as_bytes(), "command");
    drop(terminal);
    let outcome = run.wait();
    assert!(Survivor::read(command).is_none());
    outcome.assert_nothing_left();
}
