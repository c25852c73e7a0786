//! Does a limit hold against a command that does not want to end?
//!
//! Everything that is known to keep a runner from its deadline: ignored
//! signals, process groups and sessions, restarters, handlers that start new
//! work, stopped, traced and frozen processes, a full process table, processes
//! of another user. What cannot be ended must be said (120), never waited for.

mod common;
mod kit;

use std::time::Duration;

use common::{NOBODY, Run, Signal, install, root_or_skip};
use kit::{
    OldGroup, PYTHON, assert_cancelled, assert_record, cancel_when_ready, have, number, only_line,
    script,
};

/// Above every deadline used here, below every life of a process.
const SOON: Duration = Duration::from_secs(15);

#[test]
fn the_limit_ends_a_willing_command() {
    let outcome = script(&["--wall", "1s"], "echo begun; exec sleep 30").run();
    outcome.assert_status(124);
    outcome.assert_nothing_left();
    assert_eq!(outcome.stdout, b"begun\n");
    assert_record(&outcome, "wall", 124);
    assert_eq!(outcome.record("/escalated"), false);
    assert_eq!(outcome.record("/command_status/signal"), 15);
    assert_eq!(number(&outcome, "/tree_at_cause_total"), 1);
    assert_eq!(outcome.record("/tree_at_cause/0/name"), "sleep");
    // Not before its time, and the clock starts just before the clone.
    assert!(number(&outcome, "/steps_us/cause_seen") >= 1_000_000);
    assert!(only_line(&outcome).contains("sleep"));
}

#[test]
fn an_empty_tree_ends_the_grace() {
    let outcome = script(&["--wall=300ms", "--grace=40s"], "sleep 30").run();
    outcome.assert_status(124);
    outcome.assert_nothing_left();
    assert!(outcome.elapsed < SOON, "{outcome:#?}");
}

#[test]
fn a_tree_that_ignores_the_signal() {
    let text = "trap '' TERM; sleep 30 & setsid sleep 30 & sleep 30 & echo ready; wait";
    for grace in ["0s", "400ms"] {
        let outcome = cancel_when_ready(script(&["--grace", grace], text));
        assert_cancelled(&outcome, Signal::TERM);
        assert_eq!(outcome.record("/escalated"), true);
        assert_eq!(number(&outcome, "/tree_at_cause_total"), 4);
        let waited =
            number(&outcome, "/steps_us/killed") - number(&outcome, "/steps_us/cause_seen");
        assert!(grace == "0s" || waited >= 400_000, "{waited} µs of grace");
    }
    let outcome = script(&["--wall=300ms", "--grace=300ms"], text).run();
    outcome.assert_status(124);
    outcome.assert_nothing_left();
    assert_record(&outcome, "wall", 124);
}

#[test]
fn jobs_in_groups_of_their_own() {
    if !have(&["bash"]) {
        return;
    }
    let text = "set -m; sleep 30 & sleep 30 | cat & (sleep 30 & sleep 30) & echo ready; wait";
    let outcome = cancel_when_ready(Run::corral(&[]).command(["bash", "-c", text]));
    assert_cancelled(&outcome, Signal::TERM);
}

#[test]
fn restarters() {
    // Each starts its worker again as soon as that has ended; bounded.
    let text = "trap '' TERM HUP INT; watch() { n=0; \
                while [ $n -lt 60 ]; do sleep 30 & wait $!; n=$((n+1)); done; }; \
                watch & (watch) & setsid sh -c 'n=0; \
                while [ $n -lt 60 ]; do sleep 30; n=$((n+1)); done' & echo ready; wait";
    let outcome = cancel_when_ready(script(&["--grace=300ms"], text));
    assert_cancelled(&outcome, Signal::TERM);
    assert_eq!(outcome.record("/escalated"), true);
}

#[test]
fn a_handler_that_starts_new_work() {
    let text = "trap 'setsid sleep 30 & \
                setsid sh -c \"trap \\\"\\\" TERM; sleep 30\" & (sleep 30 &); echo spread; exit 0' \
                TERM; echo ready; while :; do sleep 0.1; done";
    let outcome = cancel_when_ready(script(&["--grace=600ms"], text));
    assert_cancelled(&outcome, Signal::TERM);
    assert_eq!(outcome.stdout, b"ready\nspread\n");
    assert_eq!(outcome.record("/escalated"), true);
    // It exited 0 from its handler: no success for a run that was ended.
    assert_eq!(outcome.record("/command_status/code"), 0);
}

#[test]
fn a_success_in_the_grace_is_none() {
    let text = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    // The limit is what the command itself sets off, once its trap is set.
    let outcome = script(&["--output-limit=5", "--grace=20s"], text).run();
    outcome.assert_status(121);
    outcome.assert_nothing_left();
    assert_record(&outcome, "output", 121);
    assert_eq!(outcome.record("/command_status/code"), 0);
    assert_eq!(outcome.record("/escalated"), false);
}

#[test]
fn cleaning_up_takes_its_time() {
    if !have(&[PYTHON]) {
        return;
    }
    let text = "
import os, signal, sys, time
def clean(*a):
    time.sleep(.8); sys.stdout.write('x' * 30000 + '\\ncleaned\\n'); sys.stdout.flush(); sys.exit(3)
signal.signal(signal.SIGTERM, clean)
os.write(1, b'ready\\n')
time.sleep(30)";
    for options in [&["--grace=20s"][..], &["--grace=20s", "--max-output=1M"]] {
        let outcome = cancel_when_ready(Run::corral(options).command([PYTHON, "-c", text]));
        assert_cancelled(&outcome, Signal::TERM);
        assert!(outcome.stdout.ends_with(b"\ncleaned\n"), "{outcome:#?}");
        assert_eq!(outcome.stdout.len(), 6 + 30009);
        assert_eq!(outcome.record("/escalated"), false);
    }
}

#[test]
fn a_shell_waits_for_its_child_before_its_trap() {
    let text = "trap 'echo cleaned; exit 0' TERM; echo ready; sleep 30; echo never";
    let mut run = script(&["--grace=20s"], text).start();
    // The signal goes to those who are there: the child has to be.
    run.wait_until("the child", |run| run.members().iter().any(|one| one.name == "sleep"));
    run.signal(Signal::TERM);
    let outcome = run.wait();
    assert_cancelled(&outcome, Signal::TERM);
    assert!(outcome.elapsed < SOON);
    assert_eq!(outcome.stdout, b"ready\ncleaned\n");
    assert_eq!(outcome.record("/escalated"), false);
}

#[test]
fn a_handler_in_a_stopped_process_still_runs() {
    // SIGCONT goes with the first signal.
    let text = "trap 'echo cleaned; exit 0' TERM; echo command $$; kill -STOP $$; \
                while :; do sleep 0.05; done";
    let outcome = cancel_when_stopped(script(&["--grace=20s"], text));
    assert_cancelled(&outcome, Signal::TERM);
    assert!(outcome.stdout.ends_with(b"\ncleaned\n"), "{outcome:#?}");
    assert_eq!(outcome.record("/escalated"), false);
}

/// Cancels a run once its command has stopped itself.
fn cancel_when_stopped(run: Run) -> common::Outcome {
    let mut run = run.start();
    let pid = kit::wait_pid(&mut run, "command");
    run.wait_until("the stop", |_| common::proc_state(pid).is_some_and(|(_, state)| state == 'T'));
    run.signal(Signal::TERM);
    run.wait()
}

#[test]
fn a_stop_is_no_exit() {
    for text in [
        "echo command $$; kill -STOP $$; sleep 30",
        "echo command $$; kill -TSTP $$; kill -TTIN $$; kill -STOP $$; sleep 30",
        "trap '' TERM; sleep 30 & kill -STOP $!; echo command $$; kill -STOP $$; sleep 30",
    ] {
        let outcome = cancel_when_stopped(script(&["--grace=300ms"], text));
        assert_cancelled(&outcome, Signal::TERM);
        assert_eq!(outcome.record("/tree_at_cause/0/state"), "T", "{outcome:#?}");

        let outcome = script(&["--wall=400ms", "--grace=300ms"], text).run();
        outcome.assert_status(124);
        outcome.assert_nothing_left();
        assert_record(&outcome, "wall", 124);
    }
}

#[test]
fn a_stopped_command_that_is_continued_exits_by_itself() {
    let mut run = script(&[], "echo pid $$; kill -STOP $$; exit 6").start();
    let pid = kit::wait_pid(&mut run, "pid");
    run.wait_until("the stop", |_| common::proc_state(pid).is_some_and(|(_, state)| state == 'T'));
    run.signal_member(pid, Signal::CONT);
    let outcome = run.wait();
    outcome.assert_status(6);
    assert_record(&outcome, "exited", 6);
}

#[test]
fn the_init_of_a_namespace_drops_the_signal() {
    if !have(&["unshare"]) || !root_or_skip() {
        return;
    }
    let text = "exec unshare -pf sh -c 'setsid sleep 30 & (sleep 30 &); echo ready; exec sleep 30'";
    let outcome = cancel_when_ready(script(&["--grace=300ms"], text));
    assert_cancelled(&outcome, Signal::TERM);
    assert_eq!(outcome.record("/escalated"), true);
}

#[test]
fn a_namespace_left_behind() {
    if !have(&["unshare"]) || !root_or_skip() {
        return;
    }
    let text = "unshare -pf sh -c 'echo inside; setsid sleep 30 & exec sleep 30' & \
                until grep -q . /proc/$!/task/$!/children; do :; done; exit 9";
    let outcome = script(&[], text).run();
    outcome.assert_status(9);
    outcome.assert_nothing_left();
}

#[test]
fn traced_by_somebody_who_does_not_wait() {
    if !have(&[PYTHON]) {
        return;
    }
    // In ptrace-stop under a tracer of the tree that ignores SIGTERM; then the
    // command itself, traced by its own child.
    let stopped = "
import ctypes, os, signal, time
libc = ctypes.CDLL(None)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    os.setsid(); libc.ptrace(0, 0, 0, 0); os.kill(os.getpid(), signal.SIGSTOP); time.sleep(30)
while ') t' not in open('/proc/%d/stat' % pid).read(): time.sleep(.01)
os.write(1, b'ready\\n')
time.sleep(30)";
    let seized = "
import ctypes, os, signal, time
libc = ctypes.CDLL(None)
libc.prctl(0x59616d61, ctypes.c_ulong(2**64 - 1), 0, 0, 0)
pid = os.getpid()
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if libc.ptrace(16, pid, 0, 0) == 0: os.write(1, b'ready\\n')
    time.sleep(30)
time.sleep(30)";
    for text in [stopped, seized] {
        let run = Run::corral(&["--grace=300ms"]).command([PYTHON, "-c", text]);
        assert_cancelled(&cancel_when_ready(run), Signal::TERM);
    }
}

#[test]
fn a_command_that_asks_to_be_traced() {
    if !have(&[PYTHON]) {
        return;
    }
    // Its parent is the tracer then: corral, which never asked for it.
    let text = "
import ctypes, os, signal, time
ctypes.CDLL(None).ptrace(0, 0, 0, 0)
os.write(1, b'ready\\n')
os.kill(os.getpid(), signal.SIGUSR1)
time.sleep(30)";
    let run = Run::corral(&["--grace=300ms"]).command([PYTHON, "-c", text]);
    assert_cancelled(&cancel_when_ready(run), Signal::TERM);
}

#[test]
fn a_full_process_table() {
    if !have(&[PYTHON]) {
        return;
    }
    let Some(group) = OldGroup::new("pids") else {
        return;
    };
    group.set("pids.max", "24");
    let text = "
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
full = False
while not full:
    try:
        if os.fork() == 0:
            os.setsid(); time.sleep(25); os._exit(0)
    except OSError: full = True
os.write(1, b'ready\\n')
time.sleep(25)";
    let run = Run::corral(&["--grace=300ms"]).command([PYTHON, "-c", text]);
    let outcome = cancel_when_ready(run.before(group.enter()));
    assert_cancelled(&outcome, Signal::TERM);
    assert!(outcome.elapsed < SOON);
    assert_eq!(outcome.record("/escalated"), true);
    assert_eq!(group.get("cgroup.procs"), "");
}

#[test]
fn no_room_for_the_command() {
    let Some(group) = OldGroup::new("pids") else {
        return;
    };
    // Room for corral alone, for its two, for those and one more: refused or
    // run, never hung and never a success that was none.
    for room in ["1", "2", "3"] {
        group.set("pids.max", room);
        let outcome = script(&["--wall=2s"], "exit 0").before(group.enter()).run();
        outcome.assert_nothing_left();
        match outcome.status {
            Some(125) => assert!(only_line(&outcome).starts_with("corral: cannot ")),
            Some(0) => assert_record(&outcome, "exited", 0),
            _ => panic!("{room}: {outcome:#?}"),
        }
    }
    group.set("pids.max", "max");
}

#[test]
fn a_frozen_process_cannot_be_ended() {
    let Some(group) = OldGroup::new("freezer") else {
        return;
    };
    let text = "sleep 28 & until read name </proc/$!/comm && [ $name = sleep ]; do :; done; \
                echo frozen $!; echo $! >\"$G/cgroup.procs\"; \
                echo FROZEN >\"$G/freezer.state\"; \
                until grep -q FROZEN \"$G/freezer.state\"; do :; done; echo ready; sleep 28";
    let options = ["--grace=300ms", "--prove=700ms"];
    let outcome = cancel_when_ready(script(&options, text).env("G", group.path()));
    outcome.assert_status(120);
    assert!(outcome.elapsed < SOON, "{outcome:#?}");
    let pid = kit::printed_pid(&outcome.stdout, "frozen");
    let left: Vec<i32> = outcome.survivors.iter().map(|one| one.pid).collect();
    assert_eq!(left, [pid], "{outcome:#?}");
    assert_record(&outcome, "cancelled", 120);
    assert_eq!(number(&outcome, "/survivors_total"), 1);
    let survivor = kit::listed(&outcome, "survivors", pid);
    assert_eq!(survivor["name"], "sleep");
    let line = only_line(&outcome);
    assert!(line.contains(&pid.to_string()) && line.contains("sleep"), "{line}");
    // The SIGKILL is pending: thawed, it is gone.
    group.set("freezer.state", "THAWED");
    assert!(outcome.ground.wait_empty(Duration::from_secs(5)));
}

#[test]
fn a_frozen_leftover() {
    let Some(group) = OldGroup::new("freezer") else {
        return;
    };
    let text = "sleep 28 >/dev/null 2>&1 & echo $! >\"$G/cgroup.procs\"; \
                echo FROZEN >\"$G/freezer.state\"; \
                until grep -q FROZEN \"$G/freezer.state\"; do :; done; exit 0";
    let options = ["--grace=300ms", "--prove=700ms"];
    let outcome = script(&options, text).env("G", group.path()).run();
    group.set("freezer.state", "THAWED");
    // The command's own 0 must not hide it.
    outcome.assert_status(120);
    assert_record(&outcome, "exited", 120);
    assert_eq!(outcome.record("/command_status/code"), 0);
}

/// A program that makes whoever runs it root for good.
fn raiser() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.path(), mode).unwrap();
    let tool = kit::find("setpriv").unwrap();
    install(&tool, &place.path().join("raise"), 0o4755);
    place
}

#[test]
fn a_child_that_became_root() {
    if !root_or_skip() || !have(&["setpriv"]) {
        return;
    }
    let place = raiser();
    let text = "setsid \"$D/raise\" --reuid 0 --regid 0 --clear-groups sleep 25 \
                </dev/null >/dev/null 2>&1 & \
                until grep -q '^Uid:.0.0.0' /proc/$!/status; do :; done; \
                echo root $!; echo ready; sleep 25";
    let options = ["--grace=300ms", "--prove=700ms"];
    let outcome = cancel_when_ready(script(&options, text).env("D", place.path()).uid(NOBODY));
    outcome.assert_status(120);
    assert!(outcome.elapsed < SOON);
    let pid = kit::printed_pid(&outcome.stdout, "root");
    assert_record(&outcome, "cancelled", 120);
    let survivor = kit::listed(&outcome, "survivors", pid);
    assert_eq!(survivor["uid"], 0);
    assert_eq!(number(&outcome, "/survivors_total"), 1);
    assert_eq!(outcome.survivors.len(), 1, "{outcome:#?}");
    assert!(only_line(&outcome).contains(&pid.to_string()));
}

#[test]
fn without_new_privileges_nobody_becomes_root() {
    if !root_or_skip() || !have(&["setpriv"]) {
        return;
    }
    let place = raiser();
    let text = "grep NoNewPrivs /proc/self/status; \"$D/raise\" --reuid 0 sleep 25; \
                echo ready; sleep 25";
    let run = script(&["--no-new-privs"], text).env("D", place.path()).uid(NOBODY);
    let outcome = cancel_when_ready(run);
    assert_cancelled(&outcome, Signal::TERM);
    assert_eq!(outcome.stdout, b"NoNewPrivs:\t1\nready\n", "{outcome:#?}");
}

#[test]
fn root_that_ends_before_the_limit_is_no_survivor() {
    if !root_or_skip() || !have(&["setpriv"]) {
        return;
    }
    let place = raiser();
    let text = "\"$D/raise\" --reuid 0 --regid 0 --clear-groups true; exit 3";
    let outcome = script(&[], text).env("D", place.path()).uid(NOBODY).run();
    outcome.assert_status(3);
    outcome.assert_nothing_left();
}

#[test]
fn a_bystander_of_the_same_group_and_session() {
    let text = "sleep 25 & b=$!; \
                $C --wall=400ms --grace=200ms -- sh -c 'trap \"\" TERM; setsid sleep 25 & sleep 26'; \
                echo rc=$?; kill -0 $b && echo alive; kill $b";
    let outcome = Run::shell(text).run();
    outcome.assert_status(0);
    assert_eq!(outcome.stdout, b"rc=124\nalive\n", "{outcome:#?}");
}

#[test]
fn a_flood_on_both_streams() {
    let text = "ulimit -t 20; yes >&2 & yes & yes \"$(head -c 4000 /dev/zero | tr '\\0' z)\" & \
                setsid yes & wait";
    for options in [&["--max-output=1M"][..], &["--max-output=1G"], &[]] {
        let all = [&["--wall=700ms", "--grace=300ms"], options].concat();
        let outcome = script(&all, text).keep(1 << 10).run();
        outcome.assert_status(124);
        outcome.assert_nothing_left();
        assert!(outcome.elapsed < SOON, "{:?}", outcome.elapsed);
        assert_record(&outcome, "wall", 124);
    }
}

#[test]
fn a_process_that_left_the_group() {
    if !root_or_skip() {
        return;
    }
    // Another cgroup than its parent's: only ancestry finds it.
    let outcome = script(
        &[],
        "g=$(sed -n 's/^0:://p' /proc/self/cgroup); \
         for u in /sys/fs/cgroup/unified /sys/fs/cgroup; do [ -e $u/cgroup.procs ] && break; done; \
         o=$(dirname $u$g)/corral-other-$$; mkdir $o && echo made $o || exit 77; \
         sh -c 'echo $$ >\"$0/cgroup.procs\"; setsid sleep 25 </dev/null >/dev/null 2>&1 &' $o; \
         exit 5",
    )
    .marker()
    .run();
    let made = String::from_utf8_lossy(&outcome.stdout)
        .lines()
        .find_map(|line| line.strip_prefix("made ").map(str::to_owned));
    let Some(made) = made else {
        common::skip("needs to make a cgroup2 beside its own");
        return;
    };
    let removed = std::fs::remove_dir(made);
    outcome.assert_status(5);
    outcome.assert_nothing_left();
    removed.unwrap();
    assert_eq!(number(&outcome, "/leftovers_total"), 1);
}

#[test]
fn a_threaded_group() {
    if !root_or_skip() {
        return;
    }
    let outcome = script(
        &["--grace=300ms"],
        "g=$(sed -n 's/^0:://p' /proc/self/cgroup); \
         for u in /sys/fs/cgroup/unified /sys/fs/cgroup; do [ -e $u/cgroup.procs ] && break; done; \
         t=$u$g/t; mkdir $t && echo threaded >$t/cgroup.type || exit 77; \
         setsid sh -c 'echo $$ >\"$0/cgroup.threads\" && exec sleep 25' $t \
         </dev/null >/dev/null 2>&1 & \
         until [ -n \"$(cat $t/cgroup.threads)\" ]; do kill -0 $! || exit 78; done; exit 6",
    )
    .run();
    if outcome.status == Some(77) {
        common::skip("needs to make a threaded cgroup");
        return;
    }
    outcome.assert_status(6);
    outcome.assert_nothing_left();
}
