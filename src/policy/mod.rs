//! Given what happened, what is to be done, and what is reported?
//!
//! Pure values and functions: nothing here knows the kernel, and everything can
//! be tested by calling it. May use: `core` alone.

pub mod cause;
pub mod machine;
pub mod time;
pub mod verdict;
pub mod watch;
