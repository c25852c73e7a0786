//! Does a run hold on a host that is not as expected?
//!
//! Namespaces of every kind, no /proc or that of others, no cgroup tree or one
//! that cannot be written, nothing but the program in the root, little memory,
//! and being PID 1. corral must not lose a process there, nor hang, nor take
//! somebody else's numbers for its own.

mod common;
mod kit;

use std::path::Path;
use std::time::Duration;

use common::{NOBODY, Outcome, Run, Running, Signal, install, root_or_skip, skip};
use kit::{LOGGER, OldGroup, PYTHON, have, wait_pid};

const SOON: Duration = Duration::from_secs(15);

/// Root, and the tool that makes namespaces.
fn can_unshare() -> bool {
    root_or_skip() && have(&["unshare", "mount"])
}

/// A script in a mount namespace of its own; `exit 77` skips.
fn mounts(text: &str) -> Option<Outcome> {
    let text = format!("mount --make-rprivate / || exit 77; {text}");
    let outcome = Run::argv(["unshare", "-m", "sh", "-c", &text]).run();
    if outcome.status == Some(77) {
        skip(&format!("cannot mount: {}", outcome.stderr));
        return None;
    }
    Some(outcome)
}

/// The one record of a file.
fn read(path: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.ends_with("}\n"), "{text:?}");
    serde_json::from_str(&text).unwrap()
}

/// Leaves a child, a session and an orphan behind.
const LEAVES: &str = "sleep 30 & setsid sleep 30 & (setsid sh -c \"sleep 30 & sleep 30\" &)";

#[test]
fn a_time_namespace() {
    if !can_unshare() {
        return;
    }
    // Two clocks far apart: neither may be subtracted from the other.
    let text = "\"$C\" --wall=700ms --grace=300ms sh -c 'sleep 30 & sleep 30'; exit $?";
    for (monotonic, boottime) in [("100000000", "300000000"), ("300000000", "0")] {
        let outcome = Run::argv(["unshare", "-T", "--monotonic", monotonic])
            .args(["--boottime", boottime, "--fork", "sh", "-c", text])
            .run();
        if outcome.stderr.contains("unshare:") {
            skip(&outcome.stderr);
            return;
        }
        outcome.assert_status(124);
        outcome.assert_nothing_left();
        assert!(outcome.elapsed >= Duration::from_millis(700) && outcome.elapsed < SOON);
        // An age is what it is, here too.
        let outcome = Run::argv(["unshare", "-T", "--monotonic", monotonic])
            .args(["--boottime", boottime, "--fork"])
            .args([common::corral().to_str().unwrap(), "--json", "/dev/stdout"])
            .args(["sh", "-c", "sleep 30 & exit 0"])
            .run();
        outcome.assert_status(0);
        let record: serde_json::Value = serde_json::from_slice(&outcome.stdout).unwrap();
        let age = record["leftovers"][0]["age_ms"].as_u64().unwrap();
        assert!(age < 60_000, "{age} ms old: {record:#}");
    }
}

#[test]
fn no_proc() {
    if !can_unshare() {
        return;
    }
    for (options, command, status) in [
        ("--wall=20s", "exit 3", 3),
        ("--wall=20s", "LEAVES; exit 3", 3),
        ("--wall=600ms --grace=300ms", "LEAVES; sleep 30", 124),
        ("--wall=600ms --grace=300ms", "trap \"\" TERM; LEAVES; sleep 30", 124),
        ("--wall=20s --max-output=1M", "LEAVES; echo x; exit 3", 3),
    ] {
        let command = command.replace("LEAVES;", &format!("{LEAVES};"));
        let text = format!(
            "mount -t tmpfs none /proc || exit 77; \"$C\" {options} sh -c '{command}'; exit $?"
        );
        let Some(outcome) = mounts(&text) else { return };
        outcome.assert_status(status);
        outcome.assert_nothing_left();
        assert!(outcome.elapsed < SOON);
    }
}

#[test]
fn no_proc_and_the_signal_reaches_the_command() {
    if !can_unshare() {
        return;
    }
    let text = "mount -t tmpfs none /proc || exit 77; \"$C\" --wall=1500ms --grace=20s \
                sh -c 'trap \"echo cleaned; exit 0\" TERM; while :; do sleep 0.05; done'; exit $?";
    let Some(outcome) = mounts(text) else { return };
    outcome.assert_status(124);
    assert_eq!(outcome.stdout, b"cleaned\n");
    assert!(outcome.elapsed < SOON);
}

#[test]
fn a_proc_that_hides_others() {
    if !can_unshare() || !have(&["setpriv"]) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    std::fs::set_permissions(place.path(), mode(0o755)).unwrap();
    install(&common::corral(), &place.path().join("corral"), 0o755);
    install(&kit::find("setpriv").unwrap(), &place.path().join("raise"), 0o4755);
    let d = place.path().display();
    let raise = format!("{d}/raise --reuid 0 --regid 0 --clear-groups sleep 25");
    for hide in ["hidepid=1", "hidepid=2"] {
        for (command, status, left) in [
            (format!("{LEAVES}; exit 3"), 3, 0),
            // Became root: neither to be seen in /proc nor to be killed.
            (format!("setsid {raise} </dev/null >/dev/null 2>&1 & sleep 0.3; exit 0"), 120, 1),
        ] {
            let text = format!(
                "mount -t proc -o {hide} proc /proc || exit 77; \
                 setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups \
                 {d}/corral --wall=20s --grace=300ms --prove=700ms sh -c '{command}'; exit $?"
            );
            let Some(outcome) = mounts(&text) else { return };
            outcome.assert_status(status);
            assert_eq!(outcome.survivors.len(), left, "{hide}: {outcome:#?}");
            assert!(outcome.elapsed < SOON);
        }
    }
}

#[test]
fn a_cgroup_tree_that_cannot_be_written_or_is_not_there() {
    if !can_unshare() {
        return;
    }
    let read_only = "for m in $(awk '$3 ~ /^cgroup/ {print $2}' /proc/mounts); do \
                     mount -o remount,ro,bind $m || exit 77; done";
    let absent = "mount -t tmpfs none /sys/fs/cgroup || exit 77";
    let no_sys = "mount -t tmpfs none /sys || exit 77";
    for prepare in [read_only, absent, no_sys] {
        let text = format!(
            "{prepare}; \"$C\" --json /dev/stdout -- sh -c 'setsid sleep 30 >/dev/null 2>&1 & exit 8'; \
             exit $?"
        );
        let Some(outcome) = mounts(&text) else { return };
        outcome.assert_status(8);
        outcome.assert_nothing_left();
        // What was stopped is said, and nothing else.
        kit::only_line(&outcome);
        let record: serde_json::Value = serde_json::from_slice(&outcome.stdout).unwrap();
        assert_eq!(record["mode"], "fallback");
        assert!(record["fallback_reason"].as_str().is_some_and(|why| !why.is_empty()));
        assert_eq!(record["leftovers_total"], 1);
    }
}

#[test]
fn no_bus_to_ask() {
    let place = tempfile::tempdir().unwrap();
    for directory in ["", "/nonexistent", place.path().to_str().unwrap()] {
        let outcome = Run::corral(&[])
            .command(["true"])
            .env("XDG_RUNTIME_DIR", directory)
            .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus")
            .run();
        outcome.assert_status(0);
        assert_eq!(outcome.stderr, "");
    }
}

/// A directory with corral and a fault in it, and nothing else at all.
fn bare_root() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    install(&common::corral(), &place.path().join("corral"), 0o755);
    let fault = common::fault("exit_clean");
    install(&fault, &place.path().join("exit_clean"), 0o755);
    place
}

#[test]
fn nothing_but_the_program() {
    if !can_unshare() || !have(&["chroot"]) {
        return;
    }
    let place = bare_root();
    let root = place.path().to_str().unwrap();
    let chroot = kit::find("chroot").unwrap();
    let chroot = chroot.to_str().unwrap();
    for before in [&["env", "-i", chroot][..], &["unshare", "-pf", chroot]] {
        for option in ["--wall=20s", "--max-output=1M"] {
            let mut words = vec![root, "/corral", option, "--json", "/run.json", "--"];
            words.extend(["/exit_clean", "7"]);
            let outcome = Run::argv(before.iter().copied()).args(&words).run();
            outcome.assert_status(7);
            outcome.assert_nothing_left();
            assert_eq!(outcome.stdout, b"ready\n");
            assert_eq!(outcome.stderr, "");
            assert_eq!(read(&place.path().join("run.json"))["cause"], "exited");
            std::fs::remove_file(place.path().join("run.json")).unwrap();
        }
    }
    let outcome = Run::argv(["chroot", root, "/corral", "--", "/none"]).run();
    outcome.assert_status(127);
    // No /bin/sh to read it.
    std::fs::write(place.path().join("text"), "exit 3\n").unwrap();
    install(&place.path().join("text"), &place.path().join("script"), 0o755);
    let outcome = Run::argv(["chroot", root, "/corral", "--", "/script"]).run();
    assert!(matches!(outcome.status, Some(126 | 127)), "{outcome:#?}");
}

// ---------------------------------------------------------------------------

/// corral as the first process of a PID namespace.
fn init(options: &[&str], text: &str) -> Run {
    Run::argv(["unshare", "-pf", "--mount-proc"])
        .args([common::corral().to_str().unwrap()])
        .args(options)
        .args(["--", "sh", "-c", text])
}

#[test]
fn an_init_reaps_while_the_command_runs() {
    if !can_unshare() {
        return;
    }
    let text = "i=0; while [ $i -lt 30 ]; do (setsid true &); i=$((i+1)); done; \
                until ! grep -q ') Z ' /proc/[0-9]*/stat 2>/dev/null; do sleep 0.05; done; \
                echo none; exit 4";
    let outcome = init(&["--wall=15s"], text).run();
    outcome.assert_status(4);
    outcome.assert_nothing_left();
    assert_eq!(outcome.stdout, b"none\n");
}

/// The kernel would kill the init of a namespace that asks for the machine's end.
#[test]
fn an_init_of_no_machine_only_exits() {
    if !can_unshare() {
        return;
    }
    for at_exit in ["auto", "poweroff", "reboot", "halt"] {
        let option = format!("--at-exit={at_exit}");
        let outcome = init(&[&option], "setsid sleep 30 & exit 3").run();
        outcome.assert_status(3);
        outcome.assert_nothing_left();
        // Neither does it without a /proc that tells it apart.
        let hidden = "mount --make-rprivate /; mount -t tmpfs none /proc && exec \"$@\"";
        let outcome = Run::argv(["unshare", "-mpf", "sh", "-c", hidden, "sh"])
            .args([common::corral().to_str().unwrap(), &option, "--", "sh", "-c", "exit 3"])
            .run();
        outcome.assert_status(3);
    }
}

#[test]
fn an_init_ends_its_run_and_writes_its_record() {
    if !can_unshare() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run.json");
    let json = format!("--json={}", path.display());
    for (options, text, status, cause) in [
        (&[&json[..]][..], format!("{LEAVES}; exit 6"), 6, "exited"),
        (
            &[&json, "--wall=600ms", "--grace=300ms"],
            format!("trap '' TERM; {LEAVES}; sleep 30"),
            124,
            "wall",
        ),
        (&[&json], "kill -KILL $$".to_owned(), 137, "exited"),
        (&[&json], "kill -9 1; kill -9 $PPID; sleep 30".to_owned(), 137, "supervisor_lost"),
    ] {
        let outcome = init(options, &text).run();
        let record = read(&path);
        assert_eq!(record["exit_status"], status, "{record:#}");
        if cause != "supervisor_lost" {
            assert_eq!(record["cause"], cause, "{record:#}");
            assert!(record["steps_us"]["returned"].is_u64(), "{record:#}");
            outcome.assert_status(status);
        }

        outcome.assert_nothing_left();
        std::fs::remove_file(&path).unwrap();
    }
}

/// The monitor of a run below `unshare`, by its pid out here.
fn monitor(run: &Running) -> i32 {
    let members = run.members();
    let found: Vec<i32> =
        members.iter().filter(|one| one.name == "corral").map(|one| one.pid).collect();
    assert_eq!(found.len(), 1, "{members:#?}");
    found[0]
}

#[test]
fn an_init_is_cancelled_and_exits() {
    if !can_unshare() {
        return;
    }
    // As PID 1 it cannot die of a signal; the number says the same.
    for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let mut run = init(&["--grace=300ms"], &format!("{LEAVES}; echo ready; sleep 30")).start();
        run.ready();
        run.signal_member(monitor(&run), signal);
        let outcome = run.wait();
        outcome.assert_status(status);
        outcome.assert_nothing_left();
    }
}

#[test]
fn an_init_and_those_who_came_from_outside() {
    if !can_unshare() || !have(&["nsenter", PYTHON]) {
        return;
    }
    let mut run =
        init(&["--grace=300ms", "--json=/dev/stdout"], "echo ready; while :; do sleep 0.1; done")
            .start();
    run.ready();
    let init = monitor(&run);
    // Strangers whose parent ends at once: init's children now, to be reaped
    // when they end, and nothing more.
    let place = tempfile::tempdir().unwrap();
    let enter = |text: &str| {
        let pid = init.to_string();
        Run::argv(["nsenter", "-t", &pid, "-p", "-m", "sh", "-c", text])
            .env("P", PYTHON)
            .env("L", LOGGER)
            .env("D", place.path())
            .run()
    };
    let strangers = enter(
        "\"$P\" -c \"$L\" >\"$D/log\" 2>&1 </dev/null & \
         until [ -s \"$D/log\" ]; do :; done; \
         i=0; while [ $i -lt 5 ]; do (true &); i=$((i+1)); done; exit 0",
    );
    strangers.assert_status(0);
    run.wait_until("no zombie among init's children", |_| {
        common::children(init)
            .iter()
            .all(|pid| common::proc_state(*pid).is_none_or(|(_, state)| state != 'Z'))
    });
    run.signal_member(init, Signal::TERM);
    let outcome = run.wait();
    outcome.assert_status(143);
    outcome.assert_nothing_left();
    let log = std::fs::read_to_string(place.path().join("log")).unwrap();
    assert_eq!(log, "ready\n", "a stranger was signalled");
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let record: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(record["cause"], "cancelled");
    for list in ["leftovers", "survivors", "tree_at_cause"] {
        assert!(!record[list].to_string().contains("python"), "{record:#}");
    }
    drop(strangers);
}

#[test]
fn the_next_fork_would_be_an_init() {
    if !can_unshare() {
        return;
    }
    // `unshare --pid` without --fork: not corral but its first child is PID 1
    // of the new namespace; when that ends, nobody can be born there.
    for (options, text, status) in [
        ("", "exit 3".to_owned(), 3),
        ("", format!("{LEAVES}; exit 3"), 3),
        ("--max-output=1M", format!("{LEAVES}; echo x; exit 3"), 3),
        ("--wall=600ms --grace=300ms", format!("{LEAVES}; sleep 30"), 124),
        ("", "/bin/true; /bin/true; (setsid true &); sh -c 'exit 5'".to_owned(), 5),
    ] {
        let outcome = Run::argv(["unshare", "--pid"])
            .args([common::corral().to_str().unwrap()])
            .args(options.split_whitespace())
            .args(["sh", "-c", &text])
            .run();
        outcome.assert_status(status);
        outcome.assert_nothing_left();
        assert!(outcome.elapsed < SOON, "{outcome:#?}");
    }
}

#[test]
fn a_proc_of_another_namespace() {
    if !can_unshare() {
        return;
    }
    // Its numbers are those of others: a process out here may have any of them.
    for (options, text, status) in [
        ("", "exit 3".to_owned(), 3),
        ("--grace=300ms", format!("{LEAVES}; exit 3"), 3),
        ("--wall=600ms --grace=300ms", format!("{LEAVES}; sleep 30"), 124),
        ("--wall=600ms --grace=300ms", format!("trap '' TERM; {LEAVES}; sleep 30"), 124),
    ] {
        // Once as its PID 1, once below a shell that is.
        for below in ["exec \"$C\" \"$@\"", "\"$C\" \"$@\"; exit $?"] {
            let outcome = Run::argv(["unshare", "--pid", "--fork", "sh", "-c", below, "sh"])
                .args(options.split_whitespace())
                .args(["sh", "-c", &text])
                .run();
            outcome.assert_status(status);
            outcome.assert_nothing_left();
            assert!(outcome.elapsed < SOON, "{outcome:#?}");
        }
    }
}

#[test]
fn a_user_namespace() {
    if !have(&["unshare"]) {
        return;
    }
    for uid in [None, Some(NOBODY)] {
        if uid.is_some() && !root_or_skip() {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(place.path(), mode).unwrap();
        let copy = place.path().join("corral");
        install(&common::corral(), &copy, 0o755);
        let mut run = Run::argv(["unshare", "-Urpf", "--mount-proc"])
            .args([copy.to_str().unwrap(), "--", "sh", "-c"])
            .args([&format!("{LEAVES}; exit 3")]);
        if let Some(uid) = uid {
            run = run.uid(uid);
        }
        let outcome = run.run();
        if outcome.stderr.contains("unshare:") {
            skip(&outcome.stderr);
            return;
        }
        outcome.assert_status(3);
        outcome.assert_nothing_left();
    }
}

// ---------------------------------------------------------------------------

#[test]
fn a_hungry_child_is_killed_and_the_run_goes_on() {
    if !have(&[PYTHON]) {
        return;
    }
    let Some(group) = OldGroup::new("memory") else {
        return;
    };
    group.set("memory.limit_in_bytes", "67108864");
    let text = "\"$P\" -c 'b = bytearray(400 << 20)'; echo child $?; exit 0";
    let outcome = Run::corral(&["--wall=30s"])
        .command(["sh", "-c", text])
        .env("P", PYTHON)
        .before(group.enter())
        .run();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    assert_eq!(outcome.stdout, b"child 137\n", "{outcome:#?}");
    kit::assert_record(&outcome, "exited", 0);
}

#[test]
fn a_hungry_command_is_killed_and_that_is_its_status() {
    if !have(&[PYTHON]) {
        return;
    }
    let Some(group) = OldGroup::new("memory") else {
        return;
    };
    group.set("memory.limit_in_bytes", "67108864");
    let outcome = Run::corral(&["--wall=30s"])
        .command([PYTHON, "-c", "b = bytearray(400 << 20)"])
        .before(group.enter())
        .run();
    outcome.assert_status(137);
    outcome.assert_nothing_left();
    kit::assert_record(&outcome, "exited", 137);
    assert_eq!(outcome.record("/command_status/signal"), 9);
}

#[test]
fn little_address_space() {
    let text = "ulimit -v 20000; exec \"$C\" --max-output=1M+1M -- sh -c 'sleep 30 & exit 3'";
    let outcome = Run::shell(text).run();
    outcome.assert_status(3);
    outcome.assert_nothing_left();
}

#[test]
fn many_other_processes_of_a_parent() {
    // Wide and deep at once, and gone in one go.
    let text = "d() { [ $1 = 0 ] && exec sleep 30; (d $(($1-1))) & wait; }; \
                i=0; while [ $i -lt 60 ]; do setsid sleep 30 & i=$((i+1)); done; \
                (d 40) & echo ready; wait";
    let mut run = Run::corral(&["--grace=300ms"]).command(["sh", "-c", text]).start();
    run.ready();
    run.wait_until("all of them", |run| run.members().len() >= 100);
    let own = wait_own(&mut run);
    run.signal(Signal::TERM);
    let outcome = run.wait();
    assert_eq!(outcome.signal, Some(15), "{outcome:#?}");
    outcome.assert_nothing_left();
    assert!(kit::number(&outcome, "/tree_at_cause_total") >= 98, "of {own}");
    assert_eq!(outcome.record("/tree_at_cause").as_array().unwrap().len(), 64);
}

/// How many there are, corral's two left out.
fn wait_own(run: &mut Running) -> usize {
    run.members().len() - 2
}

#[test]
fn a_pid_that_is_printed_is_of_our_namespace() {
    let mut run = Run::corral(&["--grace=300ms"])
        .command(["sh", "-c", "echo command $$; exec sleep 30"])
        .start();
    let command = wait_pid(&mut run, "command");
    run.wait_until("the exec", |_| {
        common::proc_state(command).is_some_and(|(name, _)| name == "sleep")
    });
    run.signal(Signal::TERM);
    let outcome = run.wait();
    assert_eq!(outcome.record("/tree_at_cause/0/pid"), command);
}
