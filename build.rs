//! Build script: how the binary and the fault programs are linked, and which
//! texts are made from the one option table (`src/cli/table.rs`): the help.
//!
//! The link flags, each with its reason:
//! - `-nostartfiles -nostdlib -static`: corral has its own `_start` and no libc.
//! - `-no-pie`: no relocations to apply at start, so fewer pages are touched.
//! - `-z noseparate-code`, `-z norelro`, `--build-id=none`: fewer segments and
//!   pages; exec of a small static program is dominated by them.
//! - `--no-eh-frame-hdr` and a script that drops `.eh_frame`, `.comment`: nothing unwinds
//!   (`panic = "abort"`), and the tables are a sixth of the file.
//! - `--no-rosegment`: constants lie with the code, one segment less to map.
//! - `--icf=all`: equal functions are one; nothing compares their addresses.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "src/cli/table.rs"]
mod table;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/cli/table.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    link(&out);
    fs::write(out.join("help.txt"), help()).expect("OUT_DIR is writable");
}

fn link(out: &Path) {
    let script = out.join("drop.ld");
    fs::write(
        &script,
        "SECTIONS { /DISCARD/ : { *(.eh_frame) *(.comment) } } INSERT AFTER .text;\n",
    )
    .expect("OUT_DIR is writable");
    let script = format!("--script={}", script.display());
    let ld = [
        "-nostdlib",
        "-static",
        "--no-eh-frame-hdr",
        "--build-id=none",
        "--gc-sections",
        "--icf=all",
        "--no-rosegment",
        script.as_str(),
    ];
    let keywords = ["noseparate-code", "norelro"];
    // The musl targets link with rust-lld itself, the others through cc.
    let direct = env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("musl");
    let mut flags: Vec<String> = Vec::new();
    if direct {
        flags.extend(ld.iter().map(|flag| (*flag).to_owned()));
        for keyword in keywords {
            flags.push("-z".to_owned());
            flags.push(keyword.to_owned());
        }
    } else {
        for flag in ["-nostartfiles", "-nostdlib", "-static", "-no-pie"] {
            flags.push(flag.to_owned());
        }
        flags.extend(ld.iter().skip(2).map(|flag| format!("-Wl,{flag}")));
        flags.extend(keywords.iter().map(|keyword| format!("-Wl,-z,{keyword}")));
    }
    for flag in flags {
        println!("cargo:rustc-link-arg-bins={flag}");
    }
    if direct {
        link_tests();
    }
}

/// The tests do have a libc, the one that rustc brings for the target and that
/// `.cargo/config.toml` turned off for corral's sake.
fn link_tests() {
    let target = env::var("TARGET").expect("cargo sets TARGET");
    let rustc = env::var_os("RUSTC").expect("cargo sets RUSTC");
    let output =
        Command::new(rustc).args(["--print", "target-libdir", "--target", &target]).output();
    let libraries = output.expect("rustc runs").stdout;
    let libraries = String::from_utf8(libraries).expect("a path in UTF-8");
    let libraries = Path::new(libraries.trim_end()).join("self-contained");
    println!("cargo:rustc-link-arg-tests=-L{}", libraries.display());
    for file in ["crt1.o", "crti.o", "crtn.o"] {
        println!("cargo:rustc-link-arg-tests={}", libraries.join(file).display());
    }
}

/// Columns of the help.
const WIDTH: usize = 80;
/// Where the text of an option begins.
const OPTION_TEXT: usize = 31;
/// Where the meaning of an exit status begins.
const STATUS_TEXT: usize = 10;

const USAGE: &str = "\
Usage: corral [OPTION]... [--] COMMAND [ARG]...

Runs COMMAND; when corral returns with any status but 120, no process that the
command started is alive, however it detached.
";

const VALUES: &str = "
DURATION is a decimal number with ms, s, m, h or d, such as 1.5s or 90m.
SIZE, HEAD and TAIL are bytes, or with K, M or G (1024).
SIG is a name or a number; the wait after the last one is --grace.
";

const EXAMPLES: &str = "
Examples:
  corral --wall 30m --json run.json -- make test
  corral --wall 10m --signal INT:5s,TERM --max-output 64K+64K -- ./agent
";

fn help() -> String {
    let mut text = USAGE.to_owned();
    for group in table::Group::ALL {
        text += &format!("\n{}:\n", group.title());
        let rows = table::OPTIONS.iter().zip(table::HELP_ROWS);
        for (row, more) in rows.filter(|(_, more)| more.group == group) {
            let metavar = row.metavar.map(|metavar| format!(" {metavar}"));
            let left = format!("--{}{}", row.name, metavar.unwrap_or_default());
            let default = more.default.map(|default| format!(" (default: {default})"));
            let right = format!("{}{}", more.help, default.unwrap_or_default());
            text += &entry(&left, &right, OPTION_TEXT);
        }
    }
    text += VALUES;
    text += "\nExit status: that of COMMAND, or\n";
    for (status, meaning) in table::STATUSES {
        text += &entry(status, meaning, STATUS_TEXT);
    }
    text + EXAMPLES
}

/// `left` in the margin, `right` from `column` on, wrapped; on lines of its own
/// where `left` is too wide.
fn entry(left: &str, right: &str, column: usize) -> String {
    let mut text = String::new();
    let mut line = format!("  {left}");
    if line.len() + 2 > column {
        text += &format!("{line}\n");
        line.clear();
    }
    let mut gap = column - line.len();
    for word in right.split(' ') {
        if line.len() + gap + word.len() > WIDTH {
            text += &format!("{line}\n");
            line.clear();
            gap = column;
        }
        line += &" ".repeat(gap);
        line += word;
        gap = 1;
    }
    format!("{text}{line}\n")
}
