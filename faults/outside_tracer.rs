//! Does: says its pid and sleeps. As `outside_tracer tracer PID`, started outside
//! corral, it traces that process, stops it at its exit and never lets it go.
//! corral must: fail to prove the end, in time: 120, with the survivor named.
//! Exists: a debugger holds a killed process in its last moment for as long as it
//! likes; no SIGKILL changes that.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

/// From linux/ptrace.h.
const PTRACE_SEIZE: usize = 0x4206;
const PTRACE_O_TRACEEXIT: usize = 0x40;

fn main(args: Args) -> u8 {
    if args.get(1) == Some(b"tracer") {
        let pid = args.number(2, 0);
        // SAFETY: numbers alone.
        let done = unsafe { syscall!(PTRACE, PTRACE_SEIZE, pid, 0, PTRACE_O_TRACEEXIT) };
        if done != 0 {
            return CANNOT;
        }
    } else {
        // Where Yama asks for it: anybody may trace this.
        prctl(PR_SET_PTRACER, usize::MAX);
        say(b"pid", getpid());
    }
    ready();
    sleep_forever()
}
