//! Has a run been silent for too long, and when is its work to be measured?
//!
//! The clocks besides `--wall`, which run only while the run does. The one for
//! silence begins anew with each byte, and stands while a reader of ours is what
//! keeps the bytes back: the time that was left goes on afterwards.
//!
//! CPU time is no clock: it is measured, and again at the moment at which the tree
//! could have used up what was left, with all processors busy, at the earliest. So
//! an idle tree is looked at a few times, and a busy one more and more often.
//!
//! The clocks for a tool and for the last word run as long as the agent's output says.
//!
//! May use: `core`, `cause`, `time`.

use super::cause::Cause;
use super::time::{Instant, Span};

/// The shortest wait between two measurements: what the tree may use more than its
/// limit, times the processors.
const SHORTEST_WAIT: Span = Span::from_millis(10);

/// `--cpu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuLimit {
    /// How much the tree may use.
    pub limit: Span,
    /// How many processors it can use at once.
    pub processors: u32,
}

/// What the clocks were set to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `--idle`.
    pub idle: Option<Span>,
    /// `--cpu`.
    pub cpu: Option<CpuLimit>,
    /// `--tool-limit`.
    pub tool: Option<Span>,
    /// `--after-result`.
    pub result: Option<Span>,
}

/// How the clock for silence stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Silence {
    /// It is over then.
    Until(Instant),
    /// It would go on for so long, once the reader takes what is held.
    Held(Span),
}

/// The clocks of a run in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    silence: Option<Silence>,
    measure: Option<Instant>,
    /// When the oldest call without a result is too old.
    tool: Option<Instant>,
    /// When the last word is.
    result: Option<Instant>,
}

impl Watch {
    /// As the run begins.
    #[must_use]
    pub fn new(limits: &Limits, now: Instant) -> Self {
        Self {
            silence: limits.idle.map(|idle| Silence::Until(now.plus(idle))),
            measure: limits.cpu.map(|cpu| next_measurement(&cpu, Span::ZERO, now)),
            tool: None,
            result: None,
        }
    }

    /// Bytes were `seen`, or some are `held` because our reader takes none.
    #[must_use]
    pub fn output(self, limits: &Limits, now: Instant, seen: bool, held: bool) -> Self {
        let silence = self.silence.zip(limits.idle).map(|(silence, idle)| {
            let left = match silence {
                _ if seen => idle,
                Silence::Until(until) => until.since(now),
                Silence::Held(left) => left,
            };
            if held { Silence::Held(left) } else { Silence::Until(now.plus(left)) }
        });
        Self { silence, ..self }
    }

    /// So much CPU time was used: when to measure again, or `None` if it was too much.
    #[must_use]
    pub fn measured(self, limits: &Limits, now: Instant, used: Span) -> Option<Self> {
        let measure = match limits.cpu {
            Some(cpu) if used >= cpu.limit => return None,
            Some(cpu) => Some(next_measurement(&cpu, used, now)),
            None => None,
        };
        Some(Self { measure, ..self })
    }

    /// The oldest call without a result is from then, and the last word.
    #[must_use]
    pub fn agent(self, limits: &Limits, oldest: Option<Instant>, result: Option<Instant>) -> Self {
        let over = |at: Option<Instant>, limit: Option<Span>| Some(at?.plus(limit?));
        Self { tool: over(oldest, limits.tool), result: over(result, limits.result), ..self }
    }

    /// When which clock is over, if nothing happens.
    #[must_use]
    pub const fn clocks(&self) -> [(Option<Instant>, Cause); 3] {
        let silent = match self.silence {
            Some(Silence::Until(until)) => Some(until),
            Some(Silence::Held(_)) | None => None,
        };
        [(silent, Cause::Idle), (self.tool, Cause::Tool), (self.result, Cause::Result)]
    }

    /// When to measure the CPU time.
    #[must_use]
    pub const fn measure_at(&self) -> Option<Instant> {
        self.measure
    }
}

fn next_measurement(cpu: &CpuLimit, used: Span, now: Instant) -> Instant {
    let left = cpu.limit.0.saturating_sub(used.0) / u64::from(cpu.processors.max(1));
    now.plus(Span(left).max(SHORTEST_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const LIMITS: Limits = Limits {
        idle: Some(Span(10 * SECOND)),
        cpu: Some(CpuLimit { limit: Span(8 * SECOND), processors: 4 }),
        tool: Some(Span(3 * SECOND)),
        result: Some(Span(5 * SECOND)),
    };

    impl Watch {
        fn silent_at(&self) -> Option<Instant> {
            self.clocks()[0].0
        }
    }

    fn at(seconds: u64) -> Instant {
        Instant(seconds * SECOND)
    }

    #[test]
    fn each_byte_begins_the_silence_anew() {
        let watch = Watch::new(&LIMITS, at(5));
        assert_eq!(watch.silent_at(), Some(at(15)));
        assert_eq!(watch.output(&LIMITS, at(9), true, false).silent_at(), Some(at(19)));
        assert_eq!(watch.output(&LIMITS, at(9), false, false).silent_at(), Some(at(15)));
    }

    #[test]
    fn the_clock_stands_while_a_reader_holds_bytes_back() {
        let held = Watch::new(&LIMITS, at(0)).output(&LIMITS, at(4), false, true);
        assert_eq!(held.silent_at(), None);
        let held = held.output(&LIMITS, at(100), false, true);
        assert_eq!(held.output(&LIMITS, at(200), false, false).silent_at(), Some(at(206)));
        let fresh = held.output(&LIMITS, at(150), true, true);
        assert_eq!(fresh.output(&LIMITS, at(200), false, false).silent_at(), Some(at(210)));
    }

    #[test]
    fn the_work_is_measured_when_it_can_be_too_much_and_not_before() {
        let watch = Watch::new(&LIMITS, at(0));
        assert_eq!(watch.measure_at(), Some(at(2)));
        let idle = watch.measured(&LIMITS, at(2), Span::ZERO).unwrap();
        assert_eq!(idle.measure_at(), Some(at(4)));
        let busy = watch.measured(&LIMITS, at(2), Span(4 * SECOND)).unwrap();
        assert_eq!(busy.measure_at(), Some(at(3)));
        let close = watch.measured(&LIMITS, at(2), Span(8 * SECOND - 1)).unwrap();
        assert_eq!(close.measure_at(), Some(at(2).plus(SHORTEST_WAIT)));
        assert_eq!(watch.measured(&LIMITS, at(2), Span(8 * SECOND)), None);
        assert_eq!(close.silent_at(), watch.silent_at());
    }

    #[test]
    fn what_the_agent_said_winds_its_clocks_and_takes_them_back() {
        let over = |watch: Watch| [watch.clocks()[1].0, watch.clocks()[2].0];
        let watch = Watch::new(&LIMITS, at(0));
        assert_eq!(over(watch), [None, None]);
        let watch = watch.agent(&LIMITS, Some(at(2)), None);
        assert_eq!(over(watch), [Some(at(5)), None]);
        assert_eq!(over(watch.agent(&LIMITS, None, Some(at(4)))), [None, Some(at(9))]);
        let only_tools = Limits { result: None, ..LIMITS };
        assert_eq!(over(watch.agent(&only_tools, None, Some(at(4)))), [None, None]);
    }

    #[test]
    fn without_limits_nothing_is_waited_for() {
        let none = Limits::default();
        let watch = Watch::new(&none, at(0)).output(&none, at(1), true, true);
        let watch = watch.agent(&none, Some(at(1)), Some(at(1)));
        assert!(watch.clocks().iter().all(|(at, _)| at.is_none()));
        assert_eq!((watch.silent_at(), watch.measure_at()), (None, None));
        assert_eq!(watch.measured(&none, at(1), Span(SECOND)), Some(watch));
    }
}
