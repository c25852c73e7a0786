//! Is the line silent when it should be, and right when it is not?

use core::ffi::CStr;

use super::*;
use crate::cli::plan::{Plan, Words};
use crate::policy::verdict::CommandStatus;
use crate::report::record::{Detached, Output, Steps, Text, Usage};

struct Line(&'static [&'static CStr]);

impl Words for Line {
    fn word(&self, index: usize) -> Option<&'static CStr> {
        self.0.get(index).copied()
    }
}

const WORDS: Line = Line(&[c"corral", c"/bin/sh", c"-c", c"..."]);
const PLAN: Plan = Plan {
    command: 1,
    wall: Some(Span::from_secs(2)),
    output_limit: Some(1 << 20),
    ..Plan::DEFAULT
};
const NO_OUTPUT: Output = Output {
    relayed: false,
    stdout_bytes: None,
    stderr_bytes: None,
    passed_bytes: 0,
    dropped_bytes: 0,
    given_up_bytes: 0,
};

fn moment(millis: u64) -> Option<Instant> {
    Some(Instant(0).plus(Span::from_millis(millis)))
}

/// A run of `/bin/sh` that went well; where steps are asked for, the cause came
/// at 2 s, SIGKILL at 3 s, the end at 3.02 s.
fn base() -> Record<'static> {
    Record {
        plan: &PLAN,
        run_id: b"run-1",
        uid: 1000,
        parent_pid: 1,
        fallback_reason: Some("asked for"),
        cause: Cause::Exited,
        detail: Detail::None,
        exit_status: 0,
        command_status: Some(CommandStatus::Code(0)),
        escalated: false,
        proved: true,
        started_at: 0,
        ended_at: 0,
        steps: Steps {
            started: moment(0),
            cause_seen: moment(2000),
            killed: moment(3000),
            tree_empty: moment(3020),
            returned: moment(8000),
            ..Steps::default()
        },
        output: NO_OUTPUT,
        usage: Usage::default(),
        tree_at_cause: Listing::EMPTY,
        leftovers: Listing::EMPTY,
        survivors: Listing::EMPTY,
        errors: &[],
        signalled: 0,
        words: &WORDS,
    }
}

fn process(pid: i32, name: &str, argv0: &str) -> Process {
    Process {
        pid,
        name: Text::new(name.as_bytes()),
        argv0: Text::new(argv0.as_bytes()),
        uid: Some(1000),
        state: b'S',
        wchan: Text::EMPTY,
        age_ms: 0,
        cpu_ms: 0,
        ppid: 1,
        pgid: 1,
        sid: 1,
        detached: Detached::No,
    }
}

fn list(processes: &[Process]) -> Listing<'_> {
    Listing { first: processes, total: processes.len() as u64 }
}

fn signal_name(signal: i32) -> Option<&'static str> {
    (signal == 15).then_some("TERM")
}

/// What is written, which must be one clean line or nothing.
fn line(record: &Record<'_>) -> String {
    let mut bytes = Vec::new();
    run_line(record, signal_name, &mut |piece| bytes.extend_from_slice(piece));
    let text = String::from_utf8(bytes).unwrap();
    let Some(line) = text.strip_suffix('\n') else {
        assert_eq!(text, "");
        return text;
    };
    assert!(!line.contains(char::is_control), "{line:?}");
    line.to_owned()
}

#[test]
fn silence() {
    assert_eq!(line(&base()), "");
    let failed = Record { exit_status: 7, command_status: Some(CommandStatus::Code(7)), ..base() };
    assert_eq!(line(&failed), "");
    // What --max-output left out is what was asked for.
    let output = Output { relayed: true, dropped_bytes: 5, ..NO_OUTPUT };
    assert_eq!(line(&Record { output, ..base() }), "");
}

#[test]
fn a_limit() {
    let tree = [process(4711, "sleep", "sleep"), process(4712, "sh", "/bin/sh")];
    let wall = Record { cause: Cause::Wall, tree_at_cause: list(&tree), signalled: 2, ..base() };
    let expected = "corral: wall limit of 2s reached: stopped 2 processes (4711 sleep, 4712 sh), \
                    all gone after 1.02s";
    assert_eq!(line(&wall), expected);
    let forced = Record { escalated: true, tree_at_cause: list(&tree[..1]), ..wall };
    let forced = Record { signalled: 1, cause: Cause::Output, ..forced };
    let expected = "corral: output limit of 1M passed: stopped 4711 sleep, SIGKILL needed, \
                    all gone after 1.02s";
    assert_eq!(line(&forced), expected);
}

#[test]
fn only_the_first_few_are_named() {
    let tree: Vec<_> = (1..=5).map(|pid| process(pid, "x", "x")).collect();
    let record = Record { cause: Cause::Wall, signalled: 1500, ..base() };
    let listing = Listing { first: &tree, total: 1500 };
    let expected = "stopped 1500 processes (1 x, 2 x, 3 x, 1497 more)";
    assert!(line(&Record { tree_at_cause: listing, ..record }).contains(expected));
    // Nothing listed, as without /proc.
    assert!(line(&record).contains(": stopped 1500 processes, all gone"));
    assert!(line(&Record { signalled: 1, ..record }).contains(": stopped 1 process, all gone"));
    assert!(line(&Record { signalled: 0, ..record }).contains(": nothing to stop, all gone"));
    let killed = Record { signalled: 0, escalated: true, ..record };
    assert!(line(&killed).contains(": stopped what there was, SIGKILL needed"));
}

#[test]
fn nameless_processes_are_their_pids() {
    let nameless = [process(4711, "", ""), process(4712, "", "")];
    let record = Record { cause: Cause::Wall, ..base() };
    let one = line(&Record { tree_at_cause: list(&nameless[..1]), ..record });
    assert!(one.contains(": stopped 4711, all gone"), "{one}");
    let two = line(&Record { tree_at_cause: list(&nameless), ..record });
    assert!(two.contains(": stopped 2 processes (4711, 4712), all gone"), "{two}");
    let survivor = [Process { state: b'?', uid: None, ..nameless[0] }];
    let unproved = Record { proved: false, survivors: list(&survivor), ..record };
    assert!(line(&unproved).contains(" may be alive (4711, state ?), cause"));
}

#[test]
fn cancelled() {
    let tree = [process(9, "sleep", "sleep")];
    let from = |signal, pid| Record {
        cause: Cause::Cancelled { signal },
        detail: Detail::Signal { signal, pid, uid: 33 },
        tree_at_cause: list(&tree),
        ..base()
    };
    let known = line(&from(15, 77));
    assert!(known.starts_with("corral: cancelled by SIGTERM from pid 77 (uid 33): stopped 9 s"));
    assert!(line(&from(64, 0)).starts_with("corral: cancelled by signal 64: stopped 9 sleep"));
}

#[test]
fn leftovers() {
    let left = [process(4711, "sleep", "sleep")];
    let record = Record { leftovers: list(&left), signalled: 1, ..base() };
    let expected =
        "corral: sh left 1 process behind: stopped 4711 sleep, all gone after 1.02s".to_owned();
    assert_eq!(line(&record), expected);
    let plan = Plan { leftovers: Leftovers::Fail, ..PLAN };
    let failed = Record { plan: &plan, exit_status: verdict::LEFTOVERS, ..record };
    assert_eq!(line(&failed), expected.clone() + "; --leftovers=fail makes that status 119");
    let own = Record { plan: &plan, exit_status: 7, ..record };
    assert_eq!(line(&own), expected);
    let plan = Plan { leftovers: Leftovers::Wait, ..PLAN };
    let waited = Record { plan: &plan, signalled: 0, ..record };
    assert_eq!(line(&waited), expected.replace("stopped", "waited for"));
}

#[test]
fn lost_output() {
    let output = Output { dropped_bytes: 7, given_up_bytes: 6, ..NO_OUTPUT };
    let expected = "corral: sh has ended; 6 bytes of output given up: nobody read on; \
                    1 byte of output left out";
    assert_eq!(line(&Record { output, ..base() }), expected);
    let wall = line(&Record { output, cause: Cause::Wall, ..base() });
    assert!(
        wall.ends_with("s; 6 bytes of output given up: nobody read on; 1 byte of output left out")
    );
}

#[test]
fn an_end_that_is_not_proved() {
    let one = |state, uid| Process { state, uid: Some(uid), ..process(4711, "sleep", "sleep") };
    let about = |process: Process| {
        let survivors = [process];
        let record = Record { cause: Cause::Wall, proved: false, exit_status: 120, ..base() };
        line(&Record { survivors: list(&survivors), ..record })
    };
    let expected = "corral: cannot prove the end: 1 process may be alive (4711 sleep, state D, \
                    uid 0), cause wall, 5s after SIGKILL; it waits in the kernel and ends with \
                    that: look at the mount or device that it uses";
    assert_eq!(about(one(b'D', 0)), expected);
    let waiting = Process { wchan: Text::new(b"nfs_wait"), ..one(b'D', 0) };
    assert!(about(waiting).contains("; it waits in the kernel (nfs_wait) and"));
    assert!(
        about(one(b't', 1000)).ends_with("; a tracer holds it: end TracerPid of /proc/4711/status")
    );
    let other = "it is another user's: end it as root (kill -9 4711), and prevent it with \
                 --no-new-privs";
    assert!(about(one(b'T', 0)).ends_with(other));
    assert!(about(one(b'T', 1000)).ends_with("; end it by hand: kill -9 4711"));
}

#[test]
fn several_survivors_and_none() {
    let unknown = Process { uid: None, state: b'?', ..process(2, "b", "b") };
    let survivors = [process(1, "a", "a"), unknown, unknown, unknown];
    let record = Record { proved: false, exit_status: 120, ..base() };
    let four = line(&Record { survivors: list(&survivors), ..record });
    let expected = "4 processes may be alive (1 a, state S, uid 1000; 2 b, state ?; \
                    2 b, state ?; 1 more), cause exited";
    assert!(four.contains(expected), "{four}");
    let none = line(&record);
    assert!(none.contains("a process that /proc does not show may be alive"), "{none}");
}

#[test]
fn a_command_that_could_not_be_run() {
    let record = |name, text| Record {
        cause: Cause::Exec,
        detail: Detail::Exec { name, text },
        exit_status: 127,
        command_status: None,
        ..base()
    };
    let expected = "corral: cannot run /bin/sh: ENOENT (no such file or directory); check the \
                    path, and the interpreter that a script names";
    assert_eq!(line(&record("ENOENT", "ENOENT (no such file or directory)")), expected);
    let words = Line(&[c"corral", c"no-such"]);
    let bare = Record { words: &words, ..record("ENOENT", "ENOENT") };
    assert_eq!(line(&bare), "corral: cannot run no-such: ENOENT; check the name and PATH");
    let words = Line(&[c"corral", c""]);
    let empty = Record { words: &words, ..bare };
    assert_eq!(line(&empty), "corral: cannot run: ENOENT; COMMAND is an empty word");
    assert_eq!(line(&record("EIO", "EIO")), "corral: cannot run /bin/sh: EIO");
    let unknown = Record { detail: Detail::None, ..record("", "") };
    assert_eq!(line(&unknown), "corral: cannot run /bin/sh");
}

#[test]
fn a_status_that_somebody_else_got() {
    let record = Record { command_status: None, exit_status: 120, ..base() };
    let expected = "corral: cannot tell the status of /bin/sh; its status went to another \
                    process: run it without a tracer";
    assert_eq!(line(&record), expected);
}

#[test]
fn quiet_leaves_only_errors() {
    let plan = Plan { quiet: true, ..PLAN };
    let left = [process(4711, "sleep", "sleep")];
    let output = Output { given_up_bytes: 1, ..NO_OUTPUT };
    let quiet = Record { plan: &plan, leftovers: list(&left), output, ..base() };
    assert_eq!(line(&quiet), "");
    assert_eq!(line(&Record { cause: Cause::Wall, ..quiet }), "");
    assert_eq!(line(&Record { cause: Cause::Cancelled { signal: 15 }, ..quiet }), "");
    let text = "ENOENT (no such file or directory)";
    let exec = Detail::Exec { name: "ENOENT", text };
    let failed = Record { cause: Cause::Exec, detail: exec, command_status: None, ..quiet };
    let lost = Record { command_status: None, ..quiet };
    let unproved = Record { cause: Cause::Wall, proved: false, survivors: list(&left), ..quiet };
    let errors = [
        (failed, "corral: cannot run /bin/sh: ENOENT (no such file or directory); "),
        (lost, "corral: cannot tell the status of /bin/sh; "),
        (unproved, "corral: cannot prove the end: 1 process may be alive (4711 sleep, "),
    ];
    for (record, begin) in errors {
        let told = line(&record);
        assert!(told.starts_with(begin), "{told}");
        assert_eq!(told, line(&Record { plan: &PLAN, ..record }), "as loud as ever");
    }
}

#[test]
fn which_name_is_telling() {
    let rows = [
        ("sleep", "sleep", "sleep"),
        ("sleep", "/usr/bin/sleep", "sleep"),
        ("chromium-browse", "/opt/chromium-browser-stable", "chromium-browser-stable"),
        ("nginx", "nginx: worker", "nginx: worker"),
        // A script: its own name is in comm, its interpreter's in argv[0].
        ("build.sh", "/bin/bash", "build.sh"),
        // A lie in argv[0] does not count.
        ("miner", "/usr/bin/sshd", "miner"),
        ("kworker", "", "kworker"),
        ("", "/bin/x", "/bin/x"),
    ];
    for (name, argv0, expected) in rows {
        let process = process(1, name, argv0);
        assert_eq!(telling(&process), expected.as_bytes(), "{name} {argv0}");
    }
}

#[test]
fn hostile_names_are_shown_not_obeyed() {
    let tree = [process(7, "\x1b[2J\u{202e}\n", "")];
    let record = Record { cause: Cause::Wall, tree_at_cause: list(&tree), ..base() };
    assert!(line(&record).contains(r"stopped 7 \x1b[2J\xe2\x80\xae\x0a, all gone"));
}

#[test]
fn cannot_leaves_out_what_is_empty() {
    let text = |object: &[u8], errno, advice| {
        let mut bytes = Vec::new();
        cannot("open", object, errno, advice, &mut |piece| bytes.extend_from_slice(piece));
        String::from_utf8(bytes).unwrap()
    };
    assert_eq!(text(b"/x", "EIO (e)", "wait"), "corral: cannot open /x: EIO (e); wait\n");
    assert_eq!(text(b"", "EIO", ""), "corral: cannot open: EIO\n");
    assert_eq!(text(b"a\nb", "", ""), "corral: cannot open a\\x0ab\n");
    let long = text(&[b'x'; 5000], "EIO", "wait");
    assert!(long.ends_with("x...: EIO; wait\n") && long.len() < 1100, "{long}");
}

#[test]
fn durations_as_people_write_them() {
    let rows = [
        (0, "0s"),
        (1, "0ms"),
        (400_000, "0.4ms"),
        (1_250_000, "1.25ms"),
        (9_999_999, "9.99ms"),
        (90_000_000, "90ms"),
        (999_999_999, "999ms"),
        (1_000_000_000, "1s"),
        (1_020_000_000, "1.02s"),
        (1_500_000_000, "1.5s"),
        (59_999_999_999, "59.99s"),
        (60_000_000_000, "1m"),
        (61_500_000_000, "1m1s"),
        (5_400_000_000_000, "1h30m"),
        (90_061_000_000_000, "1d1h1m1s"),
        (u64::MAX, "213503d23h34m33s"),
    ];
    for (nanos, expected) in rows {
        let mut bytes = Vec::new();
        duration(Span(nanos), &mut |piece| bytes.extend_from_slice(piece));
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }
}

#[test]
fn sizes() {
    let rows = [(0, "0 bytes"), (1, "1 byte"), (1000, "1000 bytes"), (1024, "1K"), (3 << 30, "3G")];
    for (size, expected) in rows {
        let mut bytes = Vec::new();
        super::Line { out: &mut |piece| bytes.extend_from_slice(piece) }.size(size);
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }
}
