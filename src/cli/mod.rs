//! What did the user say, and what run does that mean?
//!
//! Pure: words in, a plan or one clear line out. `table` says which options
//! exist, `parse` reads the words, `values`, `numbers`, `steps` and `signals`
//! read what they say, `plan` is what comes out, `misuse` and `suggest` what is
//! said where nothing can, `visible` how foreign words are shown in it; `tini` is
//! the other command line that corral takes. May use: `policy` types.

pub mod misuse;
mod numbers;
pub mod parse;
pub mod plan;
pub mod signals;
mod steps;
mod suggest;
pub mod table;
pub mod tini;
mod values;
pub mod visible;

use core::ffi::CStr;

/// What a program is called that was started by this path.
#[must_use]
pub fn base_name(path: &CStr) -> &[u8] {
    path.to_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}

/// What `--help` prints; build.rs makes it from [`table`].
pub const HELP: &str = include_str!(concat!(env!("OUT_DIR"), "/help.txt"));

/// What `--version` prints.
pub const VERSION: &str = concat!("corral ", env!("CARGO_PKG_VERSION"), "\n");
