//! Does corral hold on the kernels that people have?
//!
//! Each test boots one kernel (`machine`) and runs the whole fault table in it,
//! the very executable that runs it on this machine.

mod common;
mod expect;
mod machine;

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use expect::ROWS;
use machine::{Console, Kernel};

/// The modes that the table is run in.
const MODES: &[&str] = &["fallback"];

const UML: Kernel = Kernel { name: "uml", without: &[] };
const V5_10: Kernel = Kernel { name: "5.10", without: &[] };
const V6_1: Kernel = Kernel { name: "6.1", without: &[] };
const V6_12: Kernel = Kernel { name: "6.12", without: &[] };
const V7: Kernel = Kernel { name: "7.x", without: &[] };

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

/// Everything mounted as a usual system has it.
const MOUNTED: &str = "
mount -t devtmpfs none /dev
mount -t proc none /proc
mount -t sysfs none /sys
mount -t cgroup2 none /sys/fs/cgroup
mount -t cgroup -o freezer none /freezer 2>/dev/null
echo '+memory +pids' >/sys/fs/cgroup/cgroup.subtree_control
";

fn fault_table(kernel: Kernel) {
    let table = test_executable("faults");
    let mut script = format!("{MOUNTED}\nsay kernel $(uname -r)\n");
    for mode in MODES {
        script += &format!(
            "say begin {mode}
             CORRAL_TEST_MODE={mode} CORRAL_TEST_WALL=4s RUST_TEST_THREADS=4 \\
             {} --skip expect:: 2>/tmp/stderr; status=$?
             cat /tmp/stderr
             say {mode} $status\n",
            table.display()
        );
    }
    let Some(console) = kernel.boot(&[table], &script, LIMIT) else {
        return;
    };
    let survivors = console.said("survivors").split_whitespace().count();
    for mode in MODES {
        // What did not run is told apart from what passed.
        let skipped = console.skipped(mode);
        let passed = console.passed(mode);
        let held = ROWS.iter().map(|row| row.name).filter(|name| passed.contains(name));
        let held = held.filter(|name| !skipped.contains(name)).count();
        report(&kernel, &console, mode, &format!("{held}/{}", ROWS.len()), &survivors);
        assert_eq!(console.said(mode), "0", "{}", console.text);
        assert_eq!(skipped, kernel.without, "{}", console.text);
        assert_eq!(held + skipped.len(), ROWS.len(), "{}", console.text);
    }
    assert_eq!(survivors, 0, "{}", console.text);
}

/// A line of the table of results, past the capture of libtest.
fn report(
    kernel: &Kernel,
    console: &Console,
    mode: &str,
    faults: &dyn fmt::Display,
    survivors: &dyn fmt::Display,
) {
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
    line([&kernel.name, &console.said("kernel"), &mode, faults, survivors, &seconds]);
}

/// The newest build of another test target. It must not be older than its
/// sources, as when only this target was built.
fn test_executable(name: &str) -> PathBuf {
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
