//! Does: becomes root for good, if its file is setuid root, and sleeps.
//! corral must: as an unprivileged user, which may not signal it: 120, with the
//! survivor named and its user; as root, end it.
//! Exists: sudo and su in an agent's hands.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(_: Args) -> u8 {
    // SAFETY: numbers alone.
    if unsafe { syscall!(SETRESUID, 0, 0, 0) } != 0 {
        return CANNOT;
    }
    ready();
    sleep_forever()
}
