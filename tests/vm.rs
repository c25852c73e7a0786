//! Does corral hold on the kernels that people have?
//!
//! Each test boots one kernel (`machine`) and runs the whole fault table in it,
//! the very executable that runs it on this machine; or rows of it on a host with
//! nothing mounted, with few pids, or with corral as the init. What ends as it
//! should and what outlives it is counted from outside corral, and shown in a
//! table: kernel, mode, faults that held, survivors. On AArch64 each row is shown
//! too, and corral is the binary as it is installed.

mod common;
mod expect;
mod kit;
mod machine;

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use expect::{By, Ends, Enforced, ROWS, row};
use kit::test_executable;
use machine::{BASE, Console, Cross, Kernel};
use serde_json::{Value, json};

/// The modes, each with the test executables that are run in it; the first has
/// the fault table.
const MODES: &[(&str, &[&str])] =
    &[("fallback", &["faults"]), ("enforced", &["faults", "enforced_limits"])];

const UML: Kernel = Kernel { name: "uml", without: &[] };
const V5_10: Kernel = Kernel { name: "5.10", without: &[] };
const V6_1: Kernel = Kernel { name: "6.1", without: &[] };
const V6_12: Kernel = Kernel { name: "6.12", without: &[] };
const V7: Kernel = Kernel { name: "7.x", without: &[] };
const ARM64: Kernel = Kernel { name: "arm64", without: &[] };

/// A whole guest; a machine of two busy processors takes a third of it.
const LIMIT: Duration = Duration::from_secs(540);

#[test]
fn the_fault_table_on_user_mode_linux() {
    fault_table(UML);
}

#[test]
fn the_fault_table_on_5_10() {
    fault_table(V5_10);
}

#[test]
fn the_fault_table_on_6_1() {
    fault_table(V6_1);
}

#[test]
fn the_fault_table_on_6_12() {
    fault_table(V6_12);
}

#[test]
fn the_fault_table_on_7() {
    fault_table(V7);
}

#[test]
fn the_fault_table_on_aarch64() {
    if !kit::have(&["qemu-system-aarch64"]) {
        return;
    }
    let names: Vec<&str> =
        MODES.iter().flat_map(|(_, executables)| *executables).copied().collect();
    let Some(built) = Cross::build("aarch64-unknown-linux-musl", &names) else {
        return;
    };
    let (script, programs) = table(|name| built.executables[name].clone());
    if let Some(console) = ARM64.boot_foreign(&built, &programs, &script, LIMIT) {
        print_rows(&console);
        held(&ARM64, &console);
    }
}

/// Everything mounted as a usual system has it.
const MOUNTED: &str = "
mount -t devtmpfs none /dev
mount -t proc none /proc
mount -t sysfs none /sys
mount -t cgroup2 none /sys/fs/cgroup
mount -t cgroup -o freezer none /freezer 2>/dev/null
echo '+memory +pids' >/sys/fs/cgroup/cgroup.subtree_control
";

/// Runs tests in a guest, as the part `what` of its console.
fn tests(what: &str, mode: &str, program: &Path, options: &str) -> String {
    format!(
        "say begin {what}
         CORRAL_TEST_MODE={mode} CORRAL_TEST_WALL=4s CORRAL_TEST_STORM=100 \\
         RUST_TEST_THREADS=4 \\
         {} {options} 2>/tmp/stderr; status=$?
         cat /tmp/stderr
         say {what} $status\n",
        program.display()
    )
}

fn fault_table(kernel: Kernel) {
    let (script, programs) = table(test_executable);
    if let Some(console) = kernel.boot(&programs, &script, LIMIT) {
        held(&kernel, &console);
    }
}

/// The script of a guest that runs the whole table, and the programs it starts.
fn table(executable: impl Fn(&str) -> PathBuf) -> (String, Vec<PathBuf>) {
    let mut script = format!("{MOUNTED}\nsay kernel $(uname -r)\n");
    let mut programs = Vec::new();
    for (mode, executables) in MODES {
        for name in *executables {
            let program = executable(name);
            // The fault table holds the rows of both modes.
            let chosen = if *name == "faults" { format!("{mode}::") } else { String::new() };
            script += &tests(&format!("{mode}-{name}"), mode, &program, &chosen);
            programs.push(program);
        }
    }
    (script, programs)
}

/// Holds what such a guest said against what was due.
fn held(kernel: &Kernel, console: &Console) {
    let survivors = console.said("survivors").split_whitespace().count();
    for (mode, executables) in MODES {
        for name in *executables {
            let part = format!("{mode}-{name}");
            // What did not run is told apart from what passed.
            let (passed, skipped) = (console.passed(&part), console.skipped(&part));
            let held = ROWS.iter().filter(|row| passed.contains(row.name));
            let held = held.filter(|row| !skipped.contains(&row.name)).count();
            let cell = match *name {
                "faults" => format!("{held}/{}", ROWS.len()),
                _ => format!("{name} {}", passed.len() - skipped.len()),
            };
            report(kernel, console, mode, &cell, survivors);
            let lost = console.failed(&part);
            assert!(lost.is_empty(), "{} {mode} {lost:?}: {}", kernel.name, console.text);
            assert_eq!(console.said(&part), "0", "{}", console.text);
            assert_eq!(skipped, kernel.without, "{}", console.text);
            assert!(*name != "faults" || held + skipped.len() == ROWS.len(), "{}", console.text);
        }
    }
    assert_eq!(survivors, 0, "{}", console.text);
}

/// Rows that need nothing but corral and their fault, in a script: lines that
/// run each and say what came of it. `CHECK` must stand before them.
fn checks(place: &str, mode: &str, names: &[&str]) -> String {
    let line = |name: &&str| {
        let row = row(name);
        let (by, wall) = match row.by {
            By::Itself => ("itself", ""),
            By::Wall => ("wall", "--wall 2s"),
            By::Term => ("term", ""),
        };
        let status = match row.ends {
            Ends::Exit(status) => status,
            Ends::Signal(signal) => 128 + signal,
        };
        let (corral, fault) = (common::corral(), common::fault(row.fault));
        format!(
            "check {place}/{name} {status} {by} {} --cgroup-mode {mode} {wall} {} -- {} {}\n",
            corral.display(),
            row.options.join(" "),
            fault.display(),
            row.arguments.join(" "),
        )
    };
    names.iter().map(line).collect()
}

/// `check NAME STATUS BY ARGV`: runs it, with SIGTERM once it is `ready` where BY
/// says so, and says which status was due and which came.
const CHECK: &str = "
check() {
    name=$1 due=$2 by=$3
    shift 3
    : >/tmp/out
    \"$@\" >/tmp/out 2>/tmp/err &
    run=$! start=$(date +%s)
    if test $by = term; then
        until read -r line </tmp/out && test \"$line\" = ready; do
            kill -0 $run || break
        done
        kill -TERM $run
    fi
    wait $run
    status=$?
    say check $name $due $status after $(($(date +%s) - start)) s
    test $due = $status || cat /tmp/out /tmp/err
}
";

/// Holds what the checks of a guest said against what was due; how many did.
fn judge(kernel: &Kernel, console: &Console, what: &str, due: usize) {
    let lines = console.text.lines().filter_map(|line| line.strip_prefix("@@ check "));
    let checks: Vec<Vec<&str>> = lines.map(|line| line.split(' ').collect()).collect();
    let held = checks.iter().filter(|check| check[1] == check[2]).count();
    let survivors = console.said("survivors").split_whitespace().count();
    report(kernel, console, what, &format!("{held}/{due}"), survivors);
    println!("{}", console.text);
    assert_eq!((held, checks.len()), (due, due), "{}", console.text);
    assert_eq!(survivors, 0, "{}", console.text);
}

/// What can be missing on a host, and what is mounted nevertheless.
const HOSTS: &[(&str, &str)] = &[
    ("nothing", ""),
    ("proc", "mount -t proc none /proc"),
    ("no_group", "mount -t sysfs none /sys"),
    ("no_proc", "umount /proc; mount -t cgroup2 none /sys/fs/cgroup"),
];

/// The rows for such a host: everything that a run without a tree to look at
/// can still end and prove.
const BARE: &[&str] = &[
    "exit_clean",
    "exit_with_7",
    "sleep_forever",
    "clean_up",
    "ignore_term",
    "block_term",
    "stop_self",
    "zombie_parent",
    "nested_subreaper",
    "leader_thread_gone",
    "pipe_holder",
    "pipe_holder_fails",
    "pipe_holder_relayed",
    "setsid_double_fork",
    "setsid_double_fork_stays",
    "clone_parent",
    "kill_group",
    "late_output",
    "kill_parent",
];

/// corral is started by an init that has mounted nothing, or not everything.
fn bare_hosts(kernel: Kernel) {
    let mut script = format!("{CHECK}\nsay kernel $(uname -r)\n");
    for (place, mount) in HOSTS {
        script += &format!("{mount}\n{}", checks(place, "auto", BARE));
    }
    if let Some(console) = kernel.boot(&[], &script, LIMIT) {
        judge(&kernel, &console, "bare", HOSTS.len() * BARE.len());
    }
}

#[test]
fn bare_hosts_on_5_10() {
    bare_hosts(V5_10);
}

#[test]
fn bare_hosts_on_6_1() {
    bare_hosts(V6_1);
}

#[test]
fn bare_hosts_on_6_12() {
    bare_hosts(V6_12);
}

#[test]
fn bare_hosts_on_7() {
    bare_hosts(V7);
}

/// The rows whose processes come and go. Not those that take all pids there are:
/// the guest's own shell could not go on.
const MOVING: &[&str] = &[
    "exit_clean",
    "pid_hopper",
    "pid_hopper_left",
    "fork_on_term",
    "nested_subreaper",
    "setsid_double_fork",
    "clone_parent",
    "zombie_parent",
    "stopped_children",
    "leader_thread_gone",
];

/// Few pids, and others who take each that becomes free: whoever signals a pid
/// that was read before meets a stranger. Those must all end as they meant to.
const FEW_PIDS: &str = "
echo 400 >/proc/sys/kernel/pid_max
: >/tmp/go
strangers() {
    n=0
    while test -e /tmp/go; do
        /bin/true || say stranger ended with $?
        n=$((n + 1))
    done
    echo $n >/tmp/strangers.$1
}
strangers 1 & first=$!
strangers 2 & second=$!
sleep 1000 & sleeper=$!
";
const STRANGERS_GO: &str = "
rm /tmp/go
wait $first $second
kill $sleeper && say check sleeper 0 0
wait $sleeper
say strangers $(($(cat /tmp/strangers.1) + $(cat /tmp/strangers.2)))
";

fn few_pids(kernel: Kernel) {
    let moving: String =
        ["fallback", "enforced"].map(|mode| checks("few_pids", mode, MOVING)).concat();
    let script =
        format!("{CHECK}\n{MOUNTED}\nsay kernel $(uname -r)\n{FEW_PIDS}\n{moving}\n{STRANGERS_GO}");
    let Some(console) = kernel.boot(&[], &script, LIMIT) else {
        return;
    };
    judge(&kernel, &console, "few pids", 2 * MOVING.len() + 1);
    assert!(!console.text.contains("@@ stranger ended"), "{}", console.text);
    // The hopper alone goes through all pids many times; they were among them.
    let strangers: u32 = console.said("strangers").parse().unwrap();
    assert!(strangers > 0, "{strangers} strangers: {}", console.text);
}

#[test]
fn few_pids_on_user_mode_linux() {
    few_pids(UML);
}

#[test]
fn few_pids_on_5_10() {
    few_pids(V5_10);
}

#[test]
fn few_pids_on_6_1() {
    few_pids(V6_1);
}

#[test]
fn few_pids_on_6_12() {
    few_pids(V6_12);
}

#[test]
fn few_pids_on_7() {
    few_pids(V7);
}

/// What the last thing is that the kernel tells where an init exits with 3, and
/// where it turns the power off.
const EXITED: &str = "Attempted to kill init! exitcode=0x00000300";
const OFF: &str = "reboot: Power down";
const HALTED: &str = "reboot: System halted";

/// corral becomes the init, with what `mount` says mounted; it ends what its
/// command left, and then the machine.
fn becomes_init(kernel: Kernel, mount: &str, at_exit: &str, end: &str) {
    let script = format!(
        "say kernel $(uname -r)
         {mount}
         exec {} --cgroup-mode auto --at-exit {at_exit} --json /dev/console -- sh -c '
             setsid sleep 1000 >/dev/null 2>&1 </dev/null &
             printf \"\\n@@ over\\n\"
             exit 3'",
        common::corral().display()
    );
    if let Some(console) = kernel.boot(&[], &script, LIMIT) {
        ends(&kernel, &console, end, &[("cause", json!("exited")), ("leftovers_total", json!(1))]);
    }
}

/// The kernel itself starts corral as its init, with nothing mounted.
fn is_init(kernel: Kernel, off: &str) {
    let Some(mut root) = BASE.clone() else {
        return;
    };
    root.static_program(&common::corral(), "/corral");
    let job = "#!/bin/sh\nPATH=/bin\nsetsid sleep 1000 </dev/null >/dev/null 2>&1 &\n\
               printf '\\n@@ kernel '; uname -r; printf '\\n@@ over\\n'; sleep 1000\n";
    root.file("/job", 0o755, job.as_bytes());
    // The kernel drops what follows a second `--`.
    let init = "rdinit=/corral -- --wall 5s --at-exit poweroff --json /dev/console /job";
    if let Some(console) = kernel.boot_on(&root.finish(), init, LIMIT) {
        ends(&kernel, &console, off, &[("cause", json!("wall")), ("exit_status", json!(124))]);
    }
}

/// The record is whole and proves the end, and then the machine ended as it should.
fn ends(kernel: &Kernel, console: &Console, end: &str, fields: &[(&str, Value)]) {
    let text = &console.text;
    let record = text.lines().find(|line| line.starts_with('{'));
    let record: Value = serde_json::from_str(record.expect(text)).unwrap();
    report(kernel, console, "as init", "1/1", 0);
    assert!(text.contains(end), "{text}");
    assert_eq!(record["proved"], true, "{text}");
    for (what, value) in fields {
        assert_eq!(record[what], *value, "{text}");
    }
}

#[test]
fn init_of_user_mode_linux() {
    // Its processor has no power to turn off, and the kernel then halts.
    is_init(UML, HALTED);
    let proc = "mount -t proc none /proc";
    for (mount, at_exit, end) in [
        ("", "exit", EXITED),
        (proc, "exit", EXITED),
        ("", "auto", HALTED),
        (proc, "auto", HALTED),
        ("", "halt", HALTED),
    ] {
        becomes_init(UML, mount, at_exit, end);
    }
}

#[test]
fn init_of_5_10() {
    is_init(V5_10, OFF);
    // User-mode Linux would begin again, and again.
    becomes_init(V5_10, "mount -t proc none /proc", "reboot", "reboot: Restarting system");
    becomes_init(V5_10, "", "exit", EXITED);
}

#[test]
fn init_of_7() {
    is_init(V7, OFF);
}

/// A guest whose survivors, failures or skips were not seen would pass each test.
#[test]
fn what_goes_wrong_in_a_guest_is_seen() {
    let table = test_executable("faults");
    let script = format!(
        "{CHECK}\n{MOUNTED}\nsay kernel $(uname -r)
         sleep 1000 &
         check wrong 7 itself /bin/true
         umount /freezer
         {}
         rm {}
         {}",
        tests("a", "fallback", &table, "--exact fallback::v1_frozen fallback::exit_clean"),
        common::fault("exit_clean").display(),
        tests("b", "fallback", &table, "--exact fallback::exit_clean"),
    );
    let Some(console) = UML.boot(&[table], &script, LIMIT) else {
        return;
    };
    println!("{}", console.text);
    assert!(console.said("survivors").ends_with(":/bin/busybox"), "{}", console.text);
    assert!(console.said("check").starts_with("wrong 7 0 "), "{}", console.text);
    assert_eq!((console.said("a"), console.skipped("a")), ("0", vec!["v1_frozen"]));
    assert_eq!((console.said("b"), console.passed("b").len()), ("101", 0));
}

/// A line of the table of results, past the capture of libtest.
fn report(kernel: &Kernel, console: &Console, mode: &str, faults: &str, survivors: usize) {
    static HEAD: Once = Once::new();
    let line = |cells: [&dyn fmt::Display; 6]| {
        let [name, release, mode, faults, survivors, seconds] = cells;
        let _ = writeln!(
            io::stderr(),
            "{name:8} {release:32} {mode:9} {faults:>7} {survivors:>9} {seconds:>7}"
        );
    };
    HEAD.call_once(|| line([&"kernel", &"release", &"mode", &"faults", &"survivors", &"seconds"]));
    let seconds = console.elapsed.as_secs();
    line([&kernel.name, &console.said("kernel"), &mode, &faults, &survivors, &seconds]);
}

/// The table itself, a line a row, as [`report`].
fn print_rows(console: &Console) {
    for row in ROWS {
        let cell = |mode: &str| {
            let part = format!("{mode}-faults");
            match row.enforced {
                Enforced::Never(_) if mode == "enforced" => "not here",
                _ if console.skipped(&part).contains(&row.name) => "skipped",
                _ if console.passed(&part).contains(row.name) => "ok",
                _ => "FAILED",
            }
        };
        let (fallback, enforced) = (cell("fallback"), cell("enforced"));
        let _ = writeln!(io::stderr(), "{:28} fallback {fallback:8} enforced {enforced}", row.name);
    }
}
