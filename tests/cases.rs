//! What becomes of what a command leaves behind when it exits?
//!
//! Each test is a kind of leftover that somebody's runner has hung on, missed,
//! or killed without a word: holders of the output, daemons in sessions of
//! their own, helpers without a trace in their environment. The command's own
//! status and output must come through untouched, nothing may be alive at the
//! return, and what was stopped must be named.

mod common;
mod kit;

use std::time::Duration;

use common::{Run, install};
use kit::{PYTHON, assert_record, have, listed, number, only_line, printed_pid, script};

/// Far less than any leftover would live by itself.
const SOON: Duration = Duration::from_secs(15);

#[test]
fn nothing_left_and_nothing_said() {
    let outcome = script(&[], "echo out; exit 0").run();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    assert_eq!((outcome.stdout.as_slice(), outcome.stderr.as_str()), (&b"out\n"[..], ""));
    assert_record(&outcome, "exited", 0);
    assert_eq!(outcome.record("/command_status/code"), 0);
    assert_eq!(outcome.record("/escalated"), false);
    assert_eq!(number(&outcome, "/leftovers_total"), 0);
    assert!(outcome.record("/steps_us/first_signal").is_null());
    assert!(outcome.record("/steps_us/command_ended").is_u64());
    assert!(outcome.record("/steps_us/executed").is_u64());
}

#[test]
fn a_background_child_holds_the_output() {
    for options in [&[][..], &["--max-output", "1M"]] {
        let outcome = script(options, "sleep 30 & echo holder $!; echo done").run();
        outcome.assert_status(0);
        outcome.assert_nothing_left();
        assert!(outcome.elapsed < SOON, "{outcome:#?}");
        assert!(outcome.stdout.ends_with(b"done\n"), "{outcome:#?}");
        assert_record(&outcome, "exited", 0);
        assert_eq!(number(&outcome, "/leftovers_total"), 1);
        let pid = printed_pid(&outcome.stdout, "holder");
        let holder = listed(&outcome, "leftovers", pid);
        assert_eq!(holder["name"], "sleep");
        assert_eq!(holder["argv0"], "sleep");
        assert_eq!(holder["detached"], "no");
        assert_eq!(holder["uid"], rustix::process::getuid().as_raw());
        let line = only_line(&outcome);
        assert!(line.contains("sleep") && line.contains(&pid.to_string()), "{line}");
    }
}

#[test]
fn a_writer_that_never_stops() {
    let text = "(while :; do echo noise; done) & (while :; do echo noise >&2; done) & \
                echo foreground; exit 4";
    for options in [&[][..], &["--max-output", "1G"]] {
        let outcome = script(options, text).keep(1 << 16).run();
        outcome.assert_status(4);
        outcome.assert_nothing_left();
        assert!(outcome.elapsed < SOON, "{outcome:#?}");
        assert_record(&outcome, "exited", 4);
        assert_eq!(number(&outcome, "/leftovers_total"), 2);
    }
}

#[test]
fn the_foreground_line_comes_through_the_noise() {
    let text = "(while :; do echo noise; sleep 0.01; done) & sleep 0.1; echo foreground";
    let outcome = script(&["--max-output", "100M"], text).run();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    assert!(text.lines().any(|line| line == "foreground"), "{text}");
}

#[test]
fn a_helper_that_ignores_everything() {
    let text = "(trap '' HUP INT TERM; exec sleep 30) & \
                until grep -q '^SigIgn:.*400[37]$' /proc/$!/status; do :; done; echo main";
    let outcome = script(&["--grace", "300ms"], text).run();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    assert!(outcome.elapsed < SOON);
    assert_eq!(outcome.stdout, b"main\n");
    assert_record(&outcome, "exited", 0);
}

#[test]
fn a_detached_master_keeps_stderr_alone() {
    let text = "setsid sh -c 'exec <&- >&-; exec sleep 30' & echo pushed";
    let outcome = script(&[], text).run();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    assert!(outcome.elapsed < SOON);
    assert_eq!(outcome.stdout, b"pushed\n");
    assert_eq!(number(&outcome, "/leftovers_total"), 1);
}

#[test]
fn a_failure_stays_a_failure() {
    for (text, status) in [
        ("sleep 30 & echo broken >&2; exit 7", 7),
        ("sleep 30 & echo broken >&2; kill -ABRT $$", 128 + 6),
        ("setsid sleep 30 & echo broken >&2; exit 255", 255),
    ] {
        for leftovers in ["stop", "fail"] {
            let outcome = script(&["--leftovers", leftovers], text).run();
            outcome.assert_status(status);
            outcome.assert_nothing_left();
            assert!(outcome.stderr.starts_with("broken\n"), "{outcome:#?}");
            assert_record(&outcome, "exited", u64::try_from(status).unwrap());
            assert_eq!(number(&outcome, "/leftovers_total"), 1);
        }
    }
}

#[test]
fn no_leftover_is_made_up_under_load() {
    // Two burners and the sibling tests; decided by processes, never by time.
    let burn = || Run::argv(["sh", "-c", "echo ready; while :; do :; done"]).start();
    let mut burners = [burn(), burn()];
    burners.iter_mut().for_each(common::Running::ready);
    for _ in 0..20 {
        let outcome = script(&[], "head -c 200000 /dev/zero | cat; true & true & exit 0").run();
        outcome.assert_status(0);
        outcome.assert_nothing_left();
        assert_eq!(outcome.stdout_bytes, 200_000);
        assert_eq!(number(&outcome, "/leftovers_total"), 0, "{outcome:#?}");
        assert_eq!(outcome.stderr, "");
    }
}

#[test]
fn a_daemon_by_the_book() {
    if !have(&[PYTHON]) {
        return;
    }
    // Twice forked, in a session of its own, all descriptors and the directory
    // given up: only its ancestry tells whose it is.
    let daemon = r#"
import os, time, sys
if os.fork() == 0:
    os.setsid()
    if os.fork(): os._exit(0)
    os.chdir("/"); os.umask(0)
    sys.stdout.write("daemon %d\n" % os.getpid()); sys.stdout.flush()
    os.closerange(0, 256)
    time.sleep(30)
os.wait()
while open("/proc/self/task/%d/children" % os.getpid()).read(): time.sleep(.01)
"#;
    let text = format!("{PYTHON} -c '{daemon}'; sleep 0.2; echo started");
    let outcome = script(&[], &text).run();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    assert!(outcome.elapsed < SOON);
    let pid = printed_pid(&outcome.stdout, "daemon");
    let daemon = listed(&outcome, "leftovers", pid);
    assert_eq!(daemon["detached"], "session");
    assert_eq!(daemon["argv0"], PYTHON);
    assert_eq!(number(&outcome, "/leftovers_total"), 1);
    assert!(only_line(&outcome).contains(&pid.to_string()));
}

#[test]
fn a_group_of_its_own_and_a_session_of_its_own() {
    if !have(&["bash"]) {
        return;
    }
    let text = "set -m; sleep 30 & echo group $!; set +m; \
                setsid sleep 31 & until [ \"$(ps -o sid= -p $! | tr -d ' ')\" = $! ]; do :; done; \
                echo session $!; sleep 32 & echo none $!";
    let outcome = Run::corral(&[]).command(["bash", "-c", text]).run();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    for (name, detached) in [("group", "group"), ("session", "session"), ("none", "no")] {
        let pid = printed_pid(&outcome.stdout, name);
        let process = listed(&outcome, "leftovers", pid);
        assert_eq!(process["detached"], detached, "{name}: {outcome:#?}");
    }
}

#[test]
fn no_mark_in_the_environment() {
    let text = "i=0; while [ $i -lt 8 ]; do \
                env -i \"$(command -v setsid)\" /bin/sh -c '/bin/sleep 30 & exit 0' \
                </dev/null >/dev/null 2>&1; i=$((i+1)); done; echo started";
    let outcome = script(&[], text).run();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    assert_eq!(number(&outcome, "/leftovers_total"), 8);
    assert_eq!(outcome.stdout, b"started\n");
}

#[test]
fn a_build_server_is_named() {
    let place = tempfile::tempdir().unwrap();
    let server = place.path().join("compile-server-daemon");
    install(&kit::find("sleep").unwrap(), &server, 0o755);
    let text = "setsid \"$1\" 30 </dev/null >/dev/null 2>&1 & \
                until read name </proc/$!/comm && [ \"$name\" = compile-server- ]; do :; done; \
                echo server $!";
    let outcome = script(&[], text).args(["sh", server.to_str().unwrap()]).run();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    let pid = printed_pid(&outcome.stdout, "server");
    let process = listed(&outcome, "leftovers", pid);
    // The kernel keeps 15 bytes of a name; the path says the rest.
    assert_eq!(process["name"], "compile-server-");
    let argv0 = process["argv0"].as_str().unwrap();
    assert!(!argv0.is_empty() && server.to_str().unwrap().starts_with(argv0));
    let line = only_line(&outcome);
    assert!(line.contains("compile-server-") && line.contains(&pid.to_string()), "{line}");
}

#[test]
fn a_name_made_to_confuse() {
    if !have(&[PYTHON]) {
        return;
    }
    // A name may hold anything but NUL: a parenthesis and blanks, a newline,
    // an escape sequence, bytes that are not UTF-8.
    for (name, written) in [
        (r"x) Z 1 (y", "x) Z 1 (y"),
        (r"two\nlines", "two\nlines"),
        (r"\x1b[31mred\x07", "\u{1b}[31mred\u{7}"),
        (r"bad\xff\xfe", "bad\u{fffd}\u{fffd}"),
        (r#"quote\"back\\"#, "quote\"back\\"),
    ] {
        let text = format!(
            "import ctypes, os, time\n\
             if os.fork(): os._exit(0)\n\
             ctypes.CDLL(None).prctl(15, b\"{name}\", 0, 0, 0)\n\
             os.write(1, b\"named %d\\n\" % os.getpid())\n\
             time.sleep(30)"
        );
        // The shell waits for the line, so that the name is set at its exit.
        let waits = format!("{PYTHON} -c '{text}' | {{ read -r line; echo \"$line\"; }}");
        let outcome = script(&[], &waits).run();
        outcome.assert_status(0);
        outcome.assert_nothing_left();
        let pid = printed_pid(&outcome.stdout, "named");
        assert_eq!(listed(&outcome, "leftovers", pid)["name"], written, "{outcome:#?}");
        only_line(&outcome);
    }
}

#[test]
fn more_leftovers_than_are_listed() {
    let text = "i=0; while [ $i -lt 70 ]; do sleep 30 & i=$((i+1)); done; exit 0";
    let outcome = script(&[], text).run();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    assert_record(&outcome, "exited", 0);
    assert_eq!(number(&outcome, "/leftovers_total"), 70);
    assert_eq!(outcome.record("/leftovers").as_array().unwrap().len(), 64);
    assert!(only_line(&outcome).contains("70"), "{outcome:#?}");
}

#[test]
fn a_daemon_that_was_there_before_lives_on() {
    // Somebody else's server starts a job at the command's request: it is no
    // descendant, so it is neither stopped nor counted.
    let place = tempfile::tempdir().unwrap();
    let request = place.path().join("request");
    let made = Run::argv(["mkfifo", request.to_str().unwrap()]).run();
    made.assert_status(0);
    let mut server =
        Run::shell("read x <\"$R\"; sleep 25 & echo job $!; wait").env("R", &request).start();
    let outcome = script(&[], "echo go >\"$R\"; echo asked").env("R", &request).run();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    assert_eq!(number(&outcome, "/leftovers_total"), 0);
    let job = kit::wait_pid(&mut server, "job");
    assert!(common::Survivor::read(job).is_some(), "the job was killed");
}

#[test]
fn zombies_of_a_parent_that_never_waits() {
    if !have(&[PYTHON]) {
        return;
    }
    let text = r#"
import os, time
r, w = os.pipe()
if os.fork():
    os.read(r, 1); os._exit(0)
os.setsid()
n = os.open("/dev/null", os.O_RDWR)
for i in (0, 1, 2): os.dup2(n, i)
pids = []
for i in range(25):
    pid = os.fork()
    if pid == 0: os._exit(0)
    pids.append(pid)
for pid in pids:
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
os.write(w, b"x")
time.sleep(30)
"#;
    let outcome = Run::corral(&[]).command([PYTHON, "-c", text]).run();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    assert!(outcome.elapsed < SOON);
    assert_record(&outcome, "exited", 0);
    // The dead are not left over: one process was alive.
    assert_eq!(number(&outcome, "/leftovers_total"), 1, "{outcome:#?}");
}

#[test]
fn the_first_thread_is_gone_and_another_runs() {
    if !have(&[PYTHON]) {
        return;
    }
    let text = r#"
import ctypes, os, threading, time
r, w = os.pipe()
if os.fork():
    os.read(r, 1); os._exit(0)
os.setsid()
main = os.getpid()
def run():
    while not open("/proc/%d/stat" % main).read().rsplit(")", 1)[1].startswith(" Z"): time.sleep(.01)
    os.write(w, b"x")
    time.sleep(30)
threading.Thread(target=run).start()
ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)
"#;
    let outcome = Run::corral(&["--grace", "300ms"]).command([PYTHON, "-c", text]).run();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    assert!(outcome.elapsed < SOON);
    assert_eq!(number(&outcome, "/leftovers_total"), 1, "{outcome:#?}");
}

#[test]
fn a_command_whose_first_thread_is_gone_is_not_over() {
    if !have(&[PYTHON]) {
        return;
    }
    let text = r#"
import ctypes, os, threading, time
main = os.getpid()
def run():
    while not open("/proc/%d/stat" % main).read().rsplit(")", 1)[1].startswith(" Z"): time.sleep(.01)
    time.sleep(.2); os.write(1, b"last words\n"); os._exit(6)
threading.Thread(target=run).start()
ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)
"#;
    let outcome = Run::corral(&[]).command([PYTHON, "-c", text]).run();
    outcome.assert_status(6);
    outcome.assert_nothing_left();
    assert_eq!(outcome.stdout, b"last words\n");
    assert_eq!(number(&outcome, "/leftovers_total"), 0);
}

#[test]
fn a_stopped_leftover() {
    let text = "sleep 30 & kill -STOP $!; setsid sh -c 'kill -STOP $$; sleep 30' & \
                until grep -q '^State:.T' /proc/$!/status; do :; done; exit 3";
    let outcome = script(&[], text).run();
    outcome.assert_status(3);
    outcome.assert_nothing_left();
    assert!(outcome.elapsed < SOON);
    assert_eq!(number(&outcome, "/leftovers_total"), 2);
}

#[test]
fn lingering_ends_by_itself() {
    // What ends within the linger was never in the way.
    let text = "(sleep 0.3; echo late) & exit 5";
    let outcome = script(&["--linger", "20s"], text).run();
    outcome.assert_status(5);
    outcome.assert_nothing_left();
    assert!(outcome.elapsed < SOON, "the linger is no fixed wait");
    assert_eq!(outcome.stdout, b"late\n");
    assert_eq!(outcome.stderr, "");
    assert_eq!(number(&outcome, "/leftovers_total"), 0);
}

#[test]
fn no_linger_at_all() {
    let outcome = script(&["--linger", "0"], "sleep 30 & exit 0").run();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    assert_eq!(number(&outcome, "/leftovers_total"), 1);
}

#[test]
fn leftovers_can_fail_the_run_or_be_waited_for() {
    let outcome = script(&["--leftovers", "fail"], "sleep 30 & exit 0").run();
    outcome.assert_status(119);
    outcome.assert_nothing_left();
    assert_record(&outcome, "exited", 119);
    assert_eq!(outcome.record("/command_status/code"), 0);
    assert!(only_line(&outcome).contains("sleep"));

    let outcome = script(&["--leftovers", "fail"], "exit 0").run();
    outcome.assert_status(0);

    let text = "(sleep 0.4; echo worked) & exit 0";
    let outcome = script(&["--leftovers=wait"], text).run();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    assert_eq!(outcome.stdout, b"worked\n");
    assert_record(&outcome, "exited", 0);
    assert_eq!(outcome.record("/escalated"), false);

    // A limit that is reached meanwhile is the cause.
    let outcome =
        script(&["--leftovers=wait", "--wall=600ms"], "sleep 30 & setsid sleep 30 & exit 0").run();
    outcome.assert_status(124);
    outcome.assert_nothing_left();
    assert_record(&outcome, "wall", 124);
    assert_eq!(outcome.record("/command_status/code"), 0);
}

#[test]
fn the_wall_limit_holds_while_lingering() {
    let outcome = script(&["--linger=40s", "--wall=500ms"], "sleep 30 & exit 2").run();
    outcome.assert_nothing_left();
    assert!(outcome.elapsed < SOON, "{outcome:#?}");
}
