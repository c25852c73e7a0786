//! Is the record whole, true, and where it was asked for?
//!
//! A reader never sees half of one, a symlink is followed, an existing file
//! keeps its mode, a device or FIFO is written directly, and what cannot be
//! written is refused before the command starts or spoils a success after it.

mod common;
mod kit;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use common::{NOBODY, Outcome, Run, root_or_skip};
use kit::{PYTHON, assert_record, assert_refused, have, number, only_line};

/// corral with its record at `path` and a shell script as the command.
fn at(path: &Path, text: &str) -> Run {
    Run::corral(&["--json", path.to_str().unwrap()]).no_record().command(["sh", "-c", text])
}

/// The one record of a file.
#[track_caller]
fn read(path: &Path) -> serde_json::Value {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.ends_with("}\n") && text.lines().count() == 1, "{text:?}");
    serde_json::from_str(&text).unwrap()
}

fn names(place: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(place)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_new_file() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run.json");
    let outcome = at(&path, "exit 3").run();
    outcome.assert_status(3);
    assert_eq!(read(&path)["exit_status"], 3);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(names(place.path()), ["run.json"], "nothing beside it");
}

#[test]
fn an_existing_file() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run.json");
    fs::write(&path, "x".repeat(100_000)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let outcome = at(&path, "exit 3").run();
    outcome.assert_status(3);
    assert_eq!(read(&path)["exit_status"], 3);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o644);
    assert_eq!(names(place.path()), ["run.json"]);
}

#[test]
fn never_half_of_one() {
    // While the command runs the old record is there, whole; then the new one.
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("run.json");
    fs::write(&path, "old\n").unwrap();
    let outcome = at(&path, "cat \"$R\"; exit 0").env("R", &path).run();
    outcome.assert_status(0);
    assert_eq!(outcome.stdout, b"old\n");
    assert_eq!(read(&path)["exit_status"], 0);
}

#[test]
fn through_symlinks() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("there")).unwrap();
    let (target, link) = (place.path().join("there/run.json"), place.path().join("link"));
    symlink("there/run.json", &link).unwrap();
    symlink("link", place.path().join("second")).unwrap();
    for name in ["link", "second"] {
        // Dangling first, then to a file that is there.
        for _ in 0..2 {
            let outcome = at(&place.path().join(name), "exit 4").run();
            outcome.assert_status(4);
            assert_eq!(read(&target)["exit_status"], 4);
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        }
        fs::remove_file(&target).unwrap();
    }
    assert_eq!(names(place.path()), ["link", "second", "there"]);
    assert_eq!(names(&place.path().join("there")), [""; 0]);
}

#[test]
fn in_the_current_directory_and_below() {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("sub")).unwrap();
    for name in ["run.json", "./run.json", "sub/run.json", "sub/../run.json", "fd", "./fd:3"] {
        let outcome = Run::shell("cd \"$D\" && exec \"$C\" --json \"$N\" -- sh -c 'cd /; exit 3'")
            .env("D", place.path())
            .env("N", name)
            .run();
        outcome.assert_status(3);
        let path = place.path().join(name);
        assert_eq!(read(&path)["exit_status"], 3);
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_name_that_is_almost_too_long() {
    // A temporary name made by appending would not fit.
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("n".repeat(255));
    let outcome = at(&path, "exit 3").run();
    outcome.assert_status(3);
    assert_eq!(read(&path)["exit_status"], 3);
    let outcome = at(&place.path().join("n".repeat(256)), "exit 3").run();
    assert_refused(&outcome);
}

#[test]
fn where_no_record_can_be() {
    let place = tempfile::tempdir().unwrap();
    let trace = place.path().join("started");
    let fifo = place.path().join("fifo");
    Run::argv(["mkfifo", fifo.to_str().unwrap()]).run().assert_status(0);
    symlink("loop", place.path().join("loop")).unwrap();
    fs::write(place.path().join("file"), "").unwrap();
    let before = names(place.path());
    for path in [
        place.path().join("none/run.json"),
        place.path().to_owned(),
        place.path().join("file/run.json"),
        place.path().join("loop"),
        fifo,
        "".into(),
    ] {
        let outcome = at(&path, "touch \"$T\"").env("T", &trace).run();
        let line = assert_refused(&outcome);
        assert!(line.contains("--json") || line.contains("record"), "{line}");
        assert_eq!(names(place.path()), before, "{}", path.display());
    }
    for value in ["fd:99", "fd:", "fd:x", "fd:-1", "fd:99999999999999999999"] {
        let outcome = Run::corral(&["--json", value])
            .no_record()
            .command(["touch", trace.to_str().unwrap()])
            .run();
        assert_refused(&outcome);
    }
    // A descriptor that can only be read.
    let outcome =
        Run::shell("exec \"$C\" --json fd:7 -- touch \"$T\" 7</dev/null").env("T", &trace).run();
    assert_refused(&outcome);
    assert!(!trace.exists());
}

#[test]
fn where_this_user_may_not_write() {
    if !root_or_skip() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let outcome = at(&place.path().join("run.json"), "exit 0").uid(NOBODY).run();
    // The run's own directory holds the copy of corral, so not `assert_refused`.
    outcome.assert_status(125);
    assert!(only_line(&outcome).contains("EACCES"), "{outcome:#?}");
    assert_eq!(names(place.path()), [""; 0]);
    // A file of theirs in a directory that is not: in place.
    let path = place.path().join("theirs.json");
    fs::write(&path, "x".repeat(50_000)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let outcome = at(&path, "exit 3").uid(NOBODY).run();
    outcome.assert_status(3);
    assert_eq!(read(&path)["exit_status"], 3);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o666);
    // One that may not be written at all.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    let outcome = at(&path, "exit 3").uid(NOBODY).run();
    outcome.assert_status(125);
}

#[test]
fn a_file_that_is_mounted() {
    if !root_or_skip() || !have(&["unshare", "mount"]) {
        return;
    }
    // As a container gets one: rename onto it is EBUSY, so it is written in place.
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("source"), "x".repeat(30_000)).unwrap();
    fs::write(place.path().join("run.json"), "").unwrap();
    let text = "mount --make-rprivate / && mount --bind \"$D/source\" \"$D/run.json\" || exit 77; \
                \"$C\" --json \"$D/run.json\" -- sh -c 'exit 5'";
    let outcome = Run::argv(["unshare", "-m", "sh", "-c", text]).env("D", place.path()).run();
    outcome.assert_status(5);
    assert_eq!(read(&place.path().join("source"))["exit_status"], 5);
    assert_eq!(names(place.path()), ["run.json", "source"]);
}

#[test]
fn a_directory_that_cannot_take_a_new_file() {
    if !root_or_skip() || !have(&["unshare", "mount"]) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("run.json"), "x".repeat(30_000)).unwrap();
    let text = "mount --make-rprivate / && mount -t tmpfs -o size=4k,nr_inodes=2 none \"$D\" && \
                echo x >\"$D/run.json\" || exit 77; \
                \"$C\" --json \"$D/run.json\" -- sh -c 'exit 5'; s=$?; cat \"$D/run.json\"; exit $s";
    let outcome = Run::argv(["unshare", "-m", "sh", "-c", text]).env("D", place.path()).run();
    // In place, or said; never half of it.
    outcome.assert_status(5);
    if outcome.stdout == b"x\n" {
        assert!(only_line(&outcome).contains("ENOSPC"), "{outcome:#?}");
    } else {
        let record: serde_json::Value =
            serde_json::from_slice(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {outcome:#?}"));
        assert_eq!(record["exit_status"], 5);
    }
}

#[test]
fn a_disk_that_fills_up() {
    if !root_or_skip() || !have(&["unshare", "mount"]) {
        return;
    }
    // One page for everything, and the command takes it.
    let place = tempfile::tempdir().unwrap();
    for (status, seen) in [(0, 118), (3, 3)] {
        let text = format!(
            "mount --make-rprivate / && mount -t tmpfs -o size=4k none \"$D\" || exit 77; \
             \"$C\" --json \"$D/run.json\" -- \
             sh -c 'cat /dev/zero >\"$D/filler\" 2>/dev/null; exit {status}'"
        );
        let outcome = Run::argv(["unshare", "-m", "sh", "-c", &text]).env("D", place.path()).run();
        outcome.assert_status(seen);
        assert!(outcome.stderr.contains("corral: "), "{outcome:#?}");
    }
}

#[test]
fn devices_are_written_directly() {
    if !root_or_skip() {
        return;
    }
    // Nodes of our own: a rename onto the system's would be a disaster.
    let place = tempfile::tempdir().unwrap();
    let node = |name: &str, minor| {
        let path = place.path().join(name);
        let kind = rustix::fs::FileType::CharacterDevice;
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        let device = rustix::fs::makedev(1, minor);
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, device).unwrap();
        path
    };
    let (null, full) = (node("null", 3), node("full", 7));
    let outcome = at(&null, "exit 0").run();
    outcome.assert_status(0);
    for (command, status) in [("exit 0", 118), ("exit 3", 3), ("setsid sleep 30 & exit 0", 118)] {
        let outcome = at(&full, command).run();
        outcome.assert_status(status);
        outcome.assert_nothing_left();
        assert!(
            outcome.stderr.contains("record") || outcome.stderr.contains("--json"),
            "{outcome:#?}"
        );
    }
    for path in [&null, &full] {
        let kind = fs::symlink_metadata(path).unwrap().file_type();
        assert!(std::os::unix::fs::FileTypeExt::is_char_device(&kind));
    }
    assert_eq!(names(place.path()), ["full", "null"]);
}

#[test]
fn a_fifo_with_a_reader() {
    let place = tempfile::tempdir().unwrap();
    let text = "mkfifo \"$D/f\"; cat \"$D/f\" >\"$D/got\" & r=$!; \
                until \"$C\" --json \"$D/f\" -- sh -c 'exit 4'; s=$?; [ $s != 125 ]; do :; done; \
                wait $r; exit $s";
    let outcome = Run::shell(text).env("D", place.path()).run();
    outcome.assert_status(4);
    assert_eq!(read(&place.path().join("got"))["exit_status"], 4);
}

#[test]
fn a_fifo_whose_reader_never_reads() {
    if !have(&[PYTHON]) {
        return;
    }
    // Open for reading, already full: no write into it may hold corral up.
    let place = tempfile::tempdir().unwrap();
    let text = "
import fcntl, os, subprocess, sys
os.mkfifo(sys.argv[2])
r = os.open(sys.argv[2], os.O_RDONLY | os.O_NONBLOCK)
w = os.open(sys.argv[2], os.O_WRONLY | os.O_NONBLOCK)
try:
    while True: os.write(w, b'x' * 4096)
except BlockingIOError: pass
sys.exit(subprocess.call([sys.argv[1], '--json', sys.argv[2], '--', 'sh', '-c', 'setsid sleep 30 & exit 0']))";
    let outcome =
        Run::argv([PYTHON, "-c", text]).args([&common::corral(), &place.path().join("fifo")]).run();
    outcome.assert_nothing_left();
    outcome.assert_status(118);
    assert!(outcome.elapsed < Duration::from_secs(30));
}

#[test]
fn the_standard_streams() {
    for name in ["/dev/stdout", "/proc/self/fd/1"] {
        let outcome = Run::corral(&["--json", name])
            .no_record()
            .command(["sh", "-c", "echo out; exit 3"])
            .run();
        outcome.assert_status(3);
        let text = String::from_utf8(outcome.stdout).unwrap();
        let (out, record) = text.split_once('\n').unwrap();
        assert_eq!(out, "out");
        let record: serde_json::Value = serde_json::from_str(record).unwrap();
        assert_eq!(record["exit_status"], 3);
    }
    // A file behind it is not replaced, nor what is in it.
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("log");
    let outcome = Run::shell("exec >\"$P\"; echo before; \"$C\" --json /dev/stdout -- echo out")
        .env("P", &path)
        .run();
    outcome.assert_status(0);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("before\nout\n{"), "{text:?}");
    assert!(text.ends_with("}\n"), "{text:?}");
}

#[test]
fn descriptors() {
    let place = tempfile::tempdir().unwrap();
    for (redirection, n) in [("9>\"$P\"", 9), ("3>>\"$P\"", 3), ("9<>\"$P\"", 9)] {
        let path = place.path().join("record");
        let text = format!("exec \"$C\" --json fd:{n} --close-fds -- sh -c 'exit 3' {redirection}");
        let outcome = Run::shell(&text).env("P", &path).run();
        outcome.assert_status(3);
        assert_eq!(read(&path)["exit_status"], 3);
        fs::remove_file(path).unwrap();
    }
    // A pipe.
    let text = "{ \"$C\" --json fd:5 -- sh -c 'exit 3' 5>&1 >/dev/null; } | cat";
    let outcome = Run::shell(text).run();
    let record: serde_json::Value = serde_json::from_slice(&outcome.stdout).unwrap();
    assert_eq!(record["exit_status"], 3);
}

/// The times and resources of one run against what is known of it.
#[track_caller]
fn plausible(outcome: &Outcome) {
    assert_record(outcome, "exited", 0);
    let returned = number(outcome, "/steps_us/returned");
    assert!(u128::from(returned) <= outcome.elapsed.as_micros() + 1000);
    let ended = number(outcome, "/steps_us/command_ended");
    assert!((300_000..=returned).contains(&ended), "{ended}");
}

#[test]
fn times_and_resources() {
    let outcome = Run::corral(&[]).command(["sh", "-c", "sleep 0.3; true; (true); exit 0"]).run();
    outcome.assert_status(0);
    plausible(&outcome);
    let outcome = Run::corral(&[])
        .command([
            "sh",
            "-c",
            "t=$(($(date +%s%N) + 300000000)); while [ $(date +%s%N) -lt $t ]; do :; done; \
             (setsid sleep 0.01 & wait)",
        ])
        .run();
    plausible(&outcome);
    let cpu = number(&outcome, "/usage/cpu_user_us") + number(&outcome, "/usage/cpu_system_us");
    assert!(cpu >= 20_000, "{cpu} µs for 300 ms of work: {outcome:#?}");
    assert!(number(&outcome, "/usage/max_rss_bytes") > 100 << 10);
    assert!(number(&outcome, "/usage/processes_reaped") >= 1);
}

#[test]
fn orphans_are_reaped_and_counted() {
    let text = "i=0; while [ $i -lt 10 ]; do (true &); i=$((i+1)); done; \
                until [ \"$(cat /proc/$PPID/task/$PPID/children)\" = \"$$ \" ]; do sleep 0.01; done; \
                exit 0";
    let outcome = Run::corral(&["--wall=20s"]).command(["sh", "-c", text]).run();
    outcome.assert_status(0);
    assert_eq!(number(&outcome, "/usage/processes_reaped"), 11, "{outcome:#?}");
}

#[test]
fn whose_run_it_was() {
    let outcome = Run::corral(&[]).command(["true"]).run();
    let parent = u64::from(std::process::id());
    assert_eq!(number(&outcome, "/parent_pid"), parent);
    assert_eq!(number(&outcome, "/uid"), u64::from(rustix::process::getuid().as_raw()));
    if !root_or_skip() {
        return;
    }
    let outcome = Run::corral(&[]).command(["true"]).uid(NOBODY).run();
    assert_eq!(number(&outcome, "/uid"), u64::from(NOBODY));
}

#[test]
fn raised_privileges_are_refused() {
    if !root_or_skip() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let raised = place.path().join("corral");
    common::install(&common::corral(), &raised, 0o4755);
    let outcome = Run::argv([raised.to_str().unwrap(), "--", "true"]).uid(NOBODY).run();
    outcome.assert_status(125);
    let line = only_line(&outcome);
    assert!(line.contains("setuid"), "{line}");
}
