//! How is text that nobody vouches for shown to a person?
//!
//! A user's word and a process's name may hold anything. What can be shown stays
//! as it is; the bytes of anything else are written as `\xNN`, and what would
//! make that or a quoted word ambiguous gets a backslash. So no word can write to
//! the terminal, break the line, turn its text around or pose as another word.
//!
//! Invariant: what is written is valid UTF-8 without control, invisible or
//! direction-changing characters. May use: `core` alone.

/// Writes `text` so that it is safe to look at: `most` bytes at most, whole
/// characters, and `...` for the rest.
pub fn visible(text: &[u8], most: usize, out: &mut dyn FnMut(&[u8])) {
    let mut room = most;
    let mut show = |bytes: &[u8], hidden: bool| {
        let width = if hidden { bytes.len() * 4 } else { bytes.len() };
        let Some(left) = room.checked_sub(width) else {
            out(b"...");
            return false;
        };
        room = left;
        if !hidden {
            out(bytes);
            return true;
        }
        for &byte in bytes {
            out(b"\\x");
            out(&hex(byte));
        }
        true
    };
    let mut rest = text;
    while let Some(Part { letter, bytes, after }) = first(rest) {
        let fits = match letter {
            Some('"') => show(b"\\\"", false),
            Some('\\') => show(b"\\\\", false),
            _ => show(bytes, letter.is_none_or(hides)),
        };
        if !fits {
            return;
        }
        rest = after;
    }
}

/// What a text begins with.
#[derive(Clone, Copy, Debug)]
pub struct Part<'t> {
    /// This letter; `None`: bytes that stand for none, as many as
    /// `String::from_utf8_lossy` makes one U+FFFD of.
    pub letter: Option<char>,
    /// Its bytes.
    pub bytes: &'t [u8],
    /// What follows.
    pub after: &'t [u8],
}

/// Takes a text that may be no UTF-8 apart, from the left. One function for all
/// who do: the reader of UTF-8 is large where it is made once for each.
#[inline(never)]
#[must_use]
pub fn first(text: &[u8]) -> Option<Part<'_>> {
    // No letter has more bytes, nor has what is broken.
    let chunk = text.get(..4).unwrap_or(text).utf8_chunks().next()?;
    let letter = chunk.valid().chars().next();
    let length = letter.map_or(chunk.invalid().len(), char::len_utf8);
    let (bytes, after) = text.split_at_checked(length)?;
    Some(Part { letter, bytes, after })
}

/// Whether a terminal would do something else with it than show it: controls,
/// invisible characters, line and direction changes.
const fn hides(letter: char) -> bool {
    matches!(letter,
        '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{ad}' | '\u{61c}' | '\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The two hexadecimal digits of a byte.
#[must_use]
pub fn hex(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 0xf].map(|half| if half < 10 { b'0' + half } else { b'a' - 10 + half })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &[u8], most: usize) -> String {
        let mut bytes = Vec::new();
        visible(text, most, &mut |piece| bytes.extend_from_slice(piece));
        String::from_utf8(bytes).expect("what is shown is UTF-8")
    }

    fn shown(text: &[u8]) -> String {
        cut(text, usize::MAX)
    }

    #[test]
    fn plain_words_are_shown_as_they_are() {
        assert_eq!(shown(b""), "");
        assert_eq!(shown(b"a b"), "a b");
        assert_eq!(shown("gr\u{fc}\u{df}e \u{1f411}".as_bytes()), "gr\u{fc}\u{df}e \u{1f411}");
    }

    #[test]
    fn what_cannot_be_shown_is_written_in_hex() {
        assert_eq!(shown(b"a\nb\t\x1b[2J\x7f"), r"a\x0ab\x09\x1b[2J\x7f");
        assert_eq!(shown(b"\xff\xc3("), r"\xff\xc3(");
        assert_eq!(shown(b"\xe2\x82"), r"\xe2\x82");
        assert_eq!(shown("\u{9b}".as_bytes()), r"\xc2\x9b");
        assert_eq!(shown("\u{202e}".as_bytes()), r"\xe2\x80\xae");
        assert_eq!(shown(br#"say "\x0a""#), r#"say \"\\x0a\""#);
        for byte in 0..=255u8 {
            assert!(!shown(&[byte]).contains(char::is_control), "{byte}");
        }
    }

    #[test]
    fn nothing_hides_and_nothing_else_is_hexed() {
        let hidden = "\0\x1f\x7f\u{9f}\u{ad}\u{61c}\u{180e}\u{200b}\u{200f}\u{2028}\u{202e}\u{2060}\
                      \u{206f}\u{feff}\u{fff9}\u{fffb}\u{e0000}\u{e007f}";
        for letter in hidden.chars() {
            let text = letter.to_string();
            let hex: String = text.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
            assert_eq!(shown(text.as_bytes()), hex);
        }
        for letter in [' ', '~', '\u{a0}', '\u{200a}', '\u{2010}', '\u{2070}', '\u{fffd}'] {
            let text = letter.to_string();
            assert_eq!(shown(text.as_bytes()), text);
        }
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters() {
        assert_eq!(cut(b"abcd", 4), "abcd");
        assert_eq!(cut(b"abcde", 4), "abcd...");
        assert_eq!(cut("a\u{fc}\u{fc}\u{fc}".as_bytes(), 4), "a\u{fc}...");
        assert_eq!(cut(b"\n\n", 8), r"\x0a\x0a");
        assert_eq!(cut(b"\n\n", 7), r"\x0a...");
        assert_eq!(cut(b"abc\"", 4), "abc...");
        assert_eq!(cut(b"abcd\xff", 4), "abcd...");
        assert_eq!(cut(b"", 0), "");
        assert_eq!(cut(b"a", 0), "...");
    }
}
