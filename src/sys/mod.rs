//! What does one system call look like in types?
//!
//! One file for each kernel topic, one short function for each call: arguments
//! borrow or own descriptors, results are `Result<_, Errno>`. The only place,
//! with the entry file and the memory intrinsics, where `unsafe` is written;
//! everything above is safe Rust. Nothing here decides anything.
//!
//! `sc::syscall!` casts each argument to `usize` and checks nothing. That every
//! pointer it gets is alive and large enough is argued at each call.
//!
//! May use: the crates `linux-raw-sys` and `sc`.

#![expect(unsafe_code, reason = "this layer is where the kernel is entered")]

pub mod errno;
pub mod event;
pub mod fd;
pub mod file;
pub mod memory;
pub mod mount;
pub mod power;
pub mod process;
pub mod signal;
pub mod start;
pub mod terminal;
pub mod time;
