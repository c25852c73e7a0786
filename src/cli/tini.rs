//! What does whoever expects tini say?
//!
//! Under the names `tini` and `docker-init` corral takes tini's command line:
//! options of one letter that can stand together, a value being the rest of its
//! word or the word after it, up to `--` or the first word that is no option; and
//! tini's variables. `-s`, TINI_SUBREAPER and each letter given twice change
//! nothing, as there.
//!
//! May use: `plan`, `table`, `misuse`, `numbers`, `parse`, `signals`.

use core::ffi::CStr;

use super::misuse::{Hint, Kind, Misuse, Why};
use super::parse::Given;
use super::plan::{Plan, Words};
use super::table::{Opt, Row};
use super::{numbers, signals};
use crate::policy::time::Span;

/// What `--version` prints: the version of tini that this is one like, in the form
/// that dockerd takes apart (`docker info` shows both).
pub const VERSION: &str = "tini version 0.19.0 - git.corral\n";

/// What `-h` prints.
pub const USAGE: &str = "\
Usage: tini [-gsvw] [-p SIGNAL] [-e STATUS]... [--] COMMAND [ARG]...
       tini -h | -l | --version
This is corral: when COMMAND has ended, what it has started is ended too.
  -e STATUS  end with 0 instead of STATUS
  -g         pass signals on to COMMAND's process group
  -p SIGNAL  get SIGNAL when the parent dies
  -v, -w     say what is left behind
  -s         nothing
";

/// What `-l` prints.
const LICENSE: &str = "MIT\n";

/// As rows of the table, so that what is wrong with them is said in the same way.
static SIGNAL: Row = Row {
    opt: Opt::Signal,
    name: "p",
    metavar: Some("SIGNAL"),
    wants: "a signal such as TERM",
    kin: "",
};
static STATUS: Row = Row { name: "e", wants: "a status from 0 to 255", ..SIGNAL };

/// Whether a program called so is to be tini.
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    matches!(name, b"tini" | b"docker-init")
}

/// Reads a command line whose word 0 is our name, and the variables.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn parse(
    words: &dyn Words,
    variable: &dyn Fn(&[u8]) -> Option<&'static CStr>,
) -> Result<Given, Misuse> {
    let verbosity = variable(b"TINI_VERBOSITY").map_or(&b""[..], CStr::to_bytes);
    let mut plan = Plan {
        verbatim: true,
        linger: Span::ZERO,
        to_group: variable(b"TINI_KILL_PROCESS_GROUP").is_some(),
        quiet: matches!(verbosity, b"" | b"0" | b"1"),
        ..Plan::DEFAULT
    };
    if words.word(1) == Some(c"--version") && words.word(2).is_none() {
        return Ok(Given::Text(VERSION));
    }
    let mut at = 1;
    while let Some(word) = words.word(at) {
        let mut letters = match word.to_bytes() {
            b"--" => {
                at += 1;
                break;
            }
            [b'-', letters @ ..] if !letters.is_empty() => letters,
            [..] => break,
        };
        at += 1;
        while let [letter, rest @ ..] = letters {
            letters = rest;
            let row = match letter {
                b's' => continue,
                b'g' => {
                    plan.to_group = true;
                    continue;
                }
                b'v' | b'w' => {
                    plan.quiet = false;
                    continue;
                }
                b'h' => return Ok(Given::Text(USAGE)),
                b'l' => return Ok(Given::Text(LICENSE)),
                b'p' => &SIGNAL,
                b'e' => &STATUS,
                _ => return Err(Misuse(Kind::NotTinis(word.to_bytes()))),
            };
            let mut value = rest;
            letters = &[];
            if value.is_empty() {
                value = words.word(at).ok_or(Misuse(Kind::NoValue(row)))?.to_bytes();
                at += 1;
            }
            set(&mut plan, *letter, value).ok_or(Misuse(Kind::Value(
                row,
                value,
                Why::Form(Hint::None),
            )))?;
        }
    }
    plan.command = at;
    if words.word(at).is_none() {
        return Err(Misuse(Kind::NoCommand("tini -- make test")));
    }
    Ok(Given::Run(plan))
}

/// `None` where the value is none.
fn set(plan: &mut Plan, letter: u8, value: &[u8]) -> Option<()> {
    if letter == b'p' {
        plan.parent_death = Some(signals::number(value)?);
    } else {
        let status = u8::try_from(numbers::count(value)?).ok()?;
        *plan.success.get_mut(usize::from(status / 64))? |= 1 << (status % 64);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Line(Vec<&'static CStr>);

    impl Words for Line {
        fn word(&self, index: usize) -> Option<&'static CStr> {
            self.0.get(index).copied()
        }
    }

    fn given(words: &[&str], variables: &[(&str, &'static CStr)]) -> Result<Given, String> {
        let words = ["tini"].iter().chain(words).map(|word| {
            let word = format!("{word}\0").leak();
            CStr::from_bytes_with_nul(word.as_bytes()).expect("no NUL in the words of a test")
        });
        let variable = |name: &[u8]| {
            let found = variables.iter().find(|(known, _)| known.as_bytes() == name);
            found.map(|(_, value)| *value)
        };
        parse(&Line(words.collect()), &variable).map_err(|misuse| {
            let mut line = Vec::new();
            misuse.write(&mut |piece| line.extend_from_slice(piece));
            String::from_utf8(line).expect("the line is UTF-8")
        })
    }

    fn plan(words: &[&str], variables: &[(&str, &'static CStr)]) -> Plan {
        match given(words, variables) {
            Ok(Given::Run(plan)) => plan,
            other => panic!("{words:?} is no run: {other:?}"),
        }
    }

    fn plain(command: usize) -> Plan {
        Plan { command, verbatim: true, linger: Span::ZERO, quiet: true, ..Plan::DEFAULT }
    }

    #[test]
    fn the_names() {
        assert!(is_name(b"tini") && is_name(b"docker-init"));
        assert!(!is_name(b"corral") && !is_name(b"tini-static") && !is_name(b""));
    }

    #[test]
    fn as_dockerd_calls_it() {
        assert_eq!(plan(&["--", "sh", "-c", "exit"], &[]), plain(2));
        assert_eq!(plan(&["-s", "--", "-g"], &[]), plain(3));
        assert_eq!(plan(&["-s", "sh", "-g"], &[]), plain(2));
        assert_eq!(plan(&["-"], &[]), plain(1));
    }

    #[test]
    fn letters_alone_and_together() {
        let all = Plan { to_group: true, quiet: false, ..plain(2) };
        assert_eq!(plan(&["-gsvw", "true"], &[]), all);
        assert_eq!(plan(&["-g", "-w", "true"], &[]), Plan { command: 3, ..all });
        assert_eq!(plan(&["-v", "-vv", "-g", "true"], &[]), Plan { command: 4, ..all });
        assert_eq!(plan(&["-gg", "true"], &[]), Plan { quiet: true, ..all });
    }

    #[test]
    fn values_in_the_word_and_after_it() {
        for words in [&["-pKILL", "true"][..], &["-p", "SIGKILL", "true"], &["-sp9", "true"]] {
            // The command is the last word.
            let expected = Plan { parent_death: Some(9), ..plain(words.len()) };
            assert_eq!(plan(words, &[]), expected, "{words:?}");
        }
        let plan = plan(&["-e", "143", "-e0", "-ge255", "true"], &[]);
        assert!(plan.to_group);
        for status in 0..=255 {
            assert_eq!(plan.is_success(status), [0, 143, 255].contains(&status), "{status}");
        }
    }

    #[test]
    fn variables() {
        let group = plan(&["true"], &[("TINI_KILL_PROCESS_GROUP", c"")]);
        assert_eq!(group, Plan { to_group: true, ..plain(1) });
        assert_eq!(plan(&["true"], &[("TINI_SUBREAPER", c"1")]), plain(1));
        for (level, quiet) in
            [(c"", true), (c"0", true), (c"1", true), (c"2", false), (c"3", false)]
        {
            assert_eq!(plan(&["true"], &[("TINI_VERBOSITY", level)]), Plan { quiet, ..plain(1) });
        }
    }

    #[test]
    fn texts() {
        assert_eq!(given(&["--version"], &[]), Ok(Given::Text(VERSION)));
        assert_eq!(given(&["-gh", "--nonsense"], &[]), Ok(Given::Text(USAGE)));
        assert_eq!(given(&["-l"], &[]), Ok(Given::Text(LICENSE)));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let cases: [(&[&str], &str); 9] = [
            (
                &[],
                "start: no command is given; write it after the options, as in: tini -- make test",
            ),
            (
                &["-g", "--"],
                "start: no command is given; write it after the options, as in: tini -- make test",
            ),
            (&["-x", "true"], "use -x: tini has no such option; see tini -h"),
            (&["-gx", "true"], "use -gx: tini has no such option; see tini -h"),
            (&["--version", "true"], "use --version: tini has no such option; see tini -h"),
            (&["-p"], "use -p: no value is given; it wants a signal such as TERM"),
            (&["-pTREM", "true"], "use -p \"TREM\": it wants a signal such as TERM"),
            (&["-e", "256", "true"], "use -e \"256\": it wants a status from 0 to 255"),
            (&["-e", "-1", "true"], "use -e \"-1\": it wants a status from 0 to 255"),
        ];
        for (words, said) in cases {
            assert_eq!(given(words, &[]), Err(format!("corral: cannot {said}")), "{words:?}");
        }
    }
}
