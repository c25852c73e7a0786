//! What are signals called?
//!
//! Names and numbers of Linux on x86-64 and AArch64 (signal(7)), which agree. The
//! names are those of `kill -l`. RTMIN is 34, as every glibc program counts: the
//! kernel's own first real-time signal is 32, but the C libraries keep 32 and 33
//! for their threads, so these two have numbers only.
//!
//! May use: `core` alone.

/// SIGKILL, which no process can ignore, block or catch.
pub const KILL: i32 = 9;
/// SIGCONT.
pub const CONT: i32 = 18;
/// SIGSTOP, as inexorable as SIGKILL.
pub const STOP: i32 = 19;

/// Lowest real-time signal that has a name.
const RTMIN: i32 = 34;
/// Highest signal.
const RTMAX: i32 = 64;

/// Second names, for reading only.
const ALIASES: [(&str, i32); 4] = [("IOT", 6), ("CLD", 17), ("POLL", 29), ("UNUSED", 31)];

/// The names in the order of their numbers, from 1 on. One text: a table of 64
/// would weigh three times as much. Between SYS and RTMIN there are two that are
/// empty.
const NAMES: &str = "\
HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT \
CHLD CONT STOP TSTP TTIN TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS   \
RTMIN RTMIN+1 RTMIN+2 RTMIN+3 RTMIN+4 RTMIN+5 RTMIN+6 RTMIN+7 RTMIN+8 RTMIN+9 \
RTMIN+10 RTMIN+11 RTMIN+12 RTMIN+13 RTMIN+14 RTMIN+15 RTMAX-14 RTMAX-13 \
RTMAX-12 RTMAX-11 RTMAX-10 RTMAX-9 RTMAX-8 RTMAX-7 RTMAX-6 RTMAX-5 RTMAX-4 \
RTMAX-3 RTMAX-2 RTMAX-1 RTMAX";

/// The name of a signal without SIG, as `TERM`.
#[must_use]
pub fn name(signal: i32) -> Option<&'static str> {
    let place = usize::try_from(signal).ok()?.checked_sub(1)?;
    NAMES.split(' ').nth(place).filter(|name| !name.is_empty())
}

/// The number of a signal: a name with or without SIG in any case, a number from
/// 1 to 64, `RTMIN+n` or `RTMAX-n`.
#[must_use]
pub fn number(text: &[u8]) -> Option<i32> {
    if let Some(number) = decimal(text) {
        return (1..=RTMAX).contains(&number).then_some(number);
    }
    let text = without_sig(text);
    let called = |name: &str| name.as_bytes().eq_ignore_ascii_case(text);
    let named = (1..=RTMAX).find(|&signal| name(signal).is_some_and(called));
    let alias = || ALIASES.iter().find(|(name, _)| called(name)).map(|(_, signal)| *signal);
    named.or_else(alias).or_else(|| real_time(text))
}

/// The names that a typo may have meant, each standing for itself.
pub(super) fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    (1..RTMIN).filter_map(name).map(|name| (name, name))
}

/// A name without its SIG.
pub(super) fn without_sig(text: &[u8]) -> &[u8] {
    match text.split_at_checked(3) {
        Some((sig, rest)) if sig.eq_ignore_ascii_case(b"SIG") => rest,
        Some(_) | None => text,
    }
}

/// The forms that `kill -l` does not show: `RTMIN+16` to `RTMIN+30`, and so on.
fn real_time(text: &[u8]) -> Option<i32> {
    let (base, offset) = text.split_at_checked(5)?;
    let signal = match offset {
        [b'+', steps @ ..] if base.eq_ignore_ascii_case(b"RTMIN") => RTMIN + decimal(steps)?,
        [b'-', steps @ ..] if base.eq_ignore_ascii_case(b"RTMAX") => RTMAX - decimal(steps)?,
        [..] => return None,
    };
    (RTMIN..=RTMAX).contains(&signal).then_some(signal)
}

/// One or two digits, the first no idle zero.
fn decimal(text: &[u8]) -> Option<i32> {
    let digit = |byte: u8| byte.is_ascii_digit().then(|| i32::from(byte - b'0'));
    match *text {
        [only] => digit(only),
        [high @ b'1'..=b'9', low] => Some(digit(high)? * 10 + digit(low)?),
        [..] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back_to_its_number() {
        for signal in -1..=130 {
            let named = name(signal);
            assert_eq!(named.is_some(), matches!(signal, 1..=31 | 34..=64), "{signal}");
            let Some(name) = named else { continue };
            for text in [name.to_owned(), format!("SIG{name}"), format!("sig{name}").to_lowercase()]
            {
                assert_eq!(number(text.as_bytes()), Some(signal), "{text}");
            }
        }
    }

    #[test]
    fn numbers_are_those_of_the_kernel_headers() {
        use linux_raw_sys::general as raw;
        let samples = [
            ("HUP", raw::SIGHUP),
            ("INT", raw::SIGINT),
            ("QUIT", raw::SIGQUIT),
            ("ILL", raw::SIGILL),
            ("TRAP", raw::SIGTRAP),
            ("ABRT", raw::SIGABRT),
            ("IOT", raw::SIGIOT),
            ("BUS", raw::SIGBUS),
            ("FPE", raw::SIGFPE),
            ("KILL", raw::SIGKILL),
            ("USR1", raw::SIGUSR1),
            ("SEGV", raw::SIGSEGV),
            ("USR2", raw::SIGUSR2),
            ("PIPE", raw::SIGPIPE),
            ("ALRM", raw::SIGALRM),
            ("TERM", raw::SIGTERM),
            ("STKFLT", raw::SIGSTKFLT),
            ("CHLD", raw::SIGCHLD),
            ("CONT", raw::SIGCONT),
            ("STOP", raw::SIGSTOP),
            ("TSTP", raw::SIGTSTP),
            ("TTIN", raw::SIGTTIN),
            ("TTOU", raw::SIGTTOU),
            ("URG", raw::SIGURG),
            ("XCPU", raw::SIGXCPU),
            ("XFSZ", raw::SIGXFSZ),
            ("VTALRM", raw::SIGVTALRM),
            ("PROF", raw::SIGPROF),
            ("WINCH", raw::SIGWINCH),
            ("IO", raw::SIGIO),
            ("POLL", raw::SIGPOLL),
            ("PWR", raw::SIGPWR),
            ("SYS", raw::SIGSYS),
            ("CLD", raw::SIGCHLD),
            ("UNUSED", raw::SIGSYS),
        ];
        for (name, signal) in samples {
            assert_eq!(number(name.as_bytes()), i32::try_from(signal).ok(), "{name}");
        }
    }

    #[test]
    fn constants_are_named_so() {
        assert_eq!([KILL, CONT, STOP].map(name), [Some("KILL"), Some("CONT"), Some("STOP")]);
    }

    #[test]
    fn real_time_signals_from_both_ends() {
        for step in 0..=30 {
            assert_eq!(number(format!("RTMIN+{step}").as_bytes()), Some(34 + step));
            assert_eq!(number(format!("sigrtmax-{step}").as_bytes()), Some(64 - step));
        }
        for bad in ["RTMIN-1", "RTMAX+1", "RTMIN+31", "RTMAX-31", "RTMIN+", "RTMIN+01", "RTMIN1"] {
            assert_eq!(number(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn plain_numbers_from_1_to_64() {
        for signal in 1..=64 {
            assert_eq!(number(signal.to_string().as_bytes()), Some(signal));
        }
        for bad in ["", "0", "65", "99", "100", "015", "-1", "+9", " 9", "9 ", "SIG9", "1x", "x1"] {
            assert_eq!(number(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn what_is_no_name() {
        for bad in ["SIG", "SIGSIGTERM", "TERM ", "TER", "TERMS", "\u{131}NT", "RTMIN+\u{661}"] {
            assert_eq!(number(bad.as_bytes()), None, "{bad}");
        }
    }
}
