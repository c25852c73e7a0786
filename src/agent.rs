//! Which of an agent's tool calls have had no result yet, and has it said its last?
//!
//! Fed with the bytes of its `stream-json` as they come (`lines`), it keeps the calls
//! of the tools that are tracked, each from the moment at which its block was read
//! until the one at which its result was. A line counts when its object is whole. A
//! line of `assistant` or `user` after a `result` takes that back: it was not the last.
//!
//! Bounded: [`MOST_CALLS`] at once, and none is dropped for another; those beyond are
//! counted and not tracked.
//!
//! May use: `sys::memory` and its errors, `policy::time`, `report::record`.

mod lines;

#[cfg(test)]
mod tests;

use self::lines::{Fact, Field, Kind, Lines, MOST_TEXT};
use crate::policy::time::Instant;
use crate::report::record::Text;
use crate::sys::errno::Result;
use crate::sys::memory::List;

/// Most calls at once.
pub const MOST_CALLS: usize = 256;

/// What the line that is being read does to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    Nothing,
    Begins,
    Ends,
}

/// A call without a result.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    id: Text<MOST_TEXT>,
    /// The tool.
    pub name: Text<64>,
    pending: Pending,
    /// When it was read.
    pub since: Instant,
}

/// What an agent has said so far.
#[derive(Debug)]
pub struct Agent {
    /// The names, divided by commas.
    tools: &'static [u8],
    lines: Lines,
    calls: List<Call>,
    result: Option<Instant>,
    untracked: u64,
}

impl Agent {
    /// One that has said nothing. `tools` are the names to be tracked, divided by
    /// commas.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(tools: &'static [u8]) -> Result<Self> {
        let lines = Lines::new()?;
        Ok(Self { tools, lines, calls: List::new(), result: None, untracked: 0 })
    }

    /// The next bytes, read at this moment.
    pub fn hear(&mut self, bytes: &[u8], now: Instant) {
        for &byte in bytes {
            if let Some(fact) = self.lines.byte(byte) {
                self.take(fact, now);
            }
        }
    }

    /// The call that has had no result for the longest time.
    #[must_use]
    pub fn oldest(&self) -> Option<&Call> {
        let open = self.calls.iter().filter(|call| call.pending != Pending::Begins);
        open.min_by_key(|call| call.since)
    }

    /// When it said its last word, unless it went on.
    #[must_use]
    pub const fn result(&self) -> Option<Instant> {
        self.result
    }

    /// How many calls there was no room for.
    #[must_use]
    pub const fn untracked(&self) -> u64 {
        self.untracked
    }

    fn take(&mut self, fact: Fact, now: Instant) {
        match fact {
            Fact::Call => self.begin(now),
            Fact::Answer => {
                let id = self.lines.text(Field::Answered);
                let call = self.calls.iter_mut().find(|call| Some(call.id.as_bytes()) == id);
                if let Some(call) = call.filter(|call| call.pending == Pending::Nothing) {
                    call.pending = Pending::Ends;
                }
            }
            Fact::Object(kind) => self.settle(kind, now),
            Fact::Nothing => self.settle(Kind::Other, now),
        }
    }

    fn begin(&mut self, now: Instant) {
        let (id, name) = (self.lines.text(Field::Id), self.lines.text(Field::Name));
        let (Some(id), Some(name)) = (id, name) else { return };
        let tracked = self.tools.split(|&byte| byte == b',').any(|tool| tool == name);
        if !tracked || self.calls.iter().any(|call| call.id.as_bytes() == id) {
            return;
        }
        let (id, name) = (Text::new(id), Text::new(name));
        let call = Call { id, name, pending: Pending::Begins, since: now };
        if self.calls.len() >= MOST_CALLS || self.calls.push(call).is_err() {
            self.untracked = self.untracked.saturating_add(1);
        }
    }

    /// The line is whole: what its blocks are worth is known.
    fn settle(&mut self, kind: Kind, now: Instant) {
        let mut kept = 0;
        for index in 0..self.calls.len() {
            let Some(call) = self.calls.get_mut(index) else { break };
            let over = match call.pending {
                Pending::Nothing => false,
                Pending::Begins => kind != Kind::Assistant,
                Pending::Ends => kind == Kind::User,
            };
            if over {
                continue;
            }
            call.pending = Pending::Nothing;
            if kept < index {
                self.calls.copy_within(index..=index, kept);
            }
            kept += 1;
        }
        self.calls.truncate(kept);
        match kind {
            Kind::Result => self.result = Some(now),
            Kind::Assistant | Kind::User => self.result = None,
            Kind::Other => {}
        }
    }
}
