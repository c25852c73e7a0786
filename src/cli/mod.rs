//! What did the user say, and what run does that mean?
//!
//! Pure: words in, a plan or one clear line out. May use: `policy` types.

pub mod plan;
pub mod table;
