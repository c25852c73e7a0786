//! Does reading a command line keep its promises for words nobody thought of?
//!
//! Properties over arbitrary words, over valid lines and over valid lines that
//! were damaged: nothing panics, every plan keeps the invariants that the rest of
//! corral builds on, every refusal is one clean line, and what a refusal suggests
//! is taken when it is followed.

use std::ffi::{CStr, CString};

use corral::cli::parse::{Given, parse};
use corral::cli::plan::{Plan, Target, Words};
use corral::cli::signals;
use corral::cli::table::{OPTIONS, Opt, Row};
use corral::policy::time::Span;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

struct Line(Vec<&'static CStr>);

impl Words for Line {
    fn word(&self, index: usize) -> Option<&'static CStr> {
        self.0.get(index).copied()
    }
}

/// Parses these words behind corral's own name. NUL cannot be in a word, so it
/// ends one here; the words are leaked, as the kernel's live for ever.
fn read(words: &[Vec<u8>]) -> Result<Given, String> {
    let words = words.iter().map(|word| {
        let end = word.iter().position(|&byte| byte == 0);
        let word = CString::new(&word[..end.unwrap_or(word.len())]).expect("cut at NUL");
        &*Box::leak(word.into_boxed_c_str())
    });
    let line = Line([c"corral"].into_iter().chain(words).collect());
    let given = parse(&line);
    if let Ok(Given::Run(plan)) = &given {
        check_plan(plan, &line);
    }
    given.map_err(|misuse| {
        let mut bytes = Vec::new();
        misuse.write(&mut |piece| bytes.extend_from_slice(piece));
        let text = String::from_utf8(bytes).expect("a refusal is UTF-8");
        check_refusal(&text);
        text
    })
}

fn words(line: &[&str]) -> Vec<Vec<u8>> {
    line.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// What the rest of corral may rely on.
fn check_plan(plan: &Plan, line: &Line) {
    assert!(plan.command >= 1);
    assert!(line.word(plan.command).is_some());
    assert_ne!(plan.wall, Some(Span::ZERO));
    for limit in [plan.output_limit, plan.mem, plan.pids] {
        assert_ne!(limit, Some(0));
    }
    let steps = &plan.signals.steps[..plan.signals.count];
    let (last, others) = steps.split_last().expect("at least one signal");
    assert!(last.wait.is_none() && others.iter().all(|step| step.wait.is_some()));
    for (at, step) in steps.iter().enumerate() {
        assert!(steps[..at].iter().all(|earlier| earlier.signal != step.signal));
        assert!((1..=64).contains(&step.signal) && ![9, 18, 19].contains(&step.signal));
    }
    for label in &plan.labels[..plan.label_count] {
        assert!(!label.key.is_empty() && !label.key.contains(&b'='));
    }
    assert!(plan.run_id.is_none_or(|id| (1..=64).contains(&id.len())));
    match plan.json {
        None => {}
        Some(Target::Fd(number)) => assert!(number > 2),
        Some(Target::Path(path)) => {
            assert!(!path.is_empty() && !path.to_bytes().starts_with(b"fd:"))
        }
    }
}

/// One line, safe to print.
fn check_refusal(text: &str) {
    let rest = text.strip_prefix("corral: cannot ").expect("how each begins");
    assert!(rest.starts_with("use ") || rest.starts_with("start: "), "{text}");
    assert!(!text.chars().any(char::is_control), "{text:?}");
    assert!(!text.contains(['\u{202e}', '\u{2028}', '\u{200b}', '\u{feff}']), "{text:?}");
    assert!(text.len() < 2048, "{text}");
}

/// Words of the kind that the parser looks at.
fn likely_word() -> impl Strategy<Value = Vec<u8>> {
    const KNOWN: [&str; 25] = [
        "--",
        "-",
        "-h",
        "-V",
        "",
        "=",
        "true",
        "5",
        "0",
        "1s",
        "1.5h",
        "64K",
        "64K+1",
        "TERM",
        "INT:1s,TERM",
        "INT:1s,INT",
        "KILL",
        "tree",
        "stop",
        "auto",
        "fd:3",
        "fd:",
        "k=v",
        "id-1",
        "--wal",
    ];
    prop_oneof![
        3 => select(&OPTIONS[..]).prop_map(|row| format!("--{}", row.name).into_bytes()),
        2 => (select(&OPTIONS[..]), select(&KNOWN[..]))
            .prop_map(|(row, value)| format!("--{}={value}", row.name).into_bytes()),
        3 => select(&KNOWN[..]).prop_map(|word| word.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..12),
        1 => "\\PC{0,80}".prop_map(String::into_bytes),
    ]
}

/// An option with a value that it takes.
fn good_option() -> impl Strategy<Value = (Row, Option<String>)> {
    let runs = |row: &Row| !matches!(row.opt, Opt::Help | Opt::Version);
    let rows: Vec<Row> = OPTIONS.iter().copied().filter(runs).collect();
    select(rows).prop_flat_map(|row| {
        let value = match row.metavar {
            None => Just(None).boxed(),
            Some("DURATION") => {
                "[1-9][0-9]{0,5}(\\.[0-9]{0,12})?(ms|s|m|h|d)".prop_map(Some).boxed()
            }
            Some("SIZE") => "[1-9][0-9]{0,20}[KMG]?".prop_map(Some).boxed(),
            Some("N") => "[1-9][0-9]{0,9}".prop_map(Some).boxed(),
            Some("HEAD[+TAIL]") => "[0-9]{1,4}[KMG]?(\\+[0-9]{1,4}[KMG]?)?".prop_map(Some).boxed(),
            Some("SIG[:WAIT][,SIG]...") => {
                "((SIG)?INT:[1-9](ms|s),)?(sighup:[1-9]s,)?(12:0,)?(TERM|quit|RTMIN\\+3|15)"
                    .prop_map(Some)
                    .boxed()
            }
            Some("NAME[,NAME]...") => "[!-+.-~]{1,20}(,[!-+.-~]{1,20}){0,3}".prop_map(Some).boxed(),
            Some("PATH") => "[a-z/]{1,20}".prop_map(Some).boxed(),
            Some("FILE|fd:N") => "(fd:[3-9][0-9]{0,3}|[a-z/]{1,20})".prop_map(Some).boxed(),
            Some("ID") => "[A-Za-z0-9._-]{1,64}".prop_map(Some).boxed(),
            Some("KEY=VALUE") => "[a-z]{1,9}=[ -~]{0,9}".prop_map(Some).boxed(),
            Some(alternatives) => {
                assert!(alternatives.contains('|'), "no generator for {alternatives}");
                let alternatives: Vec<_> = alternatives.split('|').map(str::to_owned).collect();
                select(alternatives).prop_map(Some).boxed()
            }
        };
        (Just(row), value)
    })
}

/// Options that can stand together.
fn good_options() -> impl Strategy<Value = Vec<(Row, Option<String>)>> {
    vec(good_option(), 0..8).prop_map(|mut options| {
        let mut seen = Vec::new();
        options.retain(|(row, _)| {
            !seen.contains(&row.name) && {
                seen.push(row.name);
                true
            }
        });
        options
    })
}

/// Each option in one of its two forms, then the command.
fn line_of(options: &[(Row, Option<String>)], joined: impl Fn(usize) -> bool) -> Vec<Vec<u8>> {
    let mut line = Vec::new();
    for (at, (row, value)) in options.iter().enumerate() {
        match value {
            None => line.push(format!("--{}", row.name)),
            Some(value) if joined(at) => line.push(format!("--{}={value}", row.name)),
            Some(value) => line.extend([format!("--{}", row.name), value.clone()]),
        }
    }
    line.push("true".to_owned());
    line.into_iter().map(String::into_bytes).collect()
}

/// One way to damage a line.
#[derive(Clone, Debug)]
enum Damage {
    SetByte(Index, Index, u8),
    AddByte(Index, Index, u8),
    DropByte(Index, Index),
    Cut(Index, Index),
    DropWord(Index),
    CopyWord(Index, Index),
    Swap(Index, Index),
    AddWord(Index, Vec<u8>),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<Index>;
    prop_oneof![
        (at(), at(), any::<u8>()).prop_map(|(word, byte, with)| Damage::SetByte(word, byte, with)),
        (at(), at(), any::<u8>()).prop_map(|(word, byte, with)| Damage::AddByte(word, byte, with)),
        (at(), at()).prop_map(|(word, byte)| Damage::DropByte(word, byte)),
        (at(), at()).prop_map(|(word, byte)| Damage::Cut(word, byte)),
        at().prop_map(Damage::DropWord),
        (at(), at()).prop_map(|(from, to)| Damage::CopyWord(from, to)),
        (at(), at()).prop_map(|(one, other)| Damage::Swap(one, other)),
        (at(), likely_word()).prop_map(|(to, word)| Damage::AddWord(to, word)),
    ]
}

fn apply(damage: &Damage, line: &mut Vec<Vec<u8>>) {
    if let Damage::AddWord(to, word) = damage {
        return line.insert(to.index(line.len() + 1), word.clone());
    }
    if line.is_empty() {
        return;
    }
    let words = line.len();
    match damage {
        Damage::SetByte(word, byte, with) => {
            let word = &mut line[word.index(words)];
            if !word.is_empty() {
                let byte = byte.index(word.len());
                word[byte] = *with;
            }
        }
        Damage::AddByte(word, byte, with) => {
            let word = &mut line[word.index(words)];
            word.insert(byte.index(word.len() + 1), *with);
        }
        Damage::DropByte(word, byte) => {
            let word = &mut line[word.index(words)];
            if !word.is_empty() {
                word.remove(byte.index(word.len()));
            }
        }
        Damage::Cut(word, byte) => {
            let word = &mut line[word.index(words)];
            word.truncate(byte.index(word.len() + 1));
        }
        Damage::DropWord(word) => drop(line.remove(word.index(words))),
        Damage::CopyWord(from, to) => {
            let word = line[from.index(words)].clone();
            line.insert(to.index(words + 1), word);
        }
        Damage::Swap(one, other) => line.swap(one.index(words), other.index(words)),
        Damage::AddWord(..) => {}
    }
}

/// `ceil(whole.fraction × unit)` in decimal digits on paper, at most u64::MAX.
fn on_paper(whole: &str, fraction: &str, unit: u64) -> u64 {
    // Digits from the lowest up, times the unit, carried along.
    let mut product: Vec<u8> = Vec::new();
    let mut carry = 0u64;
    for digit in format!("{whole}{fraction}").bytes().rev() {
        carry += u64::from(digit - b'0') * unit;
        product.push(u8::try_from(carry % 10).expect("a digit"));
        carry /= 10;
    }
    while carry > 0 {
        product.push(u8::try_from(carry % 10).expect("a digit"));
        carry /= 10;
    }
    let (cut, kept) = product.split_at(fraction.len());
    let mut sum = u128::from(cut.iter().any(|digit| *digit > 0));
    for (place, digit) in kept.iter().enumerate().filter(|(_, digit)| **digit > 0) {
        match u32::try_from(place).ok().and_then(|place| 10u128.checked_pow(place)) {
            Some(power) if place < 30 => sum += u128::from(*digit) * power,
            _ => return u64::MAX,
        }
    }
    u64::try_from(sum).unwrap_or(u64::MAX)
}

/// The suggestion at the end of a refusal.
fn suggestion(refusal: &str) -> Option<&str> {
    refusal.split("; did you mean ").nth(1)?.strip_suffix('?')
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn any_words_at_all(line in vec(vec(any::<u8>(), 0..40), 0..6)) {
        let _ = read(&line);
    }

    #[test]
    fn likely_words_in_any_order(line in vec(likely_word(), 0..8)) {
        let _ = read(&line);
    }

    #[test]
    fn any_value_of_any_option(row in select(&OPTIONS[..]), value in vec(any::<u8>(), 0..80)) {
        let option = [b"--", row.name.as_bytes(), b"=", &value].concat();
        let _ = read(&[option, b"true".to_vec()]);
    }

    #[test]
    fn good_lines_are_runs_in_either_form(options in good_options(), forms in any::<u8>()) {
        let joined = read(&line_of(&options, |_| true));
        let mixed = read(&line_of(&options, |at| forms >> (at & 7) & 1 == 1));
        let (Ok(Given::Run(joined)), Ok(Given::Run(mixed))) = (joined, mixed) else {
            return Err(TestCaseError::fail("refused"));
        };
        prop_assert_eq!(joined.command, options.len() + 1);
        // `--json FILE` is compared by its bytes, all else by value.
        prop_assert_eq!(joined, Plan { command: joined.command, ..mixed });
    }

    #[test]
    fn order_does_not_matter(options in good_options()) {
        let forth = read(&line_of(&options, |_| true));
        let back: Vec<_> = options.iter().rev().cloned().collect();
        prop_assert_eq!(forth, read(&line_of(&back, |_| true)));
    }

    #[test]
    fn damaged_lines(options in good_options(), damages in vec(damage(), 1..5), forms in any::<u8>()) {
        let mut line = line_of(&options, |at| forms >> (at & 7) & 1 == 1);
        for damage in &damages {
            apply(damage, &mut line);
        }
        let _ = read(&line);
    }

    #[test]
    fn what_comes_after_the_command_changes_nothing(
        options in good_options(),
        tail in vec(likely_word(), 0..5),
    ) {
        let mut line = line_of(&options, |_| true);
        let alone = read(&line);
        line.extend(tail);
        prop_assert_eq!(alone, read(&line));
    }

    #[test]
    fn a_suggested_value_is_taken(
        row in select(OPTIONS.iter().filter(|row| row.metavar.is_some()).collect::<Vec<_>>()),
        value in prop_oneof![
            "[0-9]{0,22}(\\.[0-9]{0,3})?[a-zA-Z]{0,6}",
            "[a-z]{2,8}",
            "(stop|fail|wait|tree|command|auto|enforced|fallback)[a-z]?",
        ],
    ) {
        let Err(refusal) = read(&words(&[&format!("--{}={value}", row.name), "true"])) else {
            return Ok(());
        };
        if let Some(better) = suggestion(&refusal) {
            let again = read(&words(&[&format!("--{}={better}", row.name), "true"]));
            prop_assert!(again.is_ok(), "{refusal} -- {again:?}");
        }
    }

    #[test]
    fn a_suggested_option_exists_and_is_near(
        row in select(&OPTIONS[..]),
        damages in vec(damage(), 1..3),
    ) {
        let mut name = vec![row.name.as_bytes().to_vec()];
        for damage in &damages {
            if matches!(damage, Damage::SetByte(..) | Damage::AddByte(..) | Damage::DropByte(..)) {
                apply(damage, &mut name);
            }
        }
        let Err(refusal) = read(&[[b"--", &name[0][..]].concat(), b"1".to_vec()]) else {
            return Ok(());
        };
        if let Some(better) = suggestion(&refusal).filter(|_| refusal.contains("no such option")) {
            prop_assert!(OPTIONS.iter().any(|row| better == format!("--{}", row.name)), "{refusal}");
        }
    }

    #[test]
    fn one_lost_letter_is_found_again(row in select(&OPTIONS[..]), at in any::<Index>()) {
        let mut name = row.name.to_owned();
        name.remove(at.index(name.len()));
        let refusal = read(&words(&[&format!("--{name}"), "1"])).expect_err("no option");
        let option = format!("--{}", row.name);
        prop_assert_eq!(suggestion(&refusal), Some(&option[..]), "{}", refusal);
    }

    #[test]
    fn durations_are_exact(
        whole in "[0-9]{0,25}",
        fraction in prop_oneof![
            Just(String::new()),
            "[0-9]{1,40}",
            "0{5,15}[0-9]{1,3}0{0,3}",
        ],
        point in any::<bool>(),
        unit in select(vec![
            ("ms", 1_000_000u64),
            ("s", 1_000_000_000),
            ("m", 60_000_000_000),
            ("h", 3_600_000_000_000),
            ("d", 86_400_000_000_000),
        ]),
    ) {
        prop_assume!(!whole.is_empty() || !fraction.is_empty());
        let point = if point || !fraction.is_empty() { "." } else { "" };
        let option = format!("--grace={whole}{point}{fraction}{}", unit.0);
        let Ok(Given::Run(plan)) = read(&words(&[&option, "true"])) else {
            return Err(TestCaseError::fail(option));
        };
        prop_assert_eq!(plan.grace, Span(on_paper(&whole, &fraction, unit.1)), "{}", option);
    }

    #[test]
    fn sizes_are_exact(
        number in any::<u128>(),
        digits in 0u32..39,
        unit in select(vec![("", 1u128), ("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30)]),
    ) {
        let number = number % 10u128.pow(digits) + 1;
        let expected = number.checked_mul(unit.1).and_then(|bytes| u64::try_from(bytes).ok());
        let Ok(Given::Run(plan)) = read(&words(&[&format!("--mem={number}{}", unit.0), "true"])) else {
            return Err(TestCaseError::fail("refused"));
        };
        prop_assert_eq!(plan.mem, Some(expected.unwrap_or(u64::MAX)));
    }

    #[test]
    fn signal_names_never_panic(text in vec(any::<u8>(), 0..12)) {
        if let Some(signal) = signals::number(&text) {
            prop_assert!((1..=64).contains(&signal));
        }
    }

    #[test]
    fn any_number_names_a_signal_or_nothing(signal in any::<i32>()) {
        prop_assert_eq!(signals::name(signal).is_some(), matches!(signal, 1..=31 | 34..=64));
    }
}

#[test]
fn the_paper_agrees_with_sums_done_by_hand() {
    assert_eq!(on_paper("1", "5", 1_000_000_000), 1_500_000_000);
    assert_eq!(on_paper("", "0000000001", 1_000_000_000), 1);
    assert_eq!(on_paper("18446744073", "709551615", 1_000_000_000), u64::MAX);
    assert_eq!(on_paper("18446744073", "709551614", 1_000_000_000), u64::MAX - 1);
    assert_eq!(on_paper("99999999999999999999999999", "", 1_000_000), u64::MAX);
    assert_eq!(on_paper("0", "", 60_000_000_000), 0);
}
