//! What did the user say?
//!
//! One walk over the words, from left to right, as getopt_long(3) reads them
//! with a leading `+`: options end at `--` or at the first word that is not one;
//! `--opt VALUE` and `--opt=VALUE` are the same; the word after an option that
//! wants a value is that value, whatever it looks like. A lone `-` is no option.
//!
//! The first thing that is wrong is the one reported. `--help` and `--version`
//! are answered as soon as they are met, so that they work with a command line
//! that is not finished yet; what is wrong before them is still wrong.
//!
//! Left out on purpose: abbreviations (a script that uses one would break when
//! an option is added) and short options but `-h` and `-V`.
//!
//! May use: `plan`, `table`, `misuse`, `values`, `suggest`.

use core::ffi::CStr;

use super::misuse::{Hint, Kind, Misuse};
use super::plan::{Plan, Words};
use super::suggest;
use super::table::{OPTIONS, Opt, Row};
use super::values::{self, cut};
use super::{HELP, VERSION};

/// What a command line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "one of these is made in a process, without a heap")]
pub enum Given {
    /// A run.
    Run(Plan),
    /// This text on stdout.
    Text(&'static str),
}

/// A command line with a command.
const EXAMPLE: &str = "corral --wall 30s -- make test";

/// What one word is, where an option may stand.
enum Shape {
    /// COMMAND.
    Command,
    /// `--`: COMMAND comes next.
    End,
    /// `-x`.
    Short,
    /// `--name` or `--name=value`.
    Long,
}

/// Reads a command line whose word 0 is corral's own name.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn parse(words: &dyn Words) -> Result<Given, Misuse> {
    let mut plan = Plan::DEFAULT;
    let mut seen = 0;
    let mut at = 1;
    while let Some(word) = words.word(at) {
        let (row, value) = match shape(word.to_bytes()) {
            Shape::Command => break,
            Shape::End => {
                at += 1;
                break;
            }
            Shape::Short => (short(word.to_bytes())?, None),
            Shape::Long => long(word)?,
        };
        at += 1;
        if row.opt != Opt::Label {
            once(row, &mut seen)?;
        }
        let value = match (row.metavar, value) {
            (None, None) => c"",
            (None, Some(value)) => return Err(Misuse(Kind::Superfluous(row, value.to_bytes()))),
            (Some(_), Some(value)) => value,
            (Some(_), None) => {
                let next = words.word(at).ok_or(Misuse(Kind::NoValue(row)))?;
                at += 1;
                next
            }
        };
        match row.opt {
            Opt::Help => return Ok(Given::Text(HELP)),
            Opt::Version => return Ok(Given::Text(VERSION)),
            _ => values::set(&mut plan, row, value)
                .map_err(|why| Misuse(Kind::Value(row, value.to_bytes(), why)))?,
        }
    }
    plan.command = at;
    if words.word(at).is_none() {
        return Err(Misuse(Kind::NoCommand(EXAMPLE)));
    }
    Ok(Given::Run(plan))
}

fn shape(word: &[u8]) -> Shape {
    match word {
        b"--" => Shape::End,
        [b'-', b'-', ..] => Shape::Long,
        [b'-', _, ..] => Shape::Short,
        [..] => Shape::Command,
    }
}

/// Takes note of an option in `seen`, a bit for each.
fn once(row: &'static Row, seen: &mut u64) -> Result<(), Misuse> {
    const { assert!(OPTIONS.len() <= 64) };
    let bit = 1 << row.opt as u32;
    if *seen & bit != 0 {
        return Err(Misuse(Kind::Twice(row)));
    }
    *seen |= bit;
    Ok(())
}

/// The option in `-x`.
fn short(word: &'static [u8]) -> Result<&'static Row, Misuse> {
    let opt = match word {
        b"-h" => Opt::Help,
        b"-V" => Opt::Version,
        [..] => {
            let (name, _) = cut(word.get(1..).unwrap_or_default(), b'=');
            return Err(Misuse(Kind::Short(word, meant(name))));
        }
    };
    let row = OPTIONS.iter().find(|row| row.opt == opt);
    row.ok_or(Misuse(Kind::Short(word, Hint::None)))
}

/// The option in `--name` or `--name=value`, and its value if it is there.
fn long(word: &'static CStr) -> Result<(&'static Row, Option<&'static CStr>), Misuse> {
    let text = word.to_bytes();
    let (name, _) = cut(text.get(2..).unwrap_or_default(), b'=');
    let Some(row) = OPTIONS.iter().find(|row| row.name.as_bytes() == name) else {
        let dashed = text.get(..name.len() + 2).filter(|_| !name.is_empty());
        return Err(Misuse(Kind::Unknown(dashed.unwrap_or(text), meant(name))));
    };
    // What follows the `=`, with the NUL that ends it; where there is no `=`,
    // not even a NUL follows.
    let rest = word.to_bytes_with_nul().get(name.len() + 3..);
    let value = rest.and_then(|rest| CStr::from_bytes_with_nul(rest).ok());
    Ok((row, value))
}

/// The option that an unknown one was probably meant to be.
fn meant(name: &[u8]) -> Hint {
    let names = OPTIONS.iter().map(|row| (row.name, row.name));
    let mut known = names.chain(OPTIONS.iter().map(|row| (row.kin, row.name)));
    suggest::nearest(name, &mut known).map_or(Hint::None, Hint::Option)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::cli::plan::Target;
    use crate::policy::time::Span;

    struct Line(Vec<&'static CStr>);

    impl Words for Line {
        fn word(&self, index: usize) -> Option<&'static CStr> {
            self.0.get(index).copied()
        }
    }

    /// The words after corral's own name; they live as long as the tests.
    fn given(words: &[&str]) -> Result<Given, Misuse> {
        let words = ["corral"].iter().chain(words).map(|word| {
            let word = format!("{word}\0").leak();
            CStr::from_bytes_with_nul(word.as_bytes()).expect("no NUL in the words of a test")
        });
        parse(&Line(words.collect()))
    }

    pub(in crate::cli) fn plan(words: &[&str]) -> Plan {
        match given(words) {
            Ok(Given::Run(plan)) => plan,
            other => panic!("{words:?} is no run: {other:?}"),
        }
    }

    pub(in crate::cli) fn error(words: &[&str]) -> String {
        let misuse = given(words).expect_err("a command line that cannot be used");
        let mut line = Vec::new();
        misuse.write(&mut |piece| line.extend_from_slice(piece));
        String::from_utf8(line).expect("the line is UTF-8")
    }

    /// What is said of one option with a bad value, behind the value itself.
    pub(in crate::cli) fn refused(option: &str) -> String {
        let (name, value) = option.split_once('=').expect("--option=value");
        let line = error(&[option, "true"]);
        let said = line.strip_prefix(&format!("corral: cannot use {name} \"{value}\": "));
        said.unwrap_or_else(|| panic!("{option}: {line}")).to_owned()
    }

    const NO_COMMAND: &str = "corral: cannot start: no command is given; write it after the \
                              options, as in: corral --wall 30s -- make test";

    #[test]
    fn no_option_is_a_plain_run() {
        assert_eq!(plan(&["true"]), Plan { command: 1, ..Plan::DEFAULT });
        assert_eq!(plan(&["--", "true"]), Plan { command: 2, ..Plan::DEFAULT });
    }

    #[test]
    fn both_ways_to_give_a_value() {
        let apart = plan(&["--wall", "5s", "ls", "-l"]);
        assert_eq!((apart.wall, apart.command), (Some(Span::from_secs(5)), 3));
        let joined = plan(&["--wall=5s", "ls", "-l"]);
        assert_eq!((joined.wall, joined.command), (Some(Span::from_secs(5)), 2));
    }

    #[test]
    fn options_end_at_the_command() {
        let plain = plan(&["--quiet", "ls", "--wall", "nonsense", "--", "--help"]);
        assert_eq!((plain.command, plain.wall), (2, None));
        let dashed = plan(&["--quiet", "--", "--wall", "5s"]);
        assert_eq!((dashed.command, dashed.wall), (3, None));
        assert_eq!(plan(&["--", "--"]).command, 2);
        assert_eq!(plan(&["-"]).command, 1);
    }

    #[test]
    fn the_word_after_an_option_is_its_value() {
        let plan_of = plan(&["--json", "--quiet", "true"]);
        assert_eq!(plan_of.json, Some(Target::Path(c"--quiet")));
        assert!(!plan_of.quiet);
        assert_eq!(plan(&["--json", "--", "true"]).command, 3);
        let line = error(&["--wall", "--", "true"]);
        assert!(line.starts_with("corral: cannot use --wall \"--\": it wants a duration"));
    }

    #[test]
    fn a_value_that_is_missing() {
        let line = "corral: cannot use --wall: no value is given; \
                    it wants a duration such as 1.5s, 90m or 2h";
        assert_eq!(error(&["--wall"]), line);
        assert_eq!(error(&["--quiet", "--wall"]), line);
    }

    #[test]
    fn a_value_that_is_too_much() {
        let line = error(&["--quiet=yes", "true"]);
        assert_eq!(line, "corral: cannot use --quiet \"yes\": it takes no value");
        let line = error(&["--help="]);
        assert_eq!(line, "corral: cannot use --help \"\": it takes no value");
    }

    #[test]
    fn twice_is_once_too_often() {
        let line = "corral: cannot use --wall a second time: give it once";
        assert_eq!(error(&["--wall", "5s", "--wall", "5s", "true"]), line);
        assert_eq!(error(&["--wall=5s", "--quiet", "--wall", "x"]), line);
        assert!(error(&["--quiet", "--quiet", "true"]).contains("--quiet a second time"));
        assert_eq!(plan(&["--label=a=1", "--label=b=1", "true"]).label_count, 2);
    }

    #[test]
    fn commands_that_are_none() {
        for words in [&[][..], &["--"], &["--quiet"], &["--wall", "5s"], &["--quiet", "--"]] {
            assert_eq!(error(words), NO_COMMAND);
        }
        // An empty word is one: exec will say that there is no such file.
        for (words, at) in [(&[""][..], 1), (&["--", ""], 2), (&["--quiet", "", "true"], 2)] {
            assert_eq!(plan(words).command, at);
        }
        assert_eq!(parse(&Line(Vec::new())), Err(Misuse(Kind::NoCommand(EXAMPLE))));
    }

    #[test]
    fn unknown_options() {
        let cases = [
            ("--wal", "--wal: no such option; did you mean --wall?"),
            ("--wal=5s", "--wal: no such option; did you mean --wall?"),
            ("--WALL", "--WALL: no such option; did you mean --wall?"),
            ("--signal_scope", "--signal_scope: no such option; did you mean --signal-scope?"),
            ("--timeout=5s", "--timeout: no such option; did you mean --wall?"),
            ("--kill-after", "--kill-after: no such option; did you mean --grace?"),
            ("--memory", "--memory: no such option; did you mean --mem?"),
            ("--leftover", "--leftover: no such option; did you mean --leftovers?"),
            ("--max", "--max: no such option; did you mean --max-output?"),
            ("--frobnicate", "--frobnicate: no such option; see corral --help"),
            ("--x", "--x: no such option; see corral --help"),
            ("--=5", "\"--=5\": no such option; see corral --help"),
            ("---", "---: no such option; see corral --help"),
            ("-w", "-w: it wants an option's long name, as in --wall; see corral --help"),
            ("-wall", "-wall: it wants an option's long name, as in --wall; did you mean --wall?"),
            ("-hV", "-hV: it wants an option's long name, as in --wall; see corral --help"),
        ];
        for (word, said) in cases {
            assert_eq!(error(&[word, "true"]), format!("corral: cannot use {said}"));
        }
    }

    #[test]
    fn no_abbreviation_is_taken() {
        for row in &OPTIONS {
            for end in 1..row.name.len() {
                let short = format!("--{}", &row.name[..end]);
                if OPTIONS.iter().all(|other| other.name != &short[2..]) {
                    assert!(error(&[&short, "1s", "true"]).contains("no such option"), "{short}");
                }
            }
        }
    }

    #[test]
    fn help_and_version_win_where_they_are_met() {
        for help in ["--help", "-h"] {
            assert_eq!(given(&[help]), Ok(Given::Text(HELP)));
            let late = given(&["--wall", "5s", help, "--nonsense"]);
            assert_eq!(late, Ok(Given::Text(HELP)));
        }
        for version in ["--version", "-V"] {
            assert_eq!(given(&[version, "--help"]), Ok(Given::Text(VERSION)));
        }
        assert!(error(&["--nonsense", "--help"]).contains("--nonsense"));
        assert!(error(&["--wall", "--help"]).contains("--wall \"--help\""));
        assert_eq!(plan(&["ls", "--help"]).command, 1);
        assert_eq!(plan(&["--", "--version"]).command, 2);
    }
}
