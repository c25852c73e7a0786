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
use crate::sys::fd::{self, Fd, OwnedFd, STDERR, STDIN, STDOUT};
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
    if place.fd().number() == number {
        Ok(core::mem::forget(place))
    } else {
        Err(Errno::EBADF)
    }
}

/// Closes every descriptor but those in `keep`, which is sorted for it. Others
/// may be waiting for the end of a pipe that was inherited.
pub fn close_all_but(keep: &mut [i32]) {
    keep.sort_unstable();
    let mut next = 0;
    for &number in keep.iter() {
        if number > next {
            close_from_to(next, number - 1);
        }
        next = next.max(number.saturating_add(1));
    }
    close_from_to(next, i32::MAX);
}

fn close_from_to(first: i32, last: i32) {
    if fd::close_range(first.cast_unsigned(), last.cast_unsigned(), false).is_err() {
        // Refused by a seccomp filter: one by one, as far as descriptors
        // usually go. What is missed stays open and does no harm but that.
        for number in first..=last.min(first.saturating_add(4096)) {
            fd::close_number(number);
        }
    }
}

/// Whether two of the standard descriptors are one open file, as `2>&1` makes
/// them: asked of the kernel where it can say, else by what they are.
#[must_use]
pub fn same_open_file(pid: i32, a: Fd<'_>, b: Fd<'_>) -> bool {
    fd::same_by_query(a, b)
        .or_else(|| fd::same_by_kcmp(pid, a, b))
        .unwrap_or_else(|| {
            let (Ok(first), Ok(second)) = (file::status(a), file::status(b)) else {
                return false;
            };
            let regular = first.kind == file::Kind::Regular;
            first.identity == second.identity
                && fd::status_flags(a) == fd::status_flags(b)
                && (!regular || file::position(a) == file::position(b))
        })
}

/// Keeps a descriptor for the whole life of this process.
pub fn keep(fd: OwnedFd) -> Fd<'static> {
    Fd::inherited(fd.into_raw())
}
