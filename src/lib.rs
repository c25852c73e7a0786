//! corral: run one command under limits and leave nothing of it behind.
#![cfg_attr(not(test), no_std)]
#![deny(unsafe_code, missing_docs, unreachable_pub)]
#![deny(
    clippy::multiple_unsafe_ops_per_block,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::allow_attributes
)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)
)]

pub mod channel;
pub mod cli;
pub mod os;
pub mod policy;
pub mod report;
pub mod sweep;
pub mod sys;

/// Runs corral from the first instruction to the last.
pub fn enter(start: sys::start::Start) -> ! {
    let _ = start;
    sys::process::exit(0)
}
