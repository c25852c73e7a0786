//! Which processes belong to the run, and how is one of them reached?
//!
//! The tree is everything below this process, which is a child subreaper: what
//! loses its parent comes to us. A walk starts from our own children and reads
//! the kernel's children lists downwards; where a kernel lacks them it scans
//! /proc for parents; without a /proc of our own PID namespace it finds our own
//! children by asking waitid(2) for each number, level by level as their parents
//! die.
//!
//! What rests on what:
//! - The lists may lack living entries while siblings die, so an empty walk
//!   proves nothing: only ECHILD does, and that is asked elsewhere.
//! - A child of ours is signalled by its number, which nobody else can get while
//!   it is unreaped. Anybody else is signalled through a pidfd, after a second
//!   look with the pidfd open: same start time, and a parent that is ours or in
//!   the tree, itself looked at again. A number that was reused in between never
//!   gets a signal, nor do the children of whoever reused it.
//! - With a group, the tree is its members too: one that joined another PID
//!   namespace is no descendant any more. Such a one is signalled when, with the
//!   pidfd open, the group still lists it.
//! - Below another corral only its monitor is to be signalled: its supervisor
//!   is known by name and by running the program that we run.
//!
//! May use: `sys`, `procfs`.

mod reach;

use core::ffi::CStr;

use super::cgroup::Group;
use super::procfs::{Proc, Stat};
use crate::sys::errno::{Errno, Result};
use crate::sys::memory::List;
use crate::sys::process::{self, Probe};

/// What the supervisor calls itself in /proc/PID/comm.
pub const SUPERVISOR_NAME: &CStr = c"crl-supervisor";

/// Numbers that are tried first without /proc: the kernel's default pid_max.
const FEW_PIDS: i32 = 32_768;
/// PID_MAX_LIMIT on 64-bit machines: no pid is above it (proc_sys_kernel(5)).
const ALL_PIDS: i32 = 4_194_304;

/// How far up one looks for the supervisor of another corral.
const DEEPEST: u32 = 256;

/// Every how many walks without a list all numbers are tried.
const RARELY: u32 = 32;

/// One process of the tree.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// What /proc last said. Without it only pid and parent are known, the state
    /// is `?` and the start time 0.
    pub stat: Stat,
    /// In which walk it was last seen.
    walk: u32,
    /// Which signals it was sent, bit N-1 for signal N.
    sent: u64,
    /// Which it could not be sent, since the calls that reach others than our own
    /// children are refused here.
    owed: u64,
    /// It is reaped, or not what it was.
    gone: bool,
    /// It is known from the group alone.
    outside: bool,
    /// It is stopped by [`Tree::hold_found`] and to go on by
    /// [`Tree::release_held`].
    held: bool,
}

/// What a walk found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Processes that are alive.
    pub alive: u64,
    /// Of these, those that no walk has seen before.
    pub fresh: u64,
    /// Of these, those that are not stopped.
    pub running: u64,
}

/// Whether a walk goes below the supervisors of other corrals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nested {
    /// Everything is found.
    Enter,
    /// Their runs are their own business, so far.
    Leave,
}

/// The tree below this process.
#[derive(Debug)]
pub struct Tree {
    root: i32,
    command: i32,
    proc: Option<Proc>,
    lists: bool,
    executable: Option<(u64, u64)>,
    members: List<Member>,
    /// Open addressing by pid; 0 is empty, else an index into `members` plus 1.
    index: List<u32>,
    /// Members that the last walk found alive, parents before children.
    order: List<u32>,
    scratch: List<i32>,
    walk: u32,
    /// Whether anybody is owed a signal.
    owes: bool,
    /// Whether this walk's list of our own children named anybody.
    listed: bool,
    /// Whether walks find the dead that nobody has reaped, too.
    with_dead: bool,
}

impl Tree {
    /// The tree of this process, whose command is `command`.
    #[must_use]
    pub fn new(command: i32) -> Self {
        let proc = Proc::open();
        let lists = proc.as_ref().is_some_and(Proc::has_children_lists);
        let root = process::getpid();
        let executable = proc.as_ref().and_then(|proc| proc.executable(root).ok());
        Self {
            root,
            command,
            lists,
            executable: executable.map(|status| status.identity),
            proc,
            members: List::new(),
            index: List::new(),
            order: List::new(),
            scratch: List::new(),
            walk: 0,
            owes: false,
            listed: false,
            with_dead: false,
        }
    }

    /// As [`Tree::walk`] into everything, and the dead that nobody has reaped are
    /// found as well: a tracer may hold one of our children, so that it never
    /// becomes ours to reap.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn walk_with_dead(&mut self, group: Option<&Group>) -> Result<Found> {
        self.with_dead = true;
        let found = self.walk(Nested::Enter, group);
        self.with_dead = false;
        found
    }

    /// The /proc that it is read from.
    #[must_use]
    pub const fn proc(&self) -> Option<&Proc> {
        self.proc.as_ref()
    }

    /// Walks the tree once, and looks who else is in the group.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn walk(&mut self, nested: Nested, group: Option<&Group>) -> Result<Found> {
        self.order.clear();
        self.walk = self.walk.wrapping_add(1);
        let mut found = Found::default();
        let root = self.root;
        self.listed = false;
        if self.proc.is_none() {
            if group.is_none() {
                self.probe_for_more(&mut found)?;
            }
        } else if self.lists {
            self.children_of(root, 1, &mut found)?;
            self.descend(0, nested, &mut found)?;
            if found.alive == 0 && !self.listed && process::has_children() {
                self.probe_for_more(&mut found)?;
            }
        } else {
            self.scan(nested, &mut found)?;
        }
        if let Some(group) = group {
            let next = self.order.len();
            self.look_in(group, nested, &mut found)?;
            self.descend(next, nested, &mut found)?;
            if self.proc.is_none() && process::has_children() {
                // Who has left the group, whose number is rarely a large one.
                self.probe(FEW_PIDS, &mut found)?;
                if found.alive == 0 || self.walk.is_multiple_of(RARELY) {
                    self.probe(ALL_PIDS, &mut found)?;
                }
            }
        }
        Ok(found)
    }

    /// Walks on below those found from `next` on.
    fn descend(&mut self, mut next: usize, nested: Nested, found: &mut Found) -> Result<()> {
        while let Some(member) = self.ordered(next) {
            next += 1;
            if nested == Nested::Enter || !self.is_nested_supervisor(&member.stat) {
                self.children_of(member.stat.pid, member.stat.threads, found)?;
            }
        }
        Ok(())
    }

    /// Members of the group that are not below us.
    fn look_in(&mut self, group: &Group, nested: Nested, found: &mut Found) -> Result<()> {
        let mut listed = core::mem::take(&mut self.scratch);
        listed.clear();
        let mut done = Ok(());
        group.members(&mut |pid| {
            if done.is_ok() {
                done = listed.push(pid);
            }
        });
        for &pid in listed.iter() {
            if done.is_err() {
                break;
            }
            let known = self.position(pid).and_then(|index| self.members.get(index));
            if known.is_some_and(|known| known.walk == self.walk && !known.gone) {
                continue;
            }
            if pid == 0 {
                // Our PID namespace has no number for it.
                found.alive += 1;
                continue;
            }
            let stat = match &self.proc {
                Some(proc) => proc.stat(pid),
                None if process::probe(pid) == Probe::Alive => Some(unknown(pid, self.root)),
                None => Some(unknown(pid, 0)),
            };
            let Some(stat) =
                stat.filter(|stat| nested == Nested::Enter || !self.is_below_nested(*stat))
            else {
                continue;
            };
            done = self.see(stat, found);
            if let Some(member) = self.position(pid).and_then(|index| self.members.get_mut(index)) {
                member.outside = stat.ppid != self.root;
            }
        }
        self.scratch = listed;
        done
    }

    /// Whether a process is, or is below, the supervisor of another corral.
    fn is_below_nested(&self, mut stat: Stat) -> bool {
        for _ in 0..DEEPEST {
            if self.is_nested_supervisor(&stat) {
                return true;
            }
            let parent = self.proc.as_ref().and_then(|proc| proc.stat(stat.ppid));
            match parent.filter(|parent| parent.pid > 1 && parent.pid != self.root) {
                Some(parent) => stat = parent,
                None => return false,
            }
        }
        false
    }

    fn ordered(&self, position: usize) -> Option<Member> {
        let index = *self.order.get(position)?;
        self.members.get(index as usize).copied()
    }

    fn children_of(&mut self, parent: i32, threads: u64, found: &mut Found) -> Result<()> {
        let mut scratch = core::mem::take(&mut self.scratch);
        scratch.clear();
        let mut full = Ok(());
        if let Some(proc) = &self.proc {
            // A process that has just ended has handed its children to us.
            let _ = proc.children(parent, threads, &mut |pid| {
                if full.is_ok() {
                    full = scratch.push(pid);
                }
            });
        }
        let mut done = full;
        // Between two looks the parent may have ended and its number be another's
        // by now, whose children these would be.
        if parent != self.root && !scratch.is_empty() && !self.is_still(parent) {
            scratch.clear();
        }
        for &pid in scratch.iter() {
            if done.is_err() {
                break;
            }
            let stat = self.proc.as_ref().and_then(|proc| proc.stat(pid));
            done = match stat {
                Some(stat) if stat.ppid == parent || stat.ppid == self.root => {
                    self.see(stat, found)
                }
                // It has moved on, or is not what it was: the next walk tells.
                Some(_) => Ok(()),
                // Hidden from us, but in our own list: a child all the same.
                None if parent == self.root && process::probe(pid) == Probe::Alive => {
                    self.see(unknown(pid, self.root), found)
                }
                None => Ok(()),
            };
        }
        self.listed |= parent == self.root && !scratch.is_empty();
        self.scratch = scratch;
        done
    }

    /// Whether a member of the tree is still the process that it was.
    fn is_still(&self, pid: i32) -> bool {
        let known = self.position(pid).and_then(|index| self.members.get(index));
        let now = || self.proc.as_ref().and_then(|proc| proc.stat(pid));
        known.is_some_and(|known| {
            !known.gone && now().is_some_and(|now| now.start == known.stat.start)
        })
    }

    /// Children that no list names: hidden ones, or without /proc all. Every so many
    /// walks among all numbers there are, else among the usual ones.
    fn probe_for_more(&mut self, found: &mut Found) -> Result<()> {
        let before = found.alive;
        self.probe(FEW_PIDS, found)?;
        let thorough = self.walk.is_multiple_of(RARELY);
        if thorough || (found.alive == before && process::has_children()) {
            self.probe(ALL_PIDS, found)?;
        }
        Ok(())
    }

    /// Without /proc: our own children, by their numbers.
    fn probe(&mut self, most: i32, found: &mut Found) -> Result<()> {
        for pid in 1..=most {
            if process::probe(pid) == Probe::Alive {
                self.see(unknown(pid, self.root), found)?;
            }
        }
        Ok(())
    }

    /// Without the children lists: everybody whose parent is in the tree, until
    /// nobody is added.
    fn scan(&mut self, nested: Nested, found: &mut Found) -> Result<()> {
        let mut all = List::<Stat>::new();
        let mut full = Ok(());
        if let Some(proc) = &self.proc {
            proc.processes(&mut |pid| {
                if let Some(stat) = proc.stat(pid).filter(|_| full.is_ok()) {
                    full = all.push(stat);
                }
            })?;
        }
        full?;
        loop {
            let before = found.alive;
            for stat in all.iter() {
                let parent = self.position(stat.ppid).and_then(|index| self.members.get(index));
                let below = parent.is_some_and(|parent| {
                    parent.walk == self.walk
                        && (nested == Nested::Enter || !self.is_nested_supervisor(&parent.stat))
                });
                if stat.ppid == self.root || below {
                    self.see(*stat, found)?;
                }
            }
            if found.alive == before {
                break;
            }
        }
        if found.alive == 0 && process::has_children() {
            self.probe_for_more(found)?;
        }
        Ok(())
    }

    /// Notes that a process belongs to the tree.
    fn see(&mut self, stat: Stat, found: &mut Found) -> Result<()> {
        if !stat.is_alive() && !self.with_dead {
            return Ok(());
        }
        let walk = self.walk;
        let fresh =
            Member { stat, walk, sent: 0, owed: 0, gone: false, outside: false, held: false };
        let index = if let Some(index) = self.position(stat.pid) {
            let Some(member) = self.members.get_mut(index) else {
                return Ok(());
            };
            if member.gone || member.stat.start != stat.start {
                *member = fresh;
                found.fresh += 1;
            } else if member.walk == walk {
                return Ok(());
            } else {
                member.stat = stat;
                member.walk = walk;
                member.outside = false;
            }
            index
        } else {
            found.fresh += 1;
            self.insert(fresh)?
        };
        found.alive += 1;
        found.running += u64::from(!stat.is_stopped());
        self.order.push(u32::try_from(index).map_err(|_| Errno::ENOMEM)?)
    }

    fn slot_of(&self, pid: i32) -> usize {
        // Fibonacci hashing: pids are dense, neighbours land far apart.
        let spread = u64::from(pid.unsigned_abs()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        usize::try_from(spread >> 32).unwrap_or(0) & self.index.len().wrapping_sub(1)
    }

    /// The index of the member with this pid.
    fn position(&self, pid: i32) -> Option<usize> {
        if self.index.is_empty() {
            return None;
        }
        let mut slot = self.slot_of(pid);
        loop {
            let index = (*self.index.get(slot)?).checked_sub(1)? as usize;
            if self.members.get(index).is_some_and(|member| member.stat.pid == pid) {
                return Some(index);
            }
            slot = (slot + 1) & (self.index.len() - 1);
        }
    }

    fn insert(&mut self, member: Member) -> Result<usize> {
        self.members.push(member)?;
        if self.members.len() * 2 > self.index.len() {
            self.index = List::zeros((self.index.len() * 2).max(256))?;
            for index in 0..self.members.len() {
                self.enter(index);
            }
        } else {
            self.enter(self.members.len() - 1);
        }
        Ok(self.members.len() - 1)
    }

    /// Puts a member into the first free slot; there is one, since at most half
    /// of them are taken.
    fn enter(&mut self, index: usize) {
        let Some(pid) = self.members.get(index).map(|member| member.stat.pid) else {
            return;
        };
        let mut slot = self.slot_of(pid);
        while self.index.get(slot).is_some_and(|&taken| taken != 0) {
            slot = (slot + 1) & (self.index.len() - 1);
        }
        if let Some(free) = self.index.get_mut(slot) {
            *free = u32::try_from(index + 1).unwrap_or(0);
        }
    }

    fn is_nested_supervisor(&self, stat: &Stat) -> bool {
        stat.name() == SUPERVISOR_NAME.to_bytes()
            && stat.pid != self.command
            && self
                .proc
                .as_ref()
                .and_then(|proc| proc.executable(stat.pid).ok())
                .is_some_and(|status| Some(status.identity) == self.executable)
    }

    /// The members that the last walk found alive, parents before children.
    pub fn found(&self) -> impl Iterator<Item = &Member> {
        self.order
            .iter()
            .filter_map(|&index| self.members.get(index as usize))
            .filter(|member| !member.gone)
    }

    /// A child of ours was reaped: from now on its number may be anybody's.
    pub fn reaped(&mut self, pid: i32) {
        let position = self.position(pid);
        if let Some(member) = position.and_then(|index| self.members.get_mut(index)) {
            member.gone = true;
        }
    }
}

/// A child of which nothing but its number is known.
const fn unknown(pid: i32, root: i32) -> Stat {
    Stat {
        pid,
        name: [0; 16],
        state: b'?',
        ppid: root,
        pgid: 0,
        sid: 0,
        cpu_ticks: 0,
        waited_ticks: 0,
        threads: 1,
        start: 0,
    }
}

#[cfg(test)]
mod tests;
