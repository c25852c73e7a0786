//! How does a signal reach a process of the tree, and nobody else?
//!
//! A child of ours by its number, anybody else through a pidfd and a second look,
//! as the head of [`super`] has it; to nobody twice.
//!
//! May use: `sys`, `procfs`, `cgroup`.

use super::{FEW_PIDS, Member, Nested, Tree};
use crate::os::cgroup::Group;
use crate::os::procfs::{Proc, Stat};
use crate::sys::errno::{Errno, Result};
use crate::sys::fd::OwnedFd;
use crate::sys::process::{self, Probe};
use crate::sys::signal;

/// How many members of the group are reached by one look at it: a look reads all
/// the groups below, as many as the command has made.
const AT_ONCE: usize = 32;

/// Members of the group, as indexes, with what reaches them.
type Handles = [Option<(usize, OwnedFd)>; AT_ONCE];

impl Tree {
    /// Sends `signal` to all that the last walk found, supervisors of other
    /// corrals excepted where `nested` says so; to nobody twice. Returns how
    /// many were reached.
    pub fn signal_found(&mut self, signal: i32, nested: Nested, group: Option<&Group>) -> u64 {
        self.send_where(signal, group, |tree, stat| {
            nested == Nested::Enter || !tree.is_nested_supervisor(stat)
        })
    }

    /// As [`Tree::signal_found`], to those alone that are not stopped.
    pub fn stop_found(&mut self, group: Option<&Group>) -> u64 {
        self.send_where(process::SIGSTOP, group, |_, stat| !stat.is_stopped())
    }

    /// Forgets that a signal was sent, so that it can be sent again: SIGSTOP
    /// after SIGCONT, SIGKILL to what took none.
    pub fn forget_sent(&mut self, signal: i32) {
        for member in self.members.iter_mut() {
            member.sent &= !bit(signal);
        }
    }

    /// Marks those of the last walk that were sent SIGSTOP as held.
    pub fn hold_found(&mut self) {
        for position in 0..self.order.len() {
            let index = self.order.get(position).map(|&index| index as usize);
            if let Some(member) = index.and_then(|index| self.members.get_mut(index)) {
                member.held |= member.sent & bit(process::SIGSTOP) != 0;
            }
        }
    }

    /// Lets those go on that are held, and nobody else.
    pub fn release_held(&mut self, group: Option<&Group>) {
        for index in 0..self.members.len() {
            let Some(member) = self.members.get_mut(index).filter(|member| member.held) else {
                continue;
            };
            member.held = false;
            let member = *member;
            let _ = self.reach(&member, process::SIGCONT, group);
        }
    }

    /// Sends `signal` to our own children alone, without needing memory. Returns
    /// how many it reached.
    pub fn signal_own_children(&self, signal: i32) -> u64 {
        let mut reached = 0;
        let mut send = |pid| reached += u64::from(signal::kill(pid, signal).is_ok());
        match &self.proc {
            Some(proc) if self.lists => {
                // An unreaped child's number is its own, and only we reap.
                let _ = proc.children(self.root, 1, &mut send);
            }
            Some(_) | None => {
                (1..=FEW_PIDS).filter(|&pid| process::probe(pid) == Probe::Alive).for_each(send);
            }
        }
        reached
    }

    fn send_where(
        &mut self,
        signal: i32,
        group: Option<&Group>,
        wanted: impl Fn(&Self, &Stat) -> bool,
    ) -> u64 {
        let mut reached = 0;
        let (mut handles, mut count): (Handles, _) = ([const { None }; AT_ONCE], 0);
        for position in 0..self.order.len() {
            let Some(index) = self.order.get(position).map(|&index| index as usize) else {
                break;
            };
            let Some(member) = self.members.get(index).copied() else {
                break;
            };
            if member.gone || member.sent & bit(signal) != 0 || !wanted(self, &member.stat) {
                continue;
            }
            if !member.outside || member.stat.ppid == self.root {
                let answer = self.reach(&member, signal, group);
                reached += self.note(index, signal, answer);
                continue;
            }
            let mut handle = self.handle(&member);
            // Those that are held may be why there is no descriptor more.
            let full = matches!(handle, Err(Errno::EMFILE | Errno::ENFILE));
            if count == AT_ONCE || full {
                reached += self.send_to_listed(&mut handles, signal, group);
                count = 0;
            }
            if full {
                handle = self.handle(&member);
            }
            match (handle, handles.get_mut(count)) {
                (Ok(handle), Some(slot)) => {
                    *slot = Some((index, handle));
                    count += 1;
                }
                (Err(errno), _) => _ = self.note(index, signal, Err(errno)),
                (Ok(_), None) => {}
            }
        }
        reached + self.send_to_listed(&mut handles, signal, group)
    }

    /// Notes what became of a signal. How many it reached.
    fn note(&mut self, index: usize, signal: i32, answer: Result<()>) -> u64 {
        if let Some(member) = self.members.get_mut(index) {
            member.sent |= bit(signal);
            if answer == Err(Errno::ENOSYS) {
                member.owed |= bit(signal);
                self.owes = true;
            }
        }
        answer.is_ok().into()
    }

    /// Sends `signal` to those that the group lists now, their handles open.
    fn send_to_listed(&mut self, handles: &mut Handles, signal: i32, group: Option<&Group>) -> u64 {
        if handles.iter().all(Option::is_none) {
            return 0;
        }
        let mut listed = [false; AT_ONCE];
        if let Some(group) = group {
            group.members(&mut |pid| {
                for (handle, listed) in handles.iter().zip(&mut listed) {
                    let member = handle.as_ref().and_then(|(index, _)| self.members.get(*index));
                    *listed |= member.is_some_and(|member| member.stat.pid == pid);
                }
            });
        }
        let mut reached = 0;
        for (handle, listed) in handles.iter_mut().zip(listed) {
            if let Some((index, handle)) = handle.take() {
                let answer = if listed { self.send(&handle, signal) } else { Err(Errno::ESRCH) };
                reached += self.note(index, signal, answer);
            }
        }
        reached
    }

    /// Sends one signal to one member, if it is still what it was.
    fn reach(&self, member: &Member, signal: i32, group: Option<&Group>) -> Result<()> {
        let pid = member.stat.pid;
        if member.gone {
            return Err(Errno::ESRCH);
        }
        if member.stat.ppid == self.root {
            return signal::kill(pid, signal);
        }
        let handle = self.handle(member)?;
        let ours = if member.outside {
            group.is_some_and(|group| group.lists(pid))
        } else {
            // As it is now, if there is a /proc to say so.
            let again = self.proc.as_ref().and_then(|proc| proc.stat(pid));
            let parent = again.map_or(member.stat.ppid, |again| again.ppid);
            parent == self.root || self.is_still(parent)
        };
        if ours { self.send(&handle, signal) } else { Err(Errno::ESRCH) }
    }

    /// What reaches a process that is none of our children, if it is still what
    /// it was.
    fn handle(&self, member: &Member) -> Result<OwnedFd> {
        let pid = member.stat.pid;
        let proc = self.proc.as_ref();
        let handle = match process::pidfd_open(pid) {
            Err(errno) if errno.is_refused() => proc.ok_or(Errno::ESRCH)?.directory(pid)?,
            opened => opened?,
        };
        match proc.map(|proc| proc.stat(pid)) {
            Some(again) if again.is_none_or(|again| again.start != member.stat.start) => {
                Err(Errno::ESRCH)
            }
            Some(_) | None => Ok(handle),
        }
    }

    fn send(&self, handle: &OwnedFd, signal: i32) -> Result<()> {
        match (signal::pidfd_send_signal(handle.fd(), signal), self.proc.as_ref()) {
            // Refused by a filter, not by who it is: the null signal is as well.
            (Err(Errno::EPERM), Some(proc))
                if signal::pidfd_send_signal(self_handle(proc)?.fd(), 0).is_err() =>
            {
                Err(Errno::ENOSYS)
            }
            (answer, _) => answer,
        }
    }

    /// Kills the process group of a child that was killed, and is not yet reaped: until
    /// then no other group has its number. For those that nothing else reaches: a storm
    /// of them fills each place that is freed.
    pub fn kill_owed_group(&self) {
        if !self.owes {
            return;
        }
        let pid = process::ended_child();
        let killed = self.position(pid).and_then(|index| self.members.get(index));
        if killed.is_some_and(|member| member.sent & bit(process::SIGKILL) != 0)
            && let Some(stat) = self.proc.as_ref().and_then(|proc| proc.stat(pid))
            // It may have been killed before it had a session of its own.
            && stat.pgid != self.root
        {
            let _ = signal::kill_group(stat.pgid, process::SIGKILL);
        }
    }

    /// Sends what is owed to those that have become our own children since.
    pub fn pay_owed(&mut self) {
        if !self.owes {
            return;
        }
        for index in 0..self.members.len() {
            let Some(member) = self.members.get(index).filter(|member| member.owed != 0) else {
                continue;
            };
            let stat = self.proc.as_ref().and_then(|proc| proc.stat(member.stat.pid));
            let ours = stat.is_some_and(|stat| {
                stat.start == member.stat.start && stat.ppid == self.root && !member.gone
            });
            if ours && let Some(member) = self.members.get_mut(index) {
                let (pid, owed) = (member.stat.pid, core::mem::take(&mut member.owed));
                for signal in (1..=64).filter(|&signal| owed & bit(signal) != 0) {
                    let _ = signal::kill(pid, signal);
                }
            }
        }
    }
}

/// This process, as others are reached.
fn self_handle(proc: &Proc) -> Result<OwnedFd> {
    proc.directory(process::getpid())
}

pub(super) const fn bit(signal: i32) -> u64 {
    1 << ((signal - 1) & 63)
}
