//! What facts does the kernel give, and how are its objects used, as values?
//!
//! One question a file. Nothing here decides what is to be done about a fact.
//! May use: `sys`, and moments and spans of `policy::time`.

pub mod cgroup;
pub mod host;
pub mod namespace;
pub mod power;
pub mod procfs;
pub mod put;
pub mod sink;
pub mod spawn;
pub mod tree;
