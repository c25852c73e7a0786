//! What does `--pid-namespace` promise beyond the rest?
//!
//! The command and all that it starts end with corral, however that ends, and
//! none of them can get out; what they can notice is what the README says. Where
//! the host forbids it, the run is refused and nothing was started. (The fault
//! table runs in such namespaces too.)

mod common;
mod kit;

use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::pidfd_send_signal;

use common::{NOBODY, Outcome, Run, Signal, mode_asked, root_or_skip};
use kit::{assert_record, assert_refused, have, supervisor};

const SOON: Duration = Duration::from_secs(15);

/// The option that the whole test run asks for, for a shell's command line.
fn mode_option() -> String {
    mode_asked().map_or_else(String::new, |mode| format!("--cgroup-mode={mode}"))
}

/// Detached in every way, and deaf; prints `ready` when all are there.
const TREE: &str = "trap '' HUP INT TERM; sleep 30 & setsid sleep 30 & \
                    (setsid sh -c 'sleep 30 & sleep 30' &) ; echo ready; sleep 30";

/// Who runs corral: the tests' own user, and where that is root, an ordinary one.
fn users() -> Vec<Option<u32>> {
    if root_or_skip() { vec![None, Some(NOBODY)] } else { vec![None] }
}

fn corral(options: &[&str], user: Option<u32>) -> Run {
    let run = Run::corral(&[&["--pid-namespace"], options].concat());
    match user {
        Some(uid) => run.uid(uid).delegated(),
        None => run,
    }
}

#[test]
fn both_are_killed_at_once_and_nothing_is_left() {
    for user in users() {
        for options in [&[][..], &["--max-output=1M"], &["--cgroup-mode=fallback"]] {
            let mut run = corral(options, user).command(["sh", "-c", TREE]).start();
            run.ready();
            let owner = run.member(supervisor(&run));
            run.signal(Signal::KILL);
            // It may be through already.
            let _ = pidfd_send_signal(owner, Signal::KILL);
            let outcome = run.wait();
            assert_eq!(outcome.signal, Some(9), "{outcome:#?}");
            let gone = outcome.ground.wait_empty(Duration::from_secs(2));
            assert!(gone, "{user:?} {options:?}: {:#?}", outcome.ground.members());
        }
    }
}

#[test]
fn one_is_killed_and_the_other_reports() {
    for user in users() {
        let mut run = corral(&[], user).command(["sh", "-c", TREE]).start();
        run.ready();
        let owner = supervisor(&run);
        run.signal_member(owner, Signal::KILL);
        let outcome = run.wait();
        outcome.assert_status(137);
        outcome.assert_nothing_left();
        assert_record(&outcome, "supervisor_lost", 137);

        let mut run = corral(&[], user).command(["sh", "-c", TREE]).start();
        run.ready();
        run.signal(Signal::KILL);
        let outcome = run.wait();
        assert!(outcome.ground.wait_empty(Duration::from_secs(2)), "{outcome:#?}");
        assert_eq!(outcome.record_now().unwrap()["cause"], "monitor_lost");
    }
}

#[test]
fn the_command_sees_its_own_and_no_others() {
    for user in users() {
        let text = "set -- /proc/[0-9]*; echo $# $PPID $(cat /proc/1/comm) $(id -u)";
        let outcome = corral(&[], user).command(["sh", "-c", text]).run();
        outcome.assert_status(0);
        let uid = user.unwrap_or_else(|| rustix::process::getuid().as_raw());
        // The init, the shell, and the two that look.
        let seen = String::from_utf8_lossy(&outcome.stdout).into_owned();
        assert!(seen.ends_with(&format!(" 1 crl-supervisor {uid}\n")), "{outcome:#?}");
        let count: u32 = seen.split(' ').next().unwrap().parse().unwrap();
        assert!((2..=4).contains(&count), "{outcome:#?}");
        assert_eq!(outcome.record("/pid_namespace"), true);
    }
}

#[test]
fn nobody_can_join_a_namespace_outside() {
    if !root_or_skip() || !have(&["nsenter"]) {
        return;
    }
    let outside = std::fs::File::open("/proc/self/ns/pid").unwrap();
    fcntl_setfd(&outside, FdFlags::empty()).unwrap();
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&outside));
    let join = format!("nsenter --pid={path} sleep 30; test $? = 1 && echo kept");
    let outcome = corral(&["--wall=20s"], None).command(["sh", "-c", &join]).run();
    outcome.assert_status(0);
    assert_eq!(outcome.stdout, b"kept\n", "{outcome:#?}");
    assert!(outcome.stderr.contains("Invalid argument"), "{outcome:#?}");
    outcome.assert_nothing_left();
}

#[test]
fn as_pid_1_and_without_a_proc() {
    if !root_or_skip() || !have(&["unshare", "mount"]) {
        return;
    }
    let run = format!("exec \"$C\" {} --pid-namespace --wall=600ms --grace=300ms", mode_option());
    for prepare in
        ["mount --make-rprivate /; mount -t tmpfs none /proc &&", "mount -t proc p /proc;"]
    {
        let text = format!("{prepare} {run} sh -c 'setsid sleep 30 & sleep 30'");
        let outcome = Run::argv(["unshare", "-mpf", "sh", "-c", &text]).run();
        outcome.assert_status(124);
        outcome.assert_nothing_left();
        assert!(outcome.elapsed < SOON);
    }
}

/// Nothing was started, and the line says why and what would help.
#[track_caller]
fn assert_no_namespace(outcome: &Outcome, words: &[&str]) {
    let line = assert_refused(outcome);
    assert!(line.starts_with("corral: cannot make a PID namespace: "), "{line}");
    for word in words {
        assert!(line.contains(word), "no {word:?} in {line:?}");
    }
    assert_eq!(outcome.stdout, b"", "{outcome:#?}");
    outcome.assert_nothing_left();
}

#[test]
fn refused_where_the_host_forbids_it() {
    if !root_or_skip() || !have(&["unshare", "mount", "setpriv"]) {
        return;
    }
    let nobody = format!("setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups");
    let run = format!("\"$C\" {} --pid-namespace -- echo started", mode_option());
    for (namespaces, text, words) in [
        // Its children belong to a namespace that has no init yet.
        ("-p", format!("exec {run}"), ["EINVAL", "unshare --fork"]),
        (
            "-Ur",
            format!("echo 0 >/proc/sys/user/max_pid_namespaces; {run}"),
            ["ENOSPC", "user.max_pid_namespaces"],
        ),
        // What is hidden below /proc would be uncovered.
        (
            "-m",
            format!("mount -t tmpfs none /proc/sys; {nobody} {run}"),
            ["EPERM", "masked below /proc"],
        ),
        ("-m", format!("mount -t tmpfs none /proc; {nobody} {run}"), ["ENOENT", "mount /proc"]),
    ] {
        let outcome = Run::argv(["unshare", namespaces, "sh", "-c", &text]).run();
        assert_no_namespace(&outcome, &words);
    }
}
