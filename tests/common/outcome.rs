//! What is known about a run that has returned?
//!
//! Facts from outside corral (status, output, survivors) beside what corral says
//! of itself (its record), so that a test can hold the two against each other.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::ground::{Ground, Survivor};

/// A run that has returned. Dropping it ends what it left.
pub struct Outcome {
    /// The exit status, unless a signal ended it.
    pub status: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// The first bytes of it, up to [`Run::keep`].
    pub stdout: Vec<u8>,
    /// How much came.
    pub stdout_bytes: u64,
    /// As stdout, in readable form.
    pub stderr: String,
    /// How much came.
    pub stderr_bytes: u64,
    /// From before the fork to the return.
    pub elapsed: Duration,
    /// Who was alive on the run's ground at the return.
    pub survivors: Vec<Survivor>,
    /// Whether the pipes of stdout and stderr were at their end at the return:
    /// nobody alive held them.
    pub eof: bool,
    /// What `--json` wrote.
    pub record: Option<serde_json::Value>,
    /// Where it is, while this lives.
    pub(super) record_path: Option<PathBuf>,
    /// To look again later.
    pub ground: Ground,
    /// The run's own directory.
    pub directory: tempfile::TempDir,
}

impl Outcome {
    /// Fails if anything is alive or holds the output.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        assert!(self.survivors.is_empty(), "survivors: {self:#?}");
        assert!(self.eof, "somebody holds the output: {self:#?}");
    }

    /// Fails if a group is left below the one that it started in.
    #[track_caller]
    pub fn assert_no_group(&self) {
        let groups = self.ground.groups();
        assert!(groups.is_empty(), "still there: {groups:?}: {self:#?}");
    }

    /// Fails unless it exited with this status.
    #[track_caller]
    pub fn assert_status(&self, status: i32) {
        assert_eq!((self.status, self.signal), (Some(status), None), "{self:#?}");
    }

    /// A value of the record, as `record("/steps_us/killed")`.
    #[track_caller]
    pub fn record(&self, pointer: &str) -> &serde_json::Value {
        let record = self.record.as_ref().unwrap_or_else(|| panic!("no record: {self:#?}"));
        record.pointer(pointer).unwrap_or_else(|| panic!("no {pointer} in {record:#}"))
    }

    /// The record as it is now: where the monitor was killed, the supervisor
    /// writes it after the return.
    pub fn record_now(&self) -> Option<serde_json::Value> {
        self.record_path.as_deref().and_then(read_record)
    }
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let start =
            |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(2000)]).into_owned();
        f.debug_struct("Outcome")
            .field("status", &self.status)
            .field("signal", &self.signal)
            .field("stdout_bytes", &self.stdout_bytes)
            .field("stdout", &start(&self.stdout))
            .field("stderr_bytes", &self.stderr_bytes)
            .field("stderr", &start(self.stderr.as_bytes()))
            .field("elapsed", &self.elapsed)
            .field("survivors", &self.survivors)
            .field("eof", &self.eof)
            .field("record", &self.record.as_ref().map(ToString::to_string))
            .finish_non_exhaustive()
    }
}

/// A record that is there must be one line of JSON.
pub(super) fn read_record(path: &Path) -> Option<serde_json::Value> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.strip_suffix('\n').unwrap_or_else(|| panic!("no newline: {text:?}"));
    assert!(!line.contains('\n'), "more than one line: {text:?}");
    Some(serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {text:?}")))
}
