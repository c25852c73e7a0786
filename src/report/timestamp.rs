//! How is a moment of wall-clock time written?
//!
//! As RFC 3339 has it, in UTC with nanoseconds. The calendar is the proleptic
//! Gregorian one; leap seconds do not exist, as in the clock itself
//! (clock_gettime(2), CLOCK_REALTIME).
//!
//! May use: `decimal`.

use super::decimal::Decimal;

/// A year, a month from 1, a day from 1.
type Date = (u64, u64, u64);

/// `2001-09-09T01:46:40.000000000Z`: nanoseconds since 1970, which reach to 2554.
#[must_use]
pub fn utc(nanos: u64) -> [u8; 30] {
    let (seconds, fraction) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let fields = [
        (year, 4, b'-'),
        (month, 2, b'-'),
        (day, 2, b'T'),
        (second / 3600, 2, b':'),
        (second / 60 % 60, 2, b':'),
        (second % 60, 2, b'.'),
        (fraction, 9, b'Z'),
    ];
    let mut text = [0; 30];
    let mut places = text.iter_mut();
    for (number, width, end) in fields {
        let digits = Decimal::padded(number, width);
        for (from, to) in digits.as_bytes().iter().chain(&[end]).zip(places.by_ref()) {
            *to = *from;
        }
    }
    text
}

/// The date so many days after 1970-01-01.
///
/// Years are counted from 1 March of year 0, so that the leap day is the last of
/// its year, in eras of 400 years, which are all alike. A month's first day in
/// such a year is `(153 * month + 2) / 5`, the lengths being 31, 30, 31, 30, 31.
const fn date(days: u64) -> Date {
    /// From 0000-03-01 to 1970-01-01.
    const SHIFT: u64 = 719_468;
    /// Days of 4, 100 and 400 years.
    const FOUR: u64 = 1461;
    const CENTURY: u64 = 36_524;
    const ERA: u64 = 146_097;
    let days = days.saturating_add(SHIFT);
    let (era, day) = (days / ERA, days % ERA);
    let year = (day - day / (FOUR - 1) + day / CENTURY - day / (ERA - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = era * 400 + year;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(nanos: u64) -> String {
        String::from_utf8(utc(nanos).to_vec()).unwrap()
    }

    #[test]
    fn known_moments() {
        // Seconds by `date -u -d ... +%s`.
        let known = [
            (0, "1970-01-01T00:00:00"),
            (951_782_399, "2000-02-28T23:59:59"),
            (951_782_400, "2000-02-29T00:00:00"),
            (951_868_800, "2000-03-01T00:00:00"),
            (978_307_199, "2000-12-31T23:59:59"),
            (1_000_000_000, "2001-09-09T01:46:40"),
            (1_709_164_800, "2024-02-29T00:00:00"),
            (2_147_483_648, "2038-01-19T03:14:08"),
            (4_107_542_399, "2100-02-28T23:59:59"),
            (4_107_542_400, "2100-03-01T00:00:00"),
            (13_574_563_200, "2400-02-29T00:00:00"),
        ];
        for (seconds, expected) in known {
            let nanos = seconds * 1_000_000_000 + 7;
            assert_eq!(text(nanos), format!("{expected}.000000007Z"));
        }
        assert_eq!(text(u64::MAX), "2554-07-21T23:34:33.709551615Z");
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..214_000 {
            assert_eq!(date(days), (year, month, day));
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match month {
                2 => 28 + u64::from(leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > length {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
        }
        assert!(year > 2554, "all that fits in 64 bits was walked");
    }
}
