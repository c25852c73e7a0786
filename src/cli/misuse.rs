//! What is wrong with the command line, in one line?
//!
//! A [`Misuse`] is a value: which word, why, and what may have been meant; the
//! sentence is made when it is written. It names the option, shows the value and
//! says what the option wants.
//!
//! Invariants: one line without its newline; valid UTF-8 without control,
//! invisible or direction-changing characters, whatever the user's words hold
//! (they are shown as `\xNN`, byte for byte), so that a word can neither forge a
//! second line nor hide in the first; bounded length.
//!
//! May use: `table`.

use super::table::Row;

/// Most characters shown of a user's word.
const MOST_SHOWN: usize = 48;
/// Most bytes of a number that is worth suggesting.
const MOST_SUGGESTED: usize = 20;

/// Why a command line is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misuse(pub(super) Kind);

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The words end before a command.
    NoCommand,
    /// The command's first word is empty.
    EmptyCommand,
    /// `--word` is no option.
    Unknown(&'static [u8], Hint),
    /// `-word` is no option.
    Short(&'static [u8], Hint),
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
    /// This option.
    Option(&'static Row),
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
            Kind::NoCommand => {
                out(b"start: no command is given; write it after the options, as in: \
                corral --wall 30s -- make test")
            }
            Kind::EmptyCommand => out(b"start: the command is an empty word"),
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
        Hint::Option(row) => {
            meant(out);
            out(b"--");
            out(row.name.as_bytes());
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
    out(b"use --");
    out(row.name.as_bytes());
}

/// A word in the place of an option's name: quoted only where it must be.
fn name(word: &[u8], out: Out<'_>) {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if word.iter().all(plain) {
        visible(word, out);
    } else {
        quoted(word, out);
    }
}

fn quoted(word: &[u8], out: Out<'_>) {
    out(b"\"");
    visible(word, out);
    out(b"\"");
}

/// Writes what can be shown of a user's word as it is, and the bytes of anything
/// else in hex; what is too long is cut.
fn visible(word: &[u8], out: Out<'_>) {
    let mut room = MOST_SHOWN;
    for chunk in word.utf8_chunks() {
        for letter in chunk.valid().chars() {
            let Some(left) = room.checked_sub(1) else {
                return out(b"...");
            };
            room = left;
            let mut buffer = [0; 4];
            let bytes = letter.encode_utf8(&mut buffer).as_bytes();
            if hides(letter) {
                hex(bytes, out);
                continue;
            }
            if matches!(letter, '"' | '\\') {
                out(b"\\");
            }
            out(bytes);
        }
        if !chunk.invalid().is_empty() {
            let Some(left) = room.checked_sub(1) else {
                return out(b"...");
            };
            room = left;
            hex(chunk.invalid(), out);
        }
    }
}

/// Whether a terminal would do something else with it than show it: controls,
/// invisible characters, line and direction changes.
const fn hides(letter: char) -> bool {
    matches!(letter,
        '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn hex(bytes: &[u8], out: Out<'_>) {
    let digit = |half: u8| {
        if half < 10 { b'0' + half } else { b'a' - 10 + half }
    };
    for byte in bytes {
        out(&[b'\\', b'x', digit(byte >> 4), digit(byte & 0xf)]);
    }
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

    fn shown(word: &'static [u8]) -> String {
        let line = line(Kind::Superfluous(row(Opt::Quiet), word));
        let inside = line.strip_prefix("corral: cannot use --quiet \"");
        let inside = inside.and_then(|rest| rest.strip_suffix("\": it takes no value"));
        inside.expect("the sentence around the word").to_owned()
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
                Kind::Unknown(b"--wal", Hint::Option(wall)),
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
                Kind::NoCommand,
                "start: no command is given; write it after the options, as in: \
                 corral --wall 30s -- make test",
            ),
            (Kind::EmptyCommand, "start: the command is an empty word"),
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
    fn plain_words_are_shown_as_they_are() {
        assert_eq!(shown(b""), "");
        assert_eq!(shown(b"a b"), "a b");
        assert_eq!(shown("gr\u{fc}\u{df}e \u{1f411}".as_bytes()), "gr\u{fc}\u{df}e \u{1f411}");
    }

    #[test]
    fn what_cannot_be_shown_is_written_in_hex() {
        assert_eq!(shown(b"a\nb\t\x1b[2J\x7f"), "a\\x0ab\\x09\\x1b[2J\\x7f");
        assert_eq!(shown(b"\xff\xc3("), "\\xff\\xc3(");
        assert_eq!(shown(b"\xe2\x82"), "\\xe2\\x82");
        assert_eq!(shown("\u{9b}".as_bytes()), "\\xc2\\x9b");
        assert_eq!(shown("\u{202e}".as_bytes()), "\\xe2\\x80\\xae");
        assert_eq!(shown(b"say \"\\x0a\""), "say \\\"\\\\x0a\\\"");
    }

    #[test]
    fn nothing_hides_and_nothing_else_is_hexed() {
        let hidden = [
            '\0',
            '\x1f',
            '\x7f',
            '\u{9f}',
            '\u{ad}',
            '\u{61c}',
            '\u{180e}',
            '\u{200b}',
            '\u{200f}',
            '\u{2028}',
            '\u{202e}',
            '\u{2060}',
            '\u{206f}',
            '\u{feff}',
            '\u{fff9}',
            '\u{fffb}',
            '\u{e0000}',
            '\u{e007f}',
        ];
        for letter in hidden {
            let text: &'static str = letter.to_string().leak();
            let hex: String = text.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
            assert_eq!(shown(text.as_bytes()), hex);
        }
        for letter in [' ', '~', '\u{a0}', '\u{200a}', '\u{2010}', '\u{2070}', '\u{fffd}'] {
            let text: &'static str = letter.to_string().leak();
            assert_eq!(shown(text.as_bytes()), text);
        }
    }

    #[test]
    fn long_words_are_cut_between_characters() {
        let fits: &'static [u8] = [b'a'; MOST_SHOWN].to_vec().leak();
        assert_eq!(shown(fits).as_bytes(), fits);
        for unit in ["a", "\u{fc}", "\n"] {
            let long = unit.repeat(MOST_SHOWN + 1).leak().as_bytes();
            let whole = unit.repeat(MOST_SHOWN).leak().as_bytes();
            assert_eq!(shown(long), format!("{}...", shown(whole)));
        }
        let ends_in_half: &'static [u8] = [&[b'a'; MOST_SHOWN][..], b"\xff"].concat().leak();
        assert_eq!(shown(ends_in_half), format!("{}...", "a".repeat(MOST_SHOWN)));
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
