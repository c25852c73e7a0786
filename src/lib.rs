//! corral: run one command under limits and leave nothing of it behind.
//!
//! Two leaf trees that meet in the processes. [`sys`] and [`os`] talk to the
//! kernel and decide nothing; [`policy`], [`cli`] and [`report`] decide and never
//! touch the kernel. [`relay`] moves bytes, [`channel`] carries words between
//! the two processes, [`sweep`] is what is done to a whole tree. They meet in
//! [`supervisor`], which owns the run, and [`monitor`], which the user sees.
//!
//! One run flows one way: stack, argv, `Given`, `Plan`, fork, spawn, then
//! (ppoll, `Event`, `step`, `Action`)*, `Verdict`, line and record, exit status.
//! Failed actions come back as events; nothing else flows back.

#![cfg_attr(not(test), no_std)]
#![deny(unsafe_code, missing_docs, unreachable_pub)]
#![deny(
    clippy::multiple_unsafe_ops_per_block,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::allow_attributes
)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod agent;
pub mod channel;
pub mod cli;
pub mod loss;
pub mod monitor;
pub mod os;
pub mod policy;
pub mod relay;
pub mod report;
pub mod run;
pub mod scope;
pub mod supervisor;
pub mod sweep;
pub mod sys;

pub use monitor::enter;
