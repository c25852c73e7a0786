//! Do real servers end by their own graceful path, and is nothing of them left?
//!
//! nginx, PostgreSQL and Redis (`server`), each stopped by its own signals: through
//! `corral`, cancelled or at its time limit, and through `docker-init`. The stop
//! comes while the server has work in hand. What shows that it was graceful (the
//! server's own words, its data, its socket and pid file gone) must all be there
//! then, and none of it after the server was killed: it can be missing. Either way
//! nothing is left.

mod common;
mod kit;
mod server;

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use common::{Outcome, Run, Running, Signal, corral, install};
use kit::{assert_cancelled, assert_record, number};
use server::{By, Nginx, Place, Postgres, Redis, Server, Stop};

/// All ways to stop a server.
const WAYS: [By; 4] = [By::Wall, By::Tree, By::Command, By::DockerInit];

/// Time limits, tried in turn: the work must have begun by then.
const WALLS: [&str; 3] = ["1s", "5s", "25s"];

/// corral by its other name, where every user can reach it.
fn docker_init(place: &Place) -> PathBuf {
    let link = place.file("docker-init");
    if !link.exists() {
        install(&corral(), &place.file("corral"), 0o755);
        symlink("corral", &link).unwrap();
    }
    link
}

/// The server, on its way up; the limit counts where that is what stops it.
fn start(server: &dyn Server, stop: Stop, wall: &str, grace: &str) -> Running {
    // Left by a killed one, where there was one; nginx takes no socket that it finds.
    for file in fs::read_dir(server.place().file("run")).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    let name = match stop.signal {
        Signal::INT => "INT",
        Signal::QUIT => "QUIT",
        _ => "TERM",
    };
    let corral = |options: &[&str]| {
        Run::corral(&[&["--grace", grace], options].concat()).command(server.command())
    };
    let run = match stop.by {
        By::Tree => corral(&[]),
        By::Command => corral(&["--cgroup-mode=fallback", "--signal-scope", "command"]),
        By::Wall => corral(&["--wall", wall, "--signal", name, "--signal-scope", "command"]),
        By::DockerInit => Run::argv([docker_init(server.place())]).args(server.command()),
    };
    match server.uid() {
        Some(uid) => run.uid(uid).delegated().start(),
        None => run.start(),
    }
}

/// What was done on one server's data, and whether it was kept.
type Kept = Vec<(String, bool)>;

/// Waits until the server answers, looks for what it had kept, and gives it work.
fn work(
    server: &mut dyn Server,
    run: &mut Running,
    stop: Stop,
    kept: &Kept,
    name: &str,
) -> io::Result<()> {
    let mut answer = Ok(false);
    run.wait_until("it answers", |run| {
        answer = server.stored(name);
        answer.is_ok() || stop.by == By::Wall && run.has_ended()
    });
    answer?;
    for (earlier, was_kept) in kept {
        assert_eq!(server.stored(earlier)?, *was_kept, "{earlier}");
    }
    server.begin(name)
}

/// A server that has work in hand.
fn at_work(server: &mut dyn Server, stop: Stop, grace: &str, kept: &Kept, name: &str) -> Running {
    for wall in WALLS {
        let mut run = start(server, stop, wall, grace);
        match work(server, &mut run, stop, kept, name) {
            Ok(()) => return run,
            // The limit came first. Waited for: a zombie keeps PostgreSQL from its data.
            Err(_) if stop.by == By::Wall => run.wait().assert_nothing_left(),
            Err(e) => panic!("{name}: {e}"),
        }
    }
    panic!("{name}: not at work within {WALLS:?}");
}

/// What it wrote, wherever it writes its log.
fn log(stdout: &[u8], stderr: &str) -> String {
    String::from_utf8_lossy(stdout).into_owned() + stderr
}

/// What shows that the stop was graceful, and whether it is there.
fn evidence(
    server: &dyn Server,
    stop: Stop,
    outcome: &Outcome,
    name: &str,
) -> Vec<(&'static str, bool)> {
    let log = log(&outcome.stdout, &outcome.stderr);
    let mut all: Vec<_> =
        server.words(stop).iter().map(|&said| (said, log.contains(said))).collect();
    let removed = fs::read_dir(server.place().file("run")).unwrap().count() == 0;
    all.push(("no socket and no pid file", removed));
    all.push(("data at rest", server.settled(name)));
    all
}

/// One stop by the server's own signal.
fn graceful(server: &mut dyn Server, stop: Stop, kept: &mut Kept) {
    let name = format!("graceful{}", kept.len());
    let mut run = at_work(server, stop, "30s", kept, &name);
    if stop.by != By::Wall {
        run.signal(stop.signal);
    }
    let begun = server.words(stop)[0];
    run.wait_until(begun, |run| log(run.stdout(), &run.stderr()).contains(begun));
    let keeps = server.keeps(stop);
    server.finish(&mut run, keeps);
    let outcome = run.wait();

    outcome.assert_nothing_left();
    outcome.assert_no_group();
    for (what, there) in evidence(server, stop, &outcome, &name) {
        assert!(there, "{stop:?}: {what}: {outcome:#?}");
    }
    match stop.by {
        By::Tree | By::Command => assert_cancelled(&outcome, stop.signal),
        By::Wall => {
            outcome.assert_status(124);
            assert_record(&outcome, "wall", 124);
        }
        By::DockerInit => {
            outcome.assert_status(0);
            assert!(!outcome.stderr.contains("corral: "), "{outcome:#?}");
        }
    }
    if stop.by != By::DockerInit {
        assert_eq!(outcome.record("/command_status/code"), 0, "{outcome:#?}");
        assert_eq!(outcome.record("/escalated"), false, "{outcome:#?}");
        assert_eq!(outcome.record("/proved"), true, "{outcome:#?}");
        assert_eq!(number(&outcome, "/leftovers_total"), 0, "{outcome:#?}");
        // A limit may come while the work is being begun.
        let least = if stop.by == By::Wall { 1 } else { server.processes() };
        assert!(number(&outcome, "/tree_at_cause_total") >= least, "{outcome:#?}");
    }
    kept.push((name, keeps));
}

/// The same with SIGKILL for the server's first process.
fn killed(server: &mut dyn Server, stop: Stop, kept: &mut Kept) {
    let name = format!("killed{}", kept.len());
    let run = at_work(server, stop, "0s", kept, &name);
    let pid = fs::read_to_string(server.place().file("run/pid")).unwrap();
    run.signal_member(pid.trim().parse().unwrap(), Signal::KILL);
    let outcome = run.wait();

    outcome.assert_status(137);
    outcome.assert_nothing_left();
    outcome.assert_no_group();
    if stop.by != By::DockerInit {
        assert_record(&outcome, "exited", 137);
    }
    for (what, there) in evidence(server, stop, &outcome, &name) {
        assert!(!there, "{stop:?}: {what}: {outcome:#?}");
    }
    kept.push((name, false));
}

/// All of it, one stop after the other, on the same data.
fn stops(server: Option<impl Server>, signals: &[Signal]) {
    let Some(mut server) = server else { return };
    let mut kept = Kept::new();
    for by in [By::Command, By::DockerInit] {
        killed(&mut server, Stop { by, signal: signals[0] }, &mut kept);
    }
    for &signal in signals {
        for by in WAYS {
            graceful(&mut server, Stop { by, signal }, &mut kept);
        }
    }
}

#[test]
fn nginx() {
    stops(Nginx::new(), &[Signal::QUIT]);
}

#[test]
fn postgres() {
    stops(Postgres::new(), &[Signal::TERM, Signal::INT]);
}

#[test]
fn redis() {
    stops(Redis::new(), &[Signal::TERM]);
}
