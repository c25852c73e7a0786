//! Does: closes stdin, stdout and stderr, and lives on.
//! corral must: not take the end of the output for the end of the command.
//! Exists: daemons do so; whoever waits for the pipes alone forgets the process.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(_: Args) -> u8 {
    ready();
    for fd in 0..3 {
        close(fd);
    }
    sleep_forever()
}
