//! Does: makes its parent, corral, its tracer (PTRACE_TRACEME), and stops itself.
//! corral must: not take the stop that wait4(2) reports for the command's end, and
//! end it with SIGKILL.
//! Exists: for a traced child wait4 reports stops without being asked for them, and
//! every signal but SIGKILL stops it.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(_: Args) -> u8 {
    arm_even_stopped();
    // SAFETY: PTRACE_TRACEME is 0 and takes no more.
    if unsafe { syscall!(PTRACE, 0, 0, 0, 0) } != 0 {
        return CANNOT;
    }
    ready();
    stop_forever()
}
