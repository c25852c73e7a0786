//! Which options exist?
//!
//! Const data, and the only place where an option is defined: the parser, the
//! help text and the typo suggestions are made from it. May use: nothing, since
//! build.rs reads it too.
