//! Is corral under the names `tini` and `docker-init` what whoever starts those
//! expects, and does it leave nothing as well?

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use common::{Outcome, Run, Running, Signal, corral, fault};

/// corral by its other name, in a directory of its own.
struct Tini {
    directory: tempfile::TempDir,
    name: &'static str,
}

impl Tini {
    fn named(name: &'static str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        symlink(corral(), directory.path().join(name)).unwrap();
        Self { directory, name }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join(self.name)
    }

    fn run(&self, words: &[&str]) -> Run {
        Run::argv([self.path()]).args(words)
    }

    /// A service with a way of its own for each signal.
    fn service(&self, options: &[&str]) -> Running {
        let script = "trap 'echo reload' HUP; trap 'echo quick; exit 3' INT
            trap 'echo graceful; exit 4' QUIT; trap 'echo fast; exit 5' TERM
            trap 'echo reopen' USR1; echo ready; while :; do sleep 0.01; done";
        let mut run = self.run(options).args(["sh", "-c", script]).start();
        run.ready();
        run
    }
}

#[test]
fn each_signal_is_the_services_own() {
    for name in ["tini", "docker-init"] {
        let tini = Tini::named(name);
        for (signal, said, status) in
            [(Signal::INT, "quick", 3), (Signal::QUIT, "graceful", 4), (Signal::TERM, "fast", 5)]
        {
            let mut run = tini.service(&["--"]);
            run.signal(Signal::HUP);
            run.wait_line("reload");
            run.signal(Signal::USR1);
            run.wait_line("reopen");
            run.signal(signal);
            let outcome = run.wait();
            outcome.assert_status(status);
            assert!(text(&outcome).lines().any(|line| line == said), "{outcome:#?}");
            assert_eq!(outcome.stderr, "");
            outcome.assert_nothing_left();
        }
    }
}

#[test]
fn no_signal_starts_a_clock_or_comes_twice() {
    let tini = Tini::named("docker-init");
    let mut run = tini.run(&["--"]).args([fault("count_signals")]).start();
    run.ready();
    let mut expected = vec!["ready".to_owned()];
    for signal in [Signal::TERM, Signal::HUP, Signal::QUIT, Signal::INT, Signal::USR2, Signal::TERM]
    {
        run.signal(signal);
        expected.push(format!("signal {}", signal.as_raw()));
        run.wait_until("each signal is heard", |run| {
            run.stdout().iter().filter(|&&byte| byte == b'\n').count() >= expected.len()
        });
    }
    let command = run.members().into_iter().find(|member| member.name == "count_signals").unwrap();
    run.signal_member(command.pid, Signal::KILL);
    let outcome = run.wait();
    outcome.assert_status(137);
    assert_eq!(text(&outcome).lines().collect::<Vec<_>>(), expected);
    outcome.assert_nothing_left();
}

fn text(outcome: &Outcome) -> String {
    String::from_utf8(outcome.stdout.clone()).unwrap()
}

/// How often a signal is heard by a command and its child, with these options.
fn heard(options: &[&str], variable: Option<&str>) -> usize {
    let tini = Tini::named("tini");
    let counts = fault("count_signals");
    let mut run = tini.run(options).args(["sh", "-c", "\"$0\" & exec \"$0\""]).args([counts]);
    if let Some(name) = variable {
        run = run.env(name, "");
    }
    let mut run = run.start();
    let lines = |run: &Running, line: &[u8]| {
        run.stdout().split(|&byte| byte == b'\n').filter(|&read| read == line).count()
    };
    run.wait_until("both are ready", |run| lines(run, b"ready") == 2);
    run.signal(Signal::USR1);
    let all = if options.contains(&"-g") || variable.is_some() { 2 } else { 1 };
    run.wait_until("the signal is heard", |run| lines(run, b"signal 10") >= all);
    for member in run.members() {
        if member.name == "count_signals" {
            run.signal_member(member.pid, Signal::KILL);
        }
    }
    let outcome = run.wait();
    outcome.assert_nothing_left();
    text(&outcome).lines().filter(|line| *line == "signal 10").count()
}

#[test]
fn the_group_of_the_command_if_asked() {
    assert_eq!(heard(&["--"], None), 1);
    assert_eq!(heard(&["-g", "--"], None), 2);
    assert_eq!(heard(&["--"], Some("TINI_KILL_PROCESS_GROUP")), 2);
}

#[test]
fn statuses() {
    let tini = Tini::named("tini");
    let cases: [(&[&str], i32); 7] = [
        (&["sh", "-c", "exit 3"], 3),
        (&["sh", "-c", "kill -TERM $$"], 143),
        (&["-e", "3", "--", "sh", "-c", "exit 3"], 0),
        (&["-e143", "--", "sh", "-c", "kill -TERM $$"], 0),
        (&["-e", "3", "--", "sh", "-c", "exit 4"], 4),
        (&["--", "no-such-command"], 127),
        (&["--nonsense", "true"], 125),
    ];
    for (words, status) in cases {
        let outcome = tini.run(words).run();
        outcome.assert_status(status);
        outcome.assert_nothing_left();
    }
}

#[test]
fn what_is_left_is_stopped_at_once_and_told_if_asked() {
    let tini = Tini::named("docker-init");
    let left = ["sh", "-c", "setsid sleep 1000 & exit 3"];
    let told = |run: Run| {
        let outcome = run.args(left).run();
        outcome.assert_status(3);
        outcome.assert_nothing_left();
        outcome.stderr
    };
    assert_eq!(told(tini.run(&["--"])), "");
    assert_eq!(told(tini.run(&[]).env("TINI_VERBOSITY", "1")), "");
    for run in [tini.run(&["-v"]), tini.run(&["-w"]), tini.run(&[]).env("TINI_VERBOSITY", "2")] {
        let line = told(run);
        assert!(line.starts_with("corral: sh left 1 process behind: stopped "), "{line}");
    }
}

#[test]
fn the_parents_death_is_a_signal_if_asked() {
    let tini = Tini::named("tini");
    // The inner shell is corral's parent and ends when it is told to; the outer one
    // keeps what the inner one leaves in view.
    let inner = "\"$0\" -p USR1 -- \"$1\" & read line; kill -KILL $$";
    let run = Run::argv(["sh", "-c", "sh -c \"$2\" \"$0\" \"$1\"; read line"])
        .args([tini.path(), fault("count_signals")])
        .args([inner]);
    let mut run = run.stdin(common::Stdin::Open).marker().start();
    run.ready();
    run.feed(b"\n");
    run.wait_line("signal 10");
}

#[test]
fn texts() {
    let tini = Tini::named("docker-init");
    let version = tini.run(&["--version"]).run();
    version.assert_status(0);
    // dockerd takes what is between these for the version and the commit.
    let version = text(&version);
    let rest = version.strip_prefix("tini version ").unwrap();
    let (number, commit) = rest.trim_end().split_once(" - git.").unwrap();
    assert_eq!((number, commit), ("0.19.0", "corral"));

    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md"));
    let readme = readme.unwrap();
    let usage = tini.run(&["-h"]).run();
    usage.assert_status(0);
    let usage = text(&usage);
    for letter in ["-e", "-g", "-h", "-l", "-p", "-s", "-v", "-w"] {
        assert!(usage.contains(letter), "{letter} in {usage}");
        assert!(readme.contains(&format!("`{letter}")), "{letter} in the README");
    }
}
