//! Does the README say what is true, as far as a machine can tell?
//!
//! Its tables of options, statuses and fields are held against the option table,
//! the verdict and the schema; its example record against the schema and a real
//! run; and every block whose first line is `# runs` is run, with this corral in
//! PATH, and must print what its comments show. Pids and times differ from run
//! to run, so both sides are compared without them.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use common::{Run, corral, skip};
use corral::cli::HELP;
use corral::cli::table::{Group, HELP_ROWS, HelpRow, OPTIONS, Opt, Row, STATUSES};
use corral::policy::cause::Cause;
use corral::policy::verdict;
use serde_json::Value;

const README: &str = include_str!("../README.md");
const SCHEMA: &str = include_str!("record.schema.json");

/// Options of other programs that the README names, on a line with the program.
const FOREIGN: [(&str, &str); 10] = [
    ("cargo ", "release"),
    ("cargo ", "target"),
    ("cargo ", "bench"),
    ("cargo ", "test"),
    ("cargo ", "no-run"),
    ("cargo ", "nocapture"),
    ("systemd-run ", "scope"),
    ("systemd-run ", "collect"),
    ("dockerd ", "init-path"),
    ("docker run ", "init"),
];

/// What stands under a heading.
fn section(heading: &str) -> &'static str {
    let marked = format!("\n## {heading}\n");
    let (_, text) = README.split_once(&marked).unwrap_or_else(|| panic!("no {heading}"));
    text.split("\n## ").next().unwrap()
}

/// The rows of the first table in a text, its heading aside, cell by cell.
fn table(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().skip_while(|line| !line.starts_with('|'));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| {
        let row = row.replace("\\|", "\u{1}");
        let cells = row.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().replace('\u{1}', "|")).collect()
    })
    .collect()
}

/// The words of a text that stand in backquotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// What the last column says of an option.
fn default_of(row: &Row, more: &HelpRow) -> String {
    let words = HELP.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, entry) = words.split_once(&format!(" --{} ", row.name)).unwrap();
    let entry = entry.split(" --").next().unwrap();
    let said = entry.split_once("(default: ").and_then(|(_, rest)| rest.split_once(')'));
    match (more.default, said) {
        (Some(default), _) => default.to_owned(),
        (None, Some((said, _))) if entry.starts_with(row.metavar.unwrap_or("-")) => said.to_owned(),
        (None, _) if matches!(row.opt, Opt::Help | Opt::Version) => "-".to_owned(),
        (None, _) if row.metavar.is_some() => "none".to_owned(),
        (None, _) => "off".to_owned(),
    }
}

#[test]
fn the_options_are_those_of_the_table() {
    let mut wanted = Vec::new();
    for group in Group::ALL {
        wanted.push((format!("**{}**", group.title()), String::new()));
        for (row, more) in OPTIONS.iter().zip(&HELP_ROWS).filter(|(_, more)| more.group == group) {
            let metavar = row.metavar.map(|metavar| format!(" {metavar}")).unwrap_or_default();
            wanted.push((format!("`--{}{metavar}`", row.name), default_of(row, more)));
        }
    }
    let rows = table(section("Options"));
    let found: Vec<_> = rows.iter().map(|row| (row[0].clone(), row[2].clone())).collect();
    assert_eq!(found, wanted);
    for row in rows.iter().filter(|row| row[0].starts_with('`')) {
        assert!(!row[1].is_empty(), "nothing is said of {}", row[0]);
    }
}

#[test]
fn no_option_is_named_that_does_not_exist() {
    for line in README.lines() {
        for (at, _) in line.match_indices("--") {
            let word = &line[at + 2..];
            let end = word.find(|c: char| !c.is_ascii_lowercase() && c != '-');
            let name = &word[..end.unwrap_or(word.len())];
            if !name.starts_with(|c: char| c.is_ascii_lowercase()) || line[..at].ends_with('-') {
                continue;
            }
            let ours = OPTIONS.iter().any(|row| row.name == name);
            let theirs = FOREIGN.iter().any(|(who, what)| line.contains(who) && *what == name);
            assert!(ours || theirs, "--{name} in: {line}");
        }
    }
}

#[test]
fn the_statuses_are_those_of_the_verdict() {
    let numbers = [
        verdict::RECORD_INCOMPLETE,
        verdict::LEFTOVERS,
        verdict::NOT_PROVED,
        verdict::OUTPUT,
        verdict::MEMORY,
        verdict::STUCK,
        verdict::TIME,
        verdict::MISUSE,
        verdict::NOT_EXECUTABLE,
        verdict::NOT_FOUND,
    ];
    let mut wanted = vec!["the command's own".to_owned()];
    wanted.extend(numbers.iter().map(u8::to_string));
    wanted.push(format!("{}+N", verdict::SIGNALLED));
    let rows = table(section("Exit status"));
    let found: Vec<_> = rows.iter().map(|row| row[0].clone()).collect();
    assert_eq!(found, wanted);
    assert_eq!(found[1..], STATUSES.map(|(status, _)| status.to_owned()));
    assert!(section("Exit status").contains(&format!(" {}\n", verdict::LOST)));
}

#[test]
fn every_cause_is_named() {
    let causes = [
        Cause::Exited,
        Cause::Exec,
        Cause::Wall,
        Cause::Idle,
        Cause::Cpu,
        Cause::Tool,
        Cause::Result,
        Cause::Output,
        Cause::Memory,
        Cause::Cancelled { signal: 15 },
        Cause::SupervisorLost,
        Cause::MonitorLost,
    ];
    let (_, text) = section("How a run goes").split_once("**Causes.**").unwrap();
    let text = text.split("\n\n").next().unwrap();
    let named: BTreeSet<_> = quoted(text).into_iter().collect();
    assert_eq!(named, causes.map(Cause::name).into());
}

type Types = BTreeSet<String>;

fn schema() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

/// Adds the types of everything below a schema node, under its path.
fn collect(root: &Value, node: &Value, path: &str, all: &mut BTreeMap<String, Types>) {
    if let Some(name) = node["$ref"].as_str() {
        let target = root.pointer(name.strip_prefix('#').unwrap()).unwrap();
        // A listed process is described once, for all three lists.
        let path = if name == "#/$defs/process" { "[]" } else { path };
        return collect(root, target, path, all);
    }
    for variant in node["oneOf"].as_array().into_iter().flatten() {
        collect(root, variant, path, all);
    }
    let mut types = Vec::new();
    match &node["type"] {
        Value::String(name) => types.push(name.as_str()),
        Value::Array(names) => types.extend(names.iter().map(|name| name.as_str().unwrap())),
        _ => {}
    }
    for value in node["enum"].as_array().into_iter().flatten().chain(node.get("const")) {
        types.push(match value {
            Value::Bool(_) => "boolean",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            other => panic!("{path} may be {other}"),
        });
    }
    if !path.is_empty() && !path.ends_with("[]") {
        let known = all.entry(path.to_owned()).or_default();
        known.extend(types.into_iter().map(str::to_owned));
    }
    for (name, below) in node["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        collect(root, below, &path, all);
    }
    if let Some(items) = node.get("items") {
        collect(root, items, &format!("{path}[]"), all);
    }
}

#[test]
fn every_field_of_the_record_is_described() {
    let root = schema();
    let mut wanted = BTreeMap::new();
    collect(&root, &root, "", &mut wanted);
    let mut found: BTreeMap<String, Types> = BTreeMap::new();
    for row in table(section("The record")) {
        let names = quoted(&row[0]);
        // One type for all names, or one for each.
        let types: Vec<&str> = row[1].split("; ").collect();
        assert!(types.len() == 1 || types.len() == names.len(), "{row:?}");
        assert!(!row[2].is_empty(), "{row:?}");
        for (name, types) in names.iter().zip(types.iter().cycle()) {
            let types = types.split(", ").map(str::to_owned).collect();
            assert_eq!(found.insert((*name).to_owned(), types), None, "{name} stands twice");
        }
    }
    assert_eq!(found, wanted);
}

/// A fenced block: its language and its lines.
fn blocks() -> Vec<(&'static str, Vec<&'static str>)> {
    let parts = README.split("\n```").collect::<Vec<_>>();
    let fenced = parts.iter().skip(1).step_by(2);
    fenced
        .map(|block| {
            let mut lines = block.lines();
            (lines.next().unwrap(), lines.collect())
        })
        .collect()
}

/// A record without what differs from run to run.
fn steady(value: &mut Value, within: &str) {
    const VOLATILE: [&str; 16] = [
        "run_id",
        "parent_pid",
        "uid",
        "started_at",
        "ended_at",
        "cpu_user_us",
        "cpu_system_us",
        "max_rss_bytes",
        "pid",
        "ppid",
        "pgid",
        "sid",
        "state",
        "wchan",
        "age_ms",
        "cpu_ms",
    ];
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let moment = within == "steps_us" && !field.is_null();
                if moment || VOLATILE.contains(&name.as_str()) {
                    *field = Value::from("*");
                } else {
                    steady(field, name);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| steady(item, within)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn the_example_record_is_one() {
    let blocks = blocks();
    let [lines] = &blocks.iter().filter(|(tag, _)| *tag == "json").collect::<Vec<_>>()[..] else {
        panic!("one example");
    };
    let mut shown: Value = serde_json::from_str(&lines.1.join("\n")).unwrap();
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let errors: Vec<_> = validator.iter_errors(&shown).map(|error| error.to_string()).collect();
    assert_eq!(errors, [""; 0]);

    // The command that is said to give it, with the harness's own --json.
    let text = section("The record").split_whitespace().collect::<Vec<_>>().join(" ");
    let line = quoted(&text).into_iter().find(|line| line.starts_with("corral --wall")).unwrap();
    assert_eq!(line, "corral --wall 500ms --cgroup-mode fallback --json FILE -- sleep 60");
    let run =
        Run::corral(&["--wall", "500ms", "--cgroup-mode", "fallback"]).command(["sleep", "60"]);
    let outcome = run.run();
    outcome.assert_status(124);
    let mut real = outcome.record("").clone();
    steady(&mut shown, "");
    steady(&mut real, "");
    assert_eq!(shown, real);
}

/// A line without its pids and times.
fn normal(line: &str) -> String {
    if !line.starts_with("corral: ") {
        return line.to_owned();
    }
    let counted = ["process", "processes", "more", "byte", "bytes"];
    let words: Vec<&str> = line.split(' ').collect();
    let mut normal = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let bare = word.trim_start_matches('(');
        let next = words.get(at + 1).map_or("", |next| next.trim_end_matches([',', ')', ';']));
        let number = !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_digit());
        if number && !next.is_empty() && !counted.contains(&next) {
            normal.push(word.replace(bare, "PID"));
        } else if at > 0 && words[at - 1] == "after" && word.ends_with('s') {
            normal.push("TIME".to_owned());
        } else {
            normal.push((*word).to_owned());
        }
    }
    normal.join(" ")
}

#[test]
fn pids_and_times_are_left_out_and_nothing_else() {
    let line = "corral: sh left 2 processes behind: stopped 12 a, 3 more, all gone after 1.2ms";
    let same = "corral: sh left 2 processes behind: stopped 9 a, 3 more, all gone after 99ms";
    assert_eq!(normal(line), normal(same));
    assert_ne!(normal(line), normal(&line.replace("3 more", "4 more")));
    assert_ne!(normal(line), normal(&line.replace("left 2", "left 3")));
    assert_ne!(normal(line), normal(&line.replace("12 a", "12 b")));
    assert_eq!(normal("corral: 284 bytes left out"), "corral: 284 bytes left out");
}

/// Runs a block and compares what it prints with its comments.
fn runs(language: &str, lines: &[&str]) {
    let mut code = Vec::new();
    let mut shown = Vec::new();
    for line in lines.iter().skip(1) {
        match line.strip_prefix("# ") {
            Some(output) => shown.push(normal(output)),
            None => code.push(*line),
        }
    }
    let code = code.join("\n").replace("cargo build --release && target/release/corral", "corral");
    let words = match language {
        "sh" => ["sh", "-c", &code],
        "python" => ["python3", "-c", &code],
        other => panic!("{other} cannot be run"),
    };
    let mut path = vec![corral().parent().unwrap().to_owned()];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
    if !path.iter().any(|directory| directory.join(words[0]).exists()) {
        return skip(&format!("no {}", words[0]));
    }
    // One open file for both, as on a terminal, so that their order holds.
    let merged = ["sh", "-c", "exec \"$@\" 2>&1", "sh"].into_iter().chain(words);
    let outcome = Run::argv(merged).env("PATH", std::env::join_paths(path).unwrap()).run();
    let printed = String::from_utf8(outcome.stdout.clone()).unwrap();
    assert_eq!(printed.lines().map(normal).collect::<Vec<_>>(), shown, "{code}");
    outcome.assert_nothing_left();
}

#[test]
fn the_examples_print_what_is_shown() {
    let mut languages = BTreeMap::new();
    for (language, lines) in blocks() {
        if lines.first() == Some(&"# runs") {
            runs(language, &lines);
            *languages.entry(language).or_insert(0) += 1;
        }
    }
    assert_eq!(languages, BTreeMap::from([("sh", 3), ("python", 1)]));
}

#[test]
fn links_lead_somewhere() {
    let slug = |heading: &str| heading.to_lowercase().replace(' ', "-").replace(['(', ')'], "");
    let headings: Vec<_> =
        README.lines().filter_map(|line| line.strip_prefix("## ")).map(slug).collect();
    for link in README.split("](").skip(1) {
        let target = link.split(')').next().unwrap();
        match target.strip_prefix('#') {
            Some(anchor) => assert!(headings.iter().any(|heading| heading == anchor), "{anchor}"),
            None => {
                let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(target);
                assert!(path.exists(), "{target}");
            }
        }
    }
}

#[test]
fn it_is_plain_text_of_bounded_width() {
    assert!(README.is_ascii());
    let mut fenced = false;
    for line in README.lines() {
        fenced ^= line.starts_with("```");
        let free = fenced || line.starts_with('|');
        assert!(free || line.len() <= 88, "{line}");
        assert_eq!(line.trim_end(), line);
    }
}
