//! What does a person at a terminal see and do?
//!
//! A pseudo-terminal whose master is in the test's hand: what is typed is
//! written to it, what is shown is read from it. A run on it leads a session
//! of its own with it as the controlling terminal, as a login shell does.
//!
//! May use: `common`, rustix.

#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Termios, tcgetattr};

use crate::common::{Run, Running, Stdin};

/// A terminal. Dropping it hangs up.
pub struct Terminal {
    master: OwnedFd,
    /// Held so that the modes outlive the run.
    slave: OwnedFd,
    shown: RefCell<Vec<u8>>,
}

impl Terminal {
    pub fn new() -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let slave = ioctl_tiocgptpeer(&master, flags).unwrap();
        rustix::io::ioctl_fionbio(&master, true).unwrap();
        Self { master, slave, shown: RefCell::new(Vec::new()) }
    }

    /// Puts a run on it.
    pub fn attach(&self, run: Run) -> Run {
        let slave = || self.slave.try_clone().unwrap();
        let controlling = slave();
        run.stdin(Stdin::From(slave())).stdout(slave()).stderr(slave()).before(
            move || -> io::Result<()> {
                rustix::process::setsid()?;
                rustix::process::ioctl_tiocsctty(&controlling)?;
                Ok(())
            },
        )
    }

    /// Types these bytes.
    pub fn type_(&self, bytes: &[u8]) {
        assert_eq!(rustix::io::write(&self.master, bytes), Ok(bytes.len()));
    }

    /// All that was shown so far, with plain newlines.
    pub fn shown(&self) -> String {
        let mut buffer = [0; 4096];
        // EIO is a terminal that nobody has open.
        while let Ok(n @ 1..) = rustix::io::read(&self.master, &mut buffer) {
            self.shown.borrow_mut().extend_from_slice(&buffer[..n]);
        }
        String::from_utf8_lossy(&self.shown.borrow()).replace("\r\n", "\n")
    }

    /// Waits until this was shown.
    pub fn wait(&self, run: &mut Running, text: &str) {
        run.wait_until(&format!("{text:?} on the terminal"), |_| self.shown().contains(text));
    }

    pub fn modes(&self) -> Termios {
        tcgetattr(&self.slave).unwrap()
    }

    pub fn slave(&self) -> &OwnedFd {
        &self.slave
    }

    pub fn master(&self) -> &OwnedFd {
        &self.master
    }
}

/// What of the modes a program may change, in a form that can be compared.
pub fn settings(modes: &Termios) -> String {
    format!(
        "{:?} {:?} {:?} {:?} {:?}",
        modes.input_modes,
        modes.output_modes,
        modes.control_modes,
        modes.local_modes,
        modes.special_codes
    )
}
