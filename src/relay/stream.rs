//! How does one stream get from its pipe to its outlet?
//!
//! In steps, each one operation: flush what the buffer holds, else take what the
//! pipe has and pass it, keep it or drop it. A step that can do nothing says so;
//! what could change that is then waited for: the pipe while it was empty, the
//! outlet while it was full, never both for the same bytes.
//!
//! May use: `sys`, `agent`, and what the module above shares.

use super::outlet::{Outlet, Room, Took};
use super::tail::Tail;
use super::{BUFFER, Common, FEW, FIRST, Fate, MOST_DIGITS, PIPE_BYTES, TURN_BYTES};
use crate::agent::Agent;
use crate::sys::errno::{Errno, Result};
use crate::sys::event::Wait;
use crate::sys::fd::{self, OwnedFd};
use crate::sys::memory::List;

/// The pipe that the command writes to.
#[derive(Debug)]
struct Source {
    /// Our end, until there is nothing more to come.
    pipe: Option<OwnedFd>,
    /// The command's end, until it has its own.
    end: Option<OwnedFd>,
    /// Whether there may be something in it.
    ready: bool,
    /// Bytes that came, those included that were lost in the pipe.
    bytes: u64,
    /// While draining: how many bytes are still ours to take.
    rest: Option<u64>,
}

impl Source {
    fn new() -> Result<Self> {
        let (pipe, end) = fd::pipe()?;
        // The two ends are two open files: the command's stays blocking.
        fd::set_nonblocking(&pipe)?;
        // Beyond the user's limit a smaller pipe serves as well.
        let _ = PIPE_BYTES.iter().any(|&bytes| fd::set_pipe_size(&pipe, bytes).is_ok());
        Ok(Self { pipe: Some(pipe), end: Some(end), ready: false, bytes: 0, rest: None })
    }

    /// Notes that `count` bytes were taken.
    fn took(&mut self, count: usize) {
        let count = count as u64;
        self.bytes += count;
        if let Some(rest) = &mut self.rest {
            *rest = rest.saturating_sub(count);
            if *rest == 0 {
                self.pipe = None;
            }
        }
    }

    /// Reads at most `most` bytes; 0: there is nothing now, or ever.
    fn read(&mut self, to: &mut [u8], most: u64) -> usize {
        let Some(pipe) = &self.pipe else { return 0 };
        let most = clamp(most.min(self.rest.unwrap_or(u64::MAX)), to.len());
        match fd::read(pipe.fd(), to.get_mut(..most).unwrap_or_default()) {
            Ok(count) if count > 0 => {
                self.took(count);
                count
            }
            Err(Errno::EAGAIN | Errno::EINTR) => {
                self.ready = false;
                0
            }
            Ok(_) | Err(_) => {
                self.pipe = None;
                0
            }
        }
    }

    /// How many bytes wait in the pipe.
    fn waiting(&self) -> u64 {
        let Some(pipe) = &self.pipe else { return 0 };
        let waiting = fd::readable_bytes(pipe.fd()).map_or(0, u64::from);
        waiting.min(self.rest.unwrap_or(u64::MAX))
    }

    /// Closes our end, so that the command gets SIGPIPE; what was in the pipe has
    /// come and is lost. Says how much that was.
    fn close(&mut self) -> u64 {
        let lost = self.waiting();
        self.bytes += lost;
        self.pipe = None;
        lost
    }
}

/// Bytes that were read and wait to be written.
#[derive(Debug)]
struct Buffer {
    bytes: List<u8>,
    from: usize,
    to: usize,
}

impl Buffer {
    const EMPTY: Self = Self { bytes: List::new(), from: 0, to: 0 };

    const fn is_empty(&self) -> bool {
        self.from >= self.to
    }

    const fn len(&self) -> u64 {
        self.to.saturating_sub(self.from) as u64
    }

    /// Room for fresh bytes, when it is empty.
    fn room(&mut self) -> Result<&mut [u8]> {
        if self.bytes.is_empty() {
            self.bytes.resize(BUFFER)?;
        }
        Ok(&mut self.bytes)
    }

    /// The room now begins with `count` bytes.
    const fn filled(&mut self, count: usize) {
        self.from = 0;
        self.to = count;
    }

    fn held(&self) -> &[u8] {
        self.bytes.get(self.from..self.to).unwrap_or_default()
    }
}

/// Whether somebody takes what we write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    There,
    /// It closed its end, or the file takes no more.
    Gone,
    /// It took too long.
    GivenUp,
}

/// What the buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// Bytes that are passed on as they come.
    Head,
    /// The line about what was left out.
    Line,
    /// A run of the tail, from the cursor on.
    Tail,
}

/// One stream.
#[derive(Debug)]
pub(super) struct Stream {
    source: Source,
    outlet: Outlet,
    buffer: Buffer,
    held: Held,
    reader: Reader,
    /// How much may still be spliced in this turn.
    quota: usize,
    /// Up to which position the tail is passed on, as far as it is this
    /// stream's.
    cursor: u64,
    /// Whether the line about what was left out is still to be loaded.
    owes_line: bool,
    /// Who writes it, if that is to be read.
    pub(super) agent: Option<Agent>,
}

impl Stream {
    pub(super) fn new(outlet: Outlet, owes_line: bool) -> Result<Self> {
        Ok(Self {
            source: Source::new()?,
            outlet,
            buffer: Buffer::EMPTY,
            held: Held::Head,
            reader: Reader::There,
            quota: TURN_BYTES,
            cursor: 0,
            owes_line,
            agent: None,
        })
    }

    pub(super) fn end(&self) -> Option<i32> {
        self.source.end.as_ref().map(|end| end.fd().number())
    }

    pub(super) fn close_end(&mut self) {
        self.source.end = None;
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.source.bytes
    }

    /// What to wait for at the pipe: nothing, while its bytes could not go
    /// anywhere.
    pub(super) fn wait_input(&self, fate: Fate) -> Wait {
        match &self.source.pipe {
            Some(pipe) if self.can_take(fate) => Wait::readable(pipe.fd()),
            Some(_) | None => Wait::NOTHING,
        }
    }

    /// What to wait for at the outlet. `tail` is where the tail ends, once it is
    /// to be passed on.
    pub(super) fn wait_outlet(&self, tail: Option<u64>) -> Wait {
        let waiting = !self.buffer.is_empty() || self.has_tail(tail);
        match self.reader {
            Reader::There if waiting || self.source.pipe.is_some() => self.outlet.wait(waiting),
            Reader::There | Reader::Gone | Reader::GivenUp => Wait::NOTHING,
        }
    }

    /// Takes what the waits have brought.
    pub(super) fn heed(&mut self, pipe: Wait, outlet: Wait) {
        if self.reader != Reader::There {
            return;
        }
        let before = self.outlet.room();
        if self.outlet.heed(outlet) {
            // While the outlet was full, nobody looked at the pipe.
            self.source.ready = pipe.fired() || before != self.outlet.room();
            self.quota = TURN_BYTES;
        } else {
            self.lose();
        }
    }

    /// One operation; whether anything came of it.
    pub(super) fn step(&mut self, second: bool, common: &mut Common) -> bool {
        if self.flush(common) {
            return true;
        }
        let fate = common.fate();
        if !self.source.ready || self.source.pipe.is_none() || !self.can_take(fate) {
            return false;
        }
        match fate {
            Fate::Pass(most) if self.is_spliced() => self.splice(most, common),
            Fate::Pass(most) => self.fill(most, common),
            Fate::Keep(most) => {
                let Some(bytes) = self.take(most, common) else {
                    return false;
                };
                if let Some(tail) = &mut common.tail {
                    tail.push(common.scratch.get(..bytes).unwrap_or_default(), second);
                }
                true
            }
            Fate::Drop => {
                let took = self.take(u64::MAX, common).is_some();
                common.over |= took;
                took
            }
        }
    }

    /// Whether what waits in the pipe is passed on without being copied: what is
    /// read has to be.
    fn is_spliced(&self) -> bool {
        let few = if self.source.bytes < FIRST { FIRST } else { FEW };
        self.agent.is_none()
            && self.outlet.splices()
            && !(self.outlet.copies_few() && self.source.waiting() < few)
    }

    /// The tree is empty: from now on only what is in the pipe is waited for.
    pub(super) fn expect_end(&mut self) {
        if self.source.rest.is_none() {
            self.source.end = None;
            let waiting = self.source.waiting();
            self.source.rest = Some(waiting);
            if waiting == 0 {
                self.source.pipe = None;
            }
        }
        self.source.ready = true;
    }

    /// Whether nothing more comes from the pipe.
    pub(super) const fn is_at_end(&self) -> bool {
        self.source.pipe.is_none()
    }

    /// Whether nothing is left to be passed on.
    pub(super) fn is_done(&self, tail: Option<u64>) -> bool {
        self.reader != Reader::There
            || (self.is_at_end() && self.buffer.is_empty() && !self.has_tail(tail))
    }

    /// Whether bytes are here that the reader does not take.
    pub(super) fn is_held(&self, fate: Fate, tail: Option<u64>) -> bool {
        let bytes = self.source.pipe.is_some() && matches!(fate, Fate::Pass(_));
        self.reader == Reader::There
            && self.outlet.room() != Room::Free
            && (bytes || !self.buffer.is_empty() || self.has_tail(tail))
    }

    /// Whether the outlet is to be tried again later, though nothing fires.
    pub(super) fn is_stalled(&self, fate: Fate, tail: Option<u64>) -> bool {
        self.outlet.room() == Room::Stalled && self.is_held(fate, tail)
    }

    /// Whether it is to be called again at once, since poll(2) may not tell of the
    /// room that there is for the rest of the tail.
    pub(super) fn is_unfinished(&self, tail: Option<u64>) -> bool {
        self.outlet.copies_few() && tail.and_then(|tail| self.tail_order(tail)).is_some()
    }

    /// When this stream's next bytes came, for its turn in passing the tail on;
    /// `None`: it has none, or can take none now.
    pub(super) fn tail_order(&self, tail: u64) -> Option<u64> {
        let takes = self.reader == Reader::There && self.outlet.room() == Room::Free;
        if !takes || (self.buffer.is_empty() && !self.has_tail(Some(tail))) {
            None
        } else if self.buffer.is_empty() {
            Some(if self.owes_line { 1 } else { self.cursor.saturating_add(2) })
        } else {
            Some(match self.held {
                Held::Head => 0,
                Held::Line | Held::Tail => 1,
            })
        }
    }

    /// Nothing was left out, so there is no line about it.
    pub(super) const fn owe_no_line(&mut self) {
        self.owes_line = false;
    }

    /// Passes on the next piece of the tail.
    pub(super) fn step_tail(&mut self, second: bool, common: &mut Common) {
        if self.buffer.is_empty()
            && let Some(tail) = &common.tail
            && self.load(second, tail).is_err()
        {
            self.lose();
        }
        self.flush(common);
    }

    /// Gives up a reader that does not take what comes before the tail.
    pub(super) fn give_up(&mut self, common: &mut Common) {
        let takes = self.is_at_end() && self.outlet.room() == Room::Free;
        if self.reader == Reader::There && !takes {
            common.given_up += self.source.close();
            self.give_up_buffer(common);
        }
    }

    /// Gives up what the reader has not taken of the tail.
    pub(super) fn give_up_tail(&mut self, second: bool, common: &mut Common) {
        if self.reader == Reader::Gone {
            return;
        }
        self.give_up_buffer(common);
        if let Some(tail) = &common.tail {
            while self.cursor < tail.end() {
                let (start, run) = tail.run(self.cursor, second, usize::MAX);
                common.given_up += run.len() as u64;
                self.cursor = start + run.len() as u64;
            }
        }
    }

    fn give_up_buffer(&mut self, common: &mut Common) {
        if self.held != Held::Line {
            common.given_up += self.buffer.len();
        }
        self.buffer.filled(0);
        self.owes_line = false;
        self.reader = Reader::GivenUp;
    }

    /// Whether bytes of this fate could go where they belong.
    fn can_take(&self, fate: Fate) -> bool {
        match fate {
            Fate::Pass(_) => self.buffer.is_empty() && self.outlet.room() == Room::Free,
            Fate::Keep(_) | Fate::Drop => true,
        }
    }

    const fn has_tail(&self, tail: Option<u64>) -> bool {
        match tail {
            Some(end) => self.cursor < end || self.owes_line,
            None => false,
        }
    }

    /// The reader is gone. The command is told as it would be without corral: by
    /// SIGPIPE, for want of a reader.
    fn lose(&mut self) {
        self.source.close();
        self.buffer.filled(0);
        self.owes_line = false;
        self.reader = Reader::Gone;
    }

    /// Writes from the buffer.
    fn flush(&mut self, common: &mut Common) -> bool {
        if self.buffer.is_empty() || self.outlet.room() != Room::Free {
            return false;
        }
        match self.outlet.put(self.buffer.held()) {
            Took::Bytes(count) => {
                self.buffer.from += count;
                common.moved = true;
                if self.held != Held::Line {
                    common.passed += count as u64;
                }
                true
            }
            Took::Broken => {
                self.lose();
                true
            }
            Took::Copy => true,
            Took::Full | Took::End | Took::NoInput => false,
        }
    }

    fn splice(&mut self, most: u64, common: &mut Common) -> bool {
        let Some(pipe) = &self.source.pipe else {
            return false;
        };
        let most = most.min(self.source.rest.unwrap_or(u64::MAX));
        let most = clamp(most, self.quota);
        if most == 0 {
            return false;
        }
        match self.outlet.splice(pipe.fd(), most) {
            Took::Bytes(count) => {
                self.quota = self.quota.saturating_sub(count);
                self.source.took(count);
                common.seen += count as u64;
                common.passed += count as u64;
                common.moved = true;
                if count < most || self.quota == 0 {
                    // What is left in the pipe says what to wait for.
                    self.source.ready = false;
                    if self.source.waiting() > 0 {
                        self.outlet.fill();
                    }
                }
                true
            }
            Took::End => {
                self.source.pipe = None;
                true
            }
            Took::Broken => {
                self.lose();
                true
            }
            Took::Copy => true,
            Took::NoInput => {
                self.source.ready = false;
                false
            }
            Took::Full => false,
        }
    }

    /// Reads into the buffer what is to be passed on, and offers it at once: to
    /// wait for room first might be to wait for more than it needs.
    fn fill(&mut self, most: u64, common: &mut Common) -> bool {
        let Ok(room) = self.buffer.room() else {
            self.lose();
            return true;
        };
        let count = self.source.read(room, most);
        self.buffer.filled(count);
        self.held = Held::Head;
        common.seen += count as u64;
        if let Some(agent) = &mut self.agent {
            agent.hear(self.buffer.held(), common.now);
        }
        self.flush(common);
        count > 0
    }

    /// Reads into the scratch buffer what is not to be passed on now.
    fn take(&mut self, most: u64, common: &mut Common) -> Option<usize> {
        if common.scratch.is_empty() && common.scratch.resize(BUFFER).is_err() {
            self.lose();
            return None;
        }
        let count = self.source.read(&mut common.scratch, most);
        common.seen += count as u64;
        if let Some(agent) = &mut self.agent {
            agent.hear(common.scratch.get(..count).unwrap_or_default(), common.now);
        }
        (count > 0).then_some(count)
    }

    /// Fills the empty buffer with the line, or the next run of the tail.
    fn load(&mut self, second: bool, tail: &Tail) -> Result<()> {
        let room = self.buffer.room()?;
        let count = if self.owes_line {
            self.owes_line = false;
            self.held = Held::Line;
            line(tail.left_out(), room)
        } else {
            let (start, run) = tail.run(self.cursor, second, room.len());
            if start > self.cursor {
                // First find the place: the other's bytes may be before it.
                self.cursor = start;
                return Ok(());
            }
            self.held = Held::Tail;
            self.cursor = start + run.len() as u64;
            super::copy(room, run)
        };
        self.buffer.filled(count);
        Ok(())
    }
}

/// The line that stands between head and tail.
fn line(left_out: u64, to: &mut [u8]) -> usize {
    let mut digits = [0; MOST_DIGITS];
    let words: [&[u8]; 3] =
        [b"corral: ", super::decimal(left_out, &mut digits), b" bytes left out\n"];
    words.iter().fold(0, |at, word| at + super::copy(to.get_mut(at..).unwrap_or_default(), word))
}

/// `most`, but not more than `bound`.
fn clamp(most: u64, bound: usize) -> usize {
    usize::try_from(most).map_or(bound, |most| most.min(bound))
}
