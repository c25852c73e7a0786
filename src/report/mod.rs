//! What do a program and a person read about the run?
//!
//! Facts in, bytes out; where they go is not known here. May use: `policy` and
//! `cli` types.

pub mod decimal;
pub mod json;
pub mod message;
pub mod record;
pub mod timestamp;
