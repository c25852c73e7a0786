//! Is an agent ended whose tool hangs, or that hangs after its last word?
//!
//! Agents of `stream-json`, as a shell plays them. How their lines are read is tested
//! where that is done (`agent`), when the clocks run in `policy::watch`.

mod common;
mod kit;

use std::fs;

use common::{Outcome, Run, Signal};
use kit::{assert_cancelled, assert_record, number, only_line};

const CALL: &str = r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t1","name":"WebFetch","input":{}}]}}"#;
const ANSWER: &str =
    r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t1"}]}}"#;
const RESULT: &str = r#"{"type":"result","subtype":"success"}"#;

/// Ends for no signal but SIGKILL, and is gone after a minute.
const HANG: &str = "i=0; while [ $i -lt 600 ]; do sleep 0.1; i=$((i+1)); done";

/// Says these lines and does this then.
fn agent(options: &[&str], lines: &[&str], then: &str) -> Run {
    let text = "trap '' TERM; printf '%s\\n' \"$@\"; eval \"$0\"";
    Run::corral(options).command(["sh", "-c", text, then]).args(lines)
}

fn assert_stuck(outcome: &Outcome, cause: &str, line: &str) {
    outcome.assert_nothing_left();
    outcome.assert_status(123);
    assert_record(outcome, cause, 123);
    assert_eq!(outcome.record("/escalated"), true, "{outcome:#?}");
    assert_eq!(number(outcome, "/survivors_total"), 0);
    assert!(only_line(outcome).starts_with(line), "{outcome:#?}");
}

#[test]
fn a_tool_that_hangs_ends_the_run() {
    let options = ["--tool-limit=1s", "--grace=300ms"];
    for then in [HANG, &format!("exec >&-; {HANG}")] {
        let outcome = agent(&options, &[CALL], then).run();
        assert_stuck(&outcome, "tool", "corral: tool limit of 1s reached by WebFetch: stopped ");
        assert_eq!(outcome.record("/cause_detail/tool"), "WebFetch");
        assert!(number(&outcome, "/cause_detail/age_ms") >= 1000, "{outcome:#?}");
        assert_eq!(outcome.record("/limits/tool_limit_ns"), 1_000_000_000);
        assert_eq!(outcome.stdout, format!("{CALL}\n").as_bytes());
    }
}

#[test]
fn a_hang_after_the_last_word_ends_the_run() {
    let options = ["--after-result=500ms", "--tool-limit=60s", "--grace=300ms"];
    let outcome = agent(&options, &[CALL, ANSWER, RESULT], HANG).run();
    assert_stuck(&outcome, "result", "corral: after-result limit of 500ms reached: stopped ");
    assert_eq!(outcome.record("/limits/after_result_ns"), 500_000_000);
}

#[test]
fn a_tool_that_answers_and_an_agent_that_goes_on_are_left_alone() {
    let limits = ["--tool-limit=700ms", "--after-result=700ms"];
    let again = format!("printf '%s\\n' '{RESULT}'; exit 5");
    for lines in [&[CALL, ANSWER][..], &[RESULT, CALL, ANSWER]] {
        let outcome = agent(&limits, lines, &format!("sleep 1.5; {again}")).run();
        outcome.assert_status(5);
        assert_record(&outcome, "exited", 5);
    }
}

#[test]
fn the_tools_are_those_that_are_named() {
    let call = CALL.replace("WebFetch", "Bash");
    let outcome = agent(&["--tool-limit=300ms"], &[&call], "sleep 1; exit 5").run();
    outcome.assert_status(5);
    let options = ["--tool-limit=300ms", "--tool=Read,Bash", "--grace=300ms"];
    let outcome = agent(&options, &[&call], HANG).run();
    assert_stuck(&outcome, "tool", "corral: tool limit of 300ms reached by Bash: stopped ");
}

#[test]
fn a_cancel_meanwhile_is_the_cause_and_each_signal_comes_once() {
    let text = "trap 'echo TERM >&2' TERM; printf '%s\\n' \"$0\"; echo ready; \
                while :; do sleep 0.1; done";
    let options = ["--tool-limit=700ms", "--grace=2s", "--signal-scope=command"];
    let mut run = Run::corral(&options).command(["sh", "-c", text, CALL]).start();
    run.ready();
    run.signal(Signal::TERM);
    let outcome = run.wait();
    outcome.assert_nothing_left();
    assert_cancelled(&outcome, Signal::TERM);
    assert_eq!(outcome.stderr.matches("TERM\n").count(), 1, "{outcome:#?}");
}

#[test]
fn what_is_read_is_passed_on_to_the_byte() {
    let place = tempfile::tempdir().unwrap();
    let (path, mut random) = (place.path().join("said"), fastrand::Rng::with_seed(7));
    let mut said = Vec::new();
    while said.len() < 5_000_000 {
        let noise: Vec<u8> = (0..random.usize(..3000)).map(|_| random.u8(..)).collect();
        let line = random.choice([CALL, ANSWER, RESULT, "{"]).unwrap();
        said.extend([line.as_bytes(), &noise, b"\n"].concat());
    }
    said.extend(format!("{ANSWER}\n").bytes());
    fs::write(&path, &said).unwrap();
    for more in [&[][..], &["--max-output=1M"], &["--max-output=1M+2M"], &["--idle=60s"]] {
        let options = [&["--tool-limit=60s", "--after-result=60s"], more].concat();
        let outcome = Run::corral(&options).command(["cat"]).args([&path]).run();
        outcome.assert_status(0);
        let head =
            if more.iter().any(|option| option.contains("1M")) { 1 << 20 } else { said.len() };
        assert!(outcome.stdout[..head] == said[..head], "{more:?}");
        assert_eq!(number(&outcome, "/output/stdout_bytes"), said.len() as u64);
    }
}

#[test]
fn calls_beyond_the_table_are_told() {
    let calls: Vec<_> = (0..300).map(|n| CALL.replace("t1", &n.to_string())).collect();
    let calls: Vec<_> = calls.iter().map(String::as_str).collect();
    let outcome = agent(&["--tool-limit=500ms", "--grace=300ms"], &calls, HANG).run();
    assert_eq!(outcome.status, Some(123), "{outcome:#?}");
    let told = "too many tool calls at once: not tracked were 44";
    assert_eq!(outcome.record("/errors/0"), told, "{outcome:#?}");
}
