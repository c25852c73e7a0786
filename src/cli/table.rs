//! Which options exist?
//!
//! The only place where an option is defined, one row each: the parser, the typo
//! suggestions and, by way of build.rs, the help text are made from it. The exit
//! statuses stand here too, since the help shows them; `policy::verdict`
//! has their numbers, and a test holds the two together.
//!
//! Invariants, tested below: rows sorted by group; names unique, ASCII and
//! lowercase; what a value may be is said in words that follow "it wants".
//!
//! May use: nothing, since build.rs includes this file as a module of its own.

/// What an option is about; the help shows the groups in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// What ends or bounds a run.
    Limits,
    /// How a run is ended.
    End,
    /// How the command is started.
    Start,
    /// What is written down about the run.
    Record,
    /// The rest.
    Other,
}

impl Group {
    /// Every group, in order.
    pub const ALL: [Self; 5] = [Self::Limits, Self::End, Self::Start, Self::Record, Self::Other];

    /// Its heading in the help.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Limits => "Limits (none unless given)",
            Self::End => "Ending the run",
            Self::Start => "Starting the command",
            Self::Record => "Record",
            Self::Other => "Other",
        }
    }
}

/// One option, as far as the parser needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Which.
    pub opt: Opt,
    /// Its name, without the two dashes.
    pub name: &'static str,
    /// What the help shows for its value; `None`: a flag, which takes none.
    /// Alternatives are divided by `|`.
    pub metavar: Option<&'static str>,
    /// What its value may be, in words that follow "it wants"; empty for a flag.
    pub wants: &'static str,
    /// What people call it elsewhere, divided by blanks: for suggestions, never
    /// accepted.
    pub kin: &'static str,
}

/// What the help says of an option besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelpRow {
    /// What it does, one line.
    pub help: &'static str,
    /// Its value where it is not given, as the user would write it.
    pub default: Option<&'static str>,
    /// What it is about.
    pub group: Group,
}

/// Makes of one row for each option what the parser needs and what the help
/// needs. The latter is a constant that only build.rs and the tests name, so
/// that its texts are not in the binary a second time.
macro_rules! options {
    ($($opt:ident {
        name: $name:literal,
        metavar: $metavar:expr,
        help: $help:literal,
        default: $default:expr,
        group: $group:ident,
        wants: $wants:expr,
        kin: $kin:literal,
    })*) => {
        /// Which option.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Opt {
            $(#[doc = concat!("`--", $name, "`.")] $opt,)*
        }

        /// How many options there are.
        const COUNT: usize = [$($name),*].len();

        /// Every option, in the order of [`Opt`].
        pub static OPTIONS: [Row; COUNT] = [$(Row {
            opt: Opt::$opt,
            name: $name,
            metavar: $metavar,
            wants: $wants,
            kin: $kin,
        }),*];

        /// What the help says of each, in the same order.
        pub const HELP_ROWS: [HelpRow; COUNT] = [$(HelpRow {
            help: $help,
            default: $default,
            group: Group::$group,
        }),*];
    };
}

/// What a duration may be.
const DURATION: &str = "a duration such as 1.5s, 90m or 2h";
/// What a size may be.
const SIZE: &str = "a whole number of bytes, or one with K, M or G";

options! {
    Wall {
        name: "wall",
        metavar: Some("DURATION"),
        help: "end the run after this much time",
        default: None,
        group: Limits,
        wants: DURATION,
        kin: "timeout time time-limit",
    }
    Idle {
        name: "idle",
        metavar: Some("DURATION"),
        help: "end the run when neither stdout nor stderr had a byte for so long",
        default: None,
        group: Limits,
        wants: DURATION,
        kin: "idle-timeout inactivity no-output-timeout",
    }
    Cpu {
        name: "cpu",
        metavar: Some("DURATION"),
        help: "end the run when its processes have used so much CPU time",
        default: None,
        group: Limits,
        wants: DURATION,
        kin: "cpu-time cpu-limit",
    }
    ToolLimit {
        name: "tool-limit",
        metavar: Some("DURATION"),
        help: "end the run when one of an agent's tool calls has had no result for so long",
        default: None,
        group: Limits,
        wants: DURATION,
        kin: "tool-timeout",
    }
    Tool {
        name: "tool",
        metavar: Some("NAME[,NAME]..."),
        help: "the tools whose calls are meant",
        default: Some("WebFetch,WebSearch"),
        group: Limits,
        wants: "names of tools, divided by commas",
        kin: "tools",
    }
    AfterResult {
        name: "after-result",
        metavar: Some("DURATION"),
        help: "end the run when an agent's result line is so old",
        default: None,
        group: Limits,
        wants: DURATION,
        kin: "",
    }
    MaxOutput {
        name: "max-output",
        metavar: Some("HEAD[+TAIL]"),
        help: "pass on the first HEAD bytes of stdout and stderr together, and the last TAIL; \
               drop the rest",
        default: None,
        group: Limits,
        wants: "HEAD or HEAD+TAIL, each a whole number of bytes or one with K, M or G",
        kin: "",
    }
    OutputLimit {
        name: "output-limit",
        metavar: Some("SIZE"),
        help: "end the run when stdout and stderr together pass SIZE",
        default: None,
        group: Limits,
        wants: SIZE,
        kin: "limit-output",
    }
    Mem {
        name: "mem",
        metavar: Some("SIZE"),
        help: "most memory of the whole tree (enforced mode)",
        default: None,
        group: Limits,
        wants: SIZE,
        kin: "memory memory-max",
    }
    Pids {
        name: "pids",
        metavar: Some("N"),
        help: "most processes and threads at once (enforced mode)",
        default: None,
        group: Limits,
        wants: "a whole number",
        kin: "pids-max pids-limit",
    }
    Signal {
        name: "signal",
        metavar: Some("SIG[:WAIT][,SIG]..."),
        help: "the signals before SIGKILL, four at most, with the wait after each but the last",
        default: Some("TERM"),
        group: End,
        wants: "signals such as INT or INT:2s,TERM",
        kin: "stop-signal",
    }
    SignalScope {
        name: "signal-scope",
        metavar: Some("tree|command"),
        help: "whom these signals go to: every process, or the command alone",
        default: Some("tree"),
        group: End,
        wants: "tree or command",
        kin: "",
    }
    Grace {
        name: "grace",
        metavar: Some("DURATION"),
        help: "time between the last of them and SIGKILL; 0s: SIGKILL at once",
        default: Some("1s"),
        group: End,
        wants: DURATION,
        kin: "kill-after grace-period",
    }
    Prove {
        name: "prove",
        metavar: Some("DURATION"),
        help: "time to prove that nothing is left",
        default: Some("5s"),
        group: End,
        wants: DURATION,
        kin: "",
    }
    Linger {
        name: "linger",
        metavar: Some("DURATION"),
        help: "time for processes that outlive the command to end by themselves",
        default: Some("100ms"),
        group: End,
        wants: DURATION,
        kin: "",
    }
    Leftovers {
        name: "leftovers",
        metavar: Some("stop|fail|wait"),
        help: "what becomes of them then: stop them, stop them and exit 119 instead of 0, or \
               wait for them",
        default: Some("stop"),
        group: End,
        wants: "stop, fail or wait",
        kin: "",
    }
    CgroupMode {
        name: "cgroup-mode",
        metavar: Some("auto|enforced|fallback"),
        help: "use a cgroup where it can be had, or refuse to run without one, or use none",
        default: Some("auto"),
        group: Start,
        wants: "auto, enforced or fallback",
        kin: "",
    }
    CgroupParent {
        name: "cgroup-parent",
        metavar: Some("PATH"),
        help: "the cgroup to make the run's under (default: own)",
        default: None,
        group: Start,
        wants: "a directory below a cgroup2 mount",
        kin: "",
    }
    PidNamespace {
        name: "pid-namespace",
        metavar: None,
        help: "run the command in a PID namespace, which ends with corral whatever ends that",
        default: None,
        group: Start,
        wants: "",
        kin: "pidns unshare-pid",
    }
    NoNewPrivs {
        name: "no-new-privs",
        metavar: None,
        help: "let no setuid program raise privileges in the command",
        default: None,
        group: Start,
        wants: "",
        kin: "no-new-privileges",
    }
    CloseFds {
        name: "close-fds",
        metavar: None,
        help: "let the command inherit only descriptors 0, 1 and 2",
        default: None,
        group: Start,
        wants: "",
        kin: "",
    }
    AtExit {
        name: "at-exit",
        metavar: Some("auto|exit|poweroff|reboot|halt"),
        help: "what to do after the run as PID 1 of a machine; auto is poweroff",
        default: Some("auto"),
        group: Start,
        wants: "auto, exit, poweroff, reboot or halt",
        kin: "",
    }
    Json {
        name: "json",
        metavar: Some("FILE|fd:N"),
        help: "write one JSON record of the run",
        default: None,
        group: Record,
        wants: "a file, or fd:N with N at least 3; ./fd:N is a file of that name",
        kin: "record report",
    }
    RunId {
        name: "run-id",
        metavar: Some("ID"),
        help: "name of the run, which the command sees as CORRAL_RUN_ID (default: random)",
        default: None,
        group: Record,
        wants: "1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'",
        kin: "",
    }
    Label {
        name: "label",
        metavar: Some("KEY=VALUE"),
        help: "carry this into the record; up to 16 times",
        default: None,
        group: Record,
        wants: "KEY=VALUE, the KEY not empty",
        kin: "tag",
    }
    RedactArgv {
        name: "redact-argv",
        metavar: None,
        help: "record only the command's first word and how many follow",
        default: None,
        group: Record,
        wants: "",
        kin: "redact",
    }
    Quiet {
        name: "quiet",
        metavar: None,
        help: "print nothing but corral's own errors",
        default: None,
        group: Other,
        wants: "",
        kin: "silent",
    }
    Help {
        name: "help",
        metavar: None,
        help: "print this and exit; -h does, too",
        default: None,
        group: Other,
        wants: "",
        kin: "usage",
    }
    Version {
        name: "version",
        metavar: None,
        help: "print the version and exit; -V does, too",
        default: None,
        group: Other,
        wants: "",
        kin: "",
    }
}

/// Exit statuses other than the command's own, and what each means.
pub const STATUSES: [(&str, &str); 11] = [
    ("118", "it would be 0, but the record is incomplete"),
    ("119", "it would be 0, but --leftovers=fail found some"),
    ("120", "not proved: something may be alive"),
    ("121", "--output-limit was passed"),
    ("122", "--mem was reached"),
    ("123", "--idle, --tool-limit or --after-result was reached"),
    ("124", "--wall or --cpu was reached"),
    ("125", "corral was misused or could not start the run"),
    ("126", "COMMAND could not be executed"),
    ("127", "COMMAND was not found"),
    ("128+N", "COMMAND died of signal N, or signal N cancelled corral"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::verdict;

    #[test]
    fn names_are_unique_lowercase_ascii() {
        for (at, row) in OPTIONS.iter().enumerate() {
            let plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
            assert!(row.name.len() > 1 && row.name.bytes().all(plain), "{}", row.name);
            assert!(!row.name.starts_with('-') && !row.name.ends_with('-'));
            assert!(OPTIONS[at + 1..].iter().all(|other| other.name != row.name));
        }
    }

    #[test]
    fn groups_follow_their_order_and_none_is_empty() {
        assert!(HELP_ROWS.is_sorted_by_key(|row| row.group));
        assert!(Group::ALL.is_sorted());
        for group in Group::ALL {
            assert!(HELP_ROWS.iter().any(|row| row.group == group), "{group:?}");
        }
        assert!(HELP_ROWS.iter().all(|row| Group::ALL.contains(&row.group)));
    }

    #[test]
    fn texts_are_plain_lines() {
        for (row, more) in OPTIONS.iter().zip(HELP_ROWS) {
            let texts = [more.help, row.wants, row.metavar.unwrap_or("-")];
            for text in texts.into_iter().chain(more.default) {
                assert!(text.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{text}");
                assert!(!text.contains("  ") && !text.ends_with('.') || text.ends_with("..."));
            }
            assert!(more.help.starts_with(|first: char| first.is_ascii_lowercase()));
            assert_eq!(row.metavar.is_none(), row.wants.is_empty(), "{}", row.name);
            assert!(row.metavar.is_some() || more.default.is_none(), "{}", row.name);
        }
    }

    #[test]
    fn alternatives_are_said_in_words_too() {
        for row in &OPTIONS {
            let Some(metavar) = row.metavar else { continue };
            if metavar.contains('|') && metavar.bytes().all(|byte| !byte.is_ascii_uppercase()) {
                for word in metavar.split('|') {
                    assert!(row.wants.contains(word), "{}", row.name);
                }
            }
        }
    }

    #[test]
    fn kin_are_no_options_and_mean_one() {
        let kin: Vec<_> = OPTIONS.iter().flat_map(|row| row.kin.split_whitespace()).collect();
        for (at, word) in kin.iter().enumerate() {
            assert!(OPTIONS.iter().all(|row| row.name != *word), "{word}");
            assert!(!kin[at + 1..].contains(word), "{word}");
        }
    }

    #[test]
    fn statuses_are_those_of_the_verdict() {
        let numbers = [
            verdict::RECORD_INCOMPLETE,
            verdict::LEFTOVERS,
            verdict::NOT_PROVED,
            verdict::OUTPUT,
            verdict::MEMORY,
            verdict::STUCK,
            verdict::TIME,
            verdict::MISUSE,
            verdict::NOT_EXECUTABLE,
            verdict::NOT_FOUND,
        ];
        let mut wanted: Vec<_> = numbers.iter().map(u8::to_string).collect();
        wanted.push(format!("{}+N", verdict::SIGNALLED));
        assert_eq!(STATUSES.map(|(status, _)| status.to_owned()).to_vec(), wanted);
    }
}
