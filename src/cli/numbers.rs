//! Which length of time, or which number of bytes, does a word mean?
//!
//! Decimal, exact, in integers: no float rounds a limit. What is too large
//! saturates, since a limit too large to count is no limit, never an early end.
//! A fraction of a nanosecond counts as a whole one: no limit ends a run before
//! its time, and what is not zero never becomes zero.
//!
//! The forms are strtod's without sign, exponent, hex, infinity or space: `2s`,
//! `1.5s`, `.5s`, `1.s`. Left out on purpose: numbers without a unit, which some
//! tools take for seconds and others for milliseconds; a bare `0` is the same in
//! all of them. Sizes are whole numbers.
//!
//! May use: `policy::time`, `misuse`, `suggest`.

use super::misuse::Hint;
use super::suggest;
use crate::policy::time::Span;

const NANOS_PER_MILLI: u64 = 1_000_000;
const NANOS_PER_SECOND: u64 = 1_000 * NANOS_PER_MILLI;
const NANOS_PER_MINUTE: u64 = 60 * NANOS_PER_SECOND;
const NANOS_PER_HOUR: u64 = 60 * NANOS_PER_MINUTE;
const NANOS_PER_DAY: u64 = 24 * NANOS_PER_HOUR;

/// A DURATION.
///
/// # Errors
/// What may have been meant, if that can be said.
pub(super) fn duration(text: &'static [u8]) -> Result<Span, Hint> {
    if text == b"0" {
        return Ok(Span::ZERO);
    }
    let (whole, rest) = digits(text);
    let (fraction, unit) = match rest {
        [b'.', rest @ ..] => digits(rest),
        rest => (&[][..], rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(Hint::None);
    }
    let nanos = match unit {
        b"ms" => NANOS_PER_MILLI,
        b"s" => NANOS_PER_SECOND,
        b"m" => NANOS_PER_MINUTE,
        b"h" => NANOS_PER_HOUR,
        b"d" => NANOS_PER_DAY,
        [] => return Err(meant(text, "s")),
        [..] => {
            let number = text.strip_suffix(unit).unwrap_or_default();
            return Err(unit_of_time(unit).map_or(Hint::None, |unit| meant(number, unit)));
        }
    };
    let whole = value(whole).saturating_mul(nanos);
    Ok(Span(whole.saturating_add(fraction_of(nanos, fraction))))
}

/// The part of `unit` that the digits behind the point mean, rounded up.
///
/// Horner's scheme from the last digit to the first, dividing by ten at each:
/// the quotients are exact floors, and whether anything was cut off is kept.
fn fraction_of(unit: u64, fraction: &[u8]) -> u64 {
    let mut nanos = 0;
    let mut cut = false;
    for digit in fraction.iter().rev() {
        // Below ten days in nanoseconds, far from the end of u64.
        let tenfold = u64::from(digit & 0xf) * unit + nanos;
        nanos = tenfold / 10;
        cut |= !tenfold.is_multiple_of(10);
    }
    nanos + u64::from(cut)
}

/// The unit that an unknown one was probably meant to be: in capitals, begun or
/// written out.
fn unit_of_time(text: &[u8]) -> Option<&'static str> {
    const SPELT: [(&str, &str); 5] = [
        ("ms", "ms msec millis milliseconds"),
        ("s", "s secs seconds"),
        ("m", "m mins minutes"),
        ("h", "h hrs hours"),
        ("d", "d days"),
    ];
    suggest::nearest(text, &mut SPELT.iter().map(|&(unit, spelt)| (spelt, unit)))
}

/// A SIZE.
///
/// # Errors
/// What may have been meant, if that can be said.
pub(super) fn size(text: &'static [u8]) -> Result<u64, Hint> {
    let (number, unit) = digits(text);
    if number.is_empty() {
        return Err(Hint::None);
    }
    let shift = match unit {
        [] => 0,
        b"K" => 10,
        b"M" => 20,
        b"G" => 30,
        [letter, rest @ ..] => return Err(unit_of_size(number, *letter, rest)),
    };
    Ok(value(number).saturating_mul(1 << shift))
}

/// What `k`, `kB`, `KB`, `KiB` and the like were probably meant to be.
fn unit_of_size(number: &'static [u8], letter: u8, rest: &[u8]) -> Hint {
    let unit = match letter.to_ascii_uppercase() {
        b'K' => "K",
        b'M' => "M",
        b'G' => "G",
        _ => return Hint::None,
    };
    match rest {
        [] | b"B" | b"b" | b"iB" | b"i" | b"ib" | b"IB" => meant(number, unit),
        [..] => Hint::None,
    }
}

/// A whole number.
pub(super) fn count(text: &[u8]) -> Option<u64> {
    let (number, rest) = digits(text);
    (!number.is_empty() && rest.is_empty()).then(|| value(number))
}

/// This number with another unit, unless it is zero: most options that want a
/// unit have no use for that.
fn meant(number: &'static [u8], unit: &'static str) -> Hint {
    if number.iter().any(|byte| matches!(byte, b'1'..=b'9')) {
        Hint::Number(number, unit)
    } else {
        Hint::None
    }
}

/// The digits that `text` begins with, and the rest.
fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit());
    end.and_then(|end| text.split_at_checked(end)).unwrap_or((text, &[]))
}

/// What digits mean, saturating.
fn value(digits: &[u8]) -> u64 {
    digits
        .iter()
        .fold(0u64, |sum, digit| sum.saturating_mul(10).saturating_add(u64::from(digit & 0xf)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        let cases: [(&[u8], u64); 12] = [
            (b"1ms", 1_000_000),
            (b"1s", 1_000_000_000),
            (b"1m", 60_000_000_000),
            (b"1h", 3_600_000_000_000),
            (b"1d", 86_400_000_000_000),
            (b"90m", 5_400_000_000_000),
            (b"1.5s", 1_500_000_000),
            (b".5s", 500_000_000),
            (b"1.s", 1_000_000_000),
            (b"007s", 7_000_000_000),
            (b"0.1d", 8_640_000_000_000),
            (b"00.250ms", 250_000),
        ];
        for (text, nanos) in cases {
            assert_eq!(duration(text), Ok(Span(nanos)), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn zero_may_be_bare_and_nothing_else() {
        for zero in ["0", "0s", "0.0ms", "0.d", ".0h", "000m"] {
            assert_eq!(duration(zero.as_bytes()), Ok(Span::ZERO), "{zero}");
        }
        for bare in ["5", ".5", "1.5", "0.01", "99999999999999999999999"] {
            let expected = Err(Hint::Number(bare.as_bytes(), "s"));
            assert_eq!(duration(bare.as_bytes()), expected, "{bare}");
        }
        for bare in ["00", "0.", ".0", "0sec"] {
            assert_eq!(duration(bare.as_bytes()), Err(Hint::None), "{bare}");
        }
    }

    #[test]
    fn what_is_no_duration() {
        for bad in [
            "", ".", "s", ".s", "ms", "-1s", "+1s", "1e3s", "0x1s", "nan", "nans", "inf", "infs",
            "infinity", " 1s", "1s ", "1 s", "1s\n", "1ss", "1.5.s", "1..5s", "1,5s", "1s30ms",
            "1_000s", "1us", "1ns", "1w", "\u{661}s",
        ] {
            assert_eq!(duration(bad.as_bytes()), Err(Hint::None), "{bad}");
        }
    }

    #[test]
    fn other_spellings_of_units_are_understood_but_not_taken() {
        let cases = [
            ("5S", "s"),
            ("5sec", "s"),
            ("5secs", "s"),
            ("5second", "s"),
            ("5M", "m"),
            ("5min", "m"),
            ("5MS", "ms"),
            ("5msec", "ms"),
            ("5H", "h"),
            ("5hr", "h"),
            ("5D", "d"),
            ("5day", "d"),
        ];
        for (text, unit) in cases {
            let expected = Err(Hint::Number(b"5", unit));
            assert_eq!(duration(text.as_bytes()), expected, "{text}");
        }
        // Milliseconds or minutes: nobody knows.
        assert_eq!(duration(b"5mi"), Err(Hint::None));
    }

    #[test]
    fn fractions_round_up_and_never_to_zero() {
        assert_eq!(duration(b"0.000001ms"), Ok(Span(1)));
        assert_eq!(duration(b"0.0000001ms"), Ok(Span(1)));
        assert_eq!(duration(b"0.0000010ms"), Ok(Span(1)));
        assert_eq!(duration(b"0.0000011ms"), Ok(Span(2)));
        assert_eq!(duration(b"1.0000000001s"), Ok(Span(1_000_000_001)));
        let tiny: &'static [u8] = format!("0.{}1s", "0".repeat(5000)).leak().as_bytes();
        assert_eq!(duration(tiny), Ok(Span(1)));
        let nines: &'static [u8] = format!("0.{}d", "9".repeat(5000)).leak().as_bytes();
        assert_eq!(duration(nines), Ok(Span(NANOS_PER_DAY)));
    }

    #[test]
    fn too_large_saturates() {
        assert_eq!(duration(b"18446744073.709551615s"), Ok(Span(u64::MAX)));
        assert_eq!(duration(b"18446744073.709551614s"), Ok(Span(u64::MAX - 1)));
        for large in ["18446744073.709551616s", "99999999999999999999999d", "213504d"] {
            assert_eq!(duration(large.as_bytes()), Ok(Span(u64::MAX)), "{large}");
        }
    }

    #[test]
    fn sizes() {
        let cases: [(&[u8], u64); 9] = [
            (b"0", 0),
            (b"1", 1),
            (b"0010", 10),
            (b"1K", 1 << 10),
            (b"64M", 64 << 20),
            (b"3G", 3 << 30),
            (b"18446744073709551615", u64::MAX),
            (b"18446744073709551616", u64::MAX),
            (b"17179869184G", u64::MAX),
        ];
        for (text, bytes) in cases {
            assert_eq!(size(text), Ok(bytes), "{}", text.escape_ascii());
        }
        for bad in ["", "K", "-1", "+1", " 1", "1 ", "1.5M", "1T", "1B", "0x10", "1KK", "1e3"] {
            assert_eq!(size(bad.as_bytes()), Err(Hint::None), "{bad}");
        }
        for (near, unit) in [("8k", "K"), ("8MB", "M"), ("8MiB", "M"), ("8gb", "G")] {
            assert_eq!(size(near.as_bytes()), Err(Hint::Number(b"8", unit)), "{near}");
        }
    }

    #[test]
    fn counts() {
        assert_eq!(count(b"0"), Some(0));
        assert_eq!(count(b"4096"), Some(4096));
        assert_eq!(count(b"99999999999999999999"), Some(u64::MAX));
        for bad in ["", "1K", "-1", "+1", "1.0", " 1", "1 "] {
            assert_eq!(count(bad.as_bytes()), None, "{bad}");
        }
    }
}
