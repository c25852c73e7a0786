//! What do a program and a person read about the run?
//!
//! Facts in, bytes out; where they go is not known here. May use: `policy` and
//! `cli` types.

pub mod decimal;
pub mod json;
pub mod message;
pub mod record;
pub mod timestamp;

/// The two hexadecimal digits of a byte.
fn hex(byte: u8) -> [u8; 2] {
    let digit = |low: u8| {
        if low < 10 { b'0' + low } else { b'a' - 10 + low }
    };
    [digit(byte >> 4), digit(byte & 0xf)]
}
