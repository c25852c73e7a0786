//! What does a person read about the run?
//!
//! At most one line on stderr, and none where everything went as `COMMAND` alone
//! would have gone. It says what ended the run, what was stopped and how long
//! that took; or, where the end is not proved, what may be alive and what to do.
//!
//! Names come from processes that nobody vouches for; `cli::visible` makes them
//! harmless, and what is absurdly long is cut, so that the line stays one.
//!
//! Errors complete "cannot …". May use: `policy`, `cli`.

use super::decimal::Decimal;
use super::json::SignalName;
use super::record::{Detail, Listing, Process, Record};
use crate::cli::plan::Leftovers;
use crate::cli::visible::visible;
use crate::policy::cause::Cause;
use crate::policy::time::{Instant, Span};
use crate::policy::verdict;

/// Most processes that are named.
const MOST_NAMED: usize = 3;
/// Most bytes shown of a name or path.
const MOST_SHOWN: usize = 1000;

/// Writes `corral: cannot <what> <object>: <errno>; <advice>` and a newline;
/// what is empty is left out with its separator.
pub fn cannot(what: &str, object: &[u8], errno: &str, advice: &str, out: &mut dyn FnMut(&[u8])) {
    let mut line = Line { out };
    line.text("corral: cannot ");
    line.text(what);
    if !object.is_empty() {
        line.text(" ");
        line.name(object);
    }
    if !errno.is_empty() {
        line.text(": ");
        line.text(errno);
    }
    line.advice(advice);
}

/// Writes the line about a finished run, or nothing. `--quiet` leaves only what
/// is an error: a command that could not be run, an end that is not proved.
pub fn run_line(record: &Record<'_>, signal_name: SignalName, out: &mut dyn FnMut(&[u8])) {
    if !record.proved {
        return unproved(record, out);
    }
    let status_lost = record.cause == Cause::Exited && record.command_status.is_none();
    if status_lost || record.cause == Cause::Exec {
        return without_status(record, out);
    }
    if record.plan.quiet {
        return;
    }
    let after_exit = record.cause == Cause::Exited;
    let stopped = if after_exit { &record.leftovers } else { &record.tree_at_cause };
    if after_exit && stopped.total == 0 {
        return given_up(record, out);
    }
    let mut line = Line { out };
    line.text("corral: ");
    line.cause(record, signal_name);
    line.text(": ");
    line.stopped(record, stopped);
    if record.escalated {
        line.text(", SIGKILL needed");
    }
    line.text(", all gone");
    if let Some(span) = between(record.steps.cause_seen, record.steps.tree_empty) {
        line.text(" after ");
        line.span(span);
    }
    if record.exit_status == verdict::LEFTOVERS && record.plan.leftovers == Leftovers::Fail {
        line.text("; --leftovers=fail makes that status ");
        line.number(u64::from(record.exit_status));
    }
    line.output(record);
    line.text("\n");
}

/// Writes a length of time as its option takes it, cut to what matters: `90ms`,
/// `1.02s`, `1h30m`.
pub fn duration(span: Span, out: &mut dyn FnMut(&[u8])) {
    Line { out }.span(span);
}

/// The command ended by itself and left nothing but output that nobody took.
fn given_up(record: &Record<'_>, out: &mut dyn FnMut(&[u8])) {
    if record.output.given_up_bytes == 0 {
        return;
    }
    let mut line = Line { out };
    line.text("corral: ");
    line.command(record);
    line.text(" has ended");
    line.output(record);
    line.text("\n");
}

/// The command could not be run, or somebody else got its status.
fn without_status(record: &Record<'_>, out: &mut dyn FnMut(&[u8])) {
    let word = record.words.word(record.plan.command).unwrap_or_default().to_bytes();
    match record.detail {
        Detail::Exec { name, text } => {
            let advice = match name {
                "ENOENT" if word.is_empty() => "COMMAND is an empty word",
                "ENOENT" if !word.contains(&b'/') => "check the name and PATH",
                "ENOENT" => "check the path, and the interpreter that a script names",
                "EACCES" => "check that it is a file and may be executed (chmod +x)",
                "ENOEXEC" => "it is no program for this machine",
                "E2BIG" => "shorten the arguments or the environment",
                _ => "",
            };
            cannot("run", word, text, advice, out);
        }
        Detail::None | Detail::Signal { .. } | Detail::Tool { .. }
            if record.cause == Cause::Exec =>
        {
            cannot("run", word, "", "", out);
        }
        Detail::None | Detail::Signal { .. } | Detail::Tool { .. } => {
            let advice = "its status went to another process: run it without a tracer";
            cannot("tell the status of", word, "", advice, out);
        }
    }
}

fn unproved(record: &Record<'_>, out: &mut dyn FnMut(&[u8])) {
    let mut line = Line { out };
    line.text("corral: cannot prove the end: ");
    let survivors = &record.survivors;
    if survivors.total == 0 {
        line.text("a process that /proc does not show may be alive");
    } else {
        line.count(survivors.total, " process", " processes");
        line.text(" may be alive (");
        line.list(survivors, "; ", |line, process| {
            line.process(process);
            line.text(", state ");
            line.name(&[process.state]);
            if let Some(uid) = process.uid {
                line.text(", uid ");
                line.number(u64::from(uid));
            }
        });
        line.text(")");
    }
    line.text(", cause ");
    line.text(record.cause.name());
    if let Some(span) = between(record.steps.killed, record.steps.returned) {
        line.text(", ");
        line.span(span);
        line.text(" after SIGKILL");
    }
    line.output(record);
    match survivors.first.first() {
        Some(first) => line.help(record, first),
        None => line.advice("look with ps which of them is left, and end it by hand"),
    }
}

fn between(from: Option<Instant>, to: Option<Instant>) -> Option<Span> {
    from.zip(to).map(|(from, to)| to.since(from))
}

/// What follows the last slash.
fn base(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().filter(|base| !base.is_empty()).unwrap_or(path)
}

/// The better of a process's two names. `comm` is what runs, but cut at 15
/// bytes; the first word of its command line is free text, so it counts only
/// where it says the same and more.
fn telling(process: &Process) -> &[u8] {
    let (name, word) = (process.name.as_bytes(), process.argv0.as_bytes());
    if word.starts_with(name) {
        word
    } else if base(word).starts_with(name) {
        base(word)
    } else {
        name
    }
}

/// One line in the making.
struct Line<'a> {
    out: &'a mut dyn FnMut(&[u8]),
}

impl Line<'_> {
    fn text(&mut self, text: &str) {
        (self.out)(text.as_bytes());
    }

    fn number(&mut self, number: u64) {
        (self.out)(Decimal::of(number).as_bytes());
    }

    fn count(&mut self, number: u64, one: &str, many: &str) {
        self.number(number);
        self.text(if number == 1 { one } else { many });
    }

    /// Ends the line, with what to do where there is something.
    fn advice(&mut self, advice: &str) {
        if !advice.is_empty() {
            self.text("; ");
            self.text(advice);
        }
        self.text("\n");
    }

    /// Foreign text, made harmless.
    fn name(&mut self, name: &[u8]) {
        visible(name, MOST_SHOWN, self.out);
    }

    fn command(&mut self, record: &Record<'_>) {
        let word = record.words.word(record.plan.command).unwrap_or_default();
        self.name(base(word.to_bytes()));
    }

    fn cause(&mut self, record: &Record<'_>, signal_name: SignalName) {
        match record.cause {
            Cause::Exited => {
                self.command(record);
                self.text(" left ");
                self.count(record.leftovers.total, " process", " processes");
                self.text(" behind");
            }
            Cause::Wall | Cause::Idle | Cause::Cpu | Cause::Tool | Cause::Result => {
                let plan = record.plan;
                let (what, span) = match record.cause {
                    Cause::Idle => ("idle", plan.idle),
                    Cause::Cpu => ("CPU", plan.cpu),
                    Cause::Tool => ("tool", plan.tool_limit),
                    Cause::Result => ("after-result", plan.after_result),
                    _ => ("wall", plan.wall),
                };
                self.text(what);
                self.text(" limit");
                if let Some(span) = span {
                    self.text(" of ");
                    self.span(span);
                }
                self.text(" reached");
                if let Detail::Tool { name, .. } = record.detail {
                    self.text(" by ");
                    self.name(name.as_bytes());
                }
            }
            Cause::Output => {
                self.text("output limit");
                if let Some(bytes) = record.plan.output_limit {
                    self.text(" of ");
                    self.size(bytes);
                }
                self.text(" passed");
            }
            Cause::Memory => {
                self.text("memory limit");
                if let Some(bytes) = record.plan.mem {
                    self.text(" of ");
                    self.size(bytes);
                }
                self.text(" reached");
            }
            Cause::Cancelled { signal } => {
                self.text("cancelled by ");
                self.signal(signal, signal_name);
                if let Detail::Signal { pid, uid, .. } = record.detail
                    && pid > 0
                {
                    self.text(" from pid ");
                    self.number(u64::from(pid.unsigned_abs()));
                    self.text(" (uid ");
                    self.number(u64::from(uid));
                    self.text(")");
                }
            }
            Cause::SupervisorLost => self.text("the supervising process was killed"),
            Cause::MonitorLost => self.text("the waiting process was killed"),
            Cause::Exec => self.text("the command could not be run"),
        }
    }

    fn signal(&mut self, signal: i32, signal_name: SignalName) {
        match signal_name(signal) {
            Some(name) => {
                self.text("SIG");
                self.text(name);
            }
            None => {
                self.text("signal ");
                self.number(u64::from(signal.unsigned_abs()));
            }
        }
    }

    /// What was stopped, or waited for.
    fn stopped(&mut self, record: &Record<'_>, listing: &Listing<'_>) {
        // Without /proc nothing is listed, but what was signalled is counted.
        let total = listing.total.max(record.signalled);
        let untouched = record.signalled == 0 && !record.escalated;
        if total == 0 && untouched {
            return self.text("nothing to stop");
        }
        let waited = untouched && record.plan.leftovers == Leftovers::Wait;
        self.text(if waited { "waited for " } else { "stopped " });
        match (total, listing.first) {
            (0, _) => self.text("what there was"),
            (1, [only, ..]) => self.process(only),
            (_, []) => self.count(total, " process", " processes"),
            (_, [_, ..]) => {
                self.count(total, " process", " processes");
                self.text(" (");
                self.list(&Listing { total, ..*listing }, ", ", Self::process);
                self.text(")");
            }
        }
    }

    /// The first few of a listing, and how many more there are.
    fn list(
        &mut self,
        listing: &Listing<'_>,
        between: &str,
        mut each: impl FnMut(&mut Self, &Process),
    ) {
        let mut named = 0;
        for process in listing.first.iter().take(MOST_NAMED) {
            if named > 0 {
                self.text(between);
            }
            each(self, process);
            named += 1;
        }
        let more = listing.total.saturating_sub(named);
        if more > 0 {
            self.text(if named > 0 { between } else { "" });
            self.count(more, " more", " more");
        }
    }

    /// Its pid, and its name where that is known.
    fn process(&mut self, process: &Process) {
        self.number(u64::from(process.pid.unsigned_abs()));
        let name = telling(process);
        if !name.is_empty() {
            self.text(" ");
            self.name(name);
        }
    }

    /// What became of output that did not get through.
    fn output(&mut self, record: &Record<'_>) {
        let given_up = record.output.given_up_bytes;
        let left_out = record.output.dropped_bytes.saturating_sub(given_up);
        if given_up > 0 {
            self.text("; ");
            self.count(given_up, " byte", " bytes");
            self.text(" of output given up: nobody read on");
        }
        if left_out > 0 {
            self.text("; ");
            self.count(left_out, " byte", " bytes");
            self.text(" of output left out");
        }
    }

    /// What to do about a survivor.
    fn help(&mut self, record: &Record<'_>, process: &Process) {
        let pid = Decimal::of(u64::from(process.pid.unsigned_abs()));
        match process.state {
            b'D' => {
                self.text("; it waits in the kernel");
                if !process.wchan.as_bytes().is_empty() {
                    self.text(" (");
                    self.name(process.wchan.as_bytes());
                    self.text(")");
                }
                self.text(" and ends with that: look at the mount or device that it uses");
            }
            b't' => {
                self.text("; a tracer holds it: end TracerPid of /proc/");
                (self.out)(pid.as_bytes());
                self.text("/status");
            }
            _ if record.uid != 0 && process.uid.is_some_and(|uid| uid != record.uid) => {
                self.text("; it is another user's: end it as root (kill -9 ");
                (self.out)(pid.as_bytes());
                self.text("), and prevent it with --no-new-privs");
            }
            _ => {
                self.text("; end it by hand: kill -9 ");
                (self.out)(pid.as_bytes());
            }
        }
        self.text("\n");
    }

    fn size(&mut self, bytes: u64) {
        for (shift, name) in [(30, "G"), (20, "M"), (10, "K")] {
            if bytes > 0 && bytes.trailing_zeros() >= shift {
                self.number(bytes >> shift);
                return self.text(name);
            }
        }
        self.count(bytes, " byte", " bytes");
    }

    fn span(&mut self, span: Span) {
        const MICRO: u64 = 1000;
        const MILLI: u64 = 1000 * MICRO;
        const SECOND: u64 = 1000 * MILLI;
        let seconds = span.0 / SECOND;
        match span.0 {
            0 => self.text("0s"),
            nanos if nanos < 10 * MILLI => self.hundredths(nanos / (10 * MICRO), "ms"),
            nanos if nanos < SECOND => {
                self.number(nanos / MILLI);
                self.text("ms");
            }
            nanos if nanos < 60 * SECOND => self.hundredths(nanos / (10 * MILLI), "s"),
            _ => {
                let parts = [
                    (seconds / 86_400, "d"),
                    (seconds / 3600 % 24, "h"),
                    (seconds / 60 % 60, "m"),
                    (seconds % 60, "s"),
                ];
                for (number, unit) in parts {
                    if number > 0 {
                        self.number(number);
                        self.text(unit);
                    }
                }
            }
        }
    }

    /// A number of hundredths, without the zeros at its end.
    fn hundredths(&mut self, hundredths: u64, unit: &str) {
        self.number(hundredths / 100);
        match hundredths % 100 {
            0 => {}
            rest => {
                self.text(".");
                if rest % 10 == 0 {
                    self.number(rest / 10);
                } else {
                    (self.out)(Decimal::padded(rest, 2).as_bytes());
                }
            }
        }
        self.text(unit);
    }
}

#[cfg(test)]
mod tests;
