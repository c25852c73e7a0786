//! What does one line of an agent's `stream-json` say, read byte by byte?
//!
//! A line is one JSON object, of any length and cut anywhere. Kept of it are the few
//! texts that count, and only at their places: the `type` of the object, and of each
//! block in the array `message.content` its `type`, `id`, `name` and `tool_use_id`.
//! Whatever looks like them in a string, or deeper, or elsewhere, is passed over.
//! Keys and texts are compared as they read, their escapes undone; of a key that
//! stands twice the last one counts. What is no JSON is passed over up to the end of
//! its line.
//!
//! May use: `sys::memory`.

use crate::sys::errno::Result;
use crate::sys::memory::List;

/// Longest text that is kept.
pub(super) const MOST_TEXT: usize = 1024;
/// Deepest nesting; a line that goes deeper is passed over.
const MOST_DEPTH: usize = 127;
/// How deep the places lie that count: object, message, content, block.
const BLOCK: usize = 4;

/// What a line is by its `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `assistant`: its blocks may be calls.
    Assistant,
    /// `user`: its blocks may be answers.
    User,
    /// `result`: the agent's last word.
    Result,
    /// Any other.
    Other,
}

/// What a byte has brought to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    /// A block `tool_use`; [`Lines::text`] has its id and name.
    Call,
    /// A block `tool_result`; [`Lines::text`] has the id of its call.
    Answer,
    /// The object: what the facts of its line are worth.
    Object(Kind),
    /// The line, without an object that was whole: they are worth nothing.
    Nothing,
}

/// A text that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// The one being read, a key or a value.
    Word,
    /// `id` of a block.
    Id,
    /// `tool_use_id` of a block.
    Answered,
    /// `name` of a block.
    Name,
}

const FIELDS: usize = 4;

/// What came of a byte; an error: it is no JSON.
type Read = core::result::Result<Option<Fact>, ()>;

/// A text, unless it is too long or no text.
#[derive(Clone, Copy, Debug)]
struct Kept {
    bytes: [u8; MOST_TEXT],
    length: Option<usize>,
}

impl Kept {
    const NONE: Self = Self { bytes: [0; MOST_TEXT], length: None };

    fn push(&mut self, byte: u8) {
        self.length = self.length.and_then(|length| {
            *self.bytes.get_mut(length)? = byte;
            Some(length + 1)
        });
    }

    fn text(&self) -> Option<&[u8]> {
        self.bytes.get(..self.length?)
    }
}

/// What may come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The object of the line.
    Start,
    /// A value; whether the array may also end here.
    Value {
        or_end: bool,
    },
    /// A key; whether the object may also end here.
    Key {
        or_end: bool,
    },
    Colon,
    /// What follows a value.
    Next,
    /// The rest of a string, of a key if so.
    String {
        key: bool,
    },
    Escape {
        key: bool,
    },
    /// So many hexadecimal digits.
    Unicode {
        key: bool,
        left: u8,
        unit: u16,
    },
    /// The rest of `true`, `false` or `null`.
    Literal(&'static [u8]),
    Number(Number),
    /// Nothing up to the end of the line that counts.
    Rest {
        whole: bool,
    },
}

/// What has been read of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Digits,
    Point,
    Fraction,
    Exponent,
    Sign,
    Power,
}

impl Number {
    /// With one byte more; `None`: that is not of it.
    const fn then(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Minus, b'0') => Self::Zero,
            (Self::Minus, b'1'..=b'9') | (Self::Digits, b'0'..=b'9') => Self::Digits,
            (Self::Zero | Self::Digits, b'.') => Self::Point,
            (Self::Point | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Zero | Self::Digits | Self::Fraction, b'e' | b'E') => Self::Exponent,
            (Self::Exponent, b'+' | b'-') => Self::Sign,
            (Self::Exponent | Self::Sign | Self::Power, b'0'..=b'9') => Self::Power,
            _ => return None,
        })
    }

    const fn is_whole(self) -> bool {
        matches!(self, Self::Zero | Self::Digits | Self::Fraction | Self::Power)
    }
}

/// The keys that count, where they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Type,
    Message,
    Content,
    Field(Field),
    Other,
}

/// The reader of all lines.
#[derive(Debug)]
pub(super) struct Lines {
    state: State,
    depth: usize,
    /// A bit for each level: whether it is an object.
    objects: u128,
    /// How many levels from the outermost on are places that count.
    known: usize,
    key: Key,
    /// A first half of a pair of UTF-16 units.
    half: Option<u16>,
    line: Kind,
    block: Option<Fact>,
    kept: List<Kept>,
}

impl Lines {
    /// At the beginning of a line.
    pub(super) fn new() -> Result<Self> {
        let mut kept = List::new();
        for _ in 0..FIELDS {
            kept.push(Kept::NONE)?;
        }
        Ok(Self {
            state: State::Start,
            depth: 0,
            objects: 0,
            known: 0,
            key: Key::Other,
            half: None,
            line: Kind::Other,
            block: None,
            kept,
        })
    }

    /// A text of the fact that was just returned; `None`: there is none, or it is
    /// longer than [`MOST_TEXT`].
    #[must_use]
    pub(super) fn text(&self, field: Field) -> Option<&[u8]> {
        self.kept.get(field as usize)?.text()
    }

    /// Takes the next byte.
    pub(super) fn byte(&mut self, byte: u8) -> Option<Fact> {
        if byte == b'\n' {
            let whole = self.state == (State::Rest { whole: true });
            let blank = self.state == State::Start;
            self.begin_line();
            return (!whole && !blank).then_some(Fact::Nothing);
        }
        match self.step(byte) {
            Ok(fact) => fact,
            Err(()) => {
                self.state = State::Rest { whole: false };
                None
            }
        }
    }

    fn begin_line(&mut self) {
        self.state = State::Start;
        self.depth = 0;
        self.known = 0;
        self.half = None;
        self.line = Kind::Other;
    }

    fn step(&mut self, byte: u8) -> Read {
        match self.state {
            State::Rest { .. } => return Ok(None),
            State::String { key } => return self.string(byte, key),
            State::Escape { key } => {
                self.state = State::String { key };
                let plain = match byte {
                    b'"' | b'\\' | b'/' => byte,
                    b'b' => 8,
                    b'f' => 12,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'u' => {
                        self.state = State::Unicode { key, left: 4, unit: 0 };
                        return Ok(None);
                    }
                    _ => return Err(()),
                };
                return self.plain(plain);
            }
            State::Unicode { key, left, unit } => {
                let digit = char::from(byte).to_digit(16).ok_or(())?;
                let unit = unit << 4 | u16::try_from(digit).map_err(|_| ())?;
                if left > 1 {
                    self.state = State::Unicode { key, left: left - 1, unit };
                    return Ok(None);
                }
                self.state = State::String { key };
                return self.unit(unit);
            }
            State::Literal(rest) => {
                let (&first, rest) = rest.split_first().ok_or(())?;
                if first != byte {
                    return Err(());
                }
                self.state = if rest.is_empty() { State::Next } else { State::Literal(rest) };
                return Ok(None);
            }
            State::Number(number) => match number.then(byte) {
                Some(number) => {
                    self.state = State::Number(number);
                    return Ok(None);
                }
                None if number.is_whole() => self.state = State::Next,
                None => return Err(()),
            },
            State::Start | State::Value { .. } | State::Key { .. } | State::Colon | State::Next => {
            }
        }
        if matches!(byte, b' ' | b'\t' | b'\r') {
            return Ok(None);
        }
        match (self.state, byte) {
            (State::Start, b'{') => self.open(true),
            (State::Value { or_end: true }, b']') | (State::Key { or_end: true }, b'}') => {
                Ok(self.close())
            }
            (State::Value { .. }, _) => self.value(byte),
            (State::Key { .. }, b'"') => {
                self.begin_text();
                self.state = State::String { key: true };
                Ok(None)
            }
            (State::Colon, b':') => {
                self.state = State::Value { or_end: false };
                Ok(None)
            }
            (State::Next, b',') => {
                self.state = if self.is_in_object() {
                    State::Key { or_end: false }
                } else {
                    State::Value { or_end: false }
                };
                Ok(None)
            }
            (State::Next, b'}') if self.is_in_object() => Ok(self.close()),
            (State::Next, b']') if !self.is_in_object() => Ok(self.close()),
            _ => Err(()),
        }
    }

    const fn is_in_object(&self) -> bool {
        self.objects & 1 != 0
    }

    /// Whether what is read now stands where keys count.
    const fn counts(&self) -> bool {
        self.known == self.depth
    }

    fn value(&mut self, byte: u8) -> Read {
        self.forget();
        self.state = match byte {
            b'{' => return self.open(true),
            b'[' => return self.open(false),
            b'"' => {
                self.begin_text();
                State::String { key: false }
            }
            b't' => State::Literal(b"rue"),
            b'f' => State::Literal(b"alse"),
            b'n' => State::Literal(b"ull"),
            b'-' => State::Number(Number::Minus),
            b'0' => State::Number(Number::Zero),
            b'1'..=b'9' => State::Number(Number::Digits),
            _ => return Err(()),
        };
        Ok(None)
    }

    /// A new value for a key takes the old one's place, whatever it is.
    fn forget(&mut self) {
        if !self.counts() || !self.is_in_object() {
            return;
        }
        match (self.depth, self.key) {
            (1, Key::Type) => self.line = Kind::Other,
            (BLOCK, Key::Type) => self.block = None,
            (BLOCK, Key::Field(field)) => self.reset(field, None),
            _ => {}
        }
    }

    fn reset(&mut self, field: Field, length: Option<usize>) {
        if let Some(kept) = self.kept.get_mut(field as usize) {
            kept.length = length;
        }
    }

    fn open(&mut self, object: bool) -> Read {
        if self.depth >= MOST_DEPTH {
            return Err(());
        }
        let counts = self.counts()
            && match (self.depth, object) {
                (0, true) => true,
                (1, true) => self.key == Key::Message,
                (2, false) => self.key == Key::Content,
                (3, true) => true,
                _ => false,
            };
        self.depth += 1;
        self.objects = self.objects << 1 | u128::from(object);
        if counts {
            self.known = self.depth;
            if self.depth == BLOCK {
                self.block = None;
                for field in [Field::Id, Field::Answered, Field::Name] {
                    self.reset(field, None);
                }
            }
        }
        self.state =
            if object { State::Key { or_end: true } } else { State::Value { or_end: true } };
        Ok(None)
    }

    fn close(&mut self) -> Option<Fact> {
        let counted = self.counts();
        self.depth = self.depth.saturating_sub(1);
        self.known = self.known.min(self.depth);
        self.objects >>= 1;
        self.state = State::Next;
        if self.depth == 0 {
            self.state = State::Rest { whole: true };
            return Some(Fact::Object(self.line));
        }
        if counted && self.depth == BLOCK - 1 { self.block.take() } else { None }
    }

    fn begin_text(&mut self) {
        self.reset(Field::Word, self.counts().then_some(0));
    }

    fn string(&mut self, byte: u8, key: bool) -> Read {
        if self.half.is_some() && byte != b'\\' {
            return Err(());
        }
        match byte {
            b'"' if key => {
                self.key = self.key_read();
                self.state = State::Colon;
            }
            b'"' => {
                self.value_read();
                self.state = State::Next;
            }
            b'\\' => self.state = State::Escape { key },
            0..0x20 => return Err(()),
            _ => return self.plain(byte),
        }
        Ok(None)
    }

    fn plain(&mut self, byte: u8) -> Read {
        if self.half.is_some() {
            return Err(());
        }
        if let Some(word) = self.kept.get_mut(Field::Word as usize) {
            word.push(byte);
        }
        Ok(None)
    }

    /// A UTF-16 unit that was written as an escape.
    fn unit(&mut self, unit: u16) -> Read {
        if matches!(unit, 0xD800..0xDC00) && self.half.is_none() {
            self.half = Some(unit);
            return Ok(None);
        }
        let units = self.half.take().into_iter().chain([unit]);
        let mut bytes = [0; 4];
        for read in char::decode_utf16(units) {
            let text = read.map_err(|_| ())?.encode_utf8(&mut bytes);
            for byte in text.bytes() {
                self.plain(byte)?;
            }
        }
        Ok(None)
    }

    fn key_read(&self) -> Key {
        if !self.counts() {
            return Key::Other;
        }
        match (self.depth, self.text(Field::Word).unwrap_or_default()) {
            (1 | BLOCK, b"type") => Key::Type,
            (1, b"message") => Key::Message,
            (2, b"content") => Key::Content,
            (BLOCK, b"id") => Key::Field(Field::Id),
            (BLOCK, b"tool_use_id") => Key::Field(Field::Answered),
            (BLOCK, b"name") => Key::Field(Field::Name),
            _ => Key::Other,
        }
    }

    fn value_read(&mut self) {
        if !self.counts() || !self.is_in_object() {
            return;
        }
        let word = self.text(Field::Word).unwrap_or_default();
        match (self.depth, self.key) {
            (1, Key::Type) => {
                self.line = match word {
                    b"assistant" => Kind::Assistant,
                    b"user" => Kind::User,
                    b"result" => Kind::Result,
                    _ => Kind::Other,
                }
            }
            (BLOCK, Key::Type) => {
                self.block = match word {
                    b"tool_use" => Some(Fact::Call),
                    b"tool_result" => Some(Fact::Answer),
                    _ => None,
                }
            }
            (BLOCK, Key::Field(field)) => {
                let word = self.kept.get(Field::Word as usize).copied();
                if let (Some(word), Some(kept)) = (word, self.kept.get_mut(field as usize)) {
                    *kept = word;
                }
            }
            _ => {}
        }
    }
}
