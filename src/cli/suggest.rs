//! Which known word was meant by an unknown one?
//!
//! The one that it begins, or else the one nearest to it by the optimal string
//! alignment distance: insertions, deletions, substitutions and exchanges of
//! neighbours, each counted as one; letter case counts for nothing. From a word
//! of three to five letters one may differ by one, from a longer one by two.
//! Where two are equally near nothing is suggested: a wrong suggestion is worse
//! than none.
//!
//! May use: `core` alone.

/// Fewest letters that count as the beginning of a word.
const LEAST_BEGUN: usize = 2;
/// Farther than any [`rank`].
const UNRELATED: u8 = 5;

/// What `word` was probably meant to be, of `known`: words, divided by blanks
/// where there are several, and what they stand for.
pub(super) fn nearest(
    word: &[u8],
    known: &mut dyn Iterator<Item = (&'static str, &'static str)>,
) -> Option<&'static str> {
    let mut nearest = UNRELATED;
    let mut meant = None;
    for (texts, one) in known {
        for text in texts.as_bytes().split(|&byte| byte == b' ') {
            let rank = rank(word, text);
            if rank < nearest {
                nearest = rank;
                meant = Some(one);
            } else if rank == nearest && meant != Some(one) {
                meant = None;
            }
        }
    }
    meant
}

/// How far `word` is from `text`.
fn rank(word: &[u8], text: &[u8]) -> u8 {
    if word.eq_ignore_ascii_case(text) {
        return 0;
    }
    let head = text.get(..word.len()).unwrap_or_default();
    let begun = word.len() >= LEAST_BEGUN && head.eq_ignore_ascii_case(word);
    let near = |edits| text.len() / 3 >= edits && within(word, text, edits);
    match (begun, near(1)) {
        (true, true) => 1,
        (true, false) => 2,
        (false, true) => 3,
        (false, false) if near(2) => 4,
        (false, false) => UNRELATED,
    }
}

/// Whether at most `edits` edits make `b` of `a`. Equal heads are always best
/// left alone, so this branches only at an edit.
fn within(a: &[u8], b: &[u8], edits: usize) -> bool {
    let (x, rest_a, y, rest_b) = match (a, b) {
        ([x, rest_a @ ..], [y, rest_b @ ..]) => (x, rest_a, y, rest_b),
        ([], rest) | (rest, []) => return rest.len() <= edits,
    };
    if x.eq_ignore_ascii_case(y) {
        return within(rest_a, rest_b, edits);
    }
    let Some(edits) = edits.checked_sub(1) else {
        return false;
    };
    within(rest_a, rest_b, edits)
        || within(rest_a, b, edits)
        || within(a, rest_b, edits)
        || match (rest_a, rest_b) {
            ([u, rest_a @ ..], [v, rest_b @ ..]) => {
                u.eq_ignore_ascii_case(y)
                    && v.eq_ignore_ascii_case(x)
                    && within(rest_a, rest_b, edits)
            }
            ([], _) | (_, []) => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(word: &str, known: &[&'static str]) -> Option<&'static str> {
        nearest(word.as_bytes(), &mut known.iter().map(|text| (*text, *text)))
    }

    #[test]
    fn one_edit_of_each_kind() {
        for word in ["wll", "walll", "wale", "awll", "WALL", "Wlal"] {
            assert_eq!(meant(word, &["wall", "grace"]), Some("wall"), "{word}");
        }
    }

    #[test]
    fn two_edits_only_in_long_words() {
        assert_eq!(meant("lfetovres", &["leftovers"]), Some("leftovers"));
        assert_eq!(meant("graec", &["grace"]), Some("grace"));
        assert_eq!(meant("grzzc", &["grace"]), None);
        assert_eq!(meant("lfetovrse", &["leftovers"]), None);
    }

    #[test]
    fn prefixes() {
        assert_eq!(meant("no", &["no-new-privs", "close-fds"]), Some("no-new-privs"));
        assert_eq!(meant("n", &["no-new-privs", "close-fds"]), None);
        assert_eq!(meant("signal-", &["signal", "signal-scope"]), Some("signal-scope"));
        assert_eq!(meant("signa", &["signal", "signal-scope"]), Some("signal"));
        assert_eq!(meant("sig", &["signal", "signal-scope"]), None);
        assert_eq!(meant("", &["wall"]), None);
    }

    #[test]
    fn nothing_where_two_are_as_near() {
        assert_eq!(meant("bem", &["mem", "hem"]), None);
        assert_eq!(meant("xx", &["INT", "HUP"]), None);
        assert_eq!(meant("bem", &["mem", "hem", "gem"]), None);
        assert_eq!(meant("sign", &["signal", "signal-scope"]), None);
        // Two words for the same thing are no ambiguity.
        let mut apart = [("mem", "one"), ("hem", "one")].into_iter();
        assert_eq!(nearest(b"bem", &mut apart), Some("one"));
        let mut together = [("mem hem", "one"), ("", "other")].into_iter();
        assert_eq!(nearest(b"bem", &mut together), Some("one"));
    }

    #[test]
    fn agrees_with_the_textbook_distance() {
        let letters = b"ab-";
        let mut words = vec![Vec::new()];
        for at in 0.. {
            if words.len() > 120 {
                break;
            }
            let word: Vec<u8> = words[at].clone();
            words.extend(letters.iter().map(|letter| [&word[..], &[*letter]].concat()));
        }
        for a in &words {
            for b in &words {
                let distance = textbook(a, b);
                for edits in 0..4 {
                    assert_eq!(within(a, b, edits), distance <= edits, "{a:?} {b:?}");
                }
            }
        }
    }

    fn textbook(a: &[u8], b: &[u8]) -> usize {
        let mut d = vec![vec![0; b.len() + 1]; a.len() + 1];
        for i in 0..=a.len() {
            for j in 0..=b.len() {
                if i == 0 || j == 0 {
                    d[i][j] = i + j;
                    continue;
                }
                let change = usize::from(a[i - 1] != b[j - 1]);
                d[i][j] = (d[i - 1][j] + 1).min(d[i][j - 1] + 1).min(d[i - 1][j - 1] + change);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    d[i][j] = d[i][j].min(d[i - 2][j - 2] + 1);
                }
            }
        }
        d[a.len()][b.len()]
    }
}
