//! The transcripts of agents, whole, cut and mutated, against a real JSON library.

use serde_json::{Value, json};

use super::*;

const TOOLS: &[u8] = b"WebFetch,WebSearch";

/// Names of the open calls, oldest first, and whether the last word was said.
type Said = (Vec<String>, bool);

fn said(agent: &Agent) -> Said {
    let open = agent.calls.iter().filter(|call| call.pending != Pending::Begins);
    let ids = open.map(|call| String::from_utf8_lossy(call.id.as_bytes()).into_owned()).collect();
    (ids, agent.result().is_some())
}

fn heard(text: &[u8]) -> Said {
    let mut agent = Agent::new(TOOLS).unwrap();
    agent.hear(text, Instant(1));
    said(&agent)
}

/// The same by serde_json: the first value of each line.
fn oracle(text: &[u8]) -> Said {
    let (mut open, mut last) = (Vec::<String>::new(), false);
    for line in text.split(|&byte| byte == b'\n') {
        let mut values = serde_json::Deserializer::from_slice(line).into_iter::<Value>();
        let Some(Ok(value)) = values.next() else { continue };
        let blocks = value["message"]["content"].as_array().cloned().unwrap_or_default();
        let kind = value["type"].as_str().unwrap_or_default();
        for block in blocks.iter().filter(|block| block.is_object()) {
            let text = |key: &str| block[key].as_str().filter(|text| text.len() <= MOST_TEXT);
            match (kind, block["type"].as_str()) {
                ("assistant", Some("tool_use")) => {
                    let (Some(id), Some(name)) = (text("id"), text("name")) else { continue };
                    let tracked = matches!(name, "WebFetch" | "WebSearch");
                    if tracked && !open.iter().any(|known| known == id) {
                        open.push(id.to_owned());
                    }
                }
                ("user", Some("tool_result")) => {
                    open.retain(|id| Some(id.as_str()) != text("tool_use_id"));
                }
                _ => {}
            }
        }
        match kind {
            "result" if value.is_object() => last = true,
            "assistant" | "user" if value.is_object() => last = false,
            _ => {}
        }
    }
    (open, last)
}

fn call(id: &str, name: &str) -> Value {
    let input = json!({"url": "https://example.org/\"}]}", "type": "tool_result", "id": "x"});
    json!({"type": "tool_use", "id": id, "name": name, "input": input})
}

fn assistant(blocks: &[Value]) -> Value {
    json!({"type": "assistant", "message": {"role": "assistant", "content": blocks}})
}

fn answer(id: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": [{"type": "text", "text": "ok"}]})
}

fn user(blocks: &[Value]) -> Value {
    json!({"message": {"content": blocks, "role": "user"}, "type": "user"})
}

fn lines(values: &[Value]) -> Vec<u8> {
    values.iter().flat_map(|value| format!("{value}\n").into_bytes()).collect()
}

fn transcript() -> Vec<u8> {
    let look_alike = r#"{"type":"tool_use","id":"no","name":"WebFetch"}"#;
    lines(&[
        json!({"type": "system", "subtype": "init", "tools": ["WebFetch"]}),
        assistant(&[json!({"type": "text", "text": look_alike}), call("a", "WebFetch")]),
        assistant(&[call("b", "WebSearch"), call("c", "Bash"), call("d\u{1F600}\n", "WebFetch")]),
        json!({"type": "user", "message": {"content": look_alike}}),
        user(&[answer("b"), answer("unknown")]),
        json!({"type": "user", "parent_tool_use_id": "a", "message": {"content": [answer("c")]}}),
        json!({"type": "assistant", "parent_tool_use_id": "a",
            "message": {"content": [{"type": "tool_use", "content": [call("deep", "WebFetch")],
                "name": "WebFetch", "id": "e"}]}}),
        json!({"type": "stream_event", "event": {"content_block": call("no", "WebFetch")}}),
        json!({"type": "assistant", "content": [call("no", "WebFetch")]}),
        json!({"type": "other", "message": {"content": [call("no", "WebFetch"), answer("a")]}}),
        user(&[answer("e")]),
        json!({"type": "result", "subtype": "success", "result": "done", "usage": [1, -2.5e3]}),
    ])
}

#[test]
fn a_transcript_is_understood() {
    let text = transcript();
    let open = vec!["a".to_owned(), "d\u{1F600}\n".to_owned()];
    assert_eq!(heard(&text), (open, true));
    assert_eq!(oracle(&text), heard(&text));
}

#[test]
fn it_may_be_cut_anywhere_and_is_known_at_each_byte() {
    let text = transcript();
    for at in 0..=text.len() {
        let (first, second) = text.split_at(at);
        let mut agent = Agent::new(TOOLS).unwrap();
        agent.hear(first, Instant(1));
        assert_eq!(said(&agent), oracle(first), "the first {at} bytes");
        agent.hear(second, Instant(1));
        assert_eq!(said(&agent), oracle(&text), "cut at {at}");
    }
}

#[test]
fn escapes_and_order_and_doubles_are_those_of_json() {
    for (line, open) in [
        (
            r#"{"message":{"content":[{"name":"WebFetch","id":"x","type":"tool_use"}]},"type":"assistant"}"#,
            1,
        ),
        (
            r#"{"typ\u0065":"assist\u0061nt","message":{"content":[{"\u0074ype":"tool_use","id":"x","name":"Web\u0046etch"}]}}"#,
            1,
        ),
        (
            r#"{"type":"user","type":"assistant","message":{"content":[{"type":"x","type":"tool_use","id":1,"id":"x","name":"WebFetch"}]}}"#,
            1,
        ),
        (
            r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"x","id":1,"name":"WebFetch"}]}}"#,
            0,
        ),
        (
            r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"\ud83d\ude00","name":"WebFetch"}]}}"#,
            1,
        ),
        (
            r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"\ud83d","name":"WebFetch"}]}}"#,
            0,
        ),
        (
            r#"{"type":"assistant","message":{"content":[[{"type":"tool_use","id":"x","name":"WebFetch"}]]}}"#,
            0,
        ),
        (
            r#"{"type":"assistant","message":[{"content":[{"type":"tool_use","id":"x","name":"WebFetch"}]}]}"#,
            0,
        ),
        (
            r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"x","name":"WebFetch"}]}"#,
            0,
        ),
        (
            r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"x","name":"WebFetch"}],}}"#,
            0,
        ),
        (
            r#"[{"type":"assistant","message":{"content":[{"type":"tool_use","id":"x","name":"WebFetch"}]}}]"#,
            0,
        ),
    ] {
        assert_eq!(heard(line.as_bytes()).0.len(), open, "{line}");
        assert_eq!(heard(line.as_bytes()), oracle(line.as_bytes()), "{line}");
    }
}

#[test]
fn a_line_that_is_no_json_costs_itself_alone() {
    let call = assistant(&[call("a", "WebFetch")]).to_string();
    let text =
        format!("no json\n{{\"type\":\"result\", oops}}\n{{\"type\":\n{call}\n{call} tail\n");
    assert_eq!(heard(text.as_bytes()), (vec!["a".to_owned()], false));
    // Deeper than anything that is read.
    let deep = format!("{{\"a\":{}\n{call}", "[".repeat(100_000));
    assert_eq!(heard(deep.as_bytes()).0, ["a"]);
}

#[test]
fn it_is_found_in_a_very_long_line() {
    let mut blocks = vec![json!({"type": "text", "text": "x\\\"".repeat(4_000_000)})];
    blocks.push(call("late", "WebSearch"));
    assert_eq!(heard(&lines(&[assistant(&blocks)])).0, ["late"]);
}

#[test]
fn what_is_too_long_or_too_much_is_not_tracked_and_nothing_is_dropped_for_it() {
    let long = "i".repeat(MOST_TEXT);
    let longer = "j".repeat(MOST_TEXT + 1);
    let both = [call(&long, "WebFetch"), call(&longer, "WebFetch")];
    assert_eq!(heard(&lines(&[assistant(&both)])).0, [long]);
    let many: Vec<_> = (0..300).map(|n| call(&n.to_string(), "WebFetch")).collect();
    let mut agent = Agent::new(TOOLS).unwrap();
    agent.hear(&lines(&[assistant(&many)]), Instant(1));
    assert_eq!((said(&agent).0.len(), agent.untracked()), (MOST_CALLS, 44));
    assert_eq!(agent.oldest().map(|call| call.name), Some(Text::new(b"WebFetch")));
    agent.hear(&lines(&[user(&[answer("7")]), assistant(&[call("new", "WebFetch")])]), Instant(2));
    assert_eq!(said(&agent).0.last().map(String::as_str), Some("new"));
}

#[test]
fn the_oldest_is_that_without_a_result_for_the_longest_time() {
    let mut agent = Agent::new(TOOLS).unwrap();
    for (at, id) in [(1, "a"), (2, "b"), (3, "a"), (4, "c")] {
        agent.hear(&lines(&[assistant(&[call(id, "WebFetch")])]), Instant(at));
    }
    assert_eq!(agent.oldest().map(|call| call.since), Some(Instant(1)));
    agent.hear(&lines(&[user(&[answer("a")])]), Instant(5));
    assert_eq!(agent.oldest().map(|call| call.since), Some(Instant(2)));
    agent.hear(&lines(&[user(&[answer("c"), answer("b")])]), Instant(6));
    assert!(agent.oldest().is_none());
}

#[test]
fn the_last_word_is_the_last() {
    let result = json!({"type": "result"});
    let mut agent = Agent::new(TOOLS).unwrap();
    agent.hear(&lines(std::slice::from_ref(&result)), Instant(1));
    agent.hear(&lines(&[json!({"type": "system"})]), Instant(2));
    assert_eq!(agent.result(), Some(Instant(1)));
    agent.hear(&lines(&[assistant(&[])]), Instant(3));
    assert_eq!(agent.result(), None);
    // Known before its newline.
    agent.hear(result.to_string().as_bytes(), Instant(4));
    assert_eq!(agent.result(), Some(Instant(4)));
}

/// Bytes of a transcript changed, cut out, doubled and moved about.
#[test]
fn mutated_transcripts_mean_what_a_json_library_makes_of_them() {
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let base = transcript();
    let mut understood = 0;
    for _ in 0..8_000 {
        let mut text = base.clone();
        for _ in 0..random.usize(1..6) {
            let (a, b) = (random.usize(..text.len()), random.usize(..text.len()));
            let (from, to) = (a.min(b), a.max(b).min(a.min(b) + 40));
            match random.u8(..5) {
                0 => text[a] = *random.choice(b"\"\\{}[],: \nuetn0-").unwrap(),
                1 => text[a] = text[b],
                2 => drop(text.drain(from..to)),
                3 => {
                    let piece = text[from..to].to_vec();
                    text.splice(b..b, piece);
                }
                _ => text.swap(a, b),
            }
            if text.is_empty() {
                text = base.clone();
            }
        }
        let text = String::from_utf8_lossy(&text).into_owned().into_bytes();
        let wanted = oracle(&text);
        understood += usize::from(!wanted.0.is_empty());
        assert_eq!(heard(&text), wanted, "seed {seed}: {}", String::from_utf8_lossy(&text));
    }
    assert!(understood > 4_000, "{understood} of 8000 say anything");
}
