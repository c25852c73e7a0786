//! How are the controllers turned on that limits need?
//!
//! A controller for groups below can only be turned on where no process is in the
//! way (cgroups(7), "no internal processes"; the root is exempt). Where only
//! corral itself is, it moves to a leaf first, and back afterwards. `+pids` alone
//! succeeds all the same and makes groups that nobody can enter, so one looks
//! first.
//!
//! Where nobody was in the way they stay on: turning them off could lift the
//! limits of somebody else's group.
//!
//! May use: `sys`.

use super::{Name, Obstacle, PREFIX, Wanted, make_child, processes, read, write};
use crate::os::procfs::Path;
use crate::sys::errno::{Errno, Result};
use crate::sys::fd::OwnedFd;
use crate::sys::file::{self, Open};
use crate::sys::process;

const CONTROLLERS: [&[u8]; 2] = [b"memory", b"pids"];

/// Where corral itself went, out of the way of controllers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    name: Name,
    controllers: [bool; 2],
}

impl Leaf {
    /// Moves this process into a group of its own below `parent`.
    fn enter(parent: &OwnedFd, id: &[u8]) -> core::result::Result<Self, Obstacle> {
        let name = make_child(parent, id, b".leaf")?;
        let leaf = Self { name, controllers: [false; 2] };
        let entered = file::open(parent.fd(), name.as_c_str(), Open::Directory)
            .and_then(|dir| write(&dir, c"cgroup.procs", b"0"));
        if let Err(errno) = entered {
            leaf.leave(parent);
            return Err(errno.into());
        }
        Ok(leaf)
    }

    /// Moves back and takes the leaf away, unless another of our processes is in
    /// it, or another corral has a group beside it and needs the controllers.
    pub(super) fn leave(&self, parent: &OwnedFd) {
        let Ok(dir) = file::open(parent.fd(), self.name.as_c_str(), Open::Directory) else {
            return;
        };
        if groups_in(parent) > 1 || others_in(&dir) {
            return;
        }
        for (controller, on) in CONTROLLERS.iter().zip(self.controllers) {
            if on {
                let _ = switch(parent, b'-', controller);
            }
        }
        let _ = write(parent, c"cgroup.procs", b"0");
        let _ = file::remove_directory(parent.fd(), self.name.as_c_str());
    }
}

/// Turns on the controllers that the limits need for groups below `parent`.
pub(super) fn turn_on(
    parent: &OwnedFd,
    wanted: &Wanted<'_>,
) -> core::result::Result<Option<Leaf>, Obstacle> {
    let wanted_here = [wanted.memory.is_some(), wanted.pids.is_some()];
    if wanted_here == [false; 2] {
        return Ok(None);
    }
    let mut buffer = [0; 512];
    let available = has(read(parent, c"cgroup.controllers", &mut buffer)?);
    for ((wanted, available), obstacle) in
        wanted_here.iter().zip(available).zip([Obstacle::NoMemory, Obstacle::NoPids])
    {
        if *wanted && !available {
            return Err(obstacle);
        }
    }
    let on = has(read(parent, c"cgroup.subtree_control", &mut buffer)?);
    let mut missing = wanted_here;
    for (missing, on) in missing.iter_mut().zip(on) {
        *missing &= !on;
    }
    if missing == [false; 2] {
        return Ok(None);
    }
    // The root alone has no type, and no rule about processes.
    let root = file::may_write(parent.fd(), c"cgroup.type") == Err(Errno::ENOENT);
    let mut leaf = None;
    if !root {
        let mut any = false;
        processes(parent, &mut |_| any = true)?;
        if any && others_in(parent) {
            return Err(Obstacle::Busy);
        }
        if any {
            leaf = Some(Leaf::enter(parent, wanted.id)?);
        }
    }
    for ((controller, missing), index) in CONTROLLERS.iter().zip(missing).zip(0..) {
        if !missing {
            continue;
        }
        if let Err(errno) = switch(parent, b'+', controller) {
            if let Some(leaf) = &leaf {
                leaf.leave(parent);
            }
            return Err(if errno == Errno::EBUSY { Obstacle::Busy } else { errno.into() });
        }
        if let Some(on) = leaf.as_mut().and_then(|leaf| leaf.controllers.get_mut(index)) {
            *on = true;
        }
    }
    Ok(leaf)
}

fn switch(parent: &OwnedFd, sign: u8, controller: &[u8]) -> Result<()> {
    let word = Path::<64>::new().text(&[sign]).text(controller);
    write(parent, c"cgroup.subtree_control", word.as_c_str().to_bytes())
}

/// Which of our controllers a list of them names.
fn has(text: &[u8]) -> [bool; 2] {
    CONTROLLERS.map(|name| text.split(u8::is_ascii_whitespace).any(|word| word == name))
}

/// Whether processes that are not this one are in a group.
fn others_in(dir: &OwnedFd) -> bool {
    let (us, mut others) = (process::getpid(), false);
    let read = processes(dir, &mut |pid| others |= pid != us);
    others || read.is_err()
}

/// How many groups of corrals, leaves too, are below a group.
fn groups_in(parent: &OwnedFd) -> usize {
    let Ok(dir) = file::open(parent.fd(), c".", Open::Directory) else {
        return 0;
    };
    let (mut buffer, mut found) = ([0; 2048], 0);
    while let Some(entries) =
        file::read_entries(&dir, &mut buffer).ok().and_then(|count| buffer.get(..count))
        && !entries.is_empty()
    {
        found += file::directories(entries).filter(|name| name.starts_with(PREFIX)).count();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_by_their_whole_names() {
        assert_eq!(has(b"cpuset cpu memory pids\n"), [true, true]);
        assert_eq!(has(b"memory2 pids"), [false, true]);
        assert_eq!(has(b"\n"), [false, false]);
    }
}
