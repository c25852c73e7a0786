//! Does: exits 0 while a child in the background keeps stdout and stderr open.
//! corral must: return at once, with the child ended and the pipes at their end.
//! Exists: who waits for end of file instead of the command's end waits as long as
//! the last holder of the pipe lives.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(_: Args) -> u8 {
    if fork() == 0 {
        sleep_forever();
    }
    ready();
    0
}
