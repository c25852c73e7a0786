//! What do the end-to-end tests ask again and again?
//!
//! Beside the harness (`common`): which tools this host has, what corral's one
//! line on stderr and its record must look like whatever the run was, a command
//! that writes down every signal it gets, and groups of the old cgroup version,
//! which can do to a run what it cannot do to itself (freeze it, starve it).
//!
//! May use: `common`, `serde_json`.

#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::common::{Outcome, Run, Running, Signal, skip};

/// One that every user can reach: a version manager's lies in somebody's home.
pub const PYTHON: &str = "/usr/bin/python3";

/// Writes the name of each signal that it gets on stdout, after `ready`, and
/// exits 7 on those that are named in its arguments. SIGCONT is left alone. The
/// same lines are appended to the file that `LOG` names, which several may share.
pub const LOGGER: &str = r#"
import os, signal, sys
signal.alarm(30)
seen = signal.valid_signals() - {signal.SIGALRM, signal.SIGCONT, signal.SIGCHLD, signal.SIGKILL, signal.SIGSTOP}
signal.pthread_sigmask(signal.SIG_BLOCK, seen)
def name(number):
    try: return signal.Signals(number).name
    except ValueError: return "SIG%d" % number
log = os.open(os.environ.get("LOG", "/dev/null"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
def say(line):
    for fd in log, 1: os.write(fd, (line + "\n").encode())
say("ready")
while True:
    got = name(signal.sigwaitinfo(seen).si_signo)
    say(got)
    if got in sys.argv[1:]: os._exit(7)
"#;

/// [`LOGGER`] as the words of a command.
pub fn logger<'a>(exits_on: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec![PYTHON, "-c", LOGGER];
    words.extend(exits_on);
    words
}

/// corral with these options runs this text of a shell.
pub fn script(options: &[&str], text: &str) -> Run {
    Run::corral(options).command(["sh", "-c", text])
}

/// Whether this host has these programs; says `skip` if not.
pub fn have(tools: &[&str]) -> bool {
    let missing = tools.iter().find(|tool| find(tool).is_none());
    if let Some(tool) = missing {
        skip(&format!("needs {tool}"));
    }
    missing.is_none()
}

/// Where a program is.
pub fn find(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(tool)).find(|path| path.is_file())
}

/// The newest build of another test target. It must not be older than its
/// sources, as when only this target was built.
pub fn test_executable(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let home = own.parent().unwrap();
    let age = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    let built = fs::read_dir(home)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let file = path.file_name().unwrap().to_str().unwrap();
            let hash = file.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
            hash.is_some_and(|hash| hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
        })
        .max_by_key(|path| age(path))
        .unwrap_or_else(|| panic!("no {name}: build it with a plain `cargo test`"));
    let sources = fs::read_to_string(built.with_extension("d")).unwrap();
    for source in sources.lines().filter_map(|line| line.strip_suffix(':')).map(Path::new) {
        let old = source.exists() && age(source) > age(&built);
        assert!(!old, "{} is newer than {}: a plain `cargo test`", source.display(), name);
    }
    built
}

/// corral's own word on stderr where nobody else wrote there: one line.
#[track_caller]
pub fn only_line(outcome: &Outcome) -> &str {
    let line = outcome
        .stderr
        .strip_suffix('\n')
        .unwrap_or_else(|| panic!("no line on stderr: {outcome:#?}"));
    assert!(
        line.starts_with("corral: ") && !line.contains('\n'),
        "not one line of corral's: {outcome:#?}"
    );
    line
}

/// A run that was refused: status 125, one line that says why, no trace of it.
#[track_caller]
pub fn assert_refused(outcome: &Outcome) -> &str {
    outcome.assert_status(125);
    outcome.assert_nothing_left();
    let line = only_line(outcome);
    assert!(line.starts_with("corral: cannot "), "{line}");
    assert!(outcome.stdout.is_empty(), "{outcome:#?}");
    assert!(outcome.record.is_none(), "a record: {outcome:#?}");
    assert_eq!(
        fs::read_dir(outcome.directory.path()).unwrap().count(),
        0,
        "a file was left: {outcome:#?}"
    );
    line
}

/// Cancels a run once its command has said that it is `ready`: a stop of a known
/// state, which no time limit can promise on a busy machine.
pub fn cancel_when_ready(run: Run) -> Outcome {
    let mut run = run.start();
    run.ready();
    run.signal(Signal::TERM);
    run.wait()
}

/// A run that a signal has cancelled: dead of it, and said so.
#[track_caller]
pub fn assert_cancelled(outcome: &Outcome, signal: Signal) {
    let number = signal.as_raw();
    assert_eq!((outcome.status, outcome.signal), (None, Some(number)), "{outcome:#?}");
    outcome.assert_nothing_left();
    assert_record(outcome, "cancelled", 128 + u64::try_from(number).unwrap());
}

/// The process that owns the run, by the name that the contract gives it.
#[track_caller]
pub fn supervisor(run: &Running) -> i32 {
    let named: Vec<i32> = run
        .members()
        .into_iter()
        .filter(|member| member.name == "crl-supervisor")
        .map(|member| member.pid)
        .collect();
    assert_eq!(named.len(), 1, "supervisors among {:#?}", run.members());
    named[0]
}

/// A pid that a command printed as `NAME PID`.
#[track_caller]
pub fn printed_pid(stdout: &[u8], name: &str) -> i32 {
    String::from_utf8_lossy(stdout)
        .lines()
        .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
        .unwrap_or_else(|| panic!("no pid of {name} in {:?}", String::from_utf8_lossy(stdout)))
}

/// Waits for a line `NAME PID` and returns the pid.
pub fn wait_pid(run: &mut Running, name: &str) -> i32 {
    let start = format!("{name} ");
    run.wait_until(&format!("the pid of {name}"), |run| {
        String::from_utf8_lossy(run.stdout())
            .split_inclusive('\n')
            .any(|line| line.starts_with(&start) && line.ends_with('\n'))
    });
    printed_pid(run.stdout(), name)
}

/// A whole number of the record.
#[track_caller]
pub fn number(outcome: &Outcome, pointer: &str) -> u64 {
    let value = outcome.record(pointer);
    value.as_u64().unwrap_or_else(|| panic!("{pointer} is {value}, not a number: {outcome:#?}"))
}

/// What a record says of any run: every field there, of its kind, and no two
/// that contradict each other.
#[track_caller]
pub fn assert_record(outcome: &Outcome, cause: &str, status: u64) {
    let get = |pointer: &str| outcome.record(pointer);
    assert_eq!(get("/schema"), 1);
    assert_eq!(get("/corral"), env!("CARGO_PKG_VERSION"));
    assert_eq!(get("/cause"), cause, "{outcome:#?}");
    assert_eq!(get("/exit_status"), status, "{outcome:#?}");
    let run_id = get("/run_id").as_str().expect("a run id");
    assert!(is_run_id(run_id), "run id {run_id:?}");
    assert!(get("/command").is_array() && get("/limits").is_object());
    for pointer in ["/uid", "/parent_pid"] {
        number(outcome, pointer);
    }
    for pointer in ["/pid_namespace", "/escalated", "/proved", "/output/relayed"] {
        assert!(get(pointer).is_boolean(), "{pointer} is {}", get(pointer));
    }
    match get("/mode").as_str() {
        Some("fallback") => assert!(get("/fallback_reason").is_string(), "{outcome:#?}"),
        Some("enforced") => assert!(get("/fallback_reason").is_null(), "{outcome:#?}"),
        other => panic!("mode {other:?}"),
    }
    get("/labels");
    get("/cause_detail");
    get("/usage");
    match get("/command_status") {
        Value::Null => {}
        _ => {
            let (code, signal) = (get("/command_status/code"), get("/command_status/signal"));
            assert!(code.is_u64() != signal.is_u64(), "one of code {code} and signal {signal}");
            get("/command_status/core_dumped");
        }
    }
    let (started, ended) = (text(outcome, "/started_at"), text(outcome, "/ended_at"));
    for at in [started, ended] {
        // 2026-01-02T03:04:05.678901234Z
        let shape: String = at.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00.000000000Z");
    }
    // Of equal shape, so the order of the texts is the order of the moments.
    assert!(started <= ended, "{started} {ended}");
    assert_steps(outcome);
    for list in ["tree_at_cause", "leftovers", "survivors"] {
        assert_list(outcome, list);
    }
    assert_eq!(get("/proved").as_bool().unwrap(), status != 120, "{outcome:#?}");
    for error in get("/errors").as_array().expect("errors") {
        assert!(error.is_string());
    }
    for key in ["passed_bytes", "dropped_bytes"] {
        get(&format!("/output/{key}"));
    }
    for key in ["cpu_user_us", "cpu_system_us", "max_rss_bytes"] {
        number(outcome, &format!("/usage/{key}"));
    }
}

/// Whether it may be the name of a run.
pub fn is_run_id(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

#[track_caller]
fn text<'a>(outcome: &'a Outcome, pointer: &str) -> &'a str {
    outcome.record(pointer).as_str().unwrap_or_else(|| panic!("{pointer} is no text: {outcome:#?}"))
}

/// The moments stand in the order in which things happen.
#[track_caller]
fn assert_steps(outcome: &Outcome) {
    let step = |name: &str| {
        let value = outcome.record(&format!("/steps_us/{name}"));
        assert!(value.is_null() || value.is_u64(), "{name} is {value}");
        value.as_u64()
    };
    // A tree that is waited for may be empty before the run is marked over.
    let stop = ["cause_seen", "first_signal", "killed"];
    let end = ["first_signal", "killed", "tree_empty"];
    for order in [
        &["spawned", "executed", "command_ended", "tree_empty"][..],
        &stop[..],
        &end[..],
        &["tree_empty", "group_removed", "returned"][..],
    ] {
        let known: Vec<u64> = order.iter().filter_map(|name| step(name)).collect();
        assert!(known.is_sorted(), "{order:?} are {known:?}: {outcome:#?}");
    }
    // A supervisor that is lost takes its knowledge along.
    if outcome.record("/cause") == "supervisor_lost" {
        return;
    }
    assert!(step("returned").is_some() && step("cause_seen").is_some(), "{outcome:#?}");
    assert_eq!(
        step("killed").is_some(),
        outcome.record("/escalated").as_bool().unwrap(),
        "{outcome:#?}"
    );
    let removed = outcome.record("/mode") == "enforced" && outcome.record("/proved") == true;
    assert_eq!(step("group_removed").is_some(), removed, "{outcome:#?}");
}

/// A list of processes, its total, and each process in it.
#[track_caller]
fn assert_list(outcome: &Outcome, list: &str) {
    let listed = outcome
        .record(&format!("/{list}"))
        .as_array()
        .unwrap_or_else(|| panic!("{list} is no list: {outcome:#?}"));
    let total = number(outcome, &format!("/{list}_total"));
    assert_eq!(listed.len() as u64, total.min(64), "{list}: {outcome:#?}");
    for process in listed {
        for key in ["pid", "age_ms", "cpu_ms", "ppid", "pgid", "sid"] {
            assert!(process[key].is_u64(), "{key} in {process}");
        }
        for key in ["name", "argv0", "state", "wchan"] {
            let value = &process[key];
            assert!(value.is_string() || value.is_null(), "{key} is {value} in {process}");
        }
        assert!(process["uid"].is_u64() || process["uid"].is_null());
        let detached = process["detached"].as_str().unwrap();
        assert!(["no", "group", "session", "cgroup"].contains(&detached), "{process}");
    }
}

/// The processes of a list of the record, by pid.
#[track_caller]
pub fn listed<'a>(outcome: &'a Outcome, list: &str, pid: i32) -> &'a Value {
    outcome
        .record(&format!("/{list}"))
        .as_array()
        .and_then(|all| all.iter().find(|process| process["pid"] == pid))
        .unwrap_or_else(|| panic!("no {pid} among the {list}: {outcome:#?}"))
}

/// A group of a cgroup v1 controller. Dropping it thaws and removes it; what
/// is in it must have ended before, so let it outlive the outcome.
pub struct OldGroup(PathBuf);

impl OldGroup {
    /// A new one, where the controller is mounted and this is root; says
    /// `skip` if not.
    pub fn new(controller: &str) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("corral-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        // Below the one that we are in: the mount's root may be another's.
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let group = own
            .lines()
            .find_map(|line| line.split_once(&format!(":{controller}:/")))
            .map(|(_, path)| Path::new("/sys/fs/cgroup").join(controller).join(path).join(name))
            .filter(|path| fs::create_dir(path).is_ok());
        if group.is_none() {
            skip(&format!("needs to make a group of {controller} (v1)"));
        }
        group.map(Self)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn set(&self, file: &str, value: &str) {
        fs::write(self.0.join(file), value)
            .unwrap_or_else(|e| panic!("{value} into {file} of {}: {e}", self.0.display()));
    }

    pub fn get(&self, file: &str) -> String {
        fs::read_to_string(self.0.join(file)).unwrap()
    }

    /// A hook for [`crate::common::Run::before`]: the newborn enters the group.
    pub fn enter(&self) -> impl FnMut() -> std::io::Result<()> + Send + Sync + 'static {
        let procs = File::options().write(true).open(self.0.join("cgroup.procs")).unwrap();
        move || {
            rustix::io::write(&procs, b"0")?;
            Ok(())
        }
    }
}

impl Drop for OldGroup {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("freezer.state"), "THAWED");
        for _ in 0..200 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}
