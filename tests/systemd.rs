//! Does `corral-enforced` get its group from a real systemd?
//!
//! A guest whose init is systemd (`.ci/systemd-image`), with a user manager for
//! an ordinary user. A unit runs the script below at the end of the boot, as root
//! and as that user, and each of its lines on the console is held against what is
//! due.

mod common;
mod expect;
mod machine;

use std::fs;
use std::time::Duration;

use common::{corral, fault, skip};
use machine::{Console, Initramfs, Kernel};
use serde_json::Value;

/// A kernel with all that systemd wants; its image is the distribution's own.
const KERNEL: Kernel = Kernel { name: "6.1", without: &[] };
/// systemd boots in half a minute where nothing else is done.
const LIMIT: Duration = Duration::from_secs(540);

/// Where the guest has our programs; its PATH names it.
const BIN: &str = "/usr/local/bin";

/// Last in the boot, on the console, and the guest's end whatever comes of it.
const UNIT: &str = "[Unit]
After=multi-user.target user@1000.service dbus.service
[Service]
Type=oneshot
ExecStart=/bin/sh /checks
ExecStopPost=/bin/sh -c 'echo \"@@ over\" >/dev/console; poweroff -f'
TimeoutStartSec=400
";

/// `check WHO NAME COMMAND...`: its status, its record in a line of its own, what
/// it printed, and the groups and scopes that are left.
const CHECKS: &str = r#"
exec >/dev/console 2>&1
say() { printf '\n@@ %s\n' "$*"; }
as_user() {
    setpriv --reuid 1000 --regid 1000 --init-groups \
        env HOME=/home/user XDG_RUNTIME_DIR=/run/user/1000 "$@"
}
as_root() { "$@"; }
check() {
    who=$1 name=$1-$2
    shift 2
    rm -f /tmp/$who/record
    (cd /tmp/$who && as_$who "$@" >out 2>err)
    status=$?
    left=$(find /sys/fs/cgroup -name 'corral-*'; systemctl list-units --plain --no-legend 'run-*.scope')
    say $name $status left: $left
    say $name.out $(cat /tmp/$who/out)
    say $name.err $(cat /tmp/$who/err)
    test -e /tmp/$who/record && say $name.record $(cat /tmp/$who/record)
}
systemctl start user@1000.service
say systemd $(systemctl --version | head -n 1)
mkdir -p /tmp/root /tmp/user && chown 1000:1000 /tmp/user
for who in root user; do
    check $who status corral-enforced sh -c 'cat /proc/self/cgroup; exit 7'
    check $who memory corral-enforced --wall 60s --mem 64M --json record -- memory_hog
    check $who pids corral-enforced --wall 60s --pids 64 --json record -- fork_to_limit
    check $who storm corral-enforced --wall 3s --pids 64 --json record -- fork_storm tree 500
    check $who left corral-enforced --json record -- sh -c 'setsid sleep 60 & echo done'
    check $who help corral-enforced --help
    check $who misuse corral-enforced --wall 5 true
    check $who mode corral-enforced --cgroup-mode=fallback true
    check $who missing env PATH=/nowhere /usr/local/bin/corral-enforced /bin/true
done
check user silent env -u XDG_RUNTIME_DIR corral-enforced true
check root exec corral-enforced nosuch
"#;

/// The guest's console; `None` where it cannot be booted here.
fn boot() -> Option<Console> {
    let archive = machine::cache()?.join("systemd/root.cpio");
    if !archive.exists() {
        skip("no root with systemd: make it with .ci/systemd-image");
        return None;
    }
    let mut ours = Initramfs::default();
    // Not at their own paths, which systemd clears at boot where they are in /tmp.
    ours.file(format!("{BIN}/corral"), 0o755, &fs::read(corral()).unwrap());
    ours.link(format!("{BIN}/corral-enforced"), "corral");
    for name in ["memory_hog", "fork_to_limit", "fork_storm"] {
        ours.file(format!("{BIN}/{name}"), 0o755, &fs::read(fault(name)).unwrap());
    }
    ours.file("/checks", 0o755, CHECKS.as_bytes());
    ours.file("/etc/systemd/system/checks.service", 0o644, UNIT.as_bytes());
    let wants = "/etc/systemd/system/graphical.target.wants/checks.service";
    ours.link(wants, "../checks.service");
    ours.file("/init", 0o755, b"#!/bin/sh\nexec /lib/systemd/systemd\n");

    // The kernel unpacks one archive after the other.
    let mut root = fs::read(archive).unwrap();
    root.resize(root.len().next_multiple_of(512), 0);
    root.extend(ours.finish());
    KERNEL.boot_on(&root, LIMIT)
}

/// Status of a check, what it printed on both streams, and its record.
fn check<'c>(console: &'c Console, name: &str) -> (i32, &'c str, &'c str, Value) {
    let (status, left) = console.said(name).split_once(' ').unwrap();
    assert_eq!(left, "left:", "{name} leaves something: {}", console.text);
    let record = format!("@@ {name}.record ");
    let record = console.text.lines().find_map(|line| line.strip_prefix(record.as_str()));
    let record = record.map_or(Value::Null, |record| serde_json::from_str(record).unwrap());
    let said = |stream| console.said(&format!("{name}.{stream}"));
    (status.parse().unwrap(), said("out"), said("err"), record)
}

#[test]
fn as_root_and_as_an_ordinary_user() {
    let Some(console) = boot() else {
        return;
    };
    let systemd = console.said("systemd");
    println!("{} s, {systemd}\n{}", console.elapsed.as_secs(), console.text);
    for who in ["root", "user"] {
        let check = |name: &str| check(&console, &format!("{who}-{name}"));
        let (status, out, err, _) = check("status");
        assert_eq!((status, err), (7, ""), "{out}");
        assert!(out.contains(".scope/corral-"), "{out}");
        assert_eq!(out.contains("user@1000.service"), who == "user", "{out}");

        let (status, _, err, record) = check("memory");
        assert_eq!((status, &record["cause"]), (122, &"memory".into()), "{err}");
        assert_eq!(record["mode"], "enforced");
        assert!(record["usage"]["oom_kills"].as_u64() > Some(0), "{record}");
        assert!(record["steps_us"]["group_removed"].is_u64(), "{record}");

        let (status, out, err, record) = check("pids");
        assert_eq!((status, err), (0, ""), "{out}");
        assert!(record["usage"]["pids_refused"].as_u64() > Some(0), "{record}");

        let (status, _, err, record) = check("storm");
        assert_eq!((status, &record["cause"]), (124, &"wall".into()), "{err}");
        assert!(record["usage"]["pids_peak"].as_u64().is_none_or(|peak| peak <= 64), "{record}");
        assert_eq!(record["proved"], true);

        let (status, out, _, record) = check("left");
        assert_eq!((status, out, &record["leftovers_total"]), (0, "done", &1.into()), "{record}");

        let (status, out, err, _) = check("help");
        assert_eq!((status, err), (0, ""));
        assert!(out.contains("--cgroup-mode"), "{out}");
        for (name, word) in [("misuse", "--wall"), ("mode", "fallback"), ("missing", "ENOENT")] {
            let (status, out, err, _) = check(name);
            assert_eq!((status, out), (125, ""), "{name}: {err}");
            assert!(err.starts_with("corral: cannot ") && err.contains(word), "{name}: {err}");
        }
    }
    let (status, out, err, _) = check(&console, "user-silent");
    assert_eq!((status, out), (125, ""), "{err}");
    assert!(err.starts_with("corral: cannot make a scope"), "{err}");
    let (status, _, err, _) = check(&console, "root-exec");
    assert_eq!(status, 127, "{err}");
}
