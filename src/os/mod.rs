//! What facts does the kernel give, as values?
//!
//! Looks, makes and sends, and decides nothing. May use: `sys`.

pub mod host;
pub mod procfs;
pub mod spawn;
pub mod tree;
