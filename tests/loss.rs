//! What if one of corral's own two processes is killed?
//!
//! The other one ends the run, proves it and writes the record; the monitor's
//! death is the end of the tree within 200 ms, the supervisor's is status 137.
//! What is sent to corral's group reaches the monitor alone, once. And where
//! both are killed in the same instant, the command dies with them.

mod common;
mod kit;

use std::time::{Duration, Instant};

use rustix::process::pidfd_send_signal;

use common::{Outcome, Run, Running, Signal, proc_state};
use kit::{PYTHON, assert_record, have, logger, supervisor, wait_pid};

const SOON: Duration = Duration::from_secs(15);
/// The promise is 200 ms on a quiet machine.
const LOSS: Duration = Duration::from_secs(2);

fn state(pid: i32) -> Option<char> {
    proc_state(pid).map(|(_, state)| state)
}

/// Processes in every relation to the command; prints `ready` when all are there.
const TREE: &str = "trap '' HUP INT TERM; sleep 30 & setsid sleep 30 & \
                    (setsid sh -c 'sleep 30 & sleep 30' &) ; \
                    i=0; while [ $i -lt 20 ]; do sleep 30 & i=$((i+1)); done; \
                    echo command $$; echo ready; sleep 30";

fn tree(options: &[&str]) -> Running {
    let mut run = Run::corral(options).command(["sh", "-c", TREE]).start();
    run.ready();
    run
}

/// Everything gone within the promised time, measured for whoever looks.
#[track_caller]
fn assert_gone(outcome: &Outcome, what: &str) {
    let began = Instant::now();
    assert!(
        outcome.ground.wait_empty(LOSS),
        "{what}: alive after {LOSS:?}: {:#?}",
        outcome.ground.members()
    );
    println!("{what}: all gone {:?} after the return", began.elapsed());
}

#[track_caller]
fn assert_monitor_lost(outcome: &Outcome) {
    let record = outcome.record_now().expect("the record is still written");
    assert_eq!(record["cause"], "monitor_lost");
    assert_eq!(record["exit_status"], 137);
    assert_eq!(record["proved"], true);
    assert!(record["tree_at_cause_total"].as_u64() >= Some(24), "{record:#}");
}

#[test]
fn the_monitor_is_killed() {
    for options in [&[][..], &["--max-output=1M"], &["--wall=40s", "--grace=40s"]] {
        let run = tree(options);
        run.signal(Signal::KILL);
        let outcome = run.wait();
        assert_eq!(outcome.signal, Some(9));
        assert_gone(&outcome, "monitor killed");
        assert_monitor_lost(&outcome);
    }
}

#[test]
fn the_supervisor_is_killed() {
    for options in [&[][..], &["--max-output=1M"], &["--wall=40s", "--grace=40s"]] {
        let run = tree(options);
        let owner = supervisor(&run);
        run.signal_member(owner, Signal::KILL);
        let outcome = run.wait();
        outcome.assert_status(137);
        outcome.assert_nothing_left();
        assert!(outcome.elapsed < SOON);
        assert_record(&outcome, "supervisor_lost", 137);
        assert!(outcome.stderr.contains("corral: "), "{outcome:#?}");
    }
}

#[test]
fn the_whole_group_of_corral_is_killed() {
    let mut run = Run::corral(&[])
        .command(["sh", "-c", TREE])
        .before(|| {
            rustix::process::setsid()?;
            Ok(())
        })
        .start();
    run.ready();
    let group = rustix::process::Pid::from_raw(run.pid()).unwrap();
    rustix::process::kill_process_group(group, Signal::KILL).unwrap();
    let outcome = run.wait();
    assert_eq!(outcome.signal, Some(9));
    assert_gone(&outcome, "group killed");
    assert_monitor_lost(&outcome);
}

#[test]
fn a_signal_to_the_group_of_corral_comes_once() {
    if !have(&[PYTHON]) {
        return;
    }
    let mut run = Run::corral(&["--grace=300ms"])
        .command(logger(&[]))
        .before(|| {
            rustix::process::setsid()?;
            Ok(())
        })
        .start();
    run.ready();
    let group = rustix::process::Pid::from_raw(run.pid()).unwrap();
    rustix::process::kill_process_group(group, Signal::USR1).unwrap();
    run.wait_line("SIGUSR1");
    rustix::process::kill_process_group(group, Signal::INT).unwrap();
    let outcome = run.wait();
    assert_eq!(outcome.signal, Some(2), "{outcome:#?}");
    outcome.assert_nothing_left();
    assert_record(&outcome, "cancelled", 130);
    assert_eq!(outcome.stdout, b"ready\nSIGUSR1\nSIGINT\n");
}

#[test]
fn the_two_have_different_names_and_sessions() {
    let run = tree(&[]);
    let (monitor, owner) = (run.pid(), supervisor(&run));
    let name = |pid: i32| proc_state(pid).unwrap().0;
    assert_eq!(name(monitor), "corral");
    assert_ne!(monitor, owner);
    // (Of nix: in a PID namespace the session may be an outside one, number 0.)
    let session = |pid: i32| nix::unistd::getsid(Some(nix::unistd::Pid::from_raw(pid))).unwrap();
    assert_ne!(session(monitor), session(owner));
    let command = kit::printed_pid(run.stdout(), "command");
    assert_ne!(session(command), session(owner));
    assert_ne!(session(command), session(monitor));
    // It heeds no signal of its own: cancelling is the monitor's to pass on.
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        run.signal_member(owner, signal);
    }
    run.signal(Signal::USR1);
    assert!(state(owner).is_some_and(|state| state != 'Z'));
    let outcome = run.wait();
    // (The command's shell died of SIGUSR1.)
    outcome.assert_status(138);
    outcome.assert_nothing_left();
    assert_record(&outcome, "exited", 138);
}

#[test]
fn both_are_killed_at_once() {
    // Nobody is left to end the tree; the command itself dies with them.
    let mut run = Run::corral(&[])
        .command(["sh", "-c", "echo command $$; echo ready; exec sleep 30"])
        .start();
    run.ready();
    let command = wait_pid(&mut run, "command");
    let owner = run.member(supervisor(&run));
    run.signal(Signal::KILL);
    // It may be through already.
    let _ = pidfd_send_signal(owner, Signal::KILL);
    let outcome = run.wait();
    assert!(outcome.ground.wait_empty(LOSS), "{:#?}", outcome.ground.members());
    assert!(common::Survivor::read(command).is_none());
}

#[test]
fn killed_by_the_command_itself() {
    // Its parent is the supervisor, whose parent is the monitor.
    let kill = |whom: &str| {
        format!(
            "setsid sleep 30 & sleep 30 & \
             m=$(sed 's/.*) . //; s/ .*//' /proc/$PPID/stat); kill -9 {whom}; sleep 30"
        )
    };
    let outcome = Run::corral(&[]).command(["sh", "-c", &kill("$PPID")]).run();
    outcome.assert_status(137);
    outcome.assert_nothing_left();
    assert_record(&outcome, "supervisor_lost", 137);

    let outcome = Run::corral(&[]).command(["sh", "-c", &kill("$m")]).run();
    assert_eq!(outcome.signal, Some(9), "{outcome:#?}");
    assert_gone(&outcome, "monitor killed by the command");
    assert_eq!(outcome.record_now().unwrap()["cause"], "monitor_lost");
}

#[test]
fn a_monitor_that_is_stopped_does_not_hold_the_limit() {
    let mut run = Run::corral(&["--wall=2s", "--grace=300ms"]).command(["sh", "-c", TREE]).start();
    run.ready();
    run.signal(Signal::STOP);
    let monitor = run.pid();
    run.wait_until("the stop", |_| state(monitor) == Some('T'));
    run.wait_until("the tree's end", |run| {
        run.members().iter().all(|one| one.pid == monitor || one.name == "crl-supervisor")
    });
    run.signal(Signal::CONT);
    let outcome = run.wait();
    outcome.assert_status(124);
    outcome.assert_nothing_left();
    assert_record(&outcome, "wall", 124);
}

#[test]
fn killed_while_the_grace_runs() {
    if !have(&[PYTHON]) {
        return;
    }
    for which in ["monitor", "supervisor"] {
        let mut run = Run::corral(&["--grace=40s"]).command(logger(&[])).start();
        run.ready();
        run.signal(Signal::TERM);
        run.wait_line("SIGTERM");
        if which == "monitor" {
            run.signal(Signal::KILL);
        } else {
            let owner = supervisor(&run);
            run.signal_member(owner, Signal::KILL);
        }
        let outcome = run.wait();
        assert!(outcome.elapsed < SOON, "{which}: {outcome:#?}");
        assert_gone(&outcome, which);
    }
}
