//! What if the command, or somebody near it, works against corral itself?
//!
//! It stops the supervisor or traces it, takes away its memory or its
//! descriptors, sends what ends other programs. The limits hold all the same,
//! and nothing is left.

mod common;
mod kit;

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use common::{Outcome, Run, Signal, Survivor, root_or_skip};
use kit::{PYTHON, assert_record, have, number, supervisor, wait_pid};

const SOON: Duration = Duration::from_secs(15);

fn script(options: &[&str], text: &str) -> Outcome {
    kit::script(options, text).run()
}

#[track_caller]
fn assert_wall(outcome: &Outcome) {
    outcome.assert_status(124);
    outcome.assert_nothing_left();
    assert!(outcome.elapsed < SOON, "{outcome:#?}");
    assert_record(outcome, "wall", 124);
}

#[test]
fn the_command_stops_its_supervisor() {
    let outcome =
        script(&["--wall=700ms", "--grace=200ms"], "kill -STOP $PPID; sleep 30 & exec sleep 30");
    assert_wall(&outcome);
}

#[test]
fn the_command_stops_supervisor_and_guard() {
    let text = "sleep 30 & exec \"$C\" --wall 700ms --grace 200ms -- sh -c \
                'kill -STOP $(sed \"s/.*) . //;s/ .*//\" /proc/$PPID/stat) $PPID; sleep 30'";
    let run = Run::shell(text).start();
    let outcome = run.wait();
    outcome.assert_status(124);
    // The caller's own child is none of the run's.
    assert_eq!(outcome.survivors.len(), 1, "{outcome:#?}");
    assert_eq!(outcome.survivors[0].name, "sleep");
}

#[test]
fn a_stopped_supervisor_outlives_no_monitor() {
    let text = "trap 'echo passed on' USR1; sleep 30 & echo ready; while :; do wait; done";
    let mut run = Run::corral(&[]).command(["bash", "-c", text]).start();
    run.ready();
    let owner = supervisor(&run);
    run.signal_member(owner, Signal::STOP);
    // What arrives shows that it goes on.
    run.signal(Signal::USR1);
    run.wait_line("passed on");
    run.signal(Signal::KILL);
    let outcome = run.wait();
    assert!(outcome.ground.wait_empty(SOON), "{:#?}", outcome.ground.members());
}

#[test]
fn an_unprivileged_command_cannot_trace_its_supervisor() {
    if !have(&[PYTHON]) || !root_or_skip() {
        return;
    }
    let text = "import ctypes, os, time\n\
                libc = ctypes.CDLL(None, use_errno=True)\n\
                print('attached', libc.ptrace(16, os.getppid(), 0, 0) == 0, flush=True)\n\
                time.sleep(30)\n";
    let outcome = Run::corral(&["--wall=1500ms", "--grace=200ms"])
        .command([PYTHON, "-c", text])
        .uid(common::NOBODY)
        .run();
    assert_wall(&outcome);
    assert_eq!(outcome.stdout, b"attached False\n");
}

#[test]
fn no_memory_for_a_walk() {
    for resource in ["--data=0:0", "--as=0:0"] {
        let text = format!("prlimit --pid $PPID {resource}; sleep 30 & setsid sleep 30");
        let outcome = script(&["--wall=700ms", "--grace=200ms"], &text);
        // Nobody can be listed without memory, but all are ended.
        outcome.assert_status(124);
        outcome.assert_nothing_left();
        assert!(outcome.elapsed < SOON, "{outcome:#?}");
    }
}

#[test]
fn fewer_descriptors_than_the_loop_waits_for() {
    let text = "prlimit --pid $PPID --nofile=3:3; (exit 1) & sleep 0.2 & wait; exit 5";
    let outcome = script(&["--wall=20s"], text);
    outcome.assert_status(5);
    outcome.assert_nothing_left();
    let text = "prlimit --pid $PPID --nofile=3:3; sleep 30 & setsid sleep 30";
    let outcome = script(&["--wall=700ms", "--grace=200ms"], text);
    outcome.assert_status(124);
    outcome.assert_nothing_left();
}

#[test]
fn signals_of_faults_are_passed_on_and_corral_stays() {
    for (signal, name) in [(Signal::ABORT, "ABRT"), (Signal::SYS, "SYS"), (Signal::SEGV, "SEGV")] {
        let text = format!("trap 'echo got {name}; exit 3' {name}; sleep 30 & echo ready; wait");
        let mut run = Run::corral(&["--grace=300ms"]).command(["bash", "-c", &text]).start();
        run.ready();
        run.signal(signal);
        let outcome = run.wait();
        outcome.assert_status(3);
        outcome.assert_nothing_left();
        let want = format!("ready\ngot {name}\n");
        assert_eq!(String::from_utf8_lossy(&outcome.stdout), want);
    }
}

#[test]
fn the_supervisor_is_killed_where_another_init_has_the_children() {
    if !root_or_skip() || !have(&[PYTHON, "unshare"]) {
        return;
    }
    // corral enters somebody's PID namespace with its children alone.
    let text = "import ctypes, os, sys\n\
                pid = int(sys.argv[1])\n\
                fd = os.open(f'/proc/{pid}/ns/pid', os.O_RDONLY)\n\
                assert ctypes.CDLL(None).setns(fd, 0) == 0\n\
                os.close(fd)\n\
                os.execv(os.environ['C'], ['corral', '--', 'sh', '-c',\n\
                    'setsid sleep 30 & echo ready; sleep 30'])\n";
    let mut init = Run::argv(["unshare", "-pf", "sh", "-c", "echo init; exec sleep 30"]).start();
    init.wait_line("init");
    let inner = common::children(init.pid())[0];
    let mut run = Run::argv([PYTHON, "-c", text, &inner.to_string()]).start();
    run.ready();
    let owner = run
        .members()
        .into_iter()
        .find(|one| one.name == "crl-supervisor")
        .expect("a supervisor")
        .pid;
    run.signal_member(owner, Signal::KILL);
    let outcome = run.wait();
    outcome.assert_nothing_left();
    outcome.assert_status(137);
    init.signal(Signal::KILL);
    init.signal_member(inner, Signal::KILL);
    let _ = init.wait();
}

#[test]
fn a_record_on_a_high_descriptor() {
    let (read, write) = rustix::pipe::pipe().unwrap();
    let write = rustix::io::fcntl_dupfd_cloexec(&write, 200).unwrap();
    assert!(write.as_raw_fd() >= 200);
    let number = write.as_raw_fd();
    let outcome = Run::corral(&[&format!("--json=fd:{number}")])
        .command(["sh", "-c", "exit 0"])
        .no_record()
        .before(move || {
            // SAFETY: the descriptor is open in the parent, whose copy this is.
            let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
            rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?;
            Ok(())
        })
        .run();
    outcome.assert_status(0);
    drop(write);
    let mut text = vec![0; 65536];
    let count = rustix::io::read(read.as_fd(), &mut text).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&text[..count]).unwrap();
    assert_eq!(record["cause"], "exited");
}

#[test]
fn a_reader_that_reads_slowly_gets_everything() {
    // The end comes later than one grace after the cause.
    let text = "\"$C\" --json \"$J\" --wall 300ms --grace 100ms --output-limit 4G -- \
                sh -c 'trap \"\" TERM; yes' | { sleep 0.6; wc -c; }";
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("record");
    let outcome = Run::shell(text).env("J", &path).run();
    let read: u64 = String::from_utf8_lossy(&outcome.stdout).trim().parse().expect("a count");
    let record: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    // Whatever was given up while nobody read, what was passed on was read.
    assert_eq!(record["output"]["passed_bytes"], read);
    let outcome = Run::shell(&text.replace("sleep 0.6; ", "")).env("J", &path).run();
    let read: u64 = String::from_utf8_lossy(&outcome.stdout).trim().parse().expect("a count");
    let record: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(record["output"]["passed_bytes"], read);
    assert_eq!(record["output"]["given_up_bytes"], 0, "{record:#}");
}

#[test]
fn a_name_in_the_tree_is_no_licence() {
    // A process that calls itself as a nested supervisor does is one only if it
    // runs corral's program: it gets its signal.
    if !have(&[PYTHON]) {
        return;
    }
    let text = "import ctypes, signal, sys, time\n\
                def on(*_):\n\
                \tprint('got TERM', flush=True)\n\
                \tsys.exit(0)\n\
                signal.signal(signal.SIGTERM, on)\n\
                ctypes.CDLL(None).prctl(15, b'crl-supervisor', 0, 0, 0)\n\
                import os; os.write(1, b'ready\\n')\n\
                time.sleep(30)\n";
    let mut run = Run::corral(&[]).command([PYTHON, "-c", text]).start();
    run.ready();
    run.signal(Signal::TERM);
    let outcome = run.wait();
    assert_eq!(outcome.stdout, b"ready\ngot TERM\n");
    assert_eq!(number(&outcome, "/survivors_total"), 0);
}

#[test]
fn a_bystander_in_the_foreground_hears_nothing_of_the_handover() {
    if !have(&[PYTHON]) {
        return;
    }
    // A session leader with a terminal execs corral; another process of its group
    // is there already.
    let text = "import os, pty, sys\n\
                pid, fd = pty.fork()\n\
                if pid == 0:\n\
                \tos.execvp('sh', ['sh', '-c', 'sleep 30 & echo stranger $!; '\n\
                \t\t'exec \"$C\" -- sh -c \"echo command; exit 0\"'])\n\
                text = b''\n\
                while True:\n\
                \ttry: got = os.read(fd, 4096)\n\
                \texcept OSError: break\n\
                \tif not got: break\n\
                \ttext += got\n\
                \tif b'command' in text: break\n\
                sys.stdout.write(text.decode().replace('\\r', ''))\n\
                print('ended', flush=True)\n\
                os.waitpid(pid, 0)\n\
                print('reaped', flush=True)\n\
                sys.stdin.read()\n";
    let mut run = Run::argv([PYTHON, "-c", text]).stdin(common::Stdin::Open).start();
    let stranger = wait_pid(&mut run, "stranger");
    run.wait_line("reaped");
    // The terminal's end would hang it up as well: it is looked at while the
    // other side still holds the terminal.
    let alive = Survivor::read(stranger).is_some_and(|one| one.state != 'Z');
    run.signal_member(stranger, Signal::KILL);
    run.close_stdin();
    let _ = run.wait();
    assert!(alive, "the stranger is dead");
}
