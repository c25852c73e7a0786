//! Does: sets O_NONBLOCK on stdin, stdout and stderr, as node and ssh do, writes
//! 1 MiB (argument: bytes) after `ready`, waiting wherever it has to, and exits 0.
//! corral must: pass it all on; the flag belongs to the open file, so it reaches
//! everyone who shares that.
//! Exists: a writer that takes EAGAIN for an error loses output.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

static BYTES: [u8; 1 << 16] = [b'n'; 1 << 16];

fn main(args: Args) -> u8 {
    for fd in 0..3 {
        // SAFETY: numbers alone.
        unsafe { syscall!(FCNTL, fd, F_SETFL, O_NONBLOCK) };
    }
    ready();
    let mut left = args.number(1, 1 << 20);
    while left > 0 {
        let wrote = write(1, &BYTES[..left.min(BYTES.len())]);
        if wrote > 0 {
            left -= wrote as usize;
        } else if wrote == -11 {
            // EAGAIN. struct pollfd: the descriptor, and POLLOUT.
            let wait: [i32; 2] = [1, POLLOUT as i32];
            // SAFETY: the kernel reads and writes one struct pollfd.
            unsafe { syscall!(PPOLL, wait.as_ptr(), 1, 0, 0, 8) };
        } else {
            return 1;
        }
    }
    0
}
