//! Is the help what we think it is?
//!
//! `tests/snapshots/help.txt` shows each change of it in review;
//! `UPDATE_SNAPSHOTS=1 cargo test --test help` writes it anew.

use corral::cli::table::{HELP_ROWS, OPTIONS, STATUSES};
use corral::cli::{HELP, VERSION};

#[test]
fn the_snapshot_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/snapshots/help.txt");
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some_and(|value| value == "1") {
        std::fs::write(path, HELP).expect("the snapshot is writable");
    }
    let kept = std::fs::read_to_string(path).expect("the snapshot is there");
    assert!(kept == HELP, "{path} differs: UPDATE_SNAPSHOTS=1 rewrites it; the help is\n{HELP}");
}

#[test]
fn lines_fit_a_terminal() {
    assert!(HELP.ends_with('\n') && !HELP.ends_with("\n\n") && !HELP.contains("\n\n\n"));
    for line in HELP.lines() {
        assert!(line.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{line}");
        assert!(line.len() <= 80 && !line.ends_with(' '), "{line}");
    }
}

#[test]
fn usage_comes_first_and_the_guarantee_next() {
    let mut parts = HELP.split("\n\n");
    assert_eq!(parts.next(), Some("Usage: corral [OPTION]... [--] COMMAND [ARG]..."));
    let guarantee = parts.next().expect("a second paragraph");
    assert!(guarantee.contains("any status but 120"), "{guarantee}");
}

/// The help without its layout.
fn words() -> String {
    HELP.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn each_option_is_listed_once_with_all_that_is_known() {
    let mut from = 0;
    for (row, more) in OPTIONS.iter().zip(HELP_ROWS) {
        let metavar = row.metavar.map(|metavar| format!(" {metavar}"));
        let default = more.default.map(|default| format!(" (default: {default})"));
        let (metavar, default) = (metavar.unwrap_or_default(), default.unwrap_or_default());
        let entry = format!("--{}{metavar} {}{default}", row.name, more.help);
        let words = words();
        let at = words[from..].find(&entry).unwrap_or_else(|| panic!("{entry}"));
        from += at + entry.len();
        let line = format!("\n  --{}", row.name);
        let lines = HELP.match_indices(&line);
        let own = lines.filter(|(at, _)| !HELP[at + line.len()..].starts_with('-'));
        assert_eq!(own.count(), 1, "{}", row.name);
    }
}

#[test]
fn each_status_is_listed() {
    for (status, meaning) in STATUSES {
        let line = HELP.lines().find(|line| line.trim_start().starts_with(status));
        assert!(line.is_some_and(|line| line.ends_with(meaning)), "{status}");
    }
}

#[test]
fn the_version_is_one_line() {
    assert_eq!(VERSION, format!("corral {}\n", env!("CARGO_PKG_VERSION")));
}
