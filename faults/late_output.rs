//! Does: leaves its last line to a copier in the background, which needs 50 ms to
//! pass it on, and exits 0.
//! corral must: let it, for the time of --linger.
//! Exists: `> >(tee log)`: the command has exited and its output has not yet come.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(_: Args) -> u8 {
    let (read, write_end) = pipe();
    if fork() == 0 {
        close(write_end);
        let mut line = [0u8; 64];
        // SAFETY: the kernel writes at most that much.
        let bytes = unsafe { syscall!(READ, read, line.as_mut_ptr(), line.len()) };
        sleep_ms(50);
        write(1, &line[..bytes.min(line.len())]);
        return 0;
    }
    ready();
    write(write_end, b"last line\n");
    0
}
