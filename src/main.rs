//! How does a process without libc begin and end?
//!
//! The kernel enters at `_start` with the stack pointer at `argc`; two
//! instructions hand that address to [`corral::enter`], which never returns.
//! Beginning and end both live in `corral::sys::start`; what is here cannot be
//! in the library, since an ELF entry point, a panic handler and the memory
//! intrinsics may exist once in a program and the library's tests have libc's.
//!
//! Rests on: the x86-64 and AArch64 ELF psABI, process initialisation.
//! May use: the library.

#![no_std]
#![no_main]
#![expect(unsafe_code, reason = "the entry point is reached from assembly")]

mod mem;

use core::panic::PanicInfo;

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".globl _start",
    ".type _start,@function",
    "_start:",
    "xor ebp, ebp",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {entry}",
    "ud2",
    entry = sym entry,
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".globl _start",
    ".type _start,%function",
    "_start:",
    "mov x29, xzr",
    "mov x30, xzr",
    "mov x0, sp",
    "bl {entry}",
    "brk #1",
    entry = sym entry,
);

/// Called once by `_start` with the initial stack pointer.
///
/// # Safety
/// `stack` is the stack pointer as the kernel left it at exec.
unsafe extern "C" fn entry(stack: *mut usize) -> ! {
    // SAFETY: `_start` passes the initial stack pointer, once.
    let start = unsafe { corral::sys::start::Start::from_stack(stack) };
    corral::enter(start)
}

/// A bug in corral. The other of the two processes takes the loss for a death
/// by signal and ends the tree, so dying at once is the safe thing to do.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    corral::sys::start::die_of_a_bug()
}

/// Named by objects that were compiled for unwinding (`core` in unoptimised
/// builds). Nothing ever calls it: `panic = "abort"`.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
