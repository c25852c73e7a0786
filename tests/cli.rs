//! Does each option do, end to end, what the contract says?
//!
//! And is a misuse refused before anything happens: status 125, one line that
//! names the option, the value and what it accepts, no process and no file.
//! (How a line is parsed in every detail is tested beside the parser.)

mod common;
mod kit;

use std::time::Duration;

use common::{Run, Stdin};
use kit::{LOGGER, PYTHON, assert_record, assert_refused, have, logger, number, only_line, script};

const SOON: Duration = Duration::from_secs(15);

/// Runs what must be refused; the line must hold these words.
#[track_caller]
fn refused(options: &[&str], words: &[&str]) {
    let place = tempfile::tempdir().unwrap();
    let trace = place.path().join("started");
    let outcome = Run::corral(options).command(["touch", trace.to_str().unwrap()]).run();
    let line = assert_refused(&outcome);
    for word in words {
        assert!(line.contains(word), "{options:?}: no {word:?} in {line:?}");
    }
    assert!(!trace.exists(), "{options:?} was run");
}

#[test]
fn help_and_version() {
    let help = Run::corral(&["--help"]).no_record().run();
    help.assert_status(0);
    assert_eq!(help.stderr, "");
    let text = String::from_utf8(help.stdout).unwrap();
    for option in [
        "wall",
        "max-output",
        "output-limit",
        "mem",
        "pids",
        "signal",
        "signal-scope",
        "grace",
        "prove",
        "linger",
        "leftovers",
        "cgroup-mode",
        "cgroup-parent",
        "pid-namespace",
        "no-new-privs",
        "close-fds",
        "at-exit",
        "json",
        "run-id",
        "label",
        "redact-argv",
        "quiet",
        "help",
        "version",
    ] {
        assert!(text.contains(&format!("--{option}")), "no --{option}: {text}");
    }
    for status in ["118", "119", "120", "121", "124", "125", "126", "127", "128"] {
        assert!(text.contains(status), "no {status}: {text}");
    }
    let version = Run::corral(&["--version"]).no_record().run();
    version.assert_status(0);
    assert_eq!(version.stderr, "");
    let text = String::from_utf8(version.stdout).unwrap();
    assert_eq!(text, format!("corral {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn unknown_options() {
    refused(&["--wal", "5s"], &["--wal", "--wall"]);
    refused(&["--max-ouput=5K"], &["--max-ouput", "--max-output"]);
    refused(&["--leftover", "fail"], &["--leftover", "--leftovers"]);
    refused(&["--frobnicate"], &["--frobnicate"]);
    refused(&["-x"], &["-x"]);
    refused(&["--Wall=5s"], &["--Wall"]);
    refused(&["--\u{1b}[31m"], &["--"]);
}

#[test]
fn options_given_twice() {
    refused(&["--wall=1s", "--wall", "2s"], &["--wall"]);
    refused(&["--wall=1s", "--wall=1s"], &["--wall"]);
    refused(&["--quiet", "--quiet"], &["--quiet"]);
    refused(&["--close-fds", "--wall=1s", "--close-fds"], &["--close-fds"]);
    refused(&["--json", "/dev/null"], &["--json"]);
}

#[test]
fn values_that_are_missing_or_too_many() {
    for options in [&["--wall"][..], &["--json"], &["--label"]] {
        let outcome = Run::corral(options).no_record().run();
        assert!(assert_refused(&outcome).contains(options[0]), "{outcome:#?}");
    }
    refused(&["--quiet=yes"], &["--quiet"]);
    refused(&["--close-fds="], &["--close-fds"]);
    refused(&["--wall="], &["--wall"]);
}

#[test]
fn no_command() {
    for options in [&[][..], &["--"], &["--wall", "5s"], &["--wall=5s", "--"]] {
        let outcome = Run::corral(options).no_record().run();
        assert_refused(&outcome);
    }
}

#[test]
fn bad_durations() {
    for value in [
        "5", "1.5", "-1s", "nan", "NaN", "inf", "1x", "1ss", "1s2", "s", "1 s", " 1s", "1s ",
        "1s,", "0x1s", "1e3s", "1,5s", "1..5s", "--", "١s",
    ] {
        refused(&[&format!("--wall={value}")], &["--wall", value]);
    }
    // Any other bare number suggests its unit.
    refused(&["--wall=5"], &["5s"]);
    refused(&["--grace", "10"], &["--grace", "10s"]);
    // Zero for a limit would end every run at once.
    for value in ["0", "0s", "0ms", "0.0s", "0d"] {
        refused(&["--wall", value], &["--wall", value]);
    }
    for option in ["--grace", "--linger", "--prove"] {
        refused(&[option, "-1s"], &[option, "-1s"]);
        refused(&[option, "soon"], &[option, "soon"]);
    }
}

#[test]
fn bad_sizes() {
    for value in
        ["-1", "1T", "1KB", "K", "1 K", "nan", "0x10", "1e3", "+", "1K+", "+1K", "1K+2K+3K"]
    {
        refused(&[&format!("--max-output={value}")], &["--max-output", value]);
    }
    for value in ["0", "0K", "-1", "5T", "1K+1K", "lots"] {
        refused(&[&format!("--output-limit={value}")], &["--output-limit", value]);
    }
}

#[test]
fn bad_words() {
    refused(&["--signal=FOO"], &["--signal", "FOO"]);
    refused(&["--signal="], &["--signal"]);
    refused(&["--signal=TERM,"], &["--signal"]);
    refused(&["--signal=0"], &["--signal", "0"]);
    refused(&["--signal=65"], &["--signal", "65"]);
    refused(&["--signal=INT:1s,HUP:1s,TERM:1s,USR1:1s,USR2"], &["--signal"]);
    refused(&["--signal=INT:5,TERM"], &["--signal", "5s"]);
    refused(&["--signal-scope=all"], &["--signal-scope", "all", "tree", "command"]);
    refused(&["--leftovers=kill"], &["--leftovers", "kill", "stop", "fail", "wait"]);
    refused(&["--cgroup-mode=on"], &["--cgroup-mode", "on", "auto", "enforced", "fallback"]);
    for id in ["", "a/b", "a b", "ä"] {
        refused(&[&format!("--run-id={id}")], &["--run-id", id]);
    }
    refused(&[&format!("--run-id={}", "x".repeat(65))], &["--run-id", "xxxxx"]);
    refused(&["--label=novalue"], &["--label", "novalue"]);
    refused(&["--label==v"], &["--label"]);
    let labels: Vec<String> = (0..17).map(|n| format!("--label=k{n}=v")).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    refused(&labels, &["--label"]);
}

#[test]
fn what_needs_a_cgroup_is_refused_without_one() {
    let fallback = "--cgroup-mode=fallback";
    refused(&["--mem", "64M", fallback], &["--mem", fallback]);
    refused(&["--pids", "10", fallback], &["--pids", fallback]);
    refused(&["--cgroup-parent=/sys/fs/cgroup", fallback], &["--cgroup-parent", fallback]);
    refused(&["--cgroup-parent=/"], &["cgroup in /:", "EINVAL"]);
    refused(&["--cgroup-parent=/nowhere/at/all"], &["cgroup in /nowhere/at/all:", "ENOENT"]);
}

#[test]
fn a_misuse_is_said_even_when_quiet() {
    refused(&["--quiet", "--wall=x"], &["--wall"]);
}

#[test]
fn where_options_end() {
    let outcome = Run::corral(&["--wall", "20s"])
        .no_record()
        .args(["sh", "-c", "echo \"$@\"", "sh", "--wall", "1x", "--", "-z"])
        .run();
    outcome.assert_status(0);
    assert_eq!(outcome.stdout, b"--wall 1x -- -z\n");
    // Behind `--` even a word that looks like an option is the command.
    let outcome = Run::corral(&[]).command(["--help"]).run();
    outcome.assert_status(127);
    assert_eq!(outcome.record("/cause"), "exec");
    // Only the first one is corral's.
    let outcome = Run::corral(&[]).command(["echo", "--", "x"]).run();
    assert_eq!(outcome.stdout, b"-- x\n");
    // The two forms are the same; a value may begin with a dash or hold `=`.
    let outcome = script(&["--label", "k=a=b", "--label=-x=-y"], "exit 0").run();
    outcome.assert_status(0);
    let labels = outcome.record("/labels").to_string();
    assert!(labels.contains("a=b") && labels.contains("-y"), "{labels}");
}

#[test]
fn durations_in_effect() {
    for value in ["0.4s", "400ms", "0.0001h", "00.40s"] {
        let outcome = script(&["--wall", value], "exec sleep 30").run();
        outcome.assert_status(124);
        assert!(number(&outcome, "/steps_us/cause_seen") >= 360_000);
        assert!(outcome.elapsed < SOON, "{value}: {outcome:#?}");
    }
    // Too large for the clock: no end rather than an early one.
    for value in [
        "99999999999999999999d",
        "584942417355d",
        "18446744073709551615s",
        "18446744073709551616ms",
        "18446744073.709551616s",
        "9223372036854775808s",
        "1d",
        "2h",
        "90m",
        "1.5h",
        "99999999999999999999999999999999999999999999h",
    ] {
        let outcome = script(&["--wall", value, "--grace", value], "exit 3").run();
        outcome.assert_status(3);
        assert_eq!(outcome.record("/cause"), "exited", "{value}");
    }
    for value in ["0", "0s", "0ms"] {
        let outcome = script(&["--grace", value, "--linger", value], "exit 3").run();
        outcome.assert_status(3);
    }
}

#[test]
fn the_limits_in_the_record() {
    let outcome =
        script(&["--wall=90s", "--grace=1500ms", "--output-limit=2K", "--linger=0"], "exit 0")
            .run();
    outcome.assert_status(0);
    assert_record(&outcome, "exited", 0);
    let limits = outcome.record("/limits").as_object().unwrap();
    let known = |part: &str| {
        limits
            .iter()
            .find(|(key, _)| key.replace('-', "_").starts_with(part))
            .unwrap_or_else(|| panic!("no {part} in {limits:?}"))
            .1
    };
    assert!(known("wall").is_number() && known("grace").is_number());
    assert_eq!(known("output_limit"), 2048);
    // Null is "no limit", not "left out".
    assert!(known("mem").is_null() && known("pids").is_null() && known("max_output").is_null());
}

/// Where a logger writes too: what it says behind an output limit may be left
/// out of the output. (The limit is set off by its `ready`, in a known state.)
fn log() -> tempfile::NamedTempFile {
    tempfile::NamedTempFile::new().unwrap()
}

fn read(log: &tempfile::NamedTempFile) -> String {
    std::fs::read_to_string(log.path()).unwrap()
}

#[test]
fn the_signals_and_their_waits() {
    if !have(&[PYTHON]) {
        return;
    }
    let log = log();
    let outcome =
        Run::corral(&["--output-limit=5", "--signal=INT:300ms,HUP:300ms,SIGUSR1", "--grace=300ms"])
            .command(logger(&[]))
            .env("LOG", log.path())
            .run();
    outcome.assert_status(121);
    outcome.assert_nothing_left();
    assert_eq!(read(&log), "ready\nSIGINT\nSIGHUP\nSIGUSR1\n");
    assert_eq!(outcome.record("/escalated"), true);
    let waited = number(&outcome, "/steps_us/killed") - number(&outcome, "/steps_us/first_signal");
    assert!(waited >= 900_000, "{waited} µs");

    // Whoever ends at one of them gets no further one.
    let log = self::log();
    let outcome =
        Run::corral(&["--output-limit=5", "--signal=INT:300ms,HUP:30s,TERM", "--grace=30s"])
            .command(logger(&["SIGHUP"]))
            .env("LOG", log.path())
            .run();
    outcome.assert_status(121);
    assert!(outcome.elapsed < SOON);
    assert_eq!(read(&log), "ready\nSIGINT\nSIGHUP\n");
    assert_eq!(outcome.record("/escalated"), false);
    assert_eq!(outcome.record("/command_status/code"), 7);
}

#[test]
fn a_signal_by_name_or_number() {
    if !have(&[PYTHON]) {
        return;
    }
    for (name, seen) in [("QUIT", "SIGQUIT"), ("SIGUSR2", "SIGUSR2"), ("10", "SIGUSR1")] {
        let log = log();
        let outcome = Run::corral(&["--output-limit=5", "--signal", name, "--grace=20s"])
            .command(logger(&[seen]))
            .env("LOG", log.path())
            .run();
        outcome.assert_status(121);
        assert_eq!(read(&log), format!("ready\n{seen}\n"));
    }
}

#[test]
fn whom_the_first_signals_reach() {
    if !have(&[PYTHON]) {
        return;
    }
    // The command's child writes down what it gets; the command exits on TERM.
    let text = "trap 'exit 4' TERM; \"$P\" -c \"$L\" & wait; sleep 30";
    for (scope, seen) in [("tree", "ready\nSIGTERM\n"), ("command", "ready\n")] {
        let log = log();
        let outcome = script(&["--output-limit=5", "--grace=400ms", "--signal-scope", scope], text)
            .env("P", PYTHON)
            .env("L", LOGGER)
            .env("LOG", log.path())
            .run();
        outcome.assert_status(121);
        outcome.assert_nothing_left();
        assert_eq!(read(&log), seen, "{scope}");
        assert_eq!(outcome.record("/command_status/code"), 4);
        assert_eq!(outcome.record("/escalated"), true);
    }
}

#[test]
fn nobody_gets_a_signal_twice() {
    if !have(&[PYTHON]) {
        return;
    }
    // A group, a session and an orphan, each with a log of its own.
    let text = "\"$P\" -c \"$L\" & setsid \"$P\" -c \"$L\" & (\"$P\" -c \"$L\" &); \
                exec \"$P\" -c \"$L\"";
    let log = log();
    let outcome = script(&["--output-limit=23", "--grace=500ms"], text)
        .env("P", PYTHON)
        .env("L", LOGGER)
        .env("LOG", log.path())
        .run();
    outcome.assert_status(121);
    outcome.assert_nothing_left();
    let text = read(&log);
    let count = |line: &str| text.lines().filter(|one| *one == line).count();
    assert_eq!((count("ready"), count("SIGTERM")), (4, 4), "{outcome:#?}");
}

#[test]
fn labels() {
    let labels: Vec<String> = (0..16).map(|n| format!("--label=key{n}=value {n}")).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    let outcome = script(&labels, "exit 0").run();
    outcome.assert_status(0);
    assert_record(&outcome, "exited", 0);
    for n in 0..16 {
        let value = outcome.record(&format!("/labels/key{n}"));
        assert_eq!(*value, format!("value {n}").as_str());
    }
    let outcome = script(&["--label", "odd=\"\\\n\u{1b}ä", "--label", "empty="], "exit 0").run();
    outcome.assert_status(0);
    assert_eq!(outcome.record("/labels/odd"), "\"\\\n\u{1b}ä");
    assert_eq!(outcome.record("/labels/empty"), "");
}

#[test]
fn a_command_line_kept_secret() {
    let secret = "hunter2-the-password";
    let outcome = Run::corral(&["--redact-argv", "--wall=300ms"])
        .command(["sh", "-c", "sleep 30; : \"$1\"", "sh", secret])
        .run();
    outcome.assert_status(124);
    let record = outcome.record.as_ref().unwrap().to_string();
    assert!(!record.contains(secret), "{record}");
    assert!(!outcome.stderr.contains(secret));
    assert_eq!(outcome.record("/command/0"), "sh");
    assert!(record.contains('4'), "the number of its arguments: {record}");
    assert_record(&outcome, "wall", 124);
}

#[test]
fn quiet() {
    for (options, text, status) in [
        (&["--quiet", "--wall=300ms"][..], "sleep 30", 124),
        (&["--quiet"], "sleep 30 & exit 3", 3),
        (&["--quiet", "--leftovers=fail"], "sleep 30 & exit 0", 119),
        (&["--quiet", "--output-limit=10"], "yes; sleep 30", 121),
        (&["--quiet", "--max-output=4+4"], "printf 0123456789", 0),
    ] {
        let outcome = script(options, text).keep(1 << 16).run();
        outcome.assert_status(status);
        outcome.assert_nothing_left();
        assert_eq!(outcome.stderr, "", "{options:?}");
    }
    // The command's own words are not corral's to keep back.
    let outcome = script(&["--quiet"], "echo mine >&2").run();
    assert_eq!(outcome.stderr, "mine\n");
}

#[test]
fn one_line_says_what_ended_the_run() {
    for (options, text, status, words) in [
        (&["--wall=1s"][..], "exec sleep 30", 124, &["wall", "sleep"][..]),
        (&["--output-limit=4"], "echo 123456; exec sleep 30", 121, &["output"]),
        (&[], "sleep 30 & exit 0", 0, &["sleep"]),
    ] {
        let outcome = script(options, text).run();
        outcome.assert_status(status);
        let line = only_line(&outcome);
        for word in words {
            assert!(line.contains(word), "no {word:?} in {line:?}");
        }
    }
}

#[test]
fn corral_may_be_called_by_any_path() {
    let place = tempfile::tempdir().unwrap();
    for name in ["corral", "corral-1.2", "c"] {
        let link = place.path().join(name);
        std::os::unix::fs::symlink(common::corral(), &link).unwrap();
        let outcome = Run::argv([link.to_str().unwrap(), "--", "sh", "-c", "exit 5"]).run();
        outcome.assert_status(5);
    }
    if !have(&["bash"]) {
        return;
    }
    for name in ["", "-corral", "x y"] {
        let text = "exec -a \"$N\" \"$C\" -- sh -c 'exit 6'";
        let outcome = Run::argv(["bash", "-c", text]).env("N", name).run();
        outcome.assert_status(6);
    }
}

#[test]
fn no_argument_zero_at_all() {
    if !have(&[PYTHON]) {
        return;
    }
    // An empty argv: kernels since 5.18 make it one empty word.
    let text = "
import ctypes, os, sys
c = ctypes.c_char_p
ctypes.CDLL(None).execve(os.fsencode(sys.argv[1]), (c * 1)(None), (c * 1)(None))
os._exit(99)";
    let outcome = Run::argv([PYTHON, "-c", text]).args([common::corral()]).stdin(Stdin::Null).run();
    outcome.assert_status(125);
}

#[test]
fn the_clock_starts_before_the_command() {
    let outcome = script(&["--wall=600ms"], "exec sleep 30").run();
    outcome.assert_status(124);
    let seen = number(&outcome, "/steps_us/cause_seen");
    assert!((600_000..10_000_000).contains(&seen), "{seen} µs");
}
