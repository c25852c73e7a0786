//! What was this process given, before it made anything of its own?
//!
//! Which of descriptors 0, 1, 2 are open, and who may be waiting for the others
//! to close. A closed one of the three is plugged with a place on the root
//! directory (O_PATH), for else the next file that is opened would get its
//! number: reading and writing it is EBADF, as if it were closed, and it is
//! close-on-exec, so the command finds it closed as well.
//!
//! May use: `sys`.

use crate::sys::errno::{Errno, Result};
use crate::sys::event::{self, Wait};
use crate::sys::fd::{self, Fd, STDERR, STDIN, STDOUT};
use crate::sys::file::{self, Open};

/// Which of 0, 1 and 2 are open; the others are plugged from now on.
///
/// # Errors
/// ENFILE; ENOENT where not even `/` can be opened.
pub fn standard_descriptors() -> Result<[bool; 3]> {
    let mut waits = [Wait::gone(STDIN), Wait::gone(STDOUT), Wait::gone(STDERR)];
    event::ppoll(&mut waits, Some(0))?;
    let open = waits.map(|wait| !wait.is_closed());
    for (number, open) in (0..).zip(open) {
        if !open {
            plug(number)?;
        }
    }
    Ok(open)
}

fn plug(number: i32) -> Result<()> {
    let place = file::open(file::CWD, c"/", Open::Place)?;
    // The lowest free number is the one, since those below it are open.
    if place.into_raw() == number { Ok(()) } else { Err(Errno::EBADF) }
}

/// Closes what was inherited above 2, for others may be waiting for the end of a
/// pipe or the end of a lock. It is told from what corral has made by one bit:
/// what was inherited came through an exec, so it is not close-on-exec, and all
/// of ours is.
pub fn close_inherited() {
    let highest = fd::highest();
    for number in 3..=highest {
        if !fd::was_made(number) && fd::survives_exec(Fd::inherited(number)) {
            fd::close_number(number);
        }
    }
    let first = highest.saturating_add(1).cast_unsigned();
    if fd::close_range(first, u32::MAX, false).is_err() {
        // Refused by a seccomp filter: one by one, as far as descriptors
        // usually go. What is missed stays open and does no harm but that.
        for number in highest..highest.saturating_add(1024) {
            fd::close_number(number.saturating_add(1));
        }
    }
}
