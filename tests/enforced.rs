//! Does a run in a group of its own end whole, and the group with it?
//!
//! `faults.rs` runs each fault in this mode too; here is what is asked of the
//! group itself: made where it should be, gone when corral returns whatever the
//! command did to it or made below it, whoever corral is run by, and whichever
//! of corral's two processes is killed. Each run has a group to itself (its
//! ground), so whatever stands below that was corral's to remove.

mod common;
mod kit;

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{Ground, NOBODY, Outcome, Run, Running, Signal, fault, install, root_or_skip, skip};
use kit::{PYTHON, assert_record, assert_refused, have, number, supervisor};

const SOON: Duration = Duration::from_secs(20);

/// `$G` is the group that the shell is in.
const OWN: &str = "G=\"$M$(sed -n 's/^0:://p' /proc/self/cgroup)\"; ";

/// Whether a group can be made here; says `skip` if not.
fn can_group() -> bool {
    let can = Ground::new(false).0.group().is_some();
    if !can {
        skip("no cgroup2 is writable");
    }
    can
}

fn enforced(options: &[&str]) -> Run {
    let all: Vec<&str> = ["--cgroup-mode=enforced"].iter().chain(options).copied().collect();
    Run::corral(&all).env("M", Ground::mount().unwrap())
}

/// The same with a shell script that knows its group.
fn script(options: &[&str], text: &str) -> Run {
    enforced(options).command(["sh", "-c", &format!("{OWN}{text}")])
}

/// The run is over, and the group with it.
#[track_caller]
fn assert_whole(outcome: &Outcome, cause: &str, status: u64) {
    outcome.assert_nothing_left();
    outcome.assert_no_group();
    assert_record(outcome, cause, status);
    assert_eq!(outcome.record("/mode"), "enforced");
    assert_eq!(outcome.record("/proved"), true, "{outcome:#?}");
    number(outcome, "/steps_us/group_removed");
}

/// The group of a process: its line of cgroup2.
fn group_of(text: &str) -> &str {
    text.lines()
        .find_map(|line| line.strip_prefix("0::"))
        .unwrap_or_else(|| panic!("no line of cgroup2: {text:?}"))
}

#[test]
fn the_group_is_below_corrals_own() {
    if !can_group() {
        return;
    }
    for options in [&[][..], &["--max-output=1M"], &["--close-fds"], &["--no-new-privs"]] {
        let mut run = enforced(options)
            .command(["sh", "-c", "cat /proc/self/cgroup; echo ready; read x; exit 7"])
            .stdin(common::Stdin::Open)
            .start();
        run.ready();
        let text = String::from_utf8(run.stdout().to_vec()).unwrap();
        let (above, name) = group_of(&text).rsplit_once('/').unwrap();
        assert!(name.starts_with("corral-"), "{text}");
        let ground = run.ground().group().unwrap().to_owned();
        assert_eq!(Path::new(above).file_name(), ground.file_name(), "{text}");
        for pid in [run.pid(), supervisor(&run)] {
            let own = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
            assert_eq!(group_of(&own), above, "{own}");
        }
        assert_eq!(run.ground().groups(), [ground.join(name)]);
        run.close_stdin();
        let outcome = run.wait();
        outcome.assert_status(7);
        assert_whole(&outcome, "exited", 7);
        assert_eq!(outcome.stderr, "");
    }
}

#[test]
fn auto_is_enforced_where_it_can_be() {
    if !can_group() {
        return;
    }
    for (options, name) in [(&[][..], "corral-"), (&["--cgroup-mode=auto"], "corral-")] {
        let outcome = Run::corral(options).command(["cat", "/proc/self/cgroup"]).run();
        outcome.assert_status(0);
        assert_whole(&outcome, "exited", 0);
        let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
        assert!(group_of(&text).rsplit_once('/').unwrap().1.starts_with(name), "{text}");
    }
    let outcome =
        Run::corral(&["--cgroup-mode=fallback"]).command(["cat", "/proc/self/cgroup"]).run();
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert_eq!(Path::new(group_of(&text)).file_name(), outcome.ground.group().unwrap().file_name());
    assert_eq!(outcome.record("/mode"), "fallback");
}

#[test]
fn each_end_takes_the_group_away() {
    if !can_group() {
        return;
    }
    for (text, cause, status) in [
        ("exit 0", "exited", 0),
        ("kill -9 $$", "exited", 137),
        ("setsid sleep 30 & exit 3", "exited", 3),
        ("sleep 30", "wall", 124),
        ("trap '' TERM; sleep 30 & wait; sleep 30", "wall", 124),
        ("while :; do echo noise; done", "output", 121),
    ] {
        let outcome = script(&["--wall=1s", "--grace=200ms", "--output-limit=1M"], text).run();
        assert_eq!(outcome.status, Some(status), "{text}: {outcome:#?}");
        assert_whole(&outcome, cause, status.try_into().unwrap());
        assert!(outcome.elapsed < SOON, "{text}: {outcome:#?}");
    }
    for (path, status) in [("/nonexistent", 127), ("/", 126)] {
        let outcome = enforced(&[]).command([path]).run();
        outcome.assert_status(status);
        assert_whole(&outcome, "exec", status.try_into().unwrap());
    }
}

/// What the command may do to the group that it is in.
#[test]
fn the_command_works_on_its_own_group() {
    if !can_group() || !root_or_skip() {
        return;
    }
    let sleep = "setsid sleep 30 & echo ready; sleep 30";
    for text in [
        // Freezes itself, with and without a trap.
        "trap 'exit 0' TERM; setsid sleep 30 & echo 1 >$G/cgroup.freeze; sleep 30",
        "setsid sleep 30 & echo 1 >$G/cgroup.freeze",
        // Kills itself.
        "trap '' TERM; setsid sleep 30 & echo 1 >$G/cgroup.kill",
        // Leaves, and removes what it left, for good or to stand there again.
        &format!("echo 0 >${{G%/*}}/cgroup.procs; rmdir $G; {sleep}"),
        &format!("echo 0 >${{G%/*}}/cgroup.procs; chmod 0 $G; {sleep}"),
        // Allows nothing more below it.
        &format!("echo 0 >$G/cgroup.max.descendants; echo 0 >$G/cgroup.max.depth; {sleep}"),
        // Three hundred groups, a hundred levels, one that is full.
        &format!("seq -f \"$G/%g\" 300 | xargs mkdir; {sleep}"),
        &format!("mkdir -p $G/$(seq -s / 100); {sleep}"),
        "mkdir $G/a; for i in 1 2 3 4 5 6 7 8; do sleep 30 & done; \
         for p in $(cat $G/cgroup.procs); do echo $p >$G/a/cgroup.procs; done; sleep 30",
    ] {
        let outcome = script(&["--wall=1s", "--grace=300ms"], text).marker().run();
        outcome.assert_nothing_left();
        assert!(outcome.elapsed < SOON, "{text}: {outcome:#?}");
        let status = if text.contains("cgroup.kill") { 137 } else { 124 };
        assert_eq!(outcome.status, Some(status), "{text}: {outcome:#?}");
        assert_eq!(outcome.record("/proved"), true, "{text}: {outcome:#?}");
        outcome.assert_no_group();
    }
}

/// What stands where the group was is not corral's; whoever is in it is.
#[test]
fn the_command_puts_another_group_in_its_place() {
    if !can_group() || !root_or_skip() {
        return;
    }
    let text = "echo 0 >${G%/*}/cgroup.procs; rmdir $G; mkdir $G; echo 0 >$G/cgroup.procs; \
                setsid sleep 30 & sleep 30";
    let outcome = script(&["--wall=1s"], text).marker().run();
    outcome.assert_status(124);
    outcome.assert_nothing_left();
    assert!(outcome.elapsed < SOON, "{outcome:#?}");
}

/// A supervisor in the group that it kills is a lost one, no more.
#[test]
fn the_command_takes_corral_into_its_group() {
    if !can_group() || !root_or_skip() {
        return;
    }
    let text = "trap '' TERM; echo $PPID >$G/cgroup.procs; setsid sleep 30 & sleep 30; sleep 30";
    let outcome = script(&["--wall=1s", "--grace=300ms"], text).run();
    assert!(matches!(outcome.status, Some(124 | 137)), "{outcome:#?}");
    outcome.assert_nothing_left();
    outcome.assert_no_group();
    assert!(outcome.elapsed < SOON, "{outcome:#?}");
}

/// Groups so deep that no path reaches them (PATH_MAX).
#[test]
fn a_group_beyond_every_path() {
    if !can_group() || !root_or_skip() || !have(&[PYTHON, "find"]) {
        return;
    }
    let text = "import os, sys, time\n\
                os.chdir(sys.argv[1])\n\
                for _ in range(18): os.mkdir('g' * 255); os.chdir('g' * 255)\n\
                open('cgroup.procs', 'w').write('0')\n\
                print('ready', flush=True)\n\
                time.sleep(30)\n";
    let text = format!("exec {PYTHON} -c \"{text}\" $G");
    let outcome = kit::cancel_when_ready(script(&["--grace=20s"], &text));
    let left = outcome.ground.groups();
    if !left.is_empty() {
        // The ground cannot reach them either.
        let ground = outcome.ground.group().unwrap();
        let _ = Command::new("find").arg(ground).args(["-depth", "-type", "d", "-delete"]).status();
    }
    assert_eq!(left.len(), 0, "{outcome:#?}");
    kit::assert_cancelled(&outcome, Signal::TERM);
    assert_whole(&outcome, "cancelled", 143);
}

/// An orphan in somebody's PID namespace is nobody's child here.
#[test]
fn out_of_the_tree_by_a_pid_namespace() {
    if !can_group() || !root_or_skip() || !have(&["unshare", "nsenter"]) {
        return;
    }
    let mut init = Run::argv(["unshare", "-pf", "sh", "-c", "echo init; exec sleep 30"]).start();
    init.wait_line("init");
    let inner = common::children(init.pid())[0].to_string();
    for (text, cause, status) in [
        ("(setsid sleep 30 &); echo started", "exited", 0),
        ("(setsid sh -c 'trap \"\" TERM; sleep 30; sleep 30' &); sleep 30", "wall", 124),
    ] {
        let outcome = enforced(&["--wall=1s", "--grace=300ms"])
            .command(["nsenter", "-t", &inner, "-p", "sh", "-c", text])
            .run();
        assert_eq!(outcome.status, Some(status), "{outcome:#?}");
        assert_whole(&outcome, cause, status.try_into().unwrap());
    }
    assert!(!init.has_ended(), "the other namespace was not ours to end");
    init.signal_member(inner.parse().unwrap(), Signal::KILL);
    let _ = init.wait();
}

/// Who has left the group is found although no /proc of ours shows it.
#[test]
fn out_of_the_group_where_proc_is_anothers() {
    if !can_group() || !root_or_skip() || !have(&["unshare"]) {
        return;
    }
    let corral = "\"$C\" --cgroup-mode=enforced --grace=200ms -- \"$F\" \"$M\"; exit $?";
    let outcome = Run::argv(["unshare", "-pf", "sh", "-c", corral])
        .env("C", common::corral())
        .env("F", fault("leave_group"))
        .env("M", Ground::mount().unwrap())
        .run();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    outcome.assert_no_group();
}

#[test]
fn a_corral_below_a_corral() {
    if !can_group() {
        return;
    }
    let text = "\"$C\" --cgroup-mode=enforced --grace=20s -- \
                sh -c 'trap \"echo ended; exit 0\" TERM; setsid sleep 30 & echo ready; wait'";
    let run = script(&["--grace=20s"], text).env("C", common::corral());
    let outcome = kit::cancel_when_ready(run);
    kit::assert_cancelled(&outcome, Signal::TERM);
    assert_whole(&outcome, "cancelled", 143);
    assert_eq!(outcome.stdout, b"ready\nended\n");
}

#[test]
fn below_a_parent_that_is_named() {
    if !can_group() {
        return;
    }
    let parent = Ground::new(false).0;
    let path = parent.group().unwrap();
    for options in [&["--cgroup-mode=enforced"][..], &[]] {
        let place = format!("--cgroup-parent={}", path.display());
        let options: Vec<&str> = options.iter().copied().chain([place.as_str()]).collect();
        let text = "cat /proc/self/cgroup; setsid sleep 30 & exit 5";
        let outcome = Run::corral(&options).command(["sh", "-c", text]).marker().run();
        outcome.assert_status(5);
        assert_whole(&outcome, "exited", 5);
        let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
        let (above, name) = group_of(&text).rsplit_once('/').unwrap();
        assert_eq!(Path::new(above).file_name(), path.file_name(), "{text}");
        assert!(name.starts_with("corral-"), "{text}");
        assert_eq!(parent.members().len(), 0, "{outcome:#?}");
        parent.assert_no_group();
        assert!(path.exists(), "not corral's to remove");
    }
}

#[test]
fn a_parent_that_cannot_be() {
    if !can_group() {
        return;
    }
    let parent = Ground::new(false).0;
    let path = parent.group().unwrap();
    let full = path.join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("cgroup.max.descendants"), "0").unwrap();
    let place = tempfile::tempdir().unwrap();
    for bad in
        [&full, &path.join("none"), &path.join("cgroup.procs"), &place.path().into(), &"/".into()]
    {
        let bad = bad.display().to_string();
        let outcome = enforced(&["--cgroup-parent", &bad]).command(["echo", "run"]).run();
        let line = assert_refused(&outcome);
        assert!(line.contains("cgroup") && line.contains(&bad), "{bad}: {line}");
        outcome.assert_no_group();
    }
    assert_eq!(parent.groups(), [full]);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn nothing_run_and_no_group_left() {
    if !can_group() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let fifo = place.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for path in [fifo, place.path().join("none/record"), "/dev/fd/99".into(), "fd:99".into()] {
        let json = format!("--json={}", path.display());
        for mode in ["--cgroup-mode=enforced", "--cgroup-mode=auto"] {
            let outcome = Run::corral(&[mode, &json]).no_record().command(["echo", "run"]).run();
            let line = assert_refused(&outcome);
            assert!(line.contains("record"), "{line}");
            outcome.assert_no_group();
        }
    }
}

/// A thousand, two at a time; and runs that are over before they have begun.
#[test]
fn many_runs_leave_nothing() {
    if !can_group() {
        return;
    }
    let each = if cfg!(debug_assertions) { 100 } else { 500 };
    for (count, options, right) in [(each, "--wall=20s", 0), (20, "--wall=1ms --grace=0s", 124)] {
        let text = format!(
            "runs() {{ i=0; while [ $i -lt {count} ]; do i=$((i+1)); \
             \"$C\" --quiet --cgroup-mode=enforced {options} -- $1; s=$?; \
             [ $s = {right} ] || {{ echo run $i: $s; return 1; }}; done; }}\n\
             runs \"$W\" & p=$!; runs \"$W\"; s=$?; wait $p && exit $s"
        );
        let words = if right == 0 { "true" } else { "sleep 30" };
        let outcome = Run::shell(&text).env("W", words).limit(Duration::from_secs(300)).run();
        outcome.assert_status(0);
        outcome.assert_nothing_left();
        assert_eq!((outcome.stdout.len(), outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
        outcome.assert_no_group();
    }
}

/// A tree of every kind, set up: `$M` above, and a sub-group in it.
fn tree() -> Running {
    let text = "mkdir $G/sub; trap '' TERM; sleep 30 & setsid sleep 30 & \
                (sh -c 'echo 0 >'$G'/sub/cgroup.procs; trap \"\" TERM; echo ready; sleep 30' &); \
                sleep 30; sleep 30";
    let mut run = script(&["--wall=40s", "--grace=40s"], text).start();
    run.ready();
    run
}

#[test]
fn the_monitor_is_killed() {
    if !can_group() {
        return;
    }
    for _ in 0..5 {
        let run = tree();
        run.signal(Signal::KILL);
        let outcome = run.wait();
        assert_eq!(outcome.signal, Some(9));
        // The supervisor is the last one here, and removes the group before it goes.
        assert!(outcome.ground.wait_empty(SOON), "{:#?}", outcome.ground.members());
        outcome.assert_no_group();
        let record = outcome.record_now().expect("the supervisor writes it");
        assert_eq!(record["cause"], "monitor_lost", "{record:#}");
        assert_eq!(record["mode"], "enforced", "{record:#}");
        assert!(record["steps_us"]["group_removed"].is_u64(), "{record:#}");
    }
}

#[test]
fn the_supervisor_is_killed() {
    if !can_group() {
        return;
    }
    for _ in 0..5 {
        let run = tree();
        run.signal_member(supervisor(&run), Signal::KILL);
        let outcome = run.wait();
        outcome.assert_status(137);
        outcome.assert_nothing_left();
        outcome.assert_no_group();
        assert_eq!(outcome.record("/cause"), "supervisor_lost");
        assert_eq!(outcome.record("/mode"), "enforced");
        assert!(outcome.elapsed < SOON, "{outcome:#?}");
    }
}

/// A group that belongs to nobody, and a run that starts in it as nobody.
fn delegated(run: Run, parent: &Ground) -> Run {
    let group = parent.group().unwrap();
    for file in ["", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"] {
        std::os::unix::fs::chown(group.join(file), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let procs = File::options().write(true).open(group.join("cgroup.procs")).unwrap();
    let enter = move || -> io::Result<()> {
        rustix::io::write(&procs, b"0")?;
        Ok(())
    };
    run.before(enter).uid(NOBODY).marker()
}

#[test]
fn without_rights_of_its_own_to_groups() {
    if !can_group() || !root_or_skip() {
        return;
    }
    let mount = Ground::mount().unwrap();
    for name in ["nested_groups", "threaded_subgroup", "frozen_subgroup", "setsid_double_fork"] {
        let parent = Ground::new(false).0;
        let run = enforced(&["--grace=300ms"]).fault(name, &[mount.to_str().unwrap()]);
        let mut run = delegated(run, &parent).start();
        run.wait_until("`ready` or the end", |run| run.has_line("ready") || run.has_ended());
        if !run.has_ended() {
            run.signal(Signal::TERM);
        }
        let outcome = run.wait();
        assert_ne!(outcome.status, Some(77), "{name}: {outcome:#?}");
        outcome.assert_nothing_left();
        assert_eq!(parent.members().len(), 0, "{name}: {outcome:#?}");
        parent.assert_no_group();
        assert_eq!(outcome.record("/mode"), "enforced", "{name}");
        assert_eq!(outcome.record("/proved"), true, "{name}: {outcome:#?}");
        number(&outcome, "/steps_us/group_removed");
    }
}

/// A group that the command has closed to its owner, who corral is no more than.
#[test]
fn a_group_that_nobody_may_enter() {
    if !can_group() || !root_or_skip() {
        return;
    }
    for text in [
        "mkdir -p $G/a/b; setsid sleep 30 & chmod 0 $G/a $G",
        "mkdir -p $G/a/b/c; setsid sleep 30 & chmod 0400 $G/a/b $G/a $G",
    ] {
        let parent = Ground::new(false).0;
        let outcome = delegated(script(&["--grace=300ms"], text), &parent).run();
        outcome.assert_status(0);
        outcome.assert_nothing_left();
        parent.assert_no_group();
        assert_record(&outcome, "exited", 0);
    }
}

/// The group's kill asks nobody's rights (since 5.14).
#[test]
fn a_setuid_child_is_ended_by_its_group() {
    if !can_group() || !root_or_skip() {
        return;
    }
    let parent = Ground::new(false).0;
    if !parent.group().unwrap().join("cgroup.kill").exists() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    common::open_to_all(place.path());
    let helper = place.path().join("setuid_child");
    install(&fault("setuid_child"), &helper, 0o4755);
    let run = enforced(&["--grace=300ms"]).command([&helper]);
    let mut run = delegated(run, &parent).start();
    run.wait_until("`ready` or the end", |run| run.has_line("ready") || run.has_ended());
    if run.has_ended() {
        return skip("setuid has no effect here");
    }
    run.signal(Signal::TERM);
    let outcome = run.wait();
    assert_eq!((outcome.status, outcome.signal), (None, Some(15)), "{outcome:#?}");
    outcome.assert_nothing_left();
    assert_eq!(outcome.record("/escalated"), true, "{outcome:#?}");
    assert_eq!(parent.members().len(), 0, "{outcome:#?}");
    parent.assert_no_group();
}
