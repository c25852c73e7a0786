//! Build script: how the binary and the fault programs are linked, and which
//! texts are made from the one option table.
//!
//! The link flags, each with its reason:
//! - `-nostartfiles -nostdlib -static`: corral has its own `_start` and no libc.
//! - `-no-pie`: no relocations to apply at start, so fewer pages are touched.
//! - `-z noseparate-code`, `-z norelro`, `--build-id=none`: fewer segments and
//!   pages; exec of a small static program is dominated by them.
//! - `--no-eh-frame-hdr`: nothing unwinds (`panic = "abort"`).

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let ld = [
        "-nostdlib",
        "-static",
        "--no-eh-frame-hdr",
        "--build-id=none",
        "--gc-sections",
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
}
