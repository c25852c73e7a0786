//! Is the record what its schema says, whatever is in it?
//!
//! Records are built through the public types, written, parsed by an
//! independent JSON parser and held against `record.schema.json`. The schema in
//! turn must reject every record that lacks a field or has one too many.

use std::ffi::CStr;

use corral::cli::plan::{
    Label, Leftovers, MOST_LABELS, MaxOutput, Plan, Scope, SignalStep, Signals, Words,
};
use corral::policy::cause::Cause;
use corral::policy::time::{Instant, Span};
use corral::policy::verdict::CommandStatus;
use corral::report::json;
use corral::report::record::{
    Detached, Detail, Listing, MOST_ERRORS, Output, Process, Record, Steps, Text, Usage,
};
use serde_json::{Value, json};

struct Line(Vec<&'static CStr>);

impl Words for Line {
    fn word(&self, index: usize) -> Option<&'static CStr> {
        self.0.get(index).copied()
    }
}

const NO_ERRORS: [Option<Text<128>>; MOST_ERRORS] = [None; MOST_ERRORS];

fn signal_name(signal: i32) -> Option<&'static str> {
    (signal == 15).then_some("TERM")
}

fn text(record: &Record<'_>) -> String {
    let mut bytes = Vec::new();
    json::write(record, signal_name, &mut |piece| bytes.extend_from_slice(piece));
    let text = String::from_utf8(bytes).expect("valid UTF-8");
    assert!(text.ends_with("}\n"), "ends with its newline");
    let line = text.trim_end_matches('\n');
    assert_eq!(line.len() + 1, text.len(), "one newline");
    assert!(!line.contains(char::is_control), "no control character but the last");
    text
}

fn schema() -> jsonschema::Validator {
    let schema: Value = serde_json::from_str(include_str!("record.schema.json")).unwrap();
    jsonschema::meta::validate(&schema).expect("a valid schema");
    jsonschema::validator_for(&schema).unwrap()
}

/// Writes, parses and validates.
fn parsed(record: &Record<'_>) -> Value {
    let value: Value = serde_json::from_str(&text(record)).expect("valid JSON");
    let errors: Vec<_> = schema().iter_errors(&value).map(|error| error.to_string()).collect();
    assert_eq!(errors, [""; 0], "{value:#}");
    value
}

/// A run of `true` that went well.
fn minimal<'a>(plan: &'a Plan, words: &'a Line) -> Record<'a> {
    Record {
        plan,
        run_id: b"run-1",
        uid: 1000,
        parent_pid: 4000,
        fallback_reason: Some("asked for"),
        cause: Cause::Exited,
        detail: Detail::None,
        exit_status: 0,
        command_status: Some(CommandStatus::Code(0)),
        escalated: false,
        proved: true,
        started_at: 0,
        ended_at: 0,
        steps: Steps::default(),
        output: Output::default(),
        usage: Usage::default(),
        tree_at_cause: Listing::EMPTY,
        leftovers: Listing::EMPTY,
        survivors: Listing::EMPTY,
        errors: &NO_ERRORS,
        signalled: 0,
        words,
    }
}

/// A process of which little is known.
const SLEEP: Process = Process {
    pid: 4711,
    name: Text::EMPTY,
    argv0: Text::EMPTY,
    uid: Some(1000),
    state: b'S',
    wchan: Text::EMPTY,
    age_ms: 2003,
    cpu_ms: 1,
    ppid: 4710,
    pgid: 4710,
    sid: 4709,
    detached: Detached::Group,
};

fn sleep() -> Process {
    Process {
        name: Text::new(b"sleep"),
        argv0: Text::new(b"/bin/sleep"),
        wchan: Text::new(b"hrtimer_nanosleep"),
        ..SLEEP
    }
}

fn labels(labels: &[(&'static [u8], &'static [u8])]) -> Plan {
    let mut plan = Plan::DEFAULT;
    plan.labels = [Label { key: b"unused", value: b"" }; MOST_LABELS];
    for (to, &(key, value)) in plan.labels.iter_mut().zip(labels) {
        *to = Label { key, value };
    }
    plan.label_count = labels.len();
    plan
}

fn full_plan() -> Plan {
    let step = |signal, wait| SignalStep { signal, wait };
    Plan {
        command: 2,
        wall: Some(Span::from_secs(2)),
        grace: Span::from_millis(1500),
        prove: Span(u64::MAX),
        linger: Span::ZERO,
        signals: Signals {
            steps: [
                step(2, Some(Span::from_secs(1))),
                step(35, None),
                step(9, None),
                step(9, None),
            ],
            count: 2,
        },
        scope: Scope::Command,
        leftovers: Leftovers::Fail,
        max_output: Some(MaxOutput { head: 1024, tail: Some(512) }),
        output_limit: Some(1 << 20),
        ..labels(&[(b"agent", b"a"), (b"job", b"7"), (b"agent", b"b=c")])
    }
}

fn full<'a>(plan: &'a Plan, words: &'a Line, list: Listing<'a>) -> Record<'a> {
    let at = |micros: u64| Some(Instant(5_000_000_000 + micros * 1000 + 999));
    Record {
        cause: Cause::Cancelled { signal: 15 },
        detail: Detail::Signal { signal: 15, pid: 77, uid: 0 },
        exit_status: 120,
        command_status: Some(CommandStatus::Signal(11, true)),
        escalated: true,
        proved: false,
        started_at: 1_000_000_000_000_000_001,
        ended_at: u64::MAX,
        steps: Steps {
            started: at(0),
            spawned: at(1),
            executed: at(2),
            command_ended: at(3),
            cause_seen: at(4),
            first_signal: at(5),
            killed: at(6),
            tree_empty: None,
            group_removed: at(7_500_000),
            returned: at(8_000_000),
        },
        output: Output {
            relayed: true,
            stdout_bytes: Some(10),
            stderr_bytes: Some(u64::MAX),
            passed_bytes: 20,
            dropped_bytes: 30,
            given_up_bytes: 5,
        },
        usage: Usage {
            cpu_user_us: 1,
            cpu_system_us: 2,
            max_rss_bytes: 3,
            processes_reaped: 4,
            memory_peak_bytes: Some(5),
            pids_peak: Some(6),
            oom_kills: Some(7),
            pids_refused: Some(8),
        },
        tree_at_cause: list,
        leftovers: Listing { first: list.first.get(..1).unwrap_or_default(), total: 1 },
        survivors: list,
        ..minimal(plan, words)
    }
}

#[test]
fn a_minimal_record() {
    let words = Line(vec![c"corral", c"true"]);
    let plan = Plan { command: 1, ..Plan::DEFAULT };
    let record = minimal(&plan, &words);
    let expected = json!({
        "schema": 1,
        "corral": env!("CARGO_PKG_VERSION"),
        "run_id": "run-1",
        "labels": {},
        "command": ["true"],
        "command_args": 0,
        "uid": 1000,
        "parent_pid": 4000,
        "mode": "fallback",
        "pid_namespace": false,
        "fallback_reason": "asked for",
        "limits": {
            "wall_ns": null, "idle_ns": null, "cpu_ns": null, "tool_limit_ns": null,
            "after_result_ns": null, "max_output_head_bytes": null,
            "max_output_tail_bytes": null, "output_limit_bytes": null, "mem_bytes": null,
            "pids": null, "grace_ns": 1_000_000_000, "prove_ns": 5_000_000_000u64,
            "linger_ns": 100_000_000, "signals": [{"signal": 15, "wait_ns": null}],
            "signal_scope": "tree", "leftovers": "stop",
        },
        "cause": "exited",
        "cause_detail": null,
        "exit_status": 0,
        "command_status": {"code": 0, "signal": null, "core_dumped": false},
        "escalated": false,
        "proved": true,
        "started_at": "1970-01-01T00:00:00.000000000Z",
        "ended_at": "1970-01-01T00:00:00.000000000Z",
        "steps_us": {
            "spawned": null, "executed": null, "command_ended": null, "cause_seen": null,
            "first_signal": null, "killed": null, "tree_empty": null, "group_removed": null,
            "returned": null,
        },
        "output": {
            "relayed": false, "stdout_bytes": null, "stderr_bytes": null,
            "passed_bytes": 0, "dropped_bytes": 0, "given_up_bytes": 0,
        },
        "usage": {
            "cpu_user_us": 0, "cpu_system_us": 0, "max_rss_bytes": 0,
            "memory_peak_bytes": null, "pids_peak": null, "processes_reaped": 0,
            "oom_kills": null, "pids_refused": null,
        },
        "tree_at_cause": [], "tree_at_cause_total": 0,
        "leftovers": [], "leftovers_total": 0,
        "survivors": [], "survivors_total": 0,
        "errors": [],
    });
    assert_eq!(parsed(&record), expected);
    assert!(text(&record).starts_with(r#"{"schema":1,"corral":""#), "in the documented order");
}

#[test]
fn a_full_record() {
    let words = Line(vec![c"corral", c"--", c"sh", c"-c", c"exit 1"]);
    let plan = full_plan();
    let processes = [sleep(), Process { uid: None, state: b'?', detached: Detached::No, ..SLEEP }];
    let mut errors = NO_ERRORS;
    errors[0] = Some(Text::new(b"first"));
    errors[3] = Some(Text::new(b"second"));
    let record = Record {
        errors: &errors,
        fallback_reason: None,
        ..full(&plan, &words, Listing { first: &processes, total: 2 })
    };
    let value = parsed(&record);
    assert_eq!(value["mode"], "enforced");
    assert_eq!(value["fallback_reason"], Value::Null);
    assert_eq!(value["labels"], json!({"agent": "b=c", "job": "7"}), "the last agent wins");
    assert_eq!(value["command"], json!(["sh", "-c", "exit 1"]));
    assert_eq!(value["command_args"], 2);
    let limits = &value["limits"];
    assert_eq!(limits["wall_ns"], 2_000_000_000u64);
    assert_eq!(limits["grace_ns"], 1_500_000_000u64);
    assert_eq!(limits["prove_ns"], u64::MAX);
    assert_eq!(limits["linger_ns"], 0);
    assert_eq!(limits["max_output_head_bytes"], 1024);
    assert_eq!(limits["max_output_tail_bytes"], 512);
    assert_eq!(limits["output_limit_bytes"], 1 << 20);
    let signals = json!([
        {"signal": 2, "wait_ns": 1_000_000_000},
        {"signal": 35, "wait_ns": null},
    ]);
    assert_eq!(limits["signals"], signals);
    assert_eq!(limits["signal_scope"], "command");
    assert_eq!(limits["leftovers"], "fail");
    assert_eq!(value["cause"], "cancelled");
    let detail = json!({"signal": 15, "signal_name": "TERM", "sender_pid": 77, "sender_uid": 0});
    assert_eq!(value["cause_detail"], detail);
    assert_eq!(value["exit_status"], 120);
    let status = json!({"code": null, "signal": 11, "core_dumped": true});
    assert_eq!(value["command_status"], status);
    assert_eq!(value["escalated"], true);
    assert_eq!(value["proved"], false);
    assert_eq!(value["started_at"], "2001-09-09T01:46:40.000000001Z");
    assert_eq!(value["ended_at"], "2554-07-21T23:34:33.709551615Z");
    let steps = json!({
        "spawned": 1, "executed": 2, "command_ended": 3, "cause_seen": 4, "first_signal": 5,
        "killed": 6, "tree_empty": null, "group_removed": 7_500_000, "returned": 8_000_000,
    });
    assert_eq!(value["steps_us"], steps);
    let output = json!({
        "relayed": true, "stdout_bytes": 10, "stderr_bytes": u64::MAX, "passed_bytes": 20,
        "dropped_bytes": 30, "given_up_bytes": 5,
    });
    assert_eq!(value["output"], output);
    assert_eq!(value["usage"]["cpu_user_us"], 1);
    assert_eq!(value["usage"]["cpu_system_us"], 2);
    assert_eq!(value["usage"]["max_rss_bytes"], 3);
    assert_eq!(value["usage"]["processes_reaped"], 4);
    assert_eq!(value["usage"]["memory_peak_bytes"], 5);
    assert_eq!(value["usage"]["pids_peak"], 6);
    assert_eq!(value["usage"]["oom_kills"], 7);
    assert_eq!(value["usage"]["pids_refused"], 8);
    let first = json!({
        "pid": 4711, "name": "sleep", "argv0": "/bin/sleep", "uid": 1000, "state": "S",
        "wchan": "hrtimer_nanosleep", "age_ms": 2003, "cpu_ms": 1, "ppid": 4710,
        "pgid": 4710, "sid": 4709, "detached": "group",
    });
    let second = json!({
        "pid": 4711, "name": "", "argv0": "", "uid": null, "state": "?", "wchan": null,
        "age_ms": 2003, "cpu_ms": 1, "ppid": 4710, "pgid": 4710, "sid": 4709,
        "detached": "no",
    });
    assert_eq!(value["tree_at_cause"], json!([first, second]));
    assert_eq!(value["tree_at_cause_total"], 2);
    assert_eq!(value["leftovers"], json!([first]));
    assert_eq!(value["leftovers_total"], 1);
    assert_eq!(value["survivors"], json!([first, second]));
    assert_eq!(value["errors"], json!(["first", "second"]));
}

#[test]
fn every_cause_and_its_details() {
    let words = Line(vec![c"sh"]);
    let plan = Plan::DEFAULT;
    let cancelled = Cause::Cancelled { signal: 64 };
    let exec = Detail::Exec { name: "ENOENT", text: "ENOENT (no such file or directory)" };
    let unknown = Detail::Signal { signal: 64, pid: 0, uid: 1000 };
    let nobody = json!({
        "signal": 64, "signal_name": null, "sender_pid": null, "sender_uid": null,
    });
    let missing = json!({"errno": "ENOENT", "text": "ENOENT (no such file or directory)"});
    let rows = [
        (Cause::Exec, exec, "exec", missing),
        (Cause::Wall, Detail::None, "wall", Value::Null),
        (Cause::Output, Detail::None, "output", Value::Null),
        (cancelled, unknown, "cancelled", nobody),
        (Cause::SupervisorLost, Detail::None, "supervisor_lost", Value::Null),
        (Cause::MonitorLost, Detail::None, "monitor_lost", Value::Null),
    ];
    for (cause, detail, name, expected) in rows {
        let base = minimal(&plan, &words);
        let value = parsed(&Record { cause, detail, command_status: None, ..base });
        assert_eq!(value["cause"], name);
        assert_eq!(value["cause_detail"], expected);
        assert_eq!(value["command_status"], Value::Null);
    }
}

#[test]
fn redacted_words() {
    let words = Line(vec![c"corral", c"curl", c"-H", c"Authorization: secret"]);
    let plan = Plan { command: 1, redact_argv: true, ..Plan::DEFAULT };
    let record = minimal(&plan, &words);
    let value = parsed(&record);
    assert_eq!(value["command"], json!(["curl"]));
    assert_eq!(value["command_args"], 2);
    assert!(!text(&record).contains("secret"));
}

#[test]
fn a_missing_command() {
    let words = Line(vec![c"corral"]);
    let plan = Plan { command: 1, ..Plan::DEFAULT };
    let value = parsed(&minimal(&plan, &words));
    assert_eq!((&value["command"], &value["command_args"]), (&json!([]), &json!(0)));
}

#[test]
fn hostile_bytes() {
    let words = Line(vec![
        c"\"\\/\x08\x0c\n\r\t\x01\x1b[31m\x7f\xc2\x9b",
        c"\xff\xfe",
        c"caf\xc3\xa9 \xe2\x82",
        c"\xf0\x9f\x98\x80",
        c"\xed\xa0\x80",
        c"",
    ]);
    // A character cut in its middle, as a full Text cuts it.
    let cut = Process { name: Text::new("fünfzehn_zeichä".as_bytes()), state: 0xff, ..SLEEP };
    let list = Listing { first: &[cut], total: 1 };
    let plan = labels(&[(b"\xff\n", b"\x1b\xc3"), (b"x", b"\"")]);
    let record = Record { tree_at_cause: list, ..minimal(&plan, &words) };
    let value = parsed(&record);
    let expected: Vec<_> =
        words.0.iter().map(|word| String::from_utf8_lossy(word.to_bytes())).collect();
    assert_eq!(value["command"], json!(expected));
    assert_eq!(value["labels"], json!({"\u{fffd}\n": "\u{1b}\u{fffd}", "x": "\""}));
    assert_eq!(value["tree_at_cause"][0]["name"], "fünfzehn_zeich\u{fffd}");
    assert_eq!(value["tree_at_cause"][0]["state"], "\u{fffd}");
}

#[test]
fn every_byte_and_pair_of_bytes() {
    for high in 0..=255u8 {
        let mut bytes: Vec<u8> = (1..=255u8).flat_map(|low| [high.max(1), low, b'.']).collect();
        bytes.push(0);
        let word: &'static [u8] = bytes.leak();
        let words = Line(vec![CStr::from_bytes_with_nul(word).unwrap()]);
        let plan = Plan::DEFAULT;
        let value: Value = serde_json::from_str(&text(&minimal(&plan, &words))).unwrap();
        assert_eq!(value["command"][0], *String::from_utf8_lossy(&word[..word.len() - 1]));
    }
}

#[test]
fn labels_that_are_written_equally_are_one() {
    // Two keys, one text: both bytes become U+FFFD.
    let plan = labels(&[(b"\xff", b"first"), (b"a", b"only"), (b"\xfe", b"last")]);
    let words = Line(vec![c"sh"]);
    let record = minimal(&plan, &words);
    assert_eq!(text(&record).matches('\u{fffd}').count(), 1);
    assert_eq!(parsed(&record)["labels"], json!({"a": "only", "\u{fffd}": "last"}));
    let many = [(&b"same"[..], &b"value"[..]); MOST_LABELS];
    let plan = labels(&many);
    assert_eq!(text(&minimal(&plan, &words)).matches("same").count(), 1);
}

#[test]
fn at_most_64_processes_are_listed() {
    let processes = [sleep(); 70];
    let words = Line(vec![c"sh"]);
    let plan = Plan::DEFAULT;
    let list = Listing { first: &processes, total: 1500 };
    let value = parsed(&Record { tree_at_cause: list, ..minimal(&plan, &words) });
    assert_eq!(value["tree_at_cause"].as_array().map(Vec::len), Some(64));
    assert_eq!(value["tree_at_cause_total"], 1500);
}

/// Every object in `value`, as a JSON pointer; labels aside, whose keys are free.
fn objects(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) if at != "/labels" => {
            found.push(at.to_owned());
            for (key, value) in fields {
                objects(value, &format!("{at}/{key}"), found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                objects(item, &format!("{at}/{index}"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn the_schema_misses_nothing_and_allows_nothing_more() {
    let words = Line(vec![c"corral", c"--", c"sh", c"-c", c"exit 1"]);
    let plan = full_plan();
    let value = parsed(&full(&plan, &words, Listing { first: &[sleep()], total: 1 }));
    let schema = schema();
    let mut pointers = Vec::new();
    objects(&value, "", &mut pointers);
    assert_eq!(pointers.len(), 12, "{pointers:?}");
    let mut mutants = 0;
    for pointer in pointers {
        let fields: Vec<_> = value.pointer(&pointer).unwrap().as_object().unwrap().keys().collect();
        for field in fields {
            let mut mutant = value.clone();
            let fields = mutant.pointer_mut(&pointer).unwrap().as_object_mut().unwrap();
            fields.remove(field);
            assert!(!schema.is_valid(&mutant), "{pointer}/{field} may be missing");
            let mut mutant = value.clone();
            mutant.pointer_mut(&pointer).unwrap()[field] = json!([[]]);
            assert!(!schema.is_valid(&mutant), "{pointer}/{field} may be anything");
            mutants += 1;
        }
        let mut mutant = value.clone();
        mutant.pointer_mut(&pointer).unwrap()["surplus"] = json!(null);
        assert!(!schema.is_valid(&mutant), "{pointer} may have more");
    }
    assert!(mutants > 100, "{mutants}");
}

#[test]
fn the_schema_rejects_contradictions() {
    let words = Line(vec![c"sh"]);
    let plan = Plan::DEFAULT;
    let value = parsed(&minimal(&plan, &words));
    let schema = schema();
    let wrong = [
        ("/schema", json!(2)),
        ("/mode", json!("enforced")),
        ("/fallback_reason", json!(null)),
        ("/cause", json!("boredom")),
        ("/exit_status", json!(256)),
        ("/survivors_total", json!(1)),
        ("/proved", json!(false)),
        ("/started_at", json!("1970-01-01T00:00:00Z")),
        ("/run_id", json!("a/b")),
        ("/limits/signals", json!([])),
        ("/command_status/signal", json!(15)),
        ("/limits/signals/0/signal", json!("TERM")),
        ("/limits/signals/0/signal", json!(65)),
    ];
    for (pointer, value_there) in wrong {
        let mut mutant = value.clone();
        *mutant.pointer_mut(pointer).unwrap() = value_there;
        assert!(!schema.is_valid(&mutant), "{pointer}");
    }
}
