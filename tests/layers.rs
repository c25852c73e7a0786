//! Does each file use only what its place in the house allows?
//!
//! The "may use" column of the layers, held against the `crate::` and `super::`
//! paths in the files; `unsafe` is looked for where it may not be.

use std::fs;
use std::path::{Path, PathBuf};

/// Module (the longest prefix wins), and the modules it may name. A module may
/// always name itself and what is below it.
const MAY_USE: &[(&str, &[&str])] = &[
    ("sys", &[]),
    ("os", &["sys", "policy::time"]),
    ("policy", &[]),
    ("cli", &["policy"]),
    ("cli::table", &[]),
    ("report", &["policy", "cli"]),
    ("agent", &["sys::memory", "sys::errno", "policy::time", "report::record"]),
    ("relay", &["sys", "os::host", "agent", "policy::time", "cli::plan", "report::record"]),
    ("channel", &["sys"]),
    ("sweep", &["sys", "os", "report"]),
    ("run", &["sys", "os", "policy", "cli", "report"]),
    ("scope", &["sys", "os", "policy", "cli", "run"]),
    ("loss", &["sys", "os", "policy", "cli", "report", "run", "sweep"]),
    (
        "supervisor",
        &["sys", "os", "policy", "cli", "report", "run", "sweep", "relay", "agent", "channel"],
    ),
    (
        "monitor",
        &["sys", "os", "policy", "cli", "report", "run", "loss", "scope", "supervisor", "channel"],
    ),
];

fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a readable source tree") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// `src/os/tree.rs` is `os::tree`, `src/os/mod.rs` is `os`.
fn module(path: &Path) -> String {
    let path = path.strip_prefix("src").expect("below src").with_extension("");
    let mut parts: Vec<_> =
        path.iter().map(|part| part.to_str().expect("plain names").to_owned()).collect();
    if parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    parts.join("::")
}

/// Tests in a file of their own may use what they like.
fn is_test(path: &Path) -> bool {
    path.ends_with("tests.rs")
}

fn is_below(module: &str, above: &str) -> bool {
    module == above || module.strip_prefix(above).is_some_and(|rest| rest.starts_with("::"))
}

/// Text without comments and without the tests behind it.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    text.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Every path behind `crate::`, the groups of a `use` taken apart.
fn paths(code: &str) -> Vec<String> {
    code.split("crate::")
        .skip(1)
        .flat_map(|rest| {
            let end = rest
                .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
                .unwrap_or(rest.len());
            let head = rest[..end].trim_end_matches("::").to_owned();
            match rest[end..].strip_prefix('{') {
                Some(group) => group[..group.find('}').expect("a closed group")]
                    .split(',')
                    .map(|name| format!("{head}::{}", name.trim().split("::").next().unwrap_or("")))
                    .collect(),
                None => vec![head],
            }
        })
        .collect()
}

#[test]
fn every_file_keeps_to_its_layer() {
    let mut all = Vec::new();
    files(Path::new("src"), &mut all);
    let mut checked = 0;
    for path in all {
        let module = module(&path);
        if matches!(module.as_str(), "main" | "lib" | "mem") || is_test(&path) {
            continue;
        }
        let (_, allowed) = MAY_USE
            .iter()
            .filter(|(name, _)| is_below(&module, name))
            .max_by_key(|(name, _)| name.len())
            .unwrap_or_else(|| panic!("{module} has no row in MAY_USE"));
        let top = module.split("::").next().expect("a first part");
        let text = fs::read_to_string(&path).expect("a readable file");
        for used in paths(&code(&text)) {
            let own = is_below(&used, top);
            assert!(
                own || allowed.iter().any(|above| is_below(&used, above)),
                "{} uses crate::{used}, and may use {allowed:?}",
                path.display()
            );
            checked += 1;
        }
    }
    assert!(checked > 100, "the check has found only {checked} paths");
}

#[test]
fn every_row_is_a_module() {
    for (name, _) in MAY_USE {
        let path = Path::new("src").join(name.replace("::", "/"));
        assert!(path.is_dir() || path.with_extension("rs").is_file(), "{name} is no module");
    }
}

#[test]
fn unsafe_is_written_where_the_kernel_is_entered_and_nowhere_else() {
    let mut all = Vec::new();
    files(Path::new("src"), &mut all);
    for path in all {
        let module = module(&path);
        let entered = module.starts_with("sys") || ["main", "mem"].contains(&module.as_str());
        if entered || is_test(&path) {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a readable file");
        let word = code(&text)
            .split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .any(|word| word == "unsafe");
        assert!(!word, "{} says unsafe", path.display());
    }
}

#[test]
fn no_file_is_a_maze() {
    let mut all = Vec::new();
    files(Path::new("src"), &mut all);
    files(Path::new("faults"), &mut all);
    for path in all {
        let lines = fs::read_to_string(&path).expect("a readable file").lines().count();
        assert!(
            lines <= 600,
            "{} has {lines} lines; is there a second question in it?",
            path.display()
        );
    }
}
