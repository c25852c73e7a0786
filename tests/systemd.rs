//! Does `corral-enforced` get its group from a real systemd?
//!
//! Guests whose init is systemd (`.ci/systemd-image`), an old one and a newer one
//! that treats command lines otherwise, with a user manager for an ordinary user.
//! A unit runs the script below at the end of the boot, as root and as that user,
//! and each of its lines on the console is held against what is due.

mod common;
mod expect;
mod machine;

use std::fs;
use std::time::Duration;

use common::{corral, fault, skip};
use machine::{Console, INIT, Initramfs, Kernel};
use serde_json::Value;

/// A suite's root and its kernel, both the distribution's own.
const BOOKWORM: (&str, Kernel) = ("bookworm", Kernel { name: "6.1", without: &[] });
const TRIXIE: (&str, Kernel) = ("trixie", Kernel { name: "6.12", without: &[] });
/// systemd boots in half a minute where nothing else is done.
const LIMIT: Duration = Duration::from_secs(540);

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
/// it printed, and the groups and scopes that are left. A group must be gone at
/// once; a scope goes when systemd has heard that it is empty, which is asked some
/// times, since each question is also time for it.
const CHECKS: &str = r#"
exec >/dev/console 2>&1
say() { printf '\n@@ %s\n' "$*"; }
as_user() {
    setpriv --reuid 1000 --regid 1000 --init-groups \
        env HOME=/home/user XDG_RUNTIME_DIR=/run/user/1000 "$@"
}
as_root() { "$@"; }
scopes() { find /sys/fs/cgroup -name 'run-*.scope' 2>/dev/null; }
check() {
    who=$1 name=$1-$2
    shift 2
    rm -f /checked/$who/record
    (cd /checked/$who && as_$who "$@" >out 2>err)
    status=$?
    left=$(find /sys/fs/cgroup -name 'corral-*')
    asked=0
    while test -n "$(scopes)" && test $asked -lt 100; do
        systemctl is-system-running >/dev/null
        asked=$((asked + 1))
    done
    say $name $status left: $left $(scopes)
    say $name.out "$(tr '\n' ' ' </checked/$who/out)"
    say $name.err "$(tr '\n' ' ' </checked/$who/err)"
    test -e /checked/$who/record && say $name.record "$(cat /checked/$who/record)"
}
systemctl start user@1000.service
say systemd $(systemctl --version | head -n 1)
mkdir -p /checked/root /checked/user && chown 1000:1000 /checked/user
for who in root user; do
    check $who status corral-enforced sh -c 'cat /proc/self/cgroup; exit 7'
    check $who memory corral-enforced --wall 60s --mem 64M --json record -- /ours/memory_hog
    check $who pids corral-enforced --wall 60s --pids 64 --json record -- /ours/fork_to_limit
    check $who storm corral-enforced --wall 3s --pids 64 --json record -- /ours/fork_storm tree 500
    check $who left corral-enforced --json record -- sh -c 'setsid sleep 60 & echo done'
    check $who stdin sh -c 'echo in | corral-enforced --json fd:3 cat 3>record'
    check $who words corral-enforced printf '<%s>' '$HOME' '${HOME}' '$$' '%n' '' '\' 'a  b'
    check $who bytes sh -c 'corral-enforced printf %s "$(printf "\377\200")" | od -An -tx1'
    check $who long sh -c 'a=$(printf %0100000d 0); corral-enforced printf %s $a $a $a $a | wc -c'
    check $who ignored sh -c 'trap "" CHLD; exec corral-enforced sh -c "exit 7"'
    check $who told corral-enforced --cgroup-mode=enforced --pids 64 cat /proc/self/cgroup
    check $who copy /ours/copy/corral-enforced --pids 64 cat /proc/self/cgroup
    check $who help corral-enforced --help
    check $who misuse corral-enforced --wall 5 true
    check $who mode corral-enforced --cgroup-mode=fallback true
    check $who missing env PATH=/nowhere /ours/corral-enforced /bin/true
    check $who secret corral-enforced sh -c ': hush""hush'
    check $who exec corral-enforced nosuch
done
check user silent env -u XDG_RUNTIME_DIR corral-enforced true
check user deaf env XDG_RUNTIME_DIR=/nowhere DBUS_SESSION_BUS_ADDRESS=unix:path=/nowhere corral-enforced true
say journal $(journalctl --no-pager --output cat | grep -c hush) of $(journalctl --output cat | grep -c '^Started')
"#;

/// The guest's console; `None` where it cannot be booted here.
fn boot((suite, kernel): (&str, Kernel)) -> Option<Console> {
    let archive = machine::cache()?.join("systemd").join(suite).join("root.cpio");
    if !archive.exists() {
        skip(&format!("no root with the systemd of {suite}: make it with .ci/systemd-image"));
        return None;
    }
    let mut ours = Initramfs::default();
    ours.static_program(&corral(), "/ours/corral");
    ours.static_program(&corral(), "/ours/copy/corral-enforced");
    for name in ["memory_hog", "fork_to_limit", "fork_storm"] {
        ours.static_program(&fault(name), format!("/ours/{name}"));
    }
    for link in ["/usr/bin/corral-enforced", "/ours/corral-enforced"] {
        ours.link(link, "/ours/corral");
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
    kernel.boot_on(&root, INIT, LIMIT)
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
fn as_root_and_as_an_ordinary_user_of_bookworm() {
    all_checks(BOOKWORM);
}

#[test]
fn as_root_and_as_an_ordinary_user_of_trixie() {
    all_checks(TRIXIE);
}

fn all_checks(guest: (&str, Kernel)) {
    let Some(console) = boot(guest) else {
        return;
    };
    let systemd = console.said("systemd");
    println!("{} s, {systemd}\n{}", console.elapsed.as_secs(), console.text);
    for who in ["root", "user"] {
        let check = |name: &str| check(&console, &format!("{who}-{name}"));
        let own_scope = |out: &str| {
            assert!(out.contains(".scope/corral-"), "{out}");
            assert_eq!(out.contains("user@1000.service"), who == "user", "{out}");
        };
        let (status, out, err, _) = check("status");
        assert_eq!((status, err), (7, ""), "{out}");
        own_scope(out);

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

        // What systemd-run stands between comes through it.
        let (status, out, err, record) = check("stdin");
        assert_eq!((status, out, err, &record["mode"]), (0, "in", "", &"enforced".into()));
        let words = "<$HOME><${HOME}><$$><%n><><\\><a  b>";
        for (name, due) in [("words", words), ("bytes", "ff 80"), ("long", "400000")] {
            let (status, out, err, _) = check(name);
            assert_eq!((status, out, err), (0, due, ""), "{name}");
        }
        let (status, _, err, _) = check("ignored");
        assert_eq!((status, err), (7, ""));
        for name in ["told", "copy"] {
            let (status, out, err, _) = check(name);
            assert_eq!((status, err), (0, ""), "{name}: {out}");
            own_scope(out);
        }

        let (status, out, err, _) = check("help");
        assert_eq!((status, err), (0, ""));
        assert!(out.contains("--cgroup-mode"), "{out}");
        for (name, word) in [("misuse", "--wall"), ("mode", "fallback"), ("missing", "ENOENT")] {
            let (status, out, err, _) = check(name);
            assert_eq!((status, out), (125, ""), "{name}: {err}");
            assert!(err.starts_with("corral: cannot ") && err.contains(word), "{name}: {err}");
        }
        assert_eq!(check("secret").0, 0);
        assert_eq!(check("exec").0, 127);
    }
    for name in ["user-silent", "user-deaf"] {
        let (status, out, err, _) = check(&console, name);
        assert_eq!((status, out), (125, ""), "{err}");
        assert!(err.starts_with("corral: cannot make a scope"), "{err}");
        assert_eq!(err.matches("corral: ").count(), 1, "{err}");
    }
    // The journal is there, and tells nobody the command line.
    let (hushed, started) = console.said("journal").split_once(" of ").unwrap();
    assert_eq!(hushed, "0", "{}", console.text);
    assert_ne!(started, "0", "{}", console.text);
}
