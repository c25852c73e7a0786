//! What does the command get from corral's caller, and what not?
//!
//! Descriptors, environment, signal dispositions and mask, limits, umask,
//! priority: the command must see what it would see without corral, but for
//! what the contract names (a session of its own, an empty mask, three signals
//! at their defaults, CORRAL_RUN_ID), and nothing of corral's own.

mod common;
mod kit;

use std::fs::File;
use std::io::{Seek, Write};

use common::{Run, Stdin};
use kit::{PYTHON, assert_record, have, is_run_id};

/// Prints the numbers of the open descriptors, up to 1023, on one line.
const DESCRIPTORS: &str = "
import os
def open_(fd):
    try: os.fstat(fd); return True
    except OSError: return False
fds = [fd for fd in range(1024) if open_(fd)]
os.write(1, (' '.join(map(str, fds)) + '\\n').encode())";

/// What may make corral open descriptors of its own.
const WAYS: [&[&str]; 4] =
    [&[], &["--max-output=1M"], &["--wall=20s", "--output-limit=1M"], &["--cgroup-mode=fallback"]];

#[test]
fn descriptors_pass_and_none_of_corrals_own() {
    if !have(&[PYTHON, "bash"]) {
        return;
    }
    let text = "exec 7</dev/null 8>/dev/null 200</dev/null; exec \"$@\"";
    let bash = || Run::argv(["bash", "-c", text, "bash"]);
    let plain = bash().args([PYTHON, "-c", DESCRIPTORS]).run().stdout;
    for way in WAYS {
        let outcome = bash()
            .args([common::corral()])
            .args(way)
            .args(["--json", "/dev/null", "--", PYTHON, "-c", DESCRIPTORS])
            .run();
        outcome.assert_status(0);
        assert!(plain.starts_with(b"0 1 2 7 8 "));
        assert_eq!(outcome.stdout, plain, "{way:?}: {outcome:#?}");
    }
}

#[test]
fn descriptors_do_not_pass_when_asked() {
    if !have(&[PYTHON, "bash"]) {
        return;
    }
    for way in WAYS {
        let text = "exec 3</dev/null 9>/dev/null 200</dev/null 1000</dev/null; \
                    exec \"$C\" --close-fds \"$@\"";
        let outcome = Run::argv(["bash", "-c", text, "bash"])
            .args(way)
            .args(["--json", "/dev/null", "--", PYTHON, "-c", DESCRIPTORS])
            .run();
        outcome.assert_status(0);
        assert_eq!(outcome.stdout, b"0 1 2\n", "{way:?}: {outcome:#?}");
    }
}

#[test]
fn corral_keeps_no_inherited_descriptor_for_itself() {
    // The reader sees the end of the pipe while the command, which has closed
    // it, still runs: neither of corral's two processes holds it.
    for options in ["", "--close-fds", "--max-output=1M"] {
        let text = format!(
            "{{ exec 3>&1 >&2; exec $C {options} -- sh -c 'exec 3>&-; read x'; }} \
             | {{ cat; echo end; }}"
        );
        let mut run = Run::shell(&text).stdin(Stdin::Open).start();
        run.wait_line("end");
        run.close_stdin();
        run.wait().assert_status(0);
    }
}

#[test]
fn the_record_of_a_descriptor() {
    let text = "exec 9>\"$J\"; $C --json fd:9 -- sh -c '[ -e /proc/self/fd/9 ] && exit 50; exit 4'; \
                s=$?; echo behind >&9; exit $s";
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("record");
    let outcome = Run::shell(text).env("J", &path).run();
    outcome.assert_status(4);
    let written = std::fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = written.lines().collect();
    assert_eq!(lines.len(), 2, "{written}");
    let record: serde_json::Value = serde_json::from_str(lines[0]).unwrap();
    assert_eq!(record["exit_status"], 4);
    assert_eq!(lines[1], "behind");
}

/// All ways to start with some of 0, 1, 2 closed.
fn closed_sets() -> impl Iterator<Item = Vec<i32>> {
    (1..8).map(|mask| (0..3).filter(|fd| mask & (1 << fd) != 0).collect())
}

fn with_closed(mut run: Run, closed: &[i32]) -> Run {
    for fd in closed {
        run = run.closed(*fd);
    }
    run
}

#[test]
fn closed_standard_descriptors() {
    // Exits with 16 plus the set of those that are open.
    let text = "m=16; [ -e /proc/$$/fd/0 ] && m=$((m+1)); [ -e /proc/$$/fd/1 ] && m=$((m+2)); \
                [ -e /proc/$$/fd/2 ] && m=$((m+4)); exit $m";
    for closed in closed_sets() {
        let open: i32 = (0..3).filter(|fd| !closed.contains(fd)).map(|fd| 1 << fd).sum();
        for record in [false, true] {
            let mut run = Run::corral(&[]).command(["sh", "-c", text]);
            if !record {
                run = run.no_record();
            }
            let outcome = with_closed(run, &closed).run();
            assert_eq!(
                outcome.status,
                Some(16 + open),
                "closed {closed:?}, record {record}: {outcome:#?}"
            );
            outcome.assert_nothing_left();
            if record {
                assert_record(&outcome, "exited", u64::try_from(16 + open).unwrap());
            }
        }
    }
}

#[test]
fn closed_standard_descriptors_under_a_relay() {
    let text = "echo out; echo err >&2; exit 3";
    for closed in closed_sets() {
        for option in ["--max-output=1M", "--output-limit=1M", "--max-output=1+1"] {
            let run = Run::corral(&[option]).command(["sh", "-c", text]);
            let outcome = with_closed(run, &closed).run();
            outcome.assert_status(3);
            outcome.assert_nothing_left();
            // In the record is a record, and not what was meant for others.
            assert_record(&outcome, "exited", 3);
            if option.ends_with("1M") && !closed.contains(&1) {
                assert_eq!(outcome.stdout, b"out\n", "closed {closed:?}");
            }
            if option.ends_with("1M") && !closed.contains(&2) {
                // A shell whose stdout is closed complains, as it would without corral.
                assert!(outcome.stderr.ends_with("err\n"), "closed {closed:?}");
                assert!(closed.contains(&1) || outcome.stderr == "err\n", "closed {closed:?}");
            }
        }
    }
}

#[test]
fn words_of_corral_go_into_no_strange_file() {
    // With 2 closed, the next file opened would be 2.
    for closed in closed_sets() {
        let run = Run::corral(&["--wall=200ms"]).command(["sleep", "30"]);
        let outcome = with_closed(run, &closed).run();
        outcome.assert_status(124);
        outcome.assert_nothing_left();
        assert_record(&outcome, "wall", 124);

        let outcome = with_closed(Run::corral(&[]).command(["/no/such/command"]), &closed).run();
        outcome.assert_status(127);
        assert_record(&outcome, "exec", 127);

        let outcome = with_closed(Run::corral(&["--wall=x"]).command(["true"]), &closed).run();
        outcome.assert_status(125);
        assert!(outcome.record.is_none());
    }
}

#[test]
fn stdin_is_not_eaten() {
    for options in ["", "--max-output=1M", "--wall=20s"] {
        let text =
            format!("n=0; while read x; do $C {options} true; n=$((n+1)); done; echo loops $n");
        let outcome = Run::shell(&text).stdin(Stdin::Bytes(b"a\nb\nc\n".to_vec())).run();
        assert_eq!(outcome.stdout, b"loops 3\n", "{outcome:#?}");

        let text = format!("$C {options} -- sh -c 'read x; echo got $x'; read y; echo rest $y");
        let outcome = Run::shell(&text).stdin(Stdin::Bytes(b"one\ntwo\n".to_vec())).run();
        assert_eq!(outcome.stdout, b"got one\nrest two\n", "{outcome:#?}");
    }
}

#[test]
fn stdin_passes_exactly() {
    let bytes: Vec<u8> = (0..300_000u32).map(|n| n.to_le_bytes()[1]).collect();
    for options in WAYS {
        let outcome =
            Run::corral(options).command(["cat"]).stdin(Stdin::Bytes(bytes.clone())).run();
        outcome.assert_status(0);
        assert!(outcome.stdout == bytes, "{options:?}: {outcome:#?}");
    }
    // A file keeps its one offset, shared with the caller.
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"first\nsecond\n").unwrap();
    file.rewind().unwrap();
    let same = file.try_clone().unwrap();
    let outcome =
        Run::corral(&[]).command(["head", "-c", "6"]).stdin(Stdin::From(file.into())).run();
    outcome.assert_status(0);
    let rest = std::io::read_to_string(same).unwrap();
    assert!(
        rest == "second\n" || rest.is_empty(),
        "head may read ahead, corral may not go back: {rest:?}"
    );
}

#[test]
fn ignored_signals() {
    if !have(&["env"]) {
        return;
    }
    // Bits of HUP, INT, QUIT, USR1, PIPE, TERM, CHLD, XFSZ.
    let bit = |signal: u32| 1u64 << (signal - 1);
    let given = [1, 2, 3, 10, 13, 15, 17, 25].map(bit).iter().sum::<u64>();
    let kept = [1, 2, 3, 10, 15].map(bit).iter().sum::<u64>();
    let show = ["sed", "-n", "s/^SigIgn:.//p", "/proc/self/status"];
    for way in WAYS {
        let outcome = Run::argv(["env"])
            .args(["--ignore-signal=HUP,INT,QUIT,USR1,PIPE,TERM,CHLD,XFSZ"])
            .args([common::corral()])
            .args(way)
            .args(["--"])
            .args(show)
            .run();
        outcome.assert_status(0);
        let shown = String::from_utf8(outcome.stdout.clone()).unwrap();
        let shown = u64::from_str_radix(shown.trim(), 16).unwrap();
        assert_eq!(shown & given, kept, "{way:?}: {shown:x}");
    }
}

#[test]
fn every_default_stays_a_default() {
    let outcome = Run::corral(&["--max-output=1M"])
        .command(["grep", "-E", "^Sig(Blk|Ign|Cgt):", "/proc/self/status"])
        .run();
    outcome.assert_status(0);
    let text = String::from_utf8(outcome.stdout).unwrap();
    let plain = Run::argv(["grep", "-E", "^Sig(Blk|Ign|Cgt):", "/proc/self/status"]).run();
    let plain = String::from_utf8(plain.stdout).unwrap();
    assert_eq!(text, plain);
}

#[test]
fn blocked_signals() {
    if !have(&["env"]) {
        return;
    }
    for way in WAYS {
        let outcome = Run::argv(["env", "--block-signal"])
            .args([common::corral()])
            .args(way)
            .args(["sed", "-n", "s/^SigBlk:.//p", "/proc/self/status"])
            .run();
        outcome.assert_status(0);
        assert_eq!(outcome.stdout, b"0000000000000000\n", "{way:?}");
    }
    // And corral, whose caller blocked everything, still has its limits.
    let outcome = Run::argv(["env", "--block-signal"])
        .args([common::corral().to_str().unwrap(), "--wall=300ms"])
        .args(["sleep", "30"])
        .run();
    outcome.assert_status(124);
    outcome.assert_nothing_left();
}

#[test]
fn a_caller_that_ignores_its_childrens_end() {
    if !have(&["env"]) {
        return;
    }
    for ignored in ["CHLD", "CHLD,PIPE,HUP,INT,QUIT,TERM,ALRM,USR1,USR2,CONT"] {
        let outcome = Run::argv(["env", &format!("--ignore-signal={ignored}")])
            .args([common::corral().to_str().unwrap(), "--", "sh", "-c"])
            .args(["setsid sleep 30 & true; exit 7"])
            .run();
        outcome.assert_status(7);
        outcome.assert_nothing_left();
    }
}

#[test]
fn the_run_id() {
    let outcome =
        Run::corral(&["--run-id", "Run_1.2-x"]).command(["sh", "-c", "echo $CORRAL_RUN_ID"]).run();
    outcome.assert_status(0);
    assert_eq!(outcome.stdout, b"Run_1.2-x\n");
    assert_eq!(outcome.record("/run_id"), "Run_1.2-x");
    let longest = "i".repeat(64);
    let outcome = Run::corral(&["--run-id", &longest]).command(["true"]).run();
    outcome.assert_status(0);
    assert_eq!(outcome.record("/run_id"), longest.as_str());

    // Each its own; the one inherited is replaced, not doubled.
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..5 {
        let outcome = Run::corral(&[]).command(["env"]).env("CORRAL_RUN_ID", "outer").run();
        outcome.assert_status(0);
        let text = String::from_utf8(outcome.stdout.clone()).unwrap();
        let ids: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("CORRAL_RUN_ID=")).collect();
        assert_eq!(ids.len(), 1, "{text}");
        assert!(is_run_id(ids[0]) && ids[0] != "outer", "{ids:?}");
        assert_eq!(outcome.record("/run_id"), ids[0]);
        assert!(seen.insert(ids[0].to_owned()), "twice {ids:?}");
    }
}

#[test]
fn the_rest_of_the_environment() {
    // In order, whatever is in it, but for the run id.
    let mut run = Run::corral(&[]).command(["env", "-0"]);
    for n in 0..1000 {
        run = run.env(format!("CORRAL_TEST_{n:04}"), format!("value {n}\n"));
    }
    let outcome = run.run();
    outcome.assert_status(0);
    let text = String::from_utf8(outcome.stdout).unwrap();
    let ours: Vec<&str> =
        text.split('\0').filter(|entry| entry.starts_with("CORRAL_TEST_")).collect();
    assert_eq!(ours.len(), 1000);
    for n in 0..1000 {
        let entry = format!("CORRAL_TEST_{n:04}=value {n}\n");
        assert!(ours.contains(&entry.as_str()), "{entry}");
    }
    let big = "b".repeat(100_000);
    let outcome = Run::corral(&[]).command(["sh", "-c", "echo ${#BIG}"]).env("BIG", &big).run();
    assert_eq!(outcome.stdout, b"100000\n");
}

#[test]
fn no_environment_at_all() {
    let outcome = Run::argv(["env", "-i"]).args([common::corral().to_str().unwrap(), "env"]).run();
    outcome.assert_status(0);
    let text = String::from_utf8(outcome.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(is_run_id(lines[0].strip_prefix("CORRAL_RUN_ID=").unwrap()));
}

#[test]
fn odd_entries_of_the_environment() {
    if !have(&[PYTHON]) {
        return;
    }
    // Without a value, without a name, twice: passed as they are.
    let text = "
import ctypes, os, sys
c = ctypes.c_char_p
argv = (c * 4)(os.fsencode(sys.argv[1]), b'cat', b'/proc/self/environ', None)
env = (c * 5)(b'noequals', b'=noname', b'A=1', b'A=2', None)
ctypes.CDLL(None).execve(os.fsencode(sys.argv[1]), argv, env)
os._exit(99)";
    let outcome = Run::argv([PYTHON, "-c", text]).args([common::corral()]).run();
    outcome.assert_status(0);
    let entries: Vec<&[u8]> = outcome.stdout.split(|byte| *byte == 0).collect();
    for entry in [&b"noequals"[..], b"=noname", b"A=1", b"A=2"] {
        assert!(entries.contains(&entry), "{outcome:#?}");
    }
}

#[test]
fn a_session_of_its_own() {
    if !have(&[PYTHON]) {
        return;
    }
    let text = "
import os
me = os.getpid()
os._exit(0 if os.getsid(0) == me and os.getpgid(0) == me else 1)";
    let outcome = Run::corral(&[]).command([PYTHON, "-c", text]).run();
    outcome.assert_status(0);
}

#[test]
fn what_else_a_process_has() {
    // umask, limits, niceness, directory, root, slack of timers, oom score.
    let show = "umask; ulimit -a; nice; pwd; cat /proc/self/timerslack_ns \
                /proc/self/oom_score_adj /proc/self/personality; \
                grep -E '^(Uid|Gid|Groups|Cap|Seccomp|NoNewPrivs|Cpus_allowed)' /proc/self/status";
    let prepare = "umask 027; ulimit -n 321; ulimit -s 4096; ulimit -c 0; cd /usr; ";
    let plain = format!("{prepare} exec nice -n 3 sh -c \"$SHOW\"");
    let plain = Run::shell(&plain).env("SHOW", show).run();
    assert!(plain.stdout.len() > 500, "{plain:#?}");
    for options in ["", "--max-output=1M"] {
        let under = format!("{prepare} exec nice -n 3 \"$C\" {options} -- sh -c \"$SHOW\"");
        let outcome = Run::shell(&under).env("SHOW", show).run();
        outcome.assert_status(0);
        assert_eq!(
            String::from_utf8_lossy(&outcome.stdout),
            String::from_utf8_lossy(&plain.stdout)
        );
    }
}

#[test]
fn a_limit_of_few_descriptors() {
    let text = "ulimit -n 16; exec \"$C\" --max-output=1M -- sh -c 'setsid sleep 30 & exit 4'";
    let outcome = Run::shell(text).run();
    outcome.assert_nothing_left();
    assert!(matches!(outcome.status, Some(4 | 125)), "run or refused: {outcome:#?}");
}

#[test]
fn a_limit_on_the_size_of_files() {
    // SIGXFSZ is for the command, never for corral's record.
    let text = "ulimit -f 0; exec \"$C\" --json \"$J\" -- sh -c 'exit 0'";
    let place = tempfile::tempdir().unwrap();
    let record = place.path().join("record.json");
    let outcome = Run::shell(text).env("J", &record).run();
    outcome.assert_status(118);
    outcome.assert_nothing_left();
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn open_files_of_the_caller_stay_as_they_are() {
    // O_NONBLOCK belongs to the open file, which others share.
    let file: File = tempfile::tempfile().unwrap();
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    rustix::pipe::fcntl_setpipe_size(&write, 4096).unwrap();
    let flags = |fd: &rustix::fd::OwnedFd| rustix::fs::fcntl_getfl(fd).unwrap();
    let before = (flags(&read), flags(&write));
    let outcome = Run::corral(&["--max-output=1M"])
        .command(["sh", "-c", "echo out; exit 0"])
        .stdin(Stdin::From(file.into()))
        .stdout(write.try_clone().unwrap())
        .run();
    outcome.assert_status(0);
    assert_eq!((flags(&read), flags(&write)), before);
    assert_eq!(rustix::pipe::fcntl_getpipe_size(&write).unwrap(), 4096);
}
