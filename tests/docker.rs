//! Is corral what it should be in containers of a real Docker Engine?
//!
//! A dockerd of the test's own, without a network, run by corral itself: so nothing
//! of it is left either. The images are made of static programs. corral is the
//! entrypoint, where there may be no other file at all, or what `--init` puts there.

mod common;
mod kit;
mod pty;

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use common::{Run, Running, Signal, corral, fault, install, root_or_skip};
use kit::have;
use pty::{Terminal, settings};

/// What is put into the image beside corral and a shell.
const FAULTS: [&str; 5] =
    ["count_signals", "fork_storm", "ignore_term", "own_pid_namespace", "setsid_double_fork"];

/// What a container may be forbidden or limited to.
const REGIMES: [&[&str]; 7] = [
    &[],
    &["--read-only"],
    &["--pids-limit", "64"],
    &["--memory", "256m"],
    &["--user", "12345:12345"],
    &["--cap-drop", "ALL", "--security-opt", "no-new-privileges"],
    &["--read-only", "--pids-limit", "64", "--user", "12345", "--cap-drop", "ALL"],
];

/// A Docker Engine, and a directory that its containers see as /out.
struct Engine {
    directory: tempfile::TempDir,
    cgroup: String,
    daemon: Option<Running>,
}

impl Engine {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        symlink(corral(), at("docker-init")).unwrap();
        fs::create_dir(at("out")).unwrap();
        fs::set_permissions(at("out"), Permissions::from_mode(0o777)).unwrap();
        let cgroup = format!("corral-docker-{}", std::process::id());
        // Its own mounts, /run and network, so that the host's have none of it.
        let script = "mount -t tmpfs run /run && cd \"$0\" && exec dockerd --data-root \"$0/root\" \
            --exec-root /run/d --pidfile /run/d.pid -H \"unix://$0/sock\" --storage-driver vfs \
            --bridge none --iptables=false --ip6tables=false --ip-forward=false \
            --ip-masq=false --init-path \"$0/docker-init\" --cgroup-parent \"$1\" >\"$0/log\" 2>&1";
        let run = Run::corral(&[
            "--cgroup-mode=fallback",
            "--wall=5m",
            "--grace=20s",
            "--signal-scope=command",
        ])
        .command(["unshare", "-m", "-n", "--propagation", "private", "sh", "-c", script])
        .args([directory.path().as_os_str(), cgroup.as_ref()])
        .limit(Duration::from_secs(400));
        let mut daemon = run.start();
        daemon.wait_until("the engine listens", |_| {
            fs::read_to_string(at("log")).is_ok_and(|log| log.contains("API listen on"))
        });
        let engine = Self { directory, cgroup, daemon: Some(daemon) };
        engine.import("only", &[(corral(), "corral")]);
        let mut files = vec![(corral(), "corral"), ("/bin/busybox".into(), "bin/sh")];
        files.extend(FAULTS.iter().map(|name| (fault(name), *name)));
        engine.import("faults", &files);
        engine
    }

    /// An image with these files and no others.
    fn import(&self, image: &str, files: &[(PathBuf, &str)]) {
        let root = self.directory.path().join(image);
        for (from, to) in files {
            let to = root.join(to);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            install(from, &to, 0o755);
        }
        let archive = self.directory.path().join(format!("{image}.tar"));
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(&root).arg("-cf").arg(&archive).arg(".");
        assert!(tar.status().unwrap().success());
        self.docker(&["import", archive.to_str().unwrap(), image]);
    }

    fn client(&self) -> Command {
        let mut command = Command::new("docker");
        command.arg("-H").arg(format!("unix://{}/sock", self.directory.path().display()));
        command
    }

    fn output(&self, words: &[&str]) -> Output {
        self.client().args(words).output().unwrap()
    }

    /// What docker says; it has to succeed.
    fn docker(&self, words: &[&str]) -> String {
        let output = self.output(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// The words for a new container that has /out, as in `docker run`.
    fn words(&self, options: &[&str], image: &str, command: &[&str]) -> Vec<String> {
        let volume = format!("{}:/out", self.out().display());
        let mut words = vec!["run", "--network=none", "-v", &volume];
        words.extend(options);
        words.push(image);
        words.extend(command);
        words.into_iter().map(String::from).collect()
    }

    /// The status and stderr of a container that runs to its end.
    fn run(&self, options: &[&str], image: &str, command: &[&str]) -> (i32, String) {
        let words = self.words(&[&["--rm"], options].concat(), image, command);
        let output = self.client().args(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code().unwrap(), said)
    }

    /// Starts a container and leaves it to itself.
    fn detached(&self, name: &str, options: &[&str], command: &[&str]) {
        let options = [&["-d", "--name", name], options].concat();
        let words = self.words(&options, "faults", command);
        self.docker(&words.iter().map(String::as_str).collect::<Vec<_>>());
    }

    fn out(&self) -> PathBuf {
        self.directory.path().join("out")
    }

    fn record(&self, name: &str) -> serde_json::Value {
        serde_json::from_slice(&fs::read(self.out().join(name)).unwrap()).unwrap()
    }

    /// Waits until a container has written this.
    fn wait_for(&mut self, what: &str, done: impl Fn(&Path) -> bool) {
        let out = self.out();
        self.daemon.as_mut().unwrap().wait_until(what, |_| done(&out));
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let Some(daemon) = self.daemon.take() else { return };
        daemon.signal(Signal::TERM);
        if std::thread::panicking() {
            return;
        }
        daemon.wait().assert_nothing_left();
        // In every hierarchy, at its root and below the test's own group.
        let groups = format!("*/{}*", self.cgroup);
        let mut find = Command::new("find");
        find.args(["/sys/fs/cgroup", "-depth", "-type", "d", "-path", &groups]);
        assert!(find.args(["-exec", "rmdir", "{}", "+"]).status().unwrap().success());
    }
}

/// The only file of an image, with a shell bound into it for the example; and the
/// same behind the engine's own init, which is corral as well.
fn the_only_file_of_an_image(engine: &Engine) {
    let (status, _) = engine.run(&[], "only", &["/corral", "--version"]);
    assert_eq!(status, 0);
    let example = ["/corral", "--wall", "1s", "--", "sh", "-c"];
    let example = [&example[..], &["sleep 60 & setsid sleep 60 & wait"]].concat();
    for regime in REGIMES.into_iter().chain([&["--init"] as &[_]]) {
        let options = [regime, &["-v", "/bin/busybox:/bin/sh:ro"]].concat();
        let (status, said) = engine.run(&options, "only", &example);
        assert_eq!(status, 124, "{regime:?}: {said}");
        let stopped = "corral: wall limit of 1s reached: stopped 3 processes";
        assert!(said.starts_with(stopped) && said.contains("all gone"), "{regime:?}: {said}");
    }
}

fn faults_under_each_regime(engine: &Engine) {
    let faults: [&[&str]; 4] = [
        &["/setsid_double_fork", "stay"],
        &["/ignore_term"],
        &["/own_pid_namespace"],
        &["/fork_storm", "tree", "200"],
    ];
    for regime in REGIMES {
        for fault in faults {
            let record = "/out/record";
            let limits = ["/corral", "--wall=500ms", "--grace=100ms", "--json", record, "--"];
            let (status, said) = engine.run(regime, "faults", &[&limits[..], fault].concat());
            assert!(engine.out().join("record").exists(), "{regime:?} {fault:?}: {said}");
            let record = engine.record("record");
            let what = || format!("{regime:?} {fault:?}: {said} {record:#}");
            assert_eq!(record["exit_status"], status, "{}", what());
            assert_eq!(record["proved"], true, "{}", what());
            // One that may not make a namespace ends by itself.
            if record["cause"] != "exited" || fault[0] != "/own_pid_namespace" {
                assert_eq!(status, 124, "{}", what());
            }
            fs::remove_file(engine.out().join("record")).unwrap();
        }
    }
}

fn stopped_by_its_own_way(engine: &mut Engine) {
    let service =
        ["sh", "-c", "trap 'exit 7' TERM; echo > /out/up; while :; do sleep 1 & wait; done"];
    engine.detached("init", &["--init"], &service);
    engine.wait_for("the service is up", |out| out.join("up").exists());
    let processes = engine.docker(&["top", "init", "-eo", "pid,args"]);
    assert!(processes.contains("docker-init -- sh"), "{processes}");
    engine.docker(&["stop", "-t", "60", "init"]);
    assert_eq!(engine.docker(&["wait", "init"]), "7");

    let stubborn = ["/corral", "--grace=100ms", "--json=/out/stopped", "--", "/count_signals"];
    engine.detached("entrypoint", &[], &stubborn);
    let name = "entrypoint";
    while !engine.docker(&["logs", name]).contains("ready") {}
    engine.docker(&["stop", "-t", "60", name]);
    // PID 1 cannot die of the signal that it was sent.
    assert_eq!(engine.docker(&["wait", name]), "143");
    let record = engine.record("stopped");
    assert_eq!((&record["exit_status"], &record["proved"]), (&143.into(), &true.into()));
}

fn strangers_are_left_alone(engine: &mut Engine) {
    let (name, by) = ("with-strangers", "exec /count_signals > /out/by");
    let command = ["/corral", "--grace=300ms", "--json=/out/strangers", "--", "/count_signals"];
    engine.detached(name, &[], &command);
    engine.docker(&["exec", "-d", name, "sh", "-c", by]);
    let said = |out: &Path| fs::read_to_string(out.join("by")).unwrap_or_default();
    engine.wait_for("the stranger is ready", |out| said(out) == "ready\n");
    // An orphan of it, which PID 1 has to reap.
    engine.docker(&["exec", name, "sh", "-c", "(sleep 0.01 & echo $! > /out/orphan) &"]);
    engine.wait_for("the orphan has a pid", |out| {
        fs::read_to_string(out.join("orphan")).is_ok_and(|pid| pid.ends_with('\n'))
    });
    let pid = fs::read_to_string(engine.out().join("orphan")).unwrap();
    let is_there = format!("test -e /proc/{}", pid.trim());
    while engine.output(&["exec", name, "sh", "-c", &is_there]).status.success() {}
    engine.docker(&["kill", "-s", "USR1", name]);
    while !engine.docker(&["logs", name]).contains("signal 10") {}
    engine.docker(&["stop", "-t", "60", name]);
    assert_eq!(engine.docker(&["wait", name]), "143");
    assert_eq!(said(&engine.out()), "ready\n", "the stranger was signalled");
    let record = engine.record("strangers");
    assert_eq!(record["tree_at_cause_total"], 1, "{record:#}");
    assert_eq!(record["leftovers_total"], 0, "{record:#}");
}

/// `docker run -it`, by whichever of the two ways.
fn job_control(engine: &Engine, options: &[&str], command: &[&str]) {
    let terminal = Terminal::new();
    let before = settings(&terminal.modes());
    let options = [&["-it", "--rm"], options].concat();
    let words = engine.words(&options, "faults", command);
    let client = engine.client();
    let start = [client.get_program()].into_iter().chain(client.get_args());
    let mut run = terminal.attach(Run::argv(start).args(words)).start();
    // What is typed shows up as well: what is awaited is written otherwise.
    terminal.type_(b"PS1=; (exit 3) & wait $!; echo up=$?\n");
    terminal.wait(&mut run, "up=3");
    // Said by the job itself: then it has the terminal.
    terminal.type_(b"sh -c 'echo begun=$((1+1)); exec sleep 60'\n");
    terminal.wait(&mut run, "begun=2");
    terminal.type_(b"\x03");
    terminal.type_(b"echo after=$((2+2))\n");
    terminal.wait(&mut run, "after=4");
    terminal.type_(b"sh -c 'echo begun=$((5+5)); exec sleep 60'\n");
    terminal.wait(&mut run, "begun=10");
    terminal.type_(b"\x1a");
    terminal.type_(b"jobs; kill %1; fg; echo jobs=$((3+3))\n");
    terminal.wait(&mut run, "jobs=6");
    terminal.type_(b"exit 9\n");
    let outcome = run.wait();
    let shown = terminal.shown();
    outcome.assert_status(9);
    assert!(!shown.contains("job control turned off"), "{shown}");
    assert!(shown.contains("Stopped"), "{shown}");
    assert_eq!(settings(&terminal.modes()), before, "{shown}");
}

#[test]
fn under_a_docker_engine() {
    if !have(&["dockerd", "docker", "unshare", "tar", "busybox"]) || !root_or_skip() {
        return;
    }
    let mut engine = Engine::start();
    let version = engine.docker(&["info", "--format", "{{.InitBinary}} {{.InitCommit.ID}}"]);
    assert!(version.ends_with("/docker-init corral"), "{version}");
    assert!(engine.docker(&["info"]).contains("seccomp"), "the default profile is in force");
    the_only_file_of_an_image(&engine);
    faults_under_each_regime(&engine);
    stopped_by_its_own_way(&mut engine);
    strangers_are_left_alone(&mut engine);
    job_control(&engine, &["--init"], &["sh"]);
    job_control(&engine, &[], &["/corral", "--", "sh"]);
}
