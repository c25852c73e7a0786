//! Where do the programs of a guest of another architecture come from?
//!
//! cargo builds them from the sources of these tests and beside this build: corral
//! as it is installed, the faults and the test executables as here. The linker and
//! the libc come with Rust, so that no cross compiler is needed; its library for
//! the target must be there beforehand.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::super::common::{Run, corral, skip};
use super::alone;

/// A build from nothing takes two processors a fifth of it.
const LIMIT: Duration = Duration::from_secs(540);

/// What was built for a target.
pub struct Cross {
    /// corral, as a release.
    pub corral: PathBuf,
    /// The tests asked for, the faults, and the corral that these would run, whose
    /// path they know.
    pub executables: BTreeMap<String, PathBuf>,
}

impl Cross {
    /// Builds all that a guest needs which runs these tests; `None` skips.
    pub fn build(target: &str, tests: &[&str]) -> Option<Self> {
        if !has_library(target) {
            skip(&format!("no Rust library: rustup target add {target}"));
            return None;
        }
        let mut words = vec!["test", "--no-run"];
        words.extend(tests.iter().flat_map(|name| ["--test", *name]));
        // A guest is no faster with two processors taken by a compiler.
        let _alone = alone();
        let corral = cargo(target, &["build", "--release"]).remove("corral").unwrap();
        Some(Self { corral, executables: cargo(target, &words) })
    }

    /// Where the faults and their corral lie.
    pub fn home(&self) -> &Path {
        self.executables["corral"].parent().unwrap()
    }
}

fn has_library(target: &str) -> bool {
    let words = ["--print", "target-libdir", "--target", target];
    let output = Command::new("rustc").args(words).output().unwrap();
    Path::new(String::from_utf8(output.stdout).unwrap().trim_end()).is_dir()
}

/// Runs cargo; the executables that it made or found up to date, by name.
fn cargo(target: &str, words: &[&str]) -> BTreeMap<String, PathBuf> {
    let run = Run::argv([env!("CARGO")]).args(words);
    let run = run.args(["--quiet", "--message-format=json", "--target", target]);
    let run = run.env("CARGO_TARGET_DIR", corral().ancestors().nth(2).unwrap());
    // This machine's `strip` does not know the format.
    let outcome = run.env("CARGO_PROFILE_DEV_STRIP", "symbols").limit(LIMIT).run();
    outcome.assert_status(0);
    let messages = serde_json::Deserializer::from_slice(&outcome.stdout).into_iter::<Value>();
    let made = messages.filter_map(|message| {
        let message = message.unwrap();
        let path = message["executable"].as_str()?;
        Some((message["target"]["name"].as_str()?.to_owned(), path.into()))
    });
    made.collect()
}
