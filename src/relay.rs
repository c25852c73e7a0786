//! How do bytes get from the command to our stdout and stderr without being held?
//!
//! The command writes into pipes of ours and the loop calls [`Relay::turn`]
//! whenever something can move. What a byte's number among all bytes is decides
//! what becomes of it: the first HEAD are passed on as they come (spliced where
//! the kernel can), the next go to the tail or nowhere, those above the output
//! limit nowhere.
//!
//! Invariants: no call blocks, whatever the outlets are (`outlet`); work in one
//! call is bounded; a stream whose reader is slow holds neither the other stream
//! nor the loop, but the command; while nothing can move, nothing that is waited
//! for fires; corral holds no more than the pipes, one buffer a stream and TAIL.
//!
//! Rests on: SIGPIPE and SIGXFSZ being blocked, so that a reader that is gone and
//! a file that may not grow are errors of the call; FIONREAD counting what is in
//! a pipe (pipe(7)); F_DUPFD_QUERY (6.10) or kcmp(2), else fstat(2).
//!
//! Leaves out: any decision about the run. It reports; when to give up a reader
//! and what a passed limit means is the supervisor's to say.
//!
//! May use: `sys`, `policy::time`, `agent`, `cli::plan`, `report::record`.

mod outlet;
mod stream;
mod tail;

#[cfg(test)]
mod tests;

use self::outlet::Outlet;
use self::stream::Stream;
use self::tail::Tail;
use crate::agent::Agent;
use crate::cli::plan::MaxOutput;
use crate::policy::time::{Instant, Span};
use crate::report::record::Output;
use crate::sys::errno::Result;
use crate::sys::event::Wait;
use crate::sys::fd::{self, Fd};
use crate::sys::file::{self, Kind};
use crate::sys::memory::List;
use crate::sys::process;

/// How many entries of the loop's wait list belong to the relay: for stdout and
/// then stderr, our pipe and the outlet.
pub const WAITS: usize = 4;

/// The pipe that corral asks for; what is asked for where that is refused.
const PIPE_BYTES: [u32; 2] = [1024 * 1024, 256 * 1024];
/// Most bytes that one stream moves in one turn by splicing.
const TURN_BYTES: usize = 1024 * 1024;
/// Most operations of one stream in one turn.
const TURN_STEPS: usize = 16;
/// Fewer bytes than so many are written into a pipe and not spliced.
const FEW: u64 = 16 * 1024;
/// A stream's first bytes, as many as a pipe has room for, are written in any
/// case: an output that fits in a pipe without us fits to the byte with us.
const FIRST: u64 = 64 * 1024;
/// Bytes copied at once.
const BUFFER: usize = 64 * 1024;
/// Most pieces of the tail that are offered while giving up: 4 MiB.
const LAST_STEPS: usize = 64;
/// When an outlet that says it has room and takes nothing is tried again.
const RETRY: Span = Span::from_millis(10);
/// Digits of the largest number.
const MOST_DIGITS: usize = 20;

/// Both streams on their way.
#[derive(Debug)]
pub struct Relay {
    /// stdout and stderr; where they are one open file, the first is both.
    streams: [Option<Stream>; 2],
    one_pipe: bool,
    common: Common,
    draining: bool,
}

/// What has happened, and what the loop has to know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that came from the command in this call.
    pub seen: u64,
    /// An outlet took bytes in this call.
    pub moved: bool,
    /// The output limit was passed in this call; said once.
    pub over_limit: bool,
    /// corral holds bytes that a reader does not take.
    pub held: bool,
    /// An outlet cannot be waited for: call again after so long, or at once.
    pub retry: Option<Span>,
    /// After [`Relay::drain`]: nothing is left to be passed on.
    pub drained: bool,
}

/// What the two streams share.
#[derive(Debug)]
struct Common {
    /// Bytes up to here are passed on.
    head: u64,
    /// Bytes from here on are over the output limit.
    limit: u64,
    /// Bytes read so far: the number of the next one.
    seen: u64,
    passed: u64,
    given_up: u64,
    over: bool,
    /// Whether an outlet took bytes in this call.
    moved: bool,
    tail: Option<Tail>,
    /// When what comes now is read.
    now: Instant,
    /// Where bytes are read that are not passed on.
    scratch: List<u8>,
}

/// What becomes of the next bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// So many are passed on.
    Pass(u64),
    /// So many are for the tail, or nobody.
    Keep(u64),
    /// All are over the output limit.
    Drop,
}

impl Common {
    const fn fate(&self) -> Fate {
        if self.seen >= self.limit {
            Fate::Drop
        } else if self.seen < self.head {
            let left = self.head - self.seen;
            let allowed = self.limit - self.seen;
            Fate::Pass(if left < allowed { left } else { allowed })
        } else {
            Fate::Keep(self.limit - self.seen)
        }
    }
}

impl Relay {
    /// Makes the pipes. `outlets` are our stdout and stderr, `None` where one is
    /// not open: it is then neither piped nor passed on. `quiet` leaves out the
    /// line about what was left out.
    ///
    /// # Errors
    /// EMFILE, ENFILE.
    pub fn new(
        outlets: [Option<Fd<'static>>; 2],
        max: Option<MaxOutput>,
        limit: Option<u64>,
        quiet: bool,
    ) -> Result<Self> {
        let one_pipe = matches!(outlets, [Some(a), Some(b)] if is_same_file(a, b));
        let chute = max.is_some_and(|max| max.tail.is_some());
        let outlet = |fd: Option<Fd<'static>>| fd.map(|fd| Outlet::new(fd, chute)).transpose();
        let [out, err] = outlets;
        let found = [outlet(out)?, outlet(err.filter(|_| !one_pipe))?];
        Self::with(found, one_pipe, max, limit, quiet)
    }

    fn with(
        outlets: [Option<Outlet>; 2],
        one_pipe: bool,
        max: Option<MaxOutput>,
        limit: Option<u64>,
        quiet: bool,
    ) -> Result<Self> {
        let tail = max.and_then(|max| max.tail);
        let stream = |outlet: Option<Outlet>, has_line: bool| {
            outlet
                .map(|outlet| Stream::new(outlet, has_line && tail.is_some() && !quiet))
                .transpose()
        };
        let [out, err] = outlets;
        let streams = [stream(out, one_pipe)?, stream(err, true)?];
        let common = Common {
            head: max.map_or(u64::MAX, |max| max.head),
            limit: limit.unwrap_or(u64::MAX),
            seen: 0,
            passed: 0,
            given_up: 0,
            over: false,
            moved: false,
            tail: tail.map(|most| Tail::new(usize::try_from(most).unwrap_or(usize::MAX))),
            now: Instant(0),
            scratch: List::new(),
        };
        Ok(Self { streams, one_pipe, common, draining: false })
    }

    /// From now on stdout is read as an agent's.
    pub fn listen(&mut self, agent: Agent) {
        let [out, _] = &mut self.streams;
        if let Some(out) = out {
            out.agent = Some(agent);
        }
    }

    /// Who writes to stdout.
    #[must_use]
    pub fn agent(&self) -> Option<&Agent> {
        let [out, _] = &self.streams;
        out.as_ref()?.agent.as_ref()
    }

    /// The moment at which what comes next is read.
    pub const fn set_time(&mut self, now: Instant) {
        self.common.now = now;
    }

    /// What the newborn installs as its 1 and 2; `None`: it is left as it is.
    #[must_use]
    pub fn ends(&self) -> [Option<i32>; 2] {
        let [out, err] = &self.streams;
        let out = out.as_ref().and_then(Stream::end);
        let err = err.as_ref().and_then(Stream::end);
        [out, if self.one_pipe { out } else { err }]
    }

    /// Closes our write ends, once the newborn has its own.
    pub fn close_ends(&mut self) {
        for stream in self.streams.iter_mut().flatten() {
            stream.close_end();
        }
    }

    /// Fills in what to wait for.
    pub fn waits(&self, out: &mut [Wait; WAITS]) {
        let [a, b, c, d] = out;
        let fate = self.common.fate();
        let tail = self.tail_end();
        for (stream, pair) in self.streams.iter().zip([[a, b], [c, d]]) {
            let [pipe, outlet] = pair;
            *pipe = stream.as_ref().map_or(Wait::NOTHING, |stream| stream.wait_input(fate));
            *outlet = stream.as_ref().map_or(Wait::NOTHING, |stream| stream.wait_outlet(tail));
        }
    }

    /// Moves what can be moved now, in turns between the streams and up to a
    /// bound, so that timers and signals are looked at in between. `ready` is
    /// what ppoll made of [`Relay::waits`].
    pub fn turn(&mut self, ready: &[Wait; WAITS]) -> Progress {
        let before = self.begin();
        self.heed(ready);
        self.pass();
        self.progress(before)
    }

    /// As [`Relay::turn`], when the tree is empty: passes on what is in the pipes
    /// and the tail without waiting for end-of-file, since an outsider may hold
    /// a write end. What comes after the first call is not waited for.
    /// [`Progress::drained`] says when nothing is left.
    pub fn drain(&mut self, ready: &[Wait; WAITS]) -> Progress {
        let before = self.begin();
        self.heed(ready);
        self.expect_end();
        self.pass();
        self.pass_tail(TURN_STEPS);
        self.progress(before)
    }

    /// Gives up, and counts, what the readers do not take now. Where only one of
    /// them takes nothing, the other still gets its part of the tail.
    pub fn give_up(&mut self) {
        self.expect_end();
        self.pass();
        for stream in self.streams.iter_mut().flatten() {
            stream.give_up(&mut self.common);
        }
        self.pass_tail(LAST_STEPS);
        for (stream, second) in self.streams.iter_mut().zip([false, true]) {
            if let Some(stream) = stream {
                stream.give_up_tail(second, &mut self.common);
            }
        }
    }

    /// The bytes so far. Dropped is all that came and was not passed on, what is
    /// still held and what was given up included.
    #[must_use]
    pub fn counts(&self) -> Output {
        let [out, err] = &self.streams;
        let out = out.as_ref().map_or(0, Stream::bytes);
        let err = err.as_ref().map_or(0, Stream::bytes);
        Output {
            relayed: true,
            stdout_bytes: (!self.one_pipe).then_some(out),
            stderr_bytes: (!self.one_pipe).then_some(err),
            passed_bytes: self.common.passed,
            dropped_bytes: (out + err).saturating_sub(self.common.passed),
            given_up_bytes: self.common.given_up,
        }
    }

    const fn begin(&mut self) -> (u64, bool) {
        self.common.moved = false;
        (self.common.seen, self.common.over)
    }

    fn heed(&mut self, ready: &[Wait; WAITS]) {
        let [a, b, c, d] = *ready;
        for (stream, [pipe, outlet]) in self.streams.iter_mut().zip([[a, b], [c, d]]) {
            if let Some(stream) = stream {
                stream.heed(pipe, outlet);
            }
        }
    }

    fn expect_end(&mut self) {
        self.draining = true;
        for stream in self.streams.iter_mut().flatten() {
            stream.expect_end();
        }
    }

    fn pass(&mut self) {
        for _ in 0..TURN_STEPS {
            let mut moved = false;
            for (stream, second) in self.streams.iter_mut().zip([false, true]) {
                if let Some(stream) = stream {
                    moved |= stream.step(second, &mut self.common);
                }
            }
            if !moved {
                break;
            }
        }
    }

    /// Where the tail ends, once it is final and to be passed on.
    fn tail_end(&self) -> Option<u64> {
        let tail = self.common.tail.as_ref().filter(|_| self.draining)?;
        self.streams.iter().flatten().all(Stream::is_at_end).then_some(tail.end())
    }

    /// Passes on the tail, always the bytes next that came first among those
    /// whose reader takes any: order of arrival, as far as nobody waits.
    fn pass_tail(&mut self, steps: usize) {
        let Some(end) = self.tail_end() else { return };
        if self.common.tail.as_ref().is_some_and(|tail| tail.left_out() == 0) {
            self.streams.iter_mut().flatten().for_each(Stream::owe_no_line);
        }
        for _ in 0..steps {
            let [out, err] = &mut self.streams;
            let order = |stream: &Option<Stream>| stream.as_ref()?.tail_order(end);
            let (second, stream) = match (order(out), order(err)) {
                (None, None) => break,
                // Of two that stand alike one owes the line, and that is the second.
                (Some(first), Some(second)) if first < second => (false, out),
                (Some(_), None) => (false, out),
                (_, Some(_)) => (true, err),
            };
            if let Some(stream) = stream {
                stream.step_tail(second, &mut self.common);
            }
        }
    }

    fn progress(&self, (seen, over): (u64, bool)) -> Progress {
        let fate = self.common.fate();
        let tail = self.tail_end();
        let streams = || self.streams.iter().flatten();
        let retry = if streams().any(|stream| stream.is_unfinished(tail)) {
            Some(Span::ZERO)
        } else {
            streams().any(|stream| stream.is_stalled(fate, tail)).then_some(RETRY)
        };
        Progress {
            seen: self.common.seen - seen,
            moved: self.common.moved,
            over_limit: self.common.over && !over,
            held: streams().any(|stream| stream.is_held(fate, tail)),
            retry,
            drained: self.draining && streams().all(|stream| stream.is_done(tail)),
        }
    }
}

/// Whether two descriptors are one open file, so that one pipe keeps the order
/// of what is written to them.
fn is_same_file(a: Fd<'_>, b: Fd<'_>) -> bool {
    fd::same_by_query(a, b)
        .or_else(|| fd::same_by_kcmp(process::getpid(), a, b))
        .unwrap_or_else(|| looks_same(a, b))
}

/// The guess where the kernel does not tell: the same pipe, terminal or socket,
/// or the same file opened alike and standing at the same place.
fn looks_same(a: Fd<'_>, b: Fd<'_>) -> bool {
    match (file::status(a), file::status(b)) {
        (Ok(one), Ok(other)) if one.identity == other.identity && one.kind == other.kind => {
            one.kind != Kind::Regular
                || (fd::status_flags(a) == fd::status_flags(b)
                    && file::position(a) == file::position(b))
        }
        _ => false,
    }
}

/// Copies as much as fits and says how much that was.
fn copy(to: &mut [u8], from: &[u8]) -> usize {
    let count = to.len().min(from.len());
    if let (Some(to), Some(from)) = (to.get_mut(..count), from.get(..count)) {
        to.copy_from_slice(from);
    }
    count
}

/// A number in decimal digits.
fn decimal(mut number: u64, digits: &mut [u8; MOST_DIGITS]) -> &[u8] {
    let mut first = MOST_DIGITS;
    for (place, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0' + (number % 10).to_le_bytes()[0];
        first = place;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    digits.get(first..).unwrap_or_default()
}
