//! Does corral work below and above what usually starts commands?
//!
//! Shells with pipelines and job control, nohup, setsid, Python, Node, make
//! with its jobserver, agents that become daemons, `timeout` on either side,
//! another corral on either side, and a caller that has children already.

mod common;
mod kit;

use std::fs;
use std::time::Duration;

use common::{Run, Signal, Stdin, Survivor};
use kit::{LOGGER, PYTHON, assert_record, have, listed, number, printed_pid, script, wait_pid};

const SOON: Duration = Duration::from_secs(15);

fn bash(options: &[&str], text: &str) -> Run {
    Run::corral(options).command(["bash", "-c", text])
}

#[test]
fn in_a_pipeline() {
    let text = "printf '3\\n1\\n2\\n' | \"$C\" sort | \"$C\" --max-output=1M sh -c 'cat; sleep 30 &' \
                | \"$C\" tail -n 1";
    let outcome = Run::shell(text).run();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    assert_eq!(outcome.stdout, b"3\n");
    assert!(outcome.elapsed < SOON);
}

#[test]
fn in_a_command_substitution() {
    // Which waits for the end of the pipe, not of the process.
    let text = "x=$(\"$C\" sh -c 'echo value; setsid sleep 30 &'); echo \"[$x] $?\"";
    let outcome = Run::shell(text).run();
    outcome.assert_nothing_left();
    assert!(outcome.elapsed < SOON);
    assert_eq!(outcome.stdout, b"[value] 0\n");
}

#[test]
fn process_substitution_inside() {
    if !have(&["bash"]) {
        return;
    }
    let outcome = bash(&[], "exec > >(cat; sleep 30) 2>&1; echo work; exit 4").run();
    outcome.assert_status(4);
    outcome.assert_nothing_left();
    assert!(outcome.elapsed < SOON);
    assert_eq!(outcome.stdout, b"work\n");

    // A copier that is still reading gets its time to finish.
    let outcome = bash(
        &["--linger=20s"],
        "exec > >(sleep 0.3; exec cat) 2>&1; echo first; echo 'LAST LINE'; exit 3",
    )
    .run();
    outcome.assert_status(3);
    outcome.assert_nothing_left();
    assert_eq!(outcome.stdout, b"first\nLAST LINE\n");
    assert_eq!(number(&outcome, "/leftovers_total"), 0);

    let place = tempfile::tempdir().unwrap();
    let outcome = bash(&[], "echo copied | tee >(cat >\"$D/copy\") >/dev/null; exit 0")
        .env("D", place.path())
        .run();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
}

#[test]
fn process_substitution_outside() {
    if !have(&["bash"]) {
        return;
    }
    // (The last `cat` waits for the substituted process, which bash does not.)
    let text = "set -o pipefail; { \"$C\" cat <(echo in) > >(sed 's/^/[/;s/$/]/'); } | cat";
    let outcome = Run::argv(["bash", "-c", text]).run();
    outcome.assert_status(0);
    assert_eq!(outcome.stdout, b"[in]\n");
}

#[test]
fn monitor_mode() {
    if !have(&["bash"]) {
        return;
    }
    let outcome = bash(
        &["--wall=600ms"],
        "set -m; sleep 30 & (sleep 30; true) & sleep 30 | cat & nohup sleep 30 & disown -a; \
         setsid -w sleep 30",
    )
    .run();
    outcome.assert_status(124);
    outcome.assert_nothing_left();
    // And below such a shell, as a job that is waited for.
    let text = "set -m; \"$C\" sh -c 'sleep 30 & exit 5' & wait $!; echo $?; jobs";
    let outcome = Run::argv(["bash", "-c", text]).run();
    outcome.assert_nothing_left();
    assert_eq!(outcome.stdout, b"5\n");
}

#[test]
fn nohup_and_setsid() {
    let text = "nohup sleep 30 >/dev/null 2>&1 & setsid sleep 30 & setsid -f sleep 30; \
                (setsid nohup sh -c 'sleep 30 & sleep 30' >/dev/null 2>&1 &); exit 2";
    let outcome = script(&[], text).run();
    outcome.assert_status(2);
    outcome.assert_nothing_left();
    assert!(number(&outcome, "/leftovers_total") >= 4);

    // Outside: corral in a session of its own, one that ignores the hangup.
    let text = "setsid -w \"$C\" sh -c 'sleep 30 & exit 6'; echo $?; \
                nohup \"$C\" sh -c 'sleep 30 & exit 7' 2>/dev/null; echo $?";
    let outcome = Run::shell(text).run();
    outcome.assert_nothing_left();
    assert_eq!(outcome.stdout, b"6\n7\n");
}

#[test]
fn python_subprocess_inside() {
    if !have(&[PYTHON]) {
        return;
    }
    let text = "
import subprocess
subprocess.Popen(['sleep', '30'], start_new_session=True)
subprocess.Popen(['sleep', '30'], start_new_session=True, stdin=-3, stdout=-3, stderr=-3)
subprocess.Popen('sleep 30 | cat', shell=True, process_group=0)
print('done', flush=True)";
    let outcome = Run::corral(&[]).command([PYTHON, "-c", text]).run();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    assert!(outcome.elapsed < SOON);
    assert_eq!(outcome.stdout, b"done\n");
    assert!(number(&outcome, "/leftovers_total") >= 4, "{outcome:#?}");
}

#[test]
fn python_subprocess_outside() {
    if !have(&[PYTHON]) {
        return;
    }
    // All that its subprocess module does on a bad day; each prints one line.
    let text = r#"
import os, signal, subprocess, sys
C = sys.argv[1]
leak = "setsid sleep 30 & sleep 30 & echo out; echo err >&2; exit 3"
p = subprocess.run([C, "--quiet", "sh", "-c", leak], capture_output=True)
print(p.returncode, p.stdout, p.stderr)
p = subprocess.run([C, "--quiet", "--max-output=1M", "sh", "-c", leak], capture_output=True, start_new_session=True)
print(p.returncode, p.stdout, p.stderr)
# Its own limit: SIGKILL to corral, then it reads to the end of the pipes.
try: subprocess.run([C, "sh", "-c", "setsid sleep 30 & sleep 30 & sleep 30"], capture_output=True, timeout=0.7)
except subprocess.TimeoutExpired: print("expired")
# What killpg does in a test runner.
p = subprocess.Popen([C, "sh", "-c", "setsid sleep 30 & sleep 30 & echo up; sleep 30"], stdout=subprocess.PIPE, start_new_session=True)
p.stdout.readline()
os.killpg(p.pid, signal.SIGTERM)
print(p.wait(), p.stdout.read())
p = subprocess.Popen([C, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
p.stdin.write(b"ping\n"); print(p.stdout.readline()); p.stdin.close(); print(p.wait())
"#;
    let outcome = Run::argv([PYTHON, "-c", text]).args([common::corral()]).run();
    outcome.assert_status(0);
    assert!(outcome.elapsed < SOON, "{outcome:#?}");
    assert!(outcome.ground.wait_empty(Duration::from_secs(2)));
    assert_eq!(
        String::from_utf8_lossy(&outcome.stdout),
        "3 b'out\\n' b'err\\n'\n3 b'out\\n' b'err\\n'\nexpired\n-15 b''\nb'ping\\n'\n0\n",
        "{outcome:#?}"
    );
}

#[test]
fn node_inside_and_outside() {
    if !have(&["node"]) {
        return;
    }
    let inside = "
const { spawn } = require('child_process');
const options = { detached: true, stdio: 'ignore' };
spawn('sleep', ['30'], options).unref();
spawn('sleep', ['30'], { detached: true, stdio: 'inherit' }).unref();
console.log('spawned');";
    let outcome = Run::corral(&[]).command(["node", "-e", inside]).run();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    assert_eq!(outcome.stdout, b"spawned\n");
    assert_eq!(number(&outcome, "/leftovers_total"), 2);

    // Outside: pipes of its own (sockets), detached, ended through its group.
    let outside = "
const { spawn } = require('child_process');
const child = spawn(process.argv[1], ['--max-output=1M', 'sh', '-c', 'setsid sleep 30 & sleep 30 & echo up; sleep 30'],
    { detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
child.stdout.once('data', () => process.kill(-child.pid, 'SIGTERM'));
child.on('close', (code, signal) => console.log(code, signal));";
    let outcome = Run::argv(["node", "-e", outside]).args([common::corral()]).run();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    assert!(outcome.elapsed < SOON);
    assert_eq!(outcome.stdout, b"null SIGTERM\n", "{outcome:#?}");
}

/// A makefile whose default target builds another one through corral.
fn makefiles() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    // The leading + says that the recipe is a make, as $(MAKE) in it would.
    let outer = "all:\n\t+@$(C) $(OPTIONS) $(MAKE) --no-print-directory -f inner\n";
    let inner = "all: a b c\na b c:\n\t@sh -c 'echo made $@; setsid sleep 30 >/dev/null 2>&1 &'\n";
    fs::write(place.path().join("Makefile"), outer).unwrap();
    fs::write(place.path().join("inner"), inner).unwrap();
    place
}

#[test]
fn the_jobserver_of_make() {
    if !have(&["make"]) {
        return;
    }
    let place = makefiles();
    for (options, warned) in [("", false), ("--max-output=1M", false), ("--close-fds", true)] {
        let outcome = Run::shell("cd \"$D\" && exec make -j3")
            .env("D", place.path())
            .env("OPTIONS", options)
            .env_remove("MAKEFLAGS")
            .run();
        outcome.assert_status(0);
        outcome.assert_nothing_left();
        let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
        let mut made: Vec<&str> = text.lines().collect();
        made.sort_unstable();
        assert_eq!(made, ["made a", "made b", "made c"]);
        // Where make uses a fifo (4.4), nothing is lost either way.
        let warning = outcome.stderr.contains("jobserver");
        assert!(!warning || warned, "{options}: {outcome:#?}");
    }
}

#[test]
fn a_make_inside() {
    if !have(&["make"]) {
        return;
    }
    let place = makefiles();
    let text = "cd \"$D\" && exec make -j2 -f inner";
    let outcome = script(&[], text).env("D", place.path()).env_remove("MAKEFLAGS").run();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    assert_eq!(number(&outcome, "/leftovers_total"), 3);
    // A build that is cancelled.
    let slow = "all: a b\na b:\n\t@echo begun; sleep 30\n";
    fs::write(place.path().join("slow"), slow).unwrap();
    let mut run = script(&[], "cd \"$D\" && exec make -j2 -f slow")
        .env("D", place.path())
        .env_remove("MAKEFLAGS")
        .start();
    run.wait_line("begun");
    run.signal(Signal::INT);
    let outcome = run.wait();
    assert_eq!(outcome.signal, Some(2), "{outcome:#?}");
    outcome.assert_nothing_left();
}

#[test]
fn agents_that_become_daemons() {
    let place = tempfile::tempdir().unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(place.path(), mode).unwrap();
    for (tool, text) in [
        ("gpg-agent", "GNUPGHOME=\"$D\" gpg-agent --daemon >/dev/null 2>&1"),
        ("ssh-agent", "eval \"$(ssh-agent -s)\" >/dev/null; kill -0 $SSH_AGENT_PID"),
    ] {
        if !have(&[tool]) {
            continue;
        }
        let outcome =
            script(&[], &format!("{text} || exit 9; exit 0")).env("D", place.path()).run();
        outcome.assert_status(0);
        outcome.assert_nothing_left();
        assert!(outcome.elapsed < SOON);
        assert_record(&outcome, "exited", 0);
        let left = outcome.record("/leftovers").to_string();
        assert!(left.contains(tool), "{tool}: {left}");
    }
}

#[test]
fn timeout_inside() {
    let outcome = script(&["--wall=20s"], "timeout 0.3 sleep 30").run();
    outcome.assert_status(124);
    outcome.assert_nothing_left();
    // The same number, another cause.
    assert_record(&outcome, "exited", 124);
    let outcome = script(&[], "timeout 20 sh -c 'setsid sleep 30 & exit 3'").run();
    outcome.assert_status(3);
    outcome.assert_nothing_left();
    let outcome = script(&["--wall=500ms"], "timeout --foreground 30 sleep 30").run();
    outcome.assert_status(124);
    assert_record(&outcome, "wall", 124);
}

#[test]
fn timeout_outside() {
    if !have(&["timeout", PYTHON]) {
        return;
    }
    // timeout signals corral and at once its own group, in which corral is: that
    // is one signal, and the command has its grace.
    let text = "timeout 2 \"$C\" --grace=300ms -- \"$P\" -c \"$L\"; echo rc $?";
    let outcome = Run::shell(text).env("P", PYTHON).env("L", LOGGER).run();
    outcome.assert_nothing_left();
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert!(text.starts_with("ready\n") && text.ends_with("rc 124\n"), "{outcome:#?}");
    assert_eq!(text.matches("SIGTERM\n").count(), 1, "{outcome:#?}");
    let text = "timeout 1 \"$C\" --grace=20s -- bash -c \
                'trap \"sleep 0.5; echo cleaned; exit\" TERM; sleep 30 & wait'; echo rc $?";
    let outcome = Run::shell(text).run();
    outcome.assert_nothing_left();
    assert_eq!(outcome.stdout, b"cleaned\nrc 124\n", "{outcome:#?}");

    // SIGKILL, after which nothing lives on.
    let text =
        "timeout -s KILL 0.7 \"$C\" sh -c 'setsid sleep 30 & sleep 30 & sleep 30'; echo rc $?";
    let outcome = Run::shell(text).run();
    assert!(outcome.ground.wait_empty(Duration::from_secs(2)));
    assert!(outcome.elapsed < SOON);

    // What ended before is not touched.
    let outcome = Run::shell("timeout 20 \"$C\" sh -c 'sleep 30 & exit 3'; echo rc $?").run();
    outcome.assert_nothing_left();
    assert_eq!(outcome.stdout, b"rc 3\n");
}

#[test]
fn a_corral_in_a_corral() {
    let text = "echo $CORRAL_RUN_ID; \"$C\" sh -c 'echo $CORRAL_RUN_ID; sleep 30 & exit 3'; \
                echo inner $?; sleep 30 & exit 4";
    let outcome = script(&[], text).env("C", common::corral()).run();
    outcome.assert_status(4);
    outcome.assert_nothing_left();
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[2]), (3, "inner 3"), "{text}");
    assert_ne!(lines[0], lines[1], "each run has its own id");
    assert_eq!(outcome.record("/run_id"), lines[0]);
    assert_eq!(number(&outcome, "/leftovers_total"), 1);
}

#[test]
fn the_inner_limit_ends_only_the_inner() {
    let text = "setsid sleep 30 & outer=$!; \"$C\" --wall=400ms sh -c 'setsid sleep 30 & sleep 30'; \
                echo inner $?; kill -0 $outer && echo outer goes on; exit 5";
    let outcome = script(&[], text).env("C", common::corral()).run();
    outcome.assert_status(5);
    outcome.assert_nothing_left();
    assert_eq!(outcome.stdout, b"inner 124\nouter goes on\n", "{outcome:#?}");
    assert_record(&outcome, "exited", 5);
}

#[test]
fn the_outer_limit_ends_the_inner_and_its_tree() {
    if !have(&[PYTHON]) {
        return;
    }
    // The inner tree gets the signal from the inner corral alone: once.
    let text = "\"$C\" --grace=300ms --json \"$D/inner\" sh -c 'setsid \"$P\" -c \"$L\" & \
                (\"$P\" -c \"$L\" &); exec \"$P\" -c \"$L\"'; echo inner $?";
    let place = tempfile::tempdir().unwrap();
    let outcome = script(&["--output-limit=17", "--grace=20s"], text)
        .env("C", common::corral())
        .env("P", PYTHON)
        .env("L", LOGGER)
        .env("LOG", place.path().join("log"))
        .env("D", place.path())
        .run();
    outcome.assert_status(121);
    outcome.assert_nothing_left();
    assert!(outcome.elapsed < SOON);
    let text = fs::read_to_string(place.path().join("log")).unwrap();
    let count = |line: &str| text.lines().filter(|one| *one == line).count();
    assert_eq!((count("ready"), count("SIGTERM")), (3, 3), "{text}");
    let inner: serde_json::Value =
        serde_json::from_slice(&fs::read(place.path().join("inner")).unwrap()).unwrap();
    assert_eq!(inner["cause"], "cancelled");
    assert_eq!(inner["exit_status"], 143);
    assert_record(&outcome, "output", 121);
    assert_eq!(outcome.record("/escalated"), false);
}

#[test]
fn three_of_them_and_a_stubborn_end() {
    let text =
        "\"$C\" \"$C\" \"$C\" --grace=30s sh -c 'trap \"\" TERM; setsid sleep 30 & sleep 30'";
    let outcome = script(&["--wall=600ms", "--grace=400ms"], text).env("C", common::corral()).run();
    outcome.assert_status(124);
    outcome.assert_nothing_left();
    assert!(outcome.elapsed < SOON, "the outermost grace counts: {outcome:#?}");
}

#[test]
fn the_inner_is_lost() {
    // Its monitor is killed by somebody of the outer run.
    let text = "\"$C\" --quiet sh -c 'setsid sleep 30 & sleep 30 & echo up; sleep 30' & m=$!; \
                sleep 0.5; kill -9 $m; wait $m; echo inner $?; exit 6";
    let outcome = script(&[], text).env("C", common::corral()).run();
    outcome.assert_status(6);
    outcome.assert_nothing_left();
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert!(text.ends_with("inner 137\n"), "{text}");
}

#[test]
fn children_that_were_there_before() {
    if !have(&[PYTHON]) {
        return;
    }
    // `sleep & exec corral`: inherited, not ours. Neither hang nor signal.
    for (options, command, status) in [
        ("", "exit 3", 3),
        ("--leftovers=wait", "exit 3", 3),
        ("--wall=400ms", "sleep 30 & setsid sleep 30 & sleep 30", 124),
        ("", "sleep 30 & setsid sleep 30 & exit 4", 4),
        ("", "kill -9 $PPID; sleep 30", 137),
    ] {
        let text = format!(
            "\"$P\" -c \"$L\" >\"$D/log\" & echo before $!; \
             until [ -s \"$D/log\" ]; do :; done; \
             exec \"$C\" {options} --json \"$D/record\" -- sh -c '{command}'"
        );
        let place = tempfile::tempdir().unwrap();
        let outcome =
            Run::shell(&text).env("P", PYTHON).env("L", LOGGER).env("D", place.path()).run();
        outcome.assert_status(status);
        assert!(outcome.elapsed < SOON, "{command}: {outcome:#?}");
        let before = printed_pid(&outcome.stdout, "before");
        let left: Vec<i32> = outcome.survivors.iter().map(|one| one.pid).collect();
        assert_eq!(left, [before], "{command}: {outcome:#?}");
        assert_eq!(fs::read(place.path().join("log")).unwrap(), b"ready\n");
        let record: serde_json::Value =
            serde_json::from_slice(&fs::read(place.path().join("record")).unwrap()).unwrap();
        for list in ["leftovers", "tree_at_cause", "survivors"] {
            assert!(
                !record[list].to_string().contains(&format!("\"pid\":{before},")),
                "{list}: {record:#}"
            );
        }
    }
}

#[test]
fn grandchildren_that_were_there_before() {
    // Their parent ends while corral runs, so they look for a new one: a
    // subreaper of corral's that has the parent as a child would be it.
    for (command, status) in [("exit 3", 3), ("kill -9 $PPID; sleep 30", 137)] {
        let text = format!(
            "sh -c 'sleep 25 & echo before $!; read x <\"$D/go\"; exit 0' & \
             echo $! >\"$D/parent\"; exec \"$C\" -- \
             sh -c 'echo go >\"$D/go\"; p=$(cat \"$D/parent\"); \
             while [ -e /proc/$p/cwd/. ]; do :; done; {command}'"
        );
        let place = tempfile::tempdir().unwrap();
        Run::shell("mkfifo \"$D/go\"").env("D", place.path()).run().assert_status(0);
        let outcome = Run::shell(&text).env("D", place.path()).run();
        outcome.assert_status(status);
        assert!(outcome.elapsed < SOON, "{command}: {outcome:#?}");
        let before = printed_pid(&outcome.stdout, "before");
        let left: Vec<i32> = outcome.survivors.iter().map(|one| one.pid).collect();
        assert_eq!(left, [before], "{command}: {outcome:#?}");
    }
}

#[test]
fn a_child_of_the_caller_ends_meanwhile() {
    // Reaped or not, it is no business of the run.
    let text = "(sleep 0.2; exit 9) & exec \"$C\" sh -c 'sleep 0.5; exit 3'";
    let outcome = Run::shell(text).run();
    outcome.assert_status(3);
    outcome.assert_nothing_left();
    // Already dead at the start: a zombie that nobody will wait for.
    let text = "true & while read -r stat </proc/$!/stat; do \
                case $stat in *') Z '*) break;; esac; done; exec \"$C\" sh -c 'exit 3'";
    let outcome = Run::shell(text).run();
    outcome.assert_status(3);
    outcome.assert_nothing_left();
}

#[test]
fn the_caller_goes_away() {
    // Its parent ends; the run goes on, and cancelling it still works.
    let mut run = Run::shell(
        "(\"$C\" sh -c 'echo command $$; echo ready; sleep 30' & echo corral $!); exec cat",
    )
    .stdin(Stdin::Open)
    .start();
    let corral = wait_pid(&mut run, "corral");
    let command = wait_pid(&mut run, "command");
    assert!(Survivor::read(command).is_some());
    run.signal_member(corral, Signal::TERM);
    run.wait_until("the end", |_| Survivor::read(corral).is_none());
    assert!(Survivor::read(command).is_none());
    run.close_stdin();
    let outcome = run.wait();
    outcome.assert_nothing_left();
}

#[test]
fn started_by_many_at_once() {
    let text = "i=0; while [ $i -lt 12 ]; do \
                \"$C\" sh -c 'setsid sleep 30 & (sleep 30 &); exit 3' & p=\"$p $!\"; \
                i=$((i+1)); done; for x in $p; do wait $x; echo $?; done";
    let outcome = Run::shell(text).run();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    assert_eq!(outcome.stdout, b"3\n".repeat(12));
}

#[test]
fn a_leftover_of_a_nested_run_is_named_once() {
    let text = "\"$C\" --quiet sh -c 'setsid sleep 30 & exit 0'; sleep 29 & echo mine $!";
    let outcome = script(&[], text).env("C", common::corral()).run();
    outcome.assert_status(0);
    let mine = printed_pid(&outcome.stdout, "mine");
    assert_eq!(number(&outcome, "/leftovers_total"), 1, "{outcome:#?}");
    listed(&outcome, "leftovers", mine);
}
