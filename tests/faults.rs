//! Does corral end what misbehaves, and tell the truth about it?
//!
//! A test a row of `expect.rs`, a mode and a host: without a PID namespace, in one,
//! and in one that an ordinary user makes. What corral says (its status, its line, its
//! record) is held against what is seen from outside: who is alive on the run's
//! ground at the moment of the return, which groups are still there, and whether
//! the output is at its end.

mod common;
mod expect;

use std::collections::BTreeSet;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use common::{
    Ground, NOBODY, Outcome, Run, Running, Signal, Stdin, Survivor, corral, fault, install,
    root_or_skip, skip,
};
use expect::{By, Ends, Enforced, ROWS, Row, Says, row};

/// Rows that take the machine for themselves hold it alone.
static MACHINE: RwLock<()> = RwLock::new(());

/// A fault that its host does not let happen.
const CANNOT: i32 = 77;

/// Where corral runs its command, and who corral is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Host {
    /// As the caller, in the caller's PID namespace.
    Plain,
    /// `--pid-namespace`, as the caller.
    Namespace,
    /// `--pid-namespace`, as an ordinary user to whom its group is delegated.
    UserNamespace,
}

/// What an ordinary user cannot do to begin with: write in groups that are not its
/// own, or install a setuid program.
const ROOT_ONLY: &[&str] = &["leave_cgroup", "leave_group", "v1_frozen"];

macro_rules! tests {
    ($($name:ident: $how:ident,)*) => {
        tests! { @ fallback "fallback" Plain $($name: $how,)* }
        tests! { @ enforced "enforced" Plain $($name: $how,)* }
        tests! { @ fallback_namespaced "fallback" Namespace $($name: $how,)* }
        tests! { @ enforced_namespaced "enforced" Namespace $($name: $how,)* }
        tests! { @ fallback_namespaced_user "fallback" UserNamespace $($name: $how,)* }
        tests! { @ enforced_namespaced_user "enforced" UserNamespace $($name: $how,)* }

        #[test]
        fn each_row_is_run() {
            let tests = BTreeSet::from([$(stringify!($name)),*]);
            assert_eq!(tests, ROWS.iter().map(|row| row.name).collect());
        }
    };
    (@ $module:ident $mode:literal $host:ident $($name:ident: $how:ident,)*) => {
        mod $module {
            $(#[test]
            fn $name() {
                super::run(stringify!($name), $mode, super::Host::$host, super::$how);
            })*
        }
    };
}

/// One row in one mode on one host.
fn run(name: &str, mode: &'static str, host: Host, how: fn(&Test)) {
    let test = Test { row: row(name), mode, host };
    if test.is_enforced() {
        if let Enforced::Never(_) = test.row.enforced {
            return;
        }
        if Ground::new(false).0.group().is_none() {
            return skip("no cgroup2 is writable");
        }
    }
    if host == Host::UserNamespace && (ROOT_ONLY.contains(&test.row.name) || !root_or_skip()) {
        return;
    }
    let (_alone, _shared);
    if test.row.alone {
        _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    } else {
        _shared = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
    }
    how(&test);
}

/// A row, and corral's mode and host in it.
struct Test {
    row: &'static Row,
    mode: &'static str,
    host: Host,
}

impl Deref for Test {
    type Target = Row;

    fn deref(&self) -> &Row {
        self.row
    }
}

impl Test {
    fn is_enforced(&self) -> bool {
        self.mode == "enforced"
    }

    fn is_namespaced(&self) -> bool {
        self.host != Host::Plain
    }
}

tests! {
    exit_clean: plain,
    exit_with_7: plain,
    sleep_forever: plain,
    clean_up: plain,
    memory_hog: plain,
    busy: plain,
    close_stdio: plain,
    stop_self: plain,
    zombie_parent: zombies,
    crowd: plain,
    crowd_chain: plain,
    ignore_term: plain,
    block_term: plain,
    count_signals: plain,
    stopped_children: plain,
    vfork_stopped: plain,
    leader_thread_gone: plain,
    nested_subreaper: plain,
    own_pid_namespace: plain,
    hostile_name: hostile,
    traced_by_corral: plain,
    fork_race: plain,
    fork_on_term: plain,
    fork_storm_tree: plain,
    fork_storm_comets: plain,
    pid_hopper: plain,
    pid_hopper_left: plain,
    pipe_holder: plain,
    pipe_holder_fails: plain,
    setsid_double_fork: plain,
    setsid_double_fork_stays: plain,
    clone_parent: plain,
    kill_group: plain,
    kill_group_term: plain,
    late_output: plain,
    huge_line: plain,
    flood: plain,
    nonblock_stdio: plain,
    huge_line_relayed: plain,
    flood_relayed: plain,
    nonblock_stdio_relayed: plain,
    late_output_relayed: plain,
    pipe_holder_relayed: plain,
    close_stdio_relayed: plain,
    kill_parent: against_its_parent,
    kill_everything: alone_of_its_user,
    leave_cgroup: into_another_group,
    leave_group: out_of_its_group,
    threaded_subgroup: with_groups_of_its_own,
    threaded_subgroup_leaderless: with_groups_of_its_own,
    nested_groups: with_groups_of_its_own,
    frozen_subgroup: with_groups_of_its_own,
    inherited_child: with_a_child_from_before,
    outside_tracer: under_a_tracer,
    v1_frozen: frozen,
    setuid_child: out_of_reach,
    oom_child: plain,
    fork_to_limit: plain,
}

/// Every process of a fault ends itself after 30 s, a storm up to a second sooner.
/// A tree that is empty only by then was not ended by corral: such a run has
/// proved nothing, whatever its record says.
const OWN_END: Duration = Duration::from_secs(28);

/// corral as the row wants it, without its command.
fn prepare(row: &Test) -> Run {
    let wall = common::wall();
    let mut options = vec!["--cgroup-mode", row.mode];
    options.extend(row.options);
    if row.by == By::Wall {
        options.extend(["--wall", &wall]);
    }
    if row.is_namespaced() {
        options.push("--pid-namespace");
    }
    let run = Run::corral(&options).keep(1 << 20);
    if row.host == Host::UserNamespace { run.uid(NOBODY).delegated() } else { run }
}

/// Lets what the row says end it. `None` where the host does not let the fault
/// happen.
fn finish(row: &Test, mut run: Running) -> Option<Outcome> {
    if row.by == By::Term {
        run.wait_until("`ready` or the end", |run| run.has_line("ready") || run.has_ended());
        if !run.has_ended() {
            run.signal(Signal::TERM);
        }
    }
    let outcome = run.wait();
    if outcome.status == Some(CANNOT) {
        skip("the host does not let this fault happen");
        return None;
    }
    Some(outcome)
}

/// The record's schema, compiled once.
static SCHEMA: LazyLock<jsonschema::Validator> = LazyLock::new(|| {
    let schema = serde_json::from_str(include_str!("record.schema.json")).unwrap();
    jsonschema::validator_for(&schema).unwrap()
});

/// Compares an outcome with its row.
#[track_caller]
fn judge(row: &Test, outcome: &Outcome) {
    if let Some(record) = &outcome.record {
        let errors: Vec<_> = SCHEMA.iter_errors(record).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "not as the schema says: {errors:#?} {record:#}");
    }
    let (ends, status) = match row.ends {
        Ends::Exit(status) => ((Some(status), None), status),
        Ends::Signal(signal) => ((None, Some(signal)), 128 + signal),
    };
    assert_eq!((outcome.status, outcome.signal), ends, "{outcome:#?}");
    // The init of a namespace cannot end before what is left in it.
    let left = || {
        outcome.survivors.iter().filter(|one| !row.is_namespaced() || one.name != "crl-supervisor")
    };
    assert_eq!(left().count(), row.survivors, "{outcome:#?}");
    assert!(outcome.eof || row.survivors > 0, "somebody holds the output: {outcome:#?}");
    match row.says {
        Says::Text(text) => assert_eq!(outcome.stdout, text.as_bytes(), "{outcome:#?}"),
        Says::Bytes(bytes) => assert_eq!(outcome.stdout_bytes, bytes, "{outcome:#?}"),
        Says::Anything => {}
    }
    assert!(outcome.elapsed < Duration::from_secs(row.within), "{outcome:#?}");

    let proved = status != 120;
    assert_eq!(outcome.record("/cause"), row.cause, "{outcome:#?}");
    assert_eq!(outcome.record("/exit_status"), status, "{outcome:#?}");
    assert_eq!(outcome.record("/proved"), proved, "{outcome:#?}");
    assert_eq!(outcome.record("/mode"), row.mode, "{outcome:#?}");
    if row.is_enforced() {
        let removed = outcome.record("/steps_us/group_removed");
        assert_eq!(removed.is_u64(), proved, "group removed: {removed}: {outcome:#?}");
        let groups = outcome.ground.groups();
        assert!(groups.is_empty() || !proved, "left: {groups:?}: {outcome:#?}");
    }
    let empty = outcome.record("/steps_us/tree_empty").as_u64().map(Duration::from_micros);
    assert!(empty.is_none_or(|at| at < OWN_END), "the fault ended by itself: {outcome:#?}");
    if let Some(escalated) = row.escalated {
        assert_eq!(outcome.record("/escalated"), escalated, "{outcome:#?}");
    }
    if let Some(leftovers) = row.leftovers {
        let listed = outcome.record("/leftovers").as_array().unwrap();
        assert_eq!(listed.len(), leftovers, "{outcome:#?}");
        assert_eq!(outcome.record("/leftovers_total"), leftovers, "{outcome:#?}");
    }
    let survivors = outcome.record("/survivors").as_array().unwrap();
    let named: BTreeSet<_> = survivors.iter().map(|named| named["pid"].as_i64().unwrap()).collect();
    let seen: BTreeSet<_> = left().map(|one| innermost(one.pid)).collect();
    assert_eq!(named, seen, "{outcome:#?}");
    assert_eq!(outcome.record("/pid_namespace"), row.is_namespaced(), "{outcome:#?}");

    if row.fault == "flood" {
        return;
    }
    let quiet = row.cause == "exited" && row.leftovers == Some(0);
    let lines = outcome.stderr.lines().count();
    assert!(if quiet { lines == 0 } else { lines >= 1 }, "{outcome:#?}");
    assert!(lines <= 1 || !proved, "more than one line: {outcome:#?}");
    for pid in seen {
        assert!(outcome.stderr.contains(&pid.to_string()), "{pid} is not named: {outcome:#?}");
    }
}

/// The process's pid as it knows it itself.
fn innermost(pid: i32) -> i64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap();
    pids.split_whitespace().next_back().unwrap().parse().unwrap()
}

/// The fault is the command, and there is nothing else.
fn plain(row: &Test) {
    // Without a group a storm is outrun, which takes a real processor.
    let storm = common::storm().filter(|_| row.fault == "fork_storm" && !row.is_enforced());
    let run = prepare(row).fault(row.fault, row.arguments).args(storm.as_deref()).start();
    if let Some(outcome) = finish(row, run) {
        judge(row, &outcome);
    }
}

/// corral waits for what nobody waited for.
fn zombies(row: &Test) {
    let Some(outcome) = finish(row, prepare(row).fault(row.fault, row.arguments).start()) else {
        return;
    };
    judge(row, &outcome);
    // The command, the detached parent and its 30; the middle one of the double
    // fork was waited for.
    assert_eq!(outcome.record("/usage/processes_reaped"), 32, "{outcome:#?}");
}

/// The name arrives in the record as it is.
fn hostile(row: &Test) {
    let Some(outcome) = finish(row, prepare(row).fault(row.fault, row.arguments).start()) else {
        return;
    };
    judge(row, &outcome);
    let tree = outcome.record("/tree_at_cause").as_array().unwrap();
    assert_eq!(tree.len(), 2, "{outcome:#?}");
    for process in tree {
        assert_eq!(process["name"], ") Z 1\n x", "{outcome:#?}");
        assert_ne!(process["state"], "Z", "{outcome:#?}");
    }
}

/// As a user that nobody else is, since everything of that user dies.
fn alone_of_its_user(row: &Test) {
    if !root_or_skip() {
        return;
    }
    let uid = 61_000 + std::process::id() % 4000;
    let run = prepare(row).fault(row.fault, row.arguments).uid(uid).start();
    if row.is_namespaced() {
        return without_effect(run);
    }
    let outcome = run.wait();
    assert_eq!((outcome.status, outcome.signal), (None, Some(9)), "{outcome:#?}");
    // It is the kernel that ends the command now, not in the same instant.
    assert!(outcome.ground.wait_empty(Duration::from_secs(5)), "{outcome:#?}");
}

/// Its parent is out of its reach where that is an init.
fn against_its_parent(row: &Test) {
    if row.is_namespaced() {
        without_effect(prepare(row).fault(row.fault, row.arguments).start());
    } else {
        plain(row);
    }
}

/// The init of its namespace lives on, and so it does itself, until it is told.
#[track_caller]
fn without_effect(mut run: Running) {
    run.ready();
    run.signal(Signal::TERM);
    let outcome = run.wait();
    assert_eq!((outcome.status, outcome.signal), (None, Some(15)), "{outcome:#?}");
    outcome.assert_nothing_left();
    assert_eq!(outcome.record("/cause"), "cancelled", "{outcome:#?}");
    assert_eq!(outcome.record("/proved"), true, "{outcome:#?}");
}

/// Out of the group that the ground is made of: the marker sees it.
fn into_another_group(row: &Test) {
    if !root_or_skip() {
        return;
    }
    let Some(home) = Ground::home() else {
        return skip("no cgroup2 is mounted");
    };
    let procs = home.join("cgroup.procs");
    let run = prepare(row).fault(row.fault, &[procs.to_str().unwrap()]).marker().start();
    if let Some(outcome) = finish(row, run) {
        judge(row, &outcome);
    }
}

/// It moves to the group above its own, whichever that is.
fn out_of_its_group(row: &Test) {
    if !root_or_skip() {
        return;
    }
    let Some(mount) = Ground::mount() else {
        return skip("no cgroup2 is mounted");
    };
    let run = prepare(row).fault(row.fault, &[mount.to_str().unwrap()]).marker().start();
    let Some(outcome) = finish(row, run) else {
        return;
    };
    judge(row, &outcome);
    let listed = outcome.record("/leftovers").as_array().unwrap();
    let detached: BTreeSet<_> = listed.iter().map(|one| one["detached"].as_str()).collect();
    let right = if row.is_enforced() { &["cgroup"][..] } else { &["no", "session"] };
    assert_eq!(detached, right.iter().copied().map(Some).collect(), "{outcome:#?}");
}

/// It makes groups below its own: in fallback mode that is the ground.
fn with_groups_of_its_own(row: &Test) {
    if !root_or_skip() {
        return;
    }
    let Some(mount) = Ground::mount() else {
        return skip("no cgroup2 is mounted");
    };
    let leaderless: &[&str] = if row.name.ends_with("leaderless") { &["leaderless"] } else { &[] };
    let run = prepare(row).fault(row.fault, &[mount.to_str().unwrap()]).args(leaderless).start();
    if let Some(outcome) = finish(row, run) {
        judge(row, &outcome);
    }
}

/// `sleep & exec corral …`: the sleeper is not corral's to end.
fn with_a_child_from_before(row: &Test) {
    let (corral, sleeper) = (corral(), fault("sleep_forever"));
    let (mode, wall) = (format!("--cgroup-mode={}", row.mode), common::wall());
    let mut words = vec![corral.to_str().unwrap(), &mode, "--wall", &wall];
    if row.is_namespaced() {
        words.push("--pid-namespace");
    }
    words.extend(["--", sleeper.to_str().unwrap()]);
    let run = Run::fault_alone(row.fault, &words);
    let run = if row.host == Host::UserNamespace { run.uid(NOBODY).delegated() } else { run };
    let outcome = run.run();
    outcome.assert_status(124);
    let pid: i32 = first_number(&outcome.stdout);
    let alive: Vec<i32> = outcome.survivors.iter().map(|survivor| survivor.pid).collect();
    assert_eq!(alive, [pid], "{outcome:#?}");
    assert!(outcome.elapsed < Duration::from_secs(row.within), "{outcome:#?}");
}

/// The tracer stands on ground of its own.
fn under_a_tracer(row: &Test) {
    let mut run = prepare(row).fault(row.fault, row.arguments).start();
    run.ready();
    let own = i64::from(first_number(run.stdout()));
    // Its own pid is not that of the tracer's namespace.
    let members = run.members();
    let is_it = |one: &&Survivor| one.name == row.fault && innermost(one.pid) == own;
    let pid = members.iter().find(is_it).expect("it is ready").pid;
    let mut tracer = Run::fault_alone(row.fault, &["tracer", &pid.to_string()]).start();
    tracer.wait_until("`ready` or the end", |run| run.has_line("ready") || run.has_ended());
    if tracer.has_ended() {
        return skip("no process may trace another one here");
    }
    let outcome = finish(row, run).expect("its trap was set");
    judge(row, &outcome);
    assert!(outcome.survivors.iter().any(|one| one.pid == pid), "{outcome:#?}");
    drop(tracer);
    assert!(outcome.ground.wait_empty(Duration::from_secs(10)), "{outcome:#?}");
}

/// The thaw comes from a process that waits for the end of this test, whatever
/// way that ends.
fn frozen(row: &Test) {
    if !root_or_skip() {
        return;
    }
    let Some(group) = Freezer::make() else {
        return skip("no cgroup v1 freezer");
    };
    let directory = group.0.to_str().unwrap();
    let thaw = ["thaw", directory];
    let mut thaw = Run::fault_alone(row.fault, &thaw).stdin(Stdin::Open).start();
    thaw.ready();
    let run = prepare(row).fault(row.fault, &[directory]).start();
    let outcome = finish(row, run);
    if let Some(outcome) = &outcome {
        judge(row, outcome);
    }
    thaw.close_stdin();
    thaw.wait().assert_status(0);
    if let Some(outcome) = outcome {
        assert!(outcome.ground.wait_empty(Duration::from_secs(10)), "{outcome:#?}");
    }
}

/// A group of the v1 freezer, thawed and removed in the end.
struct Freezer(PathBuf);

impl Freezer {
    fn make() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mount =
            mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|mount| {
                mount[2] == "cgroup" && mount[3].split(',').any(|option| option == "freezer")
            })?;
        let path = Path::new(mount[1]).join(format!("corral-test-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        Some(Self(path))
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("freezer.state"), "THAWED");
        let _ = fs::remove_dir(&self.0);
    }
}

/// Not root runs corral, and a setuid helper is out of its reach.
fn out_of_reach(row: &Test) {
    if !root_or_skip() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    common::open_to_all(directory.path());
    let helper = directory.path().join(row.fault);
    install(&fault(row.fault), &helper, 0o4755);
    let run = prepare(row).command([&helper]).uid(NOBODY).start();
    if row.is_namespaced() {
        // In a user namespace that is not root's, no program makes anybody root.
        let outcome = run.wait();
        outcome.assert_status(CANNOT);
        return outcome.assert_nothing_left();
    }
    let Some(outcome) = finish(row, run) else {
        return;
    };
    judge(row, &outcome);
    assert_eq!(outcome.survivors[0].uid, 0, "{outcome:#?}");
    assert_eq!(outcome.record("/survivors/0/uid"), 0, "{outcome:#?}");
}

/// The first number in a text.
fn first_number(text: &[u8]) -> i32 {
    let text = String::from_utf8_lossy(text);
    let digits: String =
        text.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|e| panic!("{e}: {text:?}"))
}
