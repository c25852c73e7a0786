//! What does the value of an option mean?
//!
//! One function that puts any option into the plan, and a reader for each kind of
//! value that is not a number or a list of signals. A value is judged by itself
//! alone: whether this host can do it is decided elsewhere.
//!
//! May use: `plan`, `table`, `misuse`, `numbers`, `steps`, `suggest`.

use core::ffi::CStr;

use super::misuse::{Hint, Why};
use super::numbers;
use super::plan::{AtExit, Label, Leftovers, MaxOutput, Mode, Plan, RUN_ID_BYTES, Scope, Target};
use super::steps::steps;
use super::suggest;
use super::table::{Opt, Row};
use crate::policy::time::Span;

/// Puts one option into the plan; a flag's `value` is not looked at.
pub(super) fn set(plan: &mut Plan, row: &Row, value: &'static CStr) -> Result<(), Why> {
    let text = value.to_bytes();
    match row.opt {
        Opt::Wall => plan.wall = Some(limit(duration(text)?, Span::ZERO)?),
        Opt::Idle => plan.idle = Some(limit(duration(text)?, Span::ZERO)?),
        Opt::Cpu => plan.cpu = Some(limit(duration(text)?, Span::ZERO)?),
        Opt::ToolLimit => plan.tool_limit = Some(limit(duration(text)?, Span::ZERO)?),
        Opt::Tool if text.split(|&byte| byte == b',').any(<[u8]>::is_empty) => {
            return Err(Why::Form(Hint::None));
        }
        Opt::Tool => plan.tools = text,
        Opt::AfterResult => plan.after_result = Some(limit(duration(text)?, Span::ZERO)?),
        Opt::MaxOutput => plan.max_output = Some(max_output(text)?),
        Opt::OutputLimit => plan.output_limit = Some(limit(size(text)?, 0)?),
        Opt::Mem => plan.mem = Some(limit(size(text)?, 0)?),
        Opt::Pids => {
            let count = numbers::count(text).ok_or(Why::Form(Hint::None))?;
            plan.pids = Some(limit(count, 0)?);
        }
        Opt::Signal => plan.signals = steps(text)?,
        Opt::SignalScope => {
            plan.scope = match text {
                b"tree" => Scope::Tree,
                b"command" => Scope::Command,
                [..] => return Err(no_alternative(row, text)),
            }
        }
        Opt::Grace => plan.grace = duration(text)?,
        Opt::Prove => plan.prove = duration(text)?,
        Opt::Linger => plan.linger = duration(text)?,
        Opt::Leftovers => {
            plan.leftovers = match text {
                b"stop" => Leftovers::Stop,
                b"fail" => Leftovers::Fail,
                b"wait" => Leftovers::Wait,
                [..] => return Err(no_alternative(row, text)),
            }
        }
        Opt::CgroupMode => {
            plan.mode = match text {
                b"auto" => Mode::Auto,
                b"enforced" => Mode::Enforced,
                b"fallback" => Mode::Fallback,
                [..] => return Err(no_alternative(row, text)),
            }
        }
        Opt::CgroupParent if text.is_empty() => return Err(Why::Form(Hint::None)),
        Opt::CgroupParent => plan.cgroup_parent = Some(value),
        Opt::PidNamespace => plan.pid_namespace = true,
        Opt::AtExit => {
            plan.at_exit = match text {
                b"auto" | b"poweroff" => AtExit::PowerOff,
                b"exit" => AtExit::Exit,
                b"reboot" => AtExit::Reboot,
                b"halt" => AtExit::Halt,
                [..] => return Err(no_alternative(row, text)),
            }
        }
        Opt::NoNewPrivs => plan.no_new_privs = true,
        Opt::CloseFds => plan.close_fds = true,
        Opt::Json => plan.json = Some(target(value)?),
        Opt::RunId => plan.run_id = Some(run_id(text)?),
        Opt::Label => add_label(plan, text)?,
        Opt::RedactArgv => plan.redact_argv = true,
        Opt::Quiet => plan.quiet = true,
        // These end the parse before anything is planned.
        Opt::Help | Opt::Version => {}
    }
    Ok(())
}

fn duration(text: &'static [u8]) -> Result<Span, Why> {
    numbers::duration(text).map_err(Why::Form)
}

fn size(text: &'static [u8]) -> Result<u64, Why> {
    numbers::size(text).map_err(Why::Form)
}

/// A limit, which must not be `zero`.
fn limit<T: PartialEq>(value: T, zero: T) -> Result<T, Why> {
    if value == zero { Err(Why::Zero) } else { Ok(value) }
}

/// The alternatives stand in the metavar, divided by `|`.
fn no_alternative(row: &Row, text: &[u8]) -> Why {
    let mut known = row.metavar.unwrap_or_default().split('|').map(|word| (word, word));
    Why::Form(suggest::nearest(text, &mut known).map_or(Hint::None, Hint::Word))
}

/// HEAD or HEAD+TAIL. A tail of 0 is one: what was left out is counted for it.
fn max_output(text: &'static [u8]) -> Result<MaxOutput, Why> {
    let (head, tail) = cut(text, b'+');
    let Some(tail) = tail else {
        return Ok(MaxOutput { head: size(head)?, tail: None });
    };
    // What one half may have been meant to be is no suggestion for the whole.
    let half = |text| numbers::size(text).map_err(|_| Why::Form(Hint::None));
    Ok(MaxOutput { head: half(head)?, tail: Some(half(tail)?) })
}

/// A path, or `fd:N` for an inherited descriptor that is none of the command's
/// standard ones.
fn target(value: &'static CStr) -> Result<Target, Why> {
    let no_target = Why::Form(Hint::None);
    match value.to_bytes() {
        [] => Err(no_target),
        [b'f', b'd', b':', number @ ..] => {
            let number = numbers::count(number).and_then(|number| i32::try_from(number).ok());
            number.filter(|&number| number > 2).map(Target::Fd).ok_or(no_target)
        }
        [..] => Ok(Target::Path(value)),
    }
}

fn run_id(text: &'static [u8]) -> Result<&'static [u8], Why> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if (1..=RUN_ID_BYTES).contains(&text.len()) && text.iter().all(plain) {
        Ok(text)
    } else {
        Err(Why::Form(Hint::None))
    }
}

/// KEY=VALUE. A KEY stands once: the record holds labels by their keys.
fn add_label(plan: &mut Plan, text: &'static [u8]) -> Result<(), Why> {
    let (key, value) = cut(text, b'=');
    let Some(value) = value.filter(|_| !key.is_empty()) else {
        return Err(Why::Form(Hint::None));
    };
    if plan.labels.iter().take(plan.label_count).any(|label| label.key == key) {
        return Err(Why::SameKey);
    }
    let Some(label) = plan.labels.get_mut(plan.label_count) else {
        return Err(Why::ManyLabels);
    };
    *label = Label { key, value };
    plan.label_count += 1;
    Ok(())
}

/// What stands before the first `mark`, and what stands after it.
pub(super) fn cut(text: &[u8], mark: u8) -> (&[u8], Option<&[u8]>) {
    let mut parts = text.splitn(2, |&byte| byte == mark);
    (parts.next().unwrap_or_default(), parts.next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::parse::tests::{error, plan, refused};

    /// The plan of a run with one option.
    fn with(option: &str) -> Plan {
        plan(&[option, "true"])
    }

    #[test]
    fn each_option_lands_where_it_belongs() {
        let base = Plan { command: 2, ..Plan::DEFAULT };
        let max = MaxOutput { head: 1024, tail: None };
        let cases = [
            ("--wall=1s", Plan { wall: Some(Span::from_secs(1)), ..base }),
            ("--grace=2s", Plan { grace: Span::from_secs(2), ..base }),
            ("--prove=3s", Plan { prove: Span::from_secs(3), ..base }),
            ("--linger=4s", Plan { linger: Span::from_secs(4), ..base }),
            ("--signal-scope=command", Plan { scope: Scope::Command, ..base }),
            ("--leftovers=fail", Plan { leftovers: Leftovers::Fail, ..base }),
            ("--leftovers=wait", Plan { leftovers: Leftovers::Wait, ..base }),
            ("--idle=2m", Plan { idle: Some(Span::from_secs(120)), ..base }),
            ("--cpu=500ms", Plan { cpu: Some(Span::from_millis(500)), ..base }),
            ("--tool-limit=1m", Plan { tool_limit: Some(Span::from_secs(60)), ..base }),
            ("--tool=Bash,WebFetch", Plan { tools: b"Bash,WebFetch", ..base }),
            ("--after-result=5s", Plan { after_result: Some(Span::from_secs(5)), ..base }),
            ("--max-output=1K", Plan { max_output: Some(max), ..base }),
            ("--output-limit=5", Plan { output_limit: Some(5), ..base }),
            ("--mem=6M", Plan { mem: Some(6 << 20), ..base }),
            ("--pids=7", Plan { pids: Some(7), ..base }),
            ("--json=a=b", Plan { json: Some(Target::Path(c"a=b")), ..base }),
            ("--json=fd:3", Plan { json: Some(Target::Fd(3)), ..base }),
            ("--run-id=a.B_1-", Plan { run_id: Some(b"a.B_1-"), ..base }),
            ("--cgroup-mode=enforced", Plan { mode: Mode::Enforced, ..base }),
            ("--cgroup-mode=fallback", Plan { mode: Mode::Fallback, ..base }),
            ("--redact-argv", Plan { redact_argv: true, ..base }),
            ("--cgroup-parent=/x", Plan { cgroup_parent: Some(c"/x"), ..base }),
            ("--pid-namespace", Plan { pid_namespace: true, ..base }),
            ("--at-exit=poweroff", base),
            ("--at-exit=exit", Plan { at_exit: AtExit::Exit, ..base }),
            ("--at-exit=reboot", Plan { at_exit: AtExit::Reboot, ..base }),
            ("--at-exit=halt", Plan { at_exit: AtExit::Halt, ..base }),
            ("--no-new-privs", Plan { no_new_privs: true, ..base }),
            ("--close-fds", Plan { close_fds: true, ..base }),
            ("--quiet", Plan { quiet: true, ..base }),
        ];
        for (option, expected) in cases {
            assert_eq!(with(option), expected, "{option}");
        }
    }

    #[test]
    fn defaults_in_the_table_are_those_of_the_plan() {
        for (row, more) in crate::cli::table::OPTIONS.iter().zip(crate::cli::table::HELP_ROWS) {
            let Some(default) = more.default else { continue };
            let given = with(&format!("--{}={default}", row.name));
            assert_eq!(given, Plan { command: 2, ..Plan::DEFAULT }, "{}", row.name);
        }
    }

    #[test]
    fn every_alternative_in_the_table_is_taken() {
        for row in &crate::cli::table::OPTIONS {
            let metavar = row.metavar.unwrap_or_default();
            if metavar.contains('|') && row.opt != Opt::Json {
                for word in metavar.split('|') {
                    let _ = with(&format!("--{}={word}", row.name));
                    let typo = refused(&format!("--{}={word}x", row.name));
                    let expected = format!("it wants {}; did you mean {word}?", row.wants);
                    assert_eq!(typo, expected);
                }
            }
        }
        let wants = "it wants tree or command";
        assert_eq!(refused("--signal-scope=nobody"), wants);
        assert_eq!(refused("--signal-scope="), wants);
        assert_eq!(refused("--signal-scope=TREE"), format!("{wants}; did you mean tree?"));
    }

    #[test]
    fn zero_is_no_limit_but_a_fine_wait() {
        for option in [
            "--wall=0",
            "--wall=0s",
            "--idle=0",
            "--tool-limit=0",
            "--after-result=0",
            "--cpu=0s",
            "--output-limit=0K",
            "--mem=0",
            "--pids=0",
        ] {
            assert_eq!(refused(option), "a limit of zero would end every run at once");
        }
        assert_eq!(with("--grace=0").grace, Span::ZERO);
        assert_eq!(with("--prove=0s").prove, Span::ZERO);
        assert_eq!(with("--linger=0ms").linger, Span::ZERO);
        assert_eq!(with("--wall=0.1ms").wall, Some(Span(100_000)));
    }

    #[test]
    fn bad_numbers_say_what_is_wanted() {
        let wants = "it wants a duration such as 1.5s, 90m or 2h";
        for name in
            ["wall", "idle", "cpu", "tool-limit", "after-result", "grace", "prove", "linger"]
        {
            assert_eq!(refused(&format!("--{name}=")), wants);
            assert_eq!(refused(&format!("--{name}=-1s")), wants);
            let bare = refused(&format!("--{name}=5"));
            assert_eq!(bare, format!("{wants}; did you mean 5s?"));
        }
        let wants = "it wants a whole number of bytes, or one with K, M or G";
        for name in ["output-limit", "mem"] {
            assert_eq!(refused(&format!("--{name}=1.5M")), wants);
            let lower = refused(&format!("--{name}=512mb"));
            assert_eq!(lower, format!("{wants}; did you mean 512M?"));
        }
        assert_eq!(refused("--pids=1K"), "it wants a whole number");
    }

    #[test]
    fn head_and_tail() {
        let of = |option: &str| with(option).max_output.map(|max| (max.head, max.tail));
        assert_eq!(of("--max-output=0"), Some((0, None)));
        assert_eq!(of("--max-output=1K+2M"), Some((1024, Some(2 << 20))));
        assert_eq!(of("--max-output=5+0"), Some((5, Some(0))));
        assert_eq!(of("--max-output=0+5"), Some((0, Some(5))));
        for bad in ["", "+", "+5", "5+", "5+5+5", "5 + 5", "-5", "5+-5"] {
            let said = refused(&format!("--max-output={bad}"));
            assert!(said.starts_with("it wants HEAD or HEAD+TAIL"), "{bad}: {said}");
            assert!(!said.contains("mean"), "{bad}: {said}");
        }
        assert!(refused("--max-output=64k").ends_with("; did you mean 64K?"));
        assert!(!refused("--max-output=64k+1").contains("mean"));
    }

    #[test]
    fn where_the_record_goes() {
        assert_eq!(with("--json=fd:2147483647").json, Some(Target::Fd(i32::MAX)));
        assert_eq!(with("--json=./fd:x").json, Some(Target::Path(c"./fd:x")));
        assert_eq!(with("--json=fd").json, Some(Target::Path(c"fd")));
        assert_eq!(with("--json=FD:3").json, Some(Target::Path(c"FD:3")));
        for bad in ["", "fd:", "fd:x", "fd:0", "fd:2", "fd:-3", "fd:+3", "fd:3x", "fd:2147483648"] {
            let said = refused(&format!("--json={bad}"));
            assert!(said.starts_with("it wants a file, or fd:N"), "{bad}: {said}");
        }
    }

    #[test]
    fn run_ids() {
        let longest = "x".repeat(RUN_ID_BYTES);
        assert_eq!(with(&format!("--run-id={longest}")).run_id, Some(longest.as_bytes()));
        for bad in ["", "a b", "a/b", "a=b", "gr\u{fc}n", "a\\b"] {
            let line = error(&[&format!("--run-id={bad}"), "true"]);
            assert!(line.contains(": it wants 1 to 64 of "), "{line}");
        }
        let line = error(&[&format!("--run-id={longest}x"), "true"]);
        assert!(line.contains(&format!("\"{longest}x\": it wants 1 to 64 of ")), "{line}");
    }

    #[test]
    fn labels() {
        let plan = plan(&["--label", "a=1", "--label=b=", "--label=c=x=y", "true"]);
        let labels: Vec<_> = plan.labels.iter().take(plan.label_count).collect();
        let expected: [(&[u8], &[u8]); 3] = [(b"a", b"1"), (b"b", b""), (b"c", b"x=y")];
        assert_eq!(labels.len(), expected.len());
        for (label, (key, value)) in labels.into_iter().zip(expected) {
            assert_eq!((label.key, label.value), (key, value));
        }
        for bad in ["", "=", "=x", "x"] {
            assert_eq!(refused(&format!("--label={bad}")), "it wants KEY=VALUE, the KEY not empty");
        }
        let twice = error(&["--label=a=1", "--label=a=2", "true"]);
        assert!(twice.ends_with("\"a=2\": an earlier label has the same KEY"), "{twice}");
    }

    #[test]
    fn as_many_labels_as_there_is_room_for() {
        let mut words: Vec<_> = (0..16).map(|at| format!("--label=k{at}=v")).collect();
        let refs = |words: &[String]| -> Vec<&'static str> {
            words.iter().map(|word| &*word.clone().leak()).chain(["true"]).collect()
        };
        assert_eq!(plan(&refs(&words)).label_count, 16);
        words.push("--label=k16=v".to_owned());
        let line = error(&refs(&words));
        assert!(line.ends_with("\"k16=v\": it may be given at most 16 times"), "{line}");
    }
}
