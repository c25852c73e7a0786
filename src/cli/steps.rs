//! Which signals come before SIGKILL, and how long after each?
//!
//! `--signal` is a list, read from left to right: a wait stands after each signal
//! but the last, whose wait is `--grace`. Three signals are refused, each with its
//! reason: KILL comes at the end anyway, CONT goes along with the first signal
//! anyway, and a stopped process could not heed what follows. So is a signal that
//! stands there twice: no process gets the same one a second time.
//!
//! May use: `plan`, `misuse`, `numbers`, `signals`, `suggest`, `values::cut`.

use super::misuse::{Hint, Why};
use super::numbers;
use super::plan::{Plan, SignalStep, Signals};
use super::signals;
use super::suggest;
use super::values::cut;

/// SIG:WAIT,SIG:WAIT,…,SIG.
pub(super) fn steps(text: &'static [u8]) -> Result<Signals, Why> {
    let mut signals = Signals { steps: Plan::DEFAULT.signals.steps, count: 0 };
    let mut parts = text.split(|&byte| byte == b',').peekable();
    while let Some(part) = parts.next() {
        let (earlier, free) = signals.steps.split_at_mut_checked(signals.count).unwrap_or_default();
        let Some(step) = free.first_mut() else {
            return Err(Why::ManySignals);
        };
        let (name, wait) = cut(part, b':');
        let signal = first_signal(name)?;
        if earlier.iter().any(|step| step.signal == signal) {
            return Err(Why::SameSignal);
        }
        let wait = match (wait, parts.peek()) {
            (Some(wait), Some(_)) => {
                let span = numbers::duration(wait).map_err(|hint| Why::NoWait(wait, hint))?;
                Some(span)
            }
            (None, None) => None,
            (Some(_), None) => return Err(Why::LastWait),
            (None, Some(_)) => return Err(Why::MissingWait),
        };
        *step = SignalStep { signal, wait };
        signals.count += 1;
    }
    Ok(signals)
}

/// A signal that may come before SIGKILL.
fn first_signal(text: &'static [u8]) -> Result<i32, Why> {
    let Some(signal) = signals::number(text) else {
        let meant = suggest::nearest(signals::without_sig(text), &mut signals::names());
        let fits = |name: &&str| signals::number(name.as_bytes()).and_then(refusal).is_none();
        let meant = meant.filter(fits);
        return Err(Why::NoSignal(text, meant.map_or(Hint::None, Hint::Word)));
    };
    refusal(signal).map_or(Ok(signal), Err)
}

/// Why a signal may not come before SIGKILL, if there is a reason.
const fn refusal(signal: i32) -> Option<Why> {
    match signal {
        signals::KILL => Some(Why::Kill),
        signals::STOP => Some(Why::Stop),
        signals::CONT => Some(Why::Continue),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::parse::tests::{plan, refused};
    use crate::policy::time::Span;

    #[test]
    fn signals_in_steps() {
        let of = |option: &str| {
            let signals = plan(&[option, "true"]).signals;
            let steps = signals.steps.into_iter().take(signals.count);
            steps.map(|step| (step.signal, step.wait)).collect::<Vec<_>>()
        };
        let second = Some(Span::from_secs(1));
        assert_eq!(of("--signal=INT"), [(2, None)]);
        assert_eq!(of("--signal=sigint"), [(2, None)]);
        assert_eq!(of("--signal=15"), [(15, None)]);
        assert_eq!(of("--signal=RTMIN+3"), [(37, None)]);
        assert_eq!(of("--signal=TERM:1s,INT"), [(15, second), (2, None)]);
        assert_eq!(of("--signal=TERM:0,INT"), [(15, Some(Span::ZERO)), (2, None)]);
        let four = [(2, second), (1, second), (15, second), (64, None)];
        assert_eq!(of("--signal=INT:1s,1:1s,SIGTERM:1s,RTMAX"), four);
    }

    #[test]
    fn signals_that_cannot_be() {
        for kill in ["KILL", "9", "sigkill", "TERM:1s,KILL"] {
            let said = refused(&format!("--signal={kill}"));
            assert!(said.starts_with("SIGKILL comes at the end anyway"), "{said}");
        }
        assert!(refused("--signal=STOP").contains("SIGSTOP"));
        assert!(refused("--signal=18").contains("SIGCONT"));
        assert_eq!(refused("--signal=TERM:1s"), "the wait after the last signal is --grace");
        assert_eq!(refused("--signal=INT:1s,TERM:1s"), "the wait after the last signal is --grace");
        let missing = "each signal but the last needs a wait, as in INT:2s,TERM";
        assert_eq!(refused("--signal=INT,TERM"), missing);
        let five = refused("--signal=1:1s,2:1s,3:1s,6:1s,15");
        assert_eq!(five, "it takes at most 4 signals");
        for twice in ["TERM:1s,TERM", "15:1s,INT:1s,SIGTERM", "TERM:1s,INT:1s,TERM:1s,HUP"] {
            let said = refused(&format!("--signal={twice}"));
            assert_eq!(said, "no process gets the same signal twice");
        }
        let wants = "is no signal; it wants signals such as INT or INT:2s,TERM";
        assert_eq!(refused("--signal="), format!("\"\" {wants}"));
        assert_eq!(refused("--signal=0"), format!("\"0\" {wants}"));
        assert_eq!(refused("--signal=65"), format!("\"65\" {wants}"));
        assert_eq!(refused("--signal=INT:1s,"), format!("\"\" {wants}"));
        let typo = refused("--signal=INT:1s,SIGTREM");
        assert_eq!(typo, format!("\"SIGTREM\" {wants}; did you mean TERM?"));
        // Neither what would be refused next, nor what merely looks like it.
        for unfit in ["KIL", "KLL", "KKILL", "CNT"] {
            let line = format!("\"{unfit}\" {wants}");
            assert_eq!(refused(&format!("--signal={unfit}")), line);
        }
        let bare = refused("--signal=INT:2,TERM");
        assert_eq!(bare, "\"2\" is no duration such as 1.5s or 2m; did you mean 2s?");
        assert!(refused("--signal=INT:,TERM").starts_with("\"\" is no duration"));
    }
}
