//! What is wrong with the command line, in one line?
//!
//! A [`Misuse`] is a value: which word, why, and what may have been meant; the
//! sentence is made when it is written. It names the option, shows the value and
//! says what the option wants.
//!
//! Invariants: one line without its newline; safe to look at, whatever the user's
//! words hold (see `visible`), so that a word can neither forge a second line nor
//! hide in the first; bounded length.
//!
//! May use: `table`, `visible`.

use super::table::Row;
use super::visible::visible;

/// Most bytes shown of a user's word.
const MOST_SHOWN: usize = 120;
/// Most bytes of a number that is worth suggesting.
const MOST_SUGGESTED: usize = 20;

/// Why a command line is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misuse(pub(super) Kind);

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The words end before a command, as there is one in this example.
    NoCommand(&'static str),
    /// `--word` is no option.
    Unknown(&'static [u8], Hint),
    /// `-word` is no option.
    Short(&'static [u8], Hint),
    /// `-word` is no option of tini's.
    NotTinis(&'static [u8]),
    /// A second time.
    Twice(&'static Row),
    /// A value for a flag.
    Superfluous(&'static Row, &'static [u8]),
    /// The words end before its value.
    NoValue(&'static Row),
    /// Its value cannot be used.
    Value(&'static Row, &'static [u8], Why),
}

/// Why a value cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It is not what the option wants.
    Form(Hint),
    /// A limit of zero.
    Zero,
    /// This part of it is no signal.
    NoSignal(&'static [u8], Hint),
    /// This part of it is no duration.
    NoWait(&'static [u8], Hint),
    /// SIGKILL as a first signal.
    Kill,
    /// SIGSTOP as a first signal.
    Stop,
    /// SIGCONT as a first signal.
    Continue,
    /// A wait after the last signal.
    LastWait,
    /// No wait after another.
    MissingWait,
    /// A signal that stands there already.
    SameSignal,
    /// More signals than corral keeps.
    ManySignals,
    /// More labels than corral keeps.
    ManyLabels,
    /// The KEY of an earlier label.
    SameKey,
}

/// What may have been meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hint {
    /// Nobody knows.
    None,
    /// This word.
    Word(&'static str),
    /// This option, by its name.
    Option(&'static str),
    /// This number with this unit.
    Number(&'static [u8], &'static str),
}

type Out<'o> = &'o mut dyn FnMut(&[u8]);

impl Misuse {
    /// Writes the line, beginning with `corral: cannot` and without a newline,
    /// in pieces.
    pub fn write(&self, out: &mut dyn FnMut(&[u8])) {
        out(b"corral: cannot ");
        match self.0 {
            Kind::NoCommand(example) => {
                out(b"start: no command is given; write it after the options, as in: ");
                out(example.as_bytes());
            }
            Kind::Unknown(word, hint) => {
                out(b"use ");
                name(word, out);
                out(b": no such option");
                write_hint(hint, "; see corral --help", out);
            }
            Kind::Short(word, hint) => {
                out(b"use ");
                name(word, out);
                out(b": it wants an option's long name, as in --wall");
                write_hint(hint, "; see corral --help", out);
            }
            Kind::NotTinis(word) => {
                out(b"use ");
                name(word, out);
                out(b": tini has no such option; see tini -h");
            }
            Kind::Twice(row) => {
                option(row, out);
                out(b" a second time: give it once");
            }
            Kind::Superfluous(row, value) => {
                option(row, out);
                out(b" ");
                quoted(value, out);
                out(b": it takes no value");
            }
            Kind::NoValue(row) => {
                option(row, out);
                out(b": no value is given; it wants ");
                out(row.wants.as_bytes());
            }
            Kind::Value(row, value, why) => {
                option(row, out);
                out(b" ");
                quoted(value, out);
                out(b": ");
                write_why(row, why, out);
            }
        }
    }
}

fn write_why(row: &Row, why: Why, out: Out<'_>) {
    match why {
        Why::Form(hint) => {
            out(b"it wants ");
            out(row.wants.as_bytes());
            write_hint(hint, "", out);
        }
        Why::Zero => out(b"a limit of zero would end every run at once"),
        Why::NoSignal(part, hint) => {
            quoted(part, out);
            out(b" is no signal; it wants ");
            out(row.wants.as_bytes());
            write_hint(hint, "", out);
        }
        Why::NoWait(part, hint) => {
            quoted(part, out);
            out(b" is no duration such as 1.5s or 2m");
            write_hint(hint, "", out);
        }
        Why::Kill => out(b"SIGKILL comes at the end anyway; for it alone give --grace 0s"),
        Why::Stop => out(b"a process stopped by SIGSTOP could not heed what follows"),
        Why::Continue => out(b"SIGCONT goes along with the first signal anyway"),
        Why::LastWait => out(b"the wait after the last signal is --grace"),
        Why::MissingWait => out(b"each signal but the last needs a wait, as in INT:2s,TERM"),
        Why::SameSignal => out(b"no process gets the same signal twice"),
        Why::ManySignals => out(b"it takes at most 4 signals"),
        Why::ManyLabels => out(b"it may be given at most 16 times"),
        Why::SameKey => out(b"an earlier label has the same KEY"),
    }
}

fn write_hint(hint: Hint, or: &str, out: Out<'_>) {
    let meant = |out: Out<'_>| out(b"; did you mean ");
    match hint {
        Hint::Word(word) => {
            meant(out);
            out(word.as_bytes());
        }
        Hint::Option(name) => {
            meant(out);
            out(b"--");
            out(name.as_bytes());
        }
        Hint::Number(number, unit) if number.len() <= MOST_SUGGESTED => {
            meant(out);
            out(number);
            out(unit.as_bytes());
        }
        Hint::Number(..) | Hint::None => return out(or.as_bytes()),
    }
    out(b"?");
}

fn option(row: &Row, out: Out<'_>) {
    out(if row.name.len() == 1 { b"use -" } else { b"use --" });
    out(row.name.as_bytes());
}

/// A word in the place of an option's name: quoted only where it must be.
fn name(word: &[u8], out: Out<'_>) {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if word.iter().all(plain) {
        visible(word, MOST_SHOWN, out);
    } else {
        quoted(word, out);
    }
}

fn quoted(word: &[u8], out: Out<'_>) {
    out(b"\"");
    visible(word, MOST_SHOWN, out);
    out(b"\"");
}

#[cfg(test)]
mod tests {
    use super::super::table::{OPTIONS, Opt};
    use super::*;

    fn line(kind: Kind) -> String {
        let mut bytes = Vec::new();
        Misuse(kind).write(&mut |piece| bytes.extend_from_slice(piece));
        String::from_utf8(bytes).expect("the line is UTF-8")
    }

    fn row(opt: Opt) -> &'static Row {
        let row = OPTIONS.iter().find(|row| row.opt == opt);
        row.expect("each option has a row")
    }

    #[test]
    fn sentences() {
        let wall = row(Opt::Wall);
        let cases = [
            (
                Kind::Value(wall, b"5", Why::Form(Hint::Number(b"5", "s"))),
                "use --wall \"5\": it wants a duration such as 1.5s, 90m or 2h; did you mean 5s?",
            ),
            (
                Kind::Unknown(b"--wal", Hint::Option("wall")),
                "use --wal: no such option; did you mean --wall?",
            ),
            (
                Kind::Unknown(b"--nonsense", Hint::None),
                "use --nonsense: no such option; see corral --help",
            ),
            (Kind::Twice(wall), "use --wall a second time: give it once"),
            (
                Kind::NoValue(wall),
                "use --wall: no value is given; it wants a duration such as 1.5s, 90m or 2h",
            ),
            (
                Kind::NoCommand("corral --wall 30s -- make test"),
                "start: no command is given; write it after the options, as in: \
                 corral --wall 30s -- make test",
            ),
            (
                Kind::Value(wall, b"0s", Why::Zero),
                "use --wall \"0s\": a limit of zero would end every run at once",
            ),
            (
                Kind::Value(row(Opt::Signal), b"TREM", Why::NoSignal(b"TREM", Hint::Word("TERM"))),
                "use --signal \"TREM\": \"TREM\" is no signal; it wants signals such as INT or \
                 INT:2s,TERM; did you mean TERM?",
            ),
        ];
        for (kind, expected) in cases {
            assert_eq!(line(kind), format!("corral: cannot {expected}"));
        }
    }

    #[test]
    fn words_are_quoted_made_harmless_and_cut() {
        let line = |word| line(Kind::Superfluous(row(Opt::Quiet), word));
        let around =
            |word: &str| format!("corral: cannot use --quiet \"{word}\": it takes no value");
        assert_eq!(line(b"a\"\n"), around("a\\\"\\x0a"));
        let fits: &'static str = "a".repeat(120).leak();
        assert_eq!(line(fits.as_bytes()), around(fits));
        let long: &'static str = "a".repeat(121).leak();
        assert_eq!(line(long.as_bytes()), around(&format!("{fits}...")));
    }

    #[test]
    fn odd_names_are_quoted() {
        let odd = line(Kind::Unknown(b"--wall time\n", Hint::None));
        assert!(odd.starts_with("corral: cannot use \"--wall time\\x0a\": no such option"));
    }

    #[test]
    fn no_number_is_suggested_that_was_cut() {
        let digits: &'static [u8] = [b'1'; MOST_SUGGESTED + 1].to_vec().leak();
        let kind =
            |number| Kind::Value(row(Opt::Wall), number, Why::Form(Hint::Number(number, "s")));
        assert!(!line(kind(digits)).contains("did you mean"));
        assert!(line(kind(&digits[1..])).ends_with("; did you mean 11111111111111111111s?"));
    }

    #[test]
    fn the_bounds_it_names_are_those_of_the_plan() {
        use crate::cli::plan::{MOST_LABELS, MOST_SIGNALS};
        let many = line(Kind::Value(row(Opt::Signal), b"", Why::ManySignals));
        assert!(many.contains(&format!(" {MOST_SIGNALS} signals")));
        let many = line(Kind::Value(row(Opt::Label), b"", Why::ManyLabels));
        assert!(many.contains(&format!(" {MOST_LABELS} times")));
    }
}
