//! What does every end-to-end test stand on?
//!
//! A ground truth that corral cannot influence (`ground`): each run happens in a
//! cgroup2 directory of its own, which the launcher enters before exec; what
//! that directory still lists when corral has returned has survived. Where no
//! cgroup2 is writable, an inherited pipe stands in for it. And a way to run
//! corral or anything else on that ground (`run`), with a hard limit, so that a
//! corral that hangs is a failed test and not a hung one:
//!
//! ```ignore
//! let outcome = Run::corral(&["--wall", "1s"]).fault("ignore_term", &[]).run();
//! assert_eq!(outcome.status, Some(124));
//! outcome.assert_nothing_left();
//! ```
//!
//! Every process is started through here, under one lock: a sibling test's
//! newborn, which holds all our descriptors until its exec, would make an end
//! of file come late and a freshly copied program "busy".

#![allow(dead_code, unused_imports, reason = "each test file uses its own part of this")]

mod ground;
mod outcome;
pub mod refuse;
mod run;
mod stream;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub use ground::{Ground, Survivor, children, proc_state};
pub use outcome::Outcome;
pub use run::{Run, Running, Stdin};
pub use rustix::process::Signal;

/// Somebody who owns nothing: `nobody`.
pub const NOBODY: u32 = 65534;

/// Held from before a fork until after its exec.
static SPAWN: Mutex<()> = Mutex::new(());

/// No newborn of ours holds a descriptor by accident while this lives.
fn no_newborn() -> MutexGuard<'static, ()> {
    SPAWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The one way not to run a test: says so where libtest does not hide it, and
/// fails where `CORRAL_MUST_WORK=1` says that this host can do everything.
pub fn skip(why: &str) {
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    assert!(
        std::env::var_os("CORRAL_MUST_WORK").is_none_or(|value| value != "1"),
        "CORRAL_MUST_WORK=1, but {test} cannot run: {why}"
    );
    // The print macros are captured, the stream is not.
    let _ = writeln!(std::io::stderr(), "SKIP {test}: {why}");
}

/// Whether this is root; says `skip` if not.
pub fn root_or_skip() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skip("needs root");
    }
    root
}

/// The `--cgroup-mode` that all runs get which do not name one, where this whole
/// process is run for one mode (`CORRAL_TEST_MODE`, as `vm.rs` does).
pub fn mode_asked() -> Option<String> {
    std::env::var("CORRAL_TEST_MODE").ok()
}

/// The mode that the fault table is run in.
pub fn mode() -> String {
    mode_asked().unwrap_or_else(|| "fallback".into())
}

/// How many processes a fork storm may have on a slow machine
/// (`CORRAL_TEST_STORM`).
pub fn storm() -> Option<String> {
    std::env::var("CORRAL_TEST_STORM").ok()
}

/// The `--wall` of a run that must have set its trap by then; a slow machine
/// (`CORRAL_TEST_WALL`) gives it more.
pub fn wall() -> String {
    std::env::var("CORRAL_TEST_WALL").unwrap_or_else(|_| "1s".into())
}

/// The corral under test.
pub fn corral() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_corral"))
}

/// A fault program; they lie beside corral.
pub fn fault(name: &str) -> PathBuf {
    fault_in(corral().parent().unwrap(), name)
}

/// A fault program of another build.
pub fn fault_in(directory: &Path, name: &str) -> PathBuf {
    let path = directory.join(name);
    assert!(path.exists(), "no {}: build the faults with a plain `cargo test`", path.display());
    path
}

/// Copies a program so that it can be executed at once.
pub fn install(from: &Path, to: &Path, mode: u32) {
    let _guard = no_newborn();
    fs::copy(from, to)
        .unwrap_or_else(|e| panic!("copy {} to {}: {e}", from.display(), to.display()));
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).unwrap();
}

/// Lets every user read and write a directory.
pub fn open_to_all(directory: &Path) {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).unwrap();
}
