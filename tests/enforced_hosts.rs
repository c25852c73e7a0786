//! What if this host lets corral have no group?
//!
//! Each host is a real one, in a mount namespace or a group of its own. Asked
//! for, enforced mode is refused with the reason, and nothing is run; by itself
//! corral falls back, says why in the record and nothing on stderr, and its
//! promise holds all the same. Neither leaves a group behind.

mod common;
mod kit;

use common::{Ground, NOBODY, Outcome, Run, root_or_skip, skip};
use kit::{find, have, only_line};
use serde_json::Value;

/// Leaves somebody behind, so that something is to be ended.
const COMMAND: &str = "setsid sleep 30 >/dev/null 2>&1 & exit 8";

/// corral in both modes, after `prepare` (shell) has made the host; `exit 77`
/// skips. One of `reasons` must stand in what corral says, and all of one.
fn host(prepare: &str, reasons: &[&[&str]]) {
    if !root_or_skip() || !have(&["unshare", "mount", "umount"]) {
        return;
    }
    let Some(mount) = Ground::mount() else {
        return skip("no cgroup2 is mounted");
    };
    let run = |mode: &str, command: &str| {
        let text = format!(
            "mount --make-rprivate / || exit 77; \
             G=\"$M$(sed -n 's/^0:://p' /proc/self/cgroup)\"; {prepare}\n\
             exec \"$C\" --cgroup-mode={mode} --linger=0s --json /dev/stdout -- sh -c \"$W\""
        );
        let outcome = Run::argv(["unshare", "-m", "sh", "-c", &text])
            .env("M", &mount)
            .env("W", command)
            .run();
        (outcome.status != Some(77)).then_some(outcome)
    };
    let (Some(refused), Some(quiet), Some(left)) =
        (run("enforced", "echo run"), run("auto", "exit 8"), run("auto", COMMAND))
    else {
        return skip("cannot make such a host");
    };

    refused.assert_status(125);
    let line = only_line(&refused);
    assert!(line.starts_with("corral: cannot "), "{line}");
    assert!(line.contains("--cgroup-mode"), "{line}");
    assert_says(line, reasons);
    assert!(refused.stdout.is_empty(), "{refused:#?}");

    assert_eq!(quiet.stderr, "");
    // What was stopped is said, and nothing else.
    assert!(!only_line(&left).contains("group"), "{left:#?}");
    for outcome in [&quiet, &left] {
        outcome.assert_status(8);
        let record: Value = serde_json::from_slice(&outcome.stdout).unwrap();
        assert_eq!(record["mode"], "fallback", "{record:#}");
        assert_says(record["fallback_reason"].as_str().expect("a reason"), reasons);
        assert!(record["steps_us"]["group_removed"].is_null(), "{record:#}");
        assert_eq!(record["proved"], true, "{record:#}");
    }
    for outcome in [refused, quiet, left] {
        outcome.assert_nothing_left();
        assert_no_group(&outcome);
    }
}

#[track_caller]
fn assert_says(text: &str, reasons: &[&[&str]]) {
    let lower = text.to_lowercase();
    let said = reasons.iter().any(|all| all.iter().all(|word| lower.contains(word)));
    assert!(said, "{text:?} has none of {reasons:?}");
}

/// None but what the host itself is made of.
#[track_caller]
fn assert_no_group(outcome: &Outcome) {
    let mut groups = outcome.ground.groups();
    groups.retain(|group| !group.ends_with("host"));
    assert!(groups.is_empty(), "{groups:?}: {outcome:#?}");
}

const NONE: &[&[&str]] = &[&["no cgroup2"], &["cgroup2", "not mounted"], &["cgroup2", "enoent"]];

#[test]
fn none_is_mounted() {
    let text = "while M=$(awk '$3 == \"cgroup2\" {print $2; exit}' /proc/mounts); [ -n \"$M\" ]; do \
                umount -l \"$M\" || exit 77; done";
    host(text, NONE);
}

/// The list of mounts names it, and nobody gets there.
#[test]
fn it_is_hidden_below_another_mount() {
    let gone: &[&[&str]] = &[&["no cgroup2"], &["enoent"]];
    host("mount -t tmpfs none /sys/fs/cgroup || exit 77", gone);
    host("mount -t tmpfs none /sys || exit 77", gone);
}

#[test]
fn it_is_read_only() {
    let text = "mount -o remount,ro,bind \"$M\" || exit 77";
    host(text, &[&["read-only"], &["erofs"]]);
}

#[test]
fn nobody_says_which_group_this_is() {
    let text = "mount -t tmpfs none /proc || exit 77";
    host(text, &[&["/proc"], &["no cgroup2"], &["cgroup2", "enoent"]]);
}

#[test]
fn it_takes_no_more_groups() {
    let text = "echo 0 >$G/cgroup.max.descendants || exit 77";
    host(text, &[&["max.descendants"], &["eagain"]]);
}

/// A child of such a group can be made but not entered.
#[test]
fn it_is_threaded() {
    let threaded: &[&[&str]] = &[&["threaded"], &["domain invalid"], &["eopnotsupp"]];
    let make = "mkdir $G/host && echo threaded >$G/host/cgroup.type || exit 77; ";
    host(make, threaded);
    host(&format!("{make} echo 0 >$G/host/cgroup.procs || exit 77"), threaded);
}

#[test]
fn another_user_owns_it() {
    if !root_or_skip() {
        return;
    }
    if Ground::mount().is_none() {
        return skip("no cgroup2 is mounted");
    }
    let reasons: &[&[&str]] = &[&["not writable"], &["permission"], &["eacces"], &["may not"]];
    let outcome =
        Run::corral(&["--cgroup-mode=enforced"]).command(["echo", "run"]).uid(NOBODY).run();
    outcome.assert_status(125);
    assert_says(only_line(&outcome), reasons);
    assert!(outcome.stdout.is_empty() && outcome.record.is_none(), "{outcome:#?}");
    assert_no_group(&outcome);
    for options in [&[][..], &["--cgroup-mode=auto"]] {
        let outcome = Run::corral(options).command(["sh", "-c", "exit 8"]).uid(NOBODY).run();
        outcome.assert_status(8);
        outcome.assert_nothing_left();
        assert_eq!(outcome.stderr, "");
        assert_eq!(outcome.record("/mode"), "fallback");
        assert_says(outcome.record("/fallback_reason").as_str().unwrap(), reasons);
        assert_no_group(&outcome);
    }
}

/// A group may be made there, but nobody moves from here to there: the group
/// above both is another's.
#[test]
fn the_way_to_it_is_closed() {
    if !root_or_skip() || Ground::new(false).0.group().is_none() {
        return;
    }
    let parent = Ground::new(false).0;
    let group = parent.group().unwrap();
    for file in ["", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"] {
        std::os::unix::fs::chown(group.join(file), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let place = format!("--cgroup-parent={}", group.display());
    let outcome = Run::corral(&["--cgroup-mode=enforced", &place])
        .command([find("echo").unwrap().to_str().unwrap(), "run"])
        .uid(NOBODY)
        .run();
    outcome.assert_status(125);
    assert_says(only_line(&outcome), &[&["eacces"], &["permission"], &["may not"]]);
    assert!(outcome.stdout.is_empty() && outcome.record.is_none(), "{outcome:#?}");
    parent.assert_no_group();
}
