//! What if the kernel, or a seccomp filter, knows a newer call not?
//!
//! Each call with a fallback is made to answer ENOSYS or EPERM, by strace's
//! injection, in corral and in everything below it: the run is ended, proved and
//! reported all the same.

mod common;
mod kit;

use std::time::Duration;

use common::Run;
use kit::have;

/// Everything to be ended, however it detached, and the last words of a trap.
const TREE: &str = "trap 'echo ended; exit 0' TERM; setsid sleep 30 & sleep 30 & wait";

fn refused(calls: &str, error: &str, options: &[&str]) {
    if !have(&["strace", "prlimit"]) {
        return;
    }
    let inject = format!("inject={calls}:error={error}");
    let corral = common::corral();
    let words =
        ["prlimit", "--nofile=256", "strace", "-f", "-qq", "-o", "/dev/null", "-e", &inject];
    let place = tempfile::tempdir().unwrap();
    let json = format!("--json={}", place.path().join("record").display());
    let all = ["--wall=600ms", "--grace=20s", &json, "--", "sh", "-c", TREE];
    let argv = words.into_iter().chain([corral.to_str().unwrap()]).chain(options.iter().copied());
    let outcome = Run::argv(argv.chain(all)).run();
    let what = format!("{calls} {error}: {outcome:#?}");
    assert_eq!(outcome.status, Some(124), "{what}");
    outcome.assert_nothing_left();
    assert!(outcome.elapsed < Duration::from_secs(15), "{what}");
    assert_eq!(outcome.stdout, b"ended\n", "{what}");
    let text = std::fs::read(place.path().join("record")).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(record["cause"], "wall", "{what}");
    assert_eq!((&record["proved"], &record["escalated"]), (&true.into(), &false.into()), "{what}");
}

macro_rules! tests {
    ($($name:ident $calls:literal $options:expr;)*) => {
        $(
            #[test]
            fn $name() {
                for error in ["ENOSYS", "EPERM"] {
                    refused($calls, error, &$options);
                }
            }
        )*
    };
}

tests! {
    clone3 "clone3" [];
    pidfd_open "pidfd_open" [];
    pidfd_send_signal "pidfd_send_signal" [];
    close_range "close_range" ["--close-fds"];
    splice "splice" ["--max-output=1M"];
    kcmp "kcmp" ["--max-output=1M"];
    faccessat2 "faccessat2" [];
    sched_setscheduler "sched_setscheduler" [];
    all_together "clone3,pidfd_open,pidfd_send_signal,close_range,splice,kcmp,faccessat2" ["--max-output=1M"];
}

#[test]
fn without_any_of_them_a_clean_run_is_clean() {
    if !have(&["strace"]) {
        return;
    }
    let corral = common::corral();
    let inject = "inject=clone3,pidfd_open,close_range,faccessat2:error=ENOSYS";
    let outcome = Run::argv([
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        inject,
        corral.to_str().unwrap(),
        "--",
        "sh",
        "-c",
        "echo hi; exit 7",
    ])
    .run();
    outcome.assert_status(7);
    assert_eq!((&outcome.stdout[..], &outcome.stderr[..]), (&b"hi\n"[..], ""));
}
