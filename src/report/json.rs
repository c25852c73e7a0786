//! What does a program read about the run?
//!
//! The record of `--json`: one JSON object and a newline (RFC 8259), every field
//! always there, null where there is nothing to say. The text goes to a function
//! in small pieces; who is below collects them.
//!
//! Always valid UTF-8, whatever bytes are in names and words: what is not
//! becomes U+FFFD, as `String::from_utf8_lossy` does it. Control characters are
//! escaped, those of C1 and DEL too, so that the record can be shown on a
//! terminal. No key comes twice in one object.
//!
//! Fields of options and of modes that this build does not have are null.
//! `tests/record.schema.json` describes the same in JSON Schema.
//!
//! Left out: any layout; a record is one line. May use: `policy`, `cli`.

use super::decimal::Decimal;
use super::record::{Detail, Listing, MOST_LISTED, Output, Process, Record, Steps, Usage};
use super::timestamp;
use crate::cli::plan::{Label, Leftovers, Plan, Scope};
use crate::cli::visible::{self, Part, hex};
use crate::policy::time::{Instant, Span};
use crate::policy::verdict::CommandStatus;

/// The version of the record's fields.
pub const SCHEMA: u32 = 1;

/// Tells a signal's name without `SIG`, where it has one.
pub type SignalName = fn(i32) -> Option<&'static str>;

/// Writes the record, newline included.
pub fn write(record: &Record<'_>, signal_name: SignalName, out: &mut dyn FnMut(&[u8])) {
    let mut json = Json { out, first: true };
    json.open(b"{");
    json.field("schema", SCHEMA);
    json.field("corral", env!("CARGO_PKG_VERSION"));
    json.field("run_id", record.run_id);
    labels(&mut json, record.plan);
    command(&mut json, record);
    json.field("uid", record.uid);
    json.field("parent_pid", record.parent_pid);
    let mode = if record.fallback_reason.is_some() { "fallback" } else { "enforced" };
    json.field("mode", mode);
    json.field("pid_namespace", record.plan.pid_namespace);
    json.field("fallback_reason", record.fallback_reason);
    limits(&mut json, record.plan);
    json.field("cause", record.cause.name());
    cause_detail(&mut json, record.detail, signal_name);
    json.field("exit_status", record.exit_status);
    command_status(&mut json, record.command_status);
    json.field("escalated", record.escalated);
    json.field("proved", record.proved);
    json.field("started_at", &timestamp::utc(record.started_at)[..]);
    json.field("ended_at", &timestamp::utc(record.ended_at)[..]);
    steps(&mut json, &record.steps);
    output(&mut json, &record.output);
    usage(&mut json, &record.usage);
    listing(&mut json, "tree_at_cause", "tree_at_cause_total", &record.tree_at_cause);
    listing(&mut json, "leftovers", "leftovers_total", &record.leftovers);
    listing(&mut json, "survivors", "survivors_total", &record.survivors);
    json.key("errors");
    json.open(b"[");
    for text in record.errors.iter().flatten() {
        json.value(Value::String(text.as_bytes()));
    }
    json.close(b"]");
    json.close(b"}");
    (json.out)(b"\n");
}

fn labels(json: &mut Json<'_>, plan: &Plan) {
    let mut rest = plan.labels.get(..plan.label_count).unwrap_or(&plan.labels);
    json.key("labels");
    json.open(b"{");
    while let Some((label, later)) = rest.split_first() {
        rest = later;
        // Keys that differ may be written equally, where bytes are no UTF-8: the
        // last of them counts.
        if !later.iter().any(|other| same_key(label, other)) {
            json.separate();
            json.string(label.key);
            (json.out)(b":");
            json.first = true;
            json.value(Value::String(label.value));
        }
    }
    json.close(b"}");
}

fn same_key(a: &Label, b: &Label) -> bool {
    lossy(a.key).eq(lossy(b.key))
}

fn command(json: &mut Json<'_>, record: &Record<'_>) {
    let words = || (record.plan.command..).map_while(|index| record.words.word(index));
    let shown = if record.plan.redact_argv { 1 } else { usize::MAX };
    json.key("command");
    json.open(b"[");
    for word in words().take(shown) {
        json.value(Value::String(word.to_bytes()));
    }
    json.close(b"]");
    json.field("command_args", words().skip(1).count() as u64);
}

fn limits(json: &mut Json<'_>, plan: &Plan) {
    json.key("limits");
    json.open(b"{");
    json.field("wall_ns", plan.wall);
    json.field("idle_ns", plan.idle);
    json.field("cpu_ns", plan.cpu);
    json.field("tool_limit_ns", plan.tool_limit);
    json.field("after_result_ns", plan.after_result);
    json.field("max_output_head_bytes", plan.max_output.map(|most| most.head));
    json.field("max_output_tail_bytes", plan.max_output.and_then(|most| most.tail));
    json.field("output_limit_bytes", plan.output_limit);
    json.field("mem_bytes", plan.mem);
    json.field("pids", plan.pids);
    json.field("grace_ns", plan.grace);
    json.field("prove_ns", plan.prove);
    json.field("linger_ns", plan.linger);
    json.key("signals");
    json.open(b"[");
    for step in plan.signals.steps.iter().take(plan.signals.count) {
        json.open(b"{");
        json.field("signal", step.signal);
        json.field("wait_ns", step.wait);
        json.close(b"}");
    }
    json.close(b"]");
    json.field(
        "signal_scope",
        match plan.scope {
            Scope::Tree => "tree",
            Scope::Command => "command",
        },
    );
    json.field(
        "leftovers",
        match plan.leftovers {
            Leftovers::Stop => "stop",
            Leftovers::Fail => "fail",
            Leftovers::Wait => "wait",
        },
    );
    json.close(b"}");
}

fn cause_detail(json: &mut Json<'_>, detail: Detail, signal_name: SignalName) {
    match detail {
        Detail::None => json.field("cause_detail", Value::Null),
        Detail::Signal { signal, pid, uid } => {
            json.key("cause_detail");
            json.open(b"{");
            json.field("signal", signal);
            json.field("signal_name", signal_name(signal));
            let known = pid > 0;
            json.field("sender_pid", known.then_some(pid));
            json.field("sender_uid", known.then_some(uid));
            json.close(b"}");
        }
        Detail::Tool { name, age_ms } => {
            json.key("cause_detail");
            json.open(b"{");
            json.field("tool", Value::String(name.as_bytes()));
            json.field("age_ms", age_ms);
            json.close(b"}");
        }
        Detail::Exec { name, text } => {
            json.key("cause_detail");
            json.open(b"{");
            json.field("errno", name);
            json.field("text", text);
            json.close(b"}");
        }
    }
}

fn command_status(json: &mut Json<'_>, status: Option<CommandStatus>) {
    let Some(status) = status else {
        return json.field("command_status", Value::Null);
    };
    json.key("command_status");
    json.open(b"{");
    match status {
        CommandStatus::Code(code) => {
            json.field("code", code);
            json.field("signal", Value::Null);
            json.field("core_dumped", false);
        }
        CommandStatus::Signal(signal, core_dumped) => {
            json.field("code", Value::Null);
            json.field("signal", signal);
            json.field("core_dumped", core_dumped);
        }
    }
    json.close(b"}");
}

fn steps(json: &mut Json<'_>, steps: &Steps) {
    let since_start = |moment: Option<Instant>| {
        moment.zip(steps.started).map(|(moment, started)| moment.since(started).0 / 1000)
    };
    json.key("steps_us");
    json.open(b"{");
    json.field("spawned", since_start(steps.spawned));
    json.field("executed", since_start(steps.executed));
    json.field("command_ended", since_start(steps.command_ended));
    json.field("cause_seen", since_start(steps.cause_seen));
    json.field("first_signal", since_start(steps.first_signal));
    json.field("killed", since_start(steps.killed));
    json.field("tree_empty", since_start(steps.tree_empty));
    json.field("group_removed", since_start(steps.group_removed));
    json.field("returned", since_start(steps.returned));
    json.close(b"}");
}

fn output(json: &mut Json<'_>, output: &Output) {
    json.key("output");
    json.open(b"{");
    json.field("relayed", output.relayed);
    json.field("stdout_bytes", output.stdout_bytes.filter(|_| output.relayed));
    json.field("stderr_bytes", output.stderr_bytes.filter(|_| output.relayed));
    json.field("passed_bytes", output.passed_bytes);
    json.field("dropped_bytes", output.dropped_bytes);
    json.field("given_up_bytes", output.given_up_bytes);
    json.close(b"}");
}

fn usage(json: &mut Json<'_>, usage: &Usage) {
    json.key("usage");
    json.open(b"{");
    json.field("cpu_user_us", usage.cpu_user_us);
    json.field("cpu_system_us", usage.cpu_system_us);
    json.field("max_rss_bytes", usage.max_rss_bytes);
    json.field("memory_peak_bytes", usage.memory_peak_bytes);
    json.field("pids_peak", usage.pids_peak);
    json.field("processes_reaped", usage.processes_reaped);
    json.field("oom_kills", usage.oom_kills);
    json.field("pids_refused", usage.pids_refused);
    json.close(b"}");
}

fn listing(json: &mut Json<'_>, name: &str, total: &str, listing: &Listing<'_>) {
    json.key(name);
    json.open(b"[");
    for process in listing.first.iter().take(MOST_LISTED) {
        describe(json, process);
    }
    json.close(b"]");
    json.field(total, listing.total);
}

fn describe(json: &mut Json<'_>, process: &Process) {
    json.open(b"{");
    json.field("pid", process.pid);
    json.field("name", process.name.as_bytes());
    json.field("argv0", process.argv0.as_bytes());
    json.field("uid", process.uid);
    json.field("state", &[process.state][..]);
    json.field("wchan", Some(process.wchan.as_bytes()).filter(|wchan| !wchan.is_empty()));
    json.field("age_ms", process.age_ms);
    json.field("cpu_ms", process.cpu_ms);
    json.field("ppid", process.ppid);
    json.field("pgid", process.pgid);
    json.field("sid", process.sid);
    json.field("detached", process.detached.name());
    json.close(b"}");
}

/// What a field can hold, objects and arrays aside.
#[derive(Clone, Copy)]
enum Value<'a> {
    Null,
    Bool(bool),
    Number(u64),
    Signed(i32),
    String(&'a [u8]),
}

macro_rules! values {
    ($($from:ty => |$it:ident| $to:expr,)*) => {
        $(impl<'a> From<$from> for Value<'a> {
            fn from($it: $from) -> Self {
                $to
            }
        })*
    };
}

values! {
    bool => |it| Self::Bool(it),
    u8 => |it| Self::Number(u64::from(it)),
    u32 => |it| Self::Number(u64::from(it)),
    u64 => |it| Self::Number(it),
    i32 => |it| Self::Signed(it),
    Span => |it| Self::Number(it.0),
    &'a [u8] => |it| Self::String(it),
    &'a str => |it| Self::String(it.as_bytes()),
}

impl<'a, T: Into<Self>> From<Option<T>> for Value<'a> {
    fn from(it: Option<T>) -> Self {
        it.map_or(Self::Null, Into::into)
    }
}

/// Puts the commas. `first` says that the next element needs none before it:
/// it follows an opening bracket or a key. What is called for each of a hundred
/// fields is kept from being inlined, which saves kilobytes.
struct Json<'a> {
    out: &'a mut dyn FnMut(&[u8]),
    first: bool,
}

impl Json<'_> {
    fn separate(&mut self) {
        if !self.first {
            (self.out)(b",");
        }
        self.first = false;
    }

    #[inline(never)]
    fn open(&mut self, bracket: &[u8]) {
        self.separate();
        (self.out)(bracket);
        self.first = true;
    }

    #[inline(never)]
    fn close(&mut self, bracket: &[u8]) {
        (self.out)(bracket);
        self.first = false;
    }

    fn key(&mut self, name: &str) {
        self.separate();
        self.string(name.as_bytes());
        (self.out)(b":");
        self.first = true;
    }

    #[inline]
    fn field<'v>(&mut self, name: &str, value: impl Into<Value<'v>>) {
        self.pair(name, value.into());
    }

    #[inline(never)]
    fn pair(&mut self, name: &str, value: Value<'_>) {
        self.key(name);
        self.value(value);
    }

    fn value(&mut self, value: Value<'_>) {
        self.separate();
        match value {
            Value::Null => (self.out)(b"null"),
            Value::Bool(true) => (self.out)(b"true"),
            Value::Bool(false) => (self.out)(b"false"),
            Value::Number(number) => (self.out)(Decimal::of(number).as_bytes()),
            Value::Signed(number) => {
                if number < 0 {
                    (self.out)(b"-");
                }
                (self.out)(Decimal::of(u64::from(number.unsigned_abs())).as_bytes());
            }
            Value::String(bytes) => self.string(bytes),
        }
    }

    fn string(&mut self, bytes: &[u8]) {
        (self.out)(b"\"");
        let mut rest = bytes;
        while let Some(Part { letter, bytes, after }) = visible::first(rest) {
            match letter {
                None => (self.out)("\u{fffd}".as_bytes()),
                Some('"') => (self.out)(b"\\\""),
                Some('\\') => (self.out)(b"\\\\"),
                Some('\n') => (self.out)(b"\\n"),
                Some('\r') => (self.out)(b"\\r"),
                Some('\t') => (self.out)(b"\\t"),
                Some(control @ ('\0'..='\x1f' | '\x7f'..='\u{9f}')) => {
                    // Below 256, all of them.
                    (self.out)(b"\\u00");
                    (self.out)(&hex(u32::from(control).to_le_bytes()[0]));
                }
                Some(_) => (self.out)(bytes),
            }
            rest = after;
        }
        (self.out)(b"\"");
    }
}

/// The characters as they are written, escapes aside.
fn lossy(mut bytes: &[u8]) -> impl Iterator<Item = char> + '_ {
    core::iter::from_fn(move || {
        let part = visible::first(bytes)?;
        bytes = part.after;
        Some(part.letter.unwrap_or('\u{fffd}'))
    })
}
