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
            let answer = self.reach(&member, signal, group);
            reached += u64::from(answer.is_ok());
            if let Some(member) = self.members.get_mut(index) {
                member.sent |= bit(signal);
                if answer == Err(Errno::ENOSYS) {
                    member.owed |= bit(signal);
                    self.owes = true;
                }
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
        let proc = self.proc.as_ref();
        let handle = match process::pidfd_open(pid) {
            Err(errno) if errno.is_refused() => proc.ok_or(Errno::ESRCH)?.directory(pid)?,
            opened => opened?,
        };
        let again = match proc {
            Some(proc) => proc.stat(pid).ok_or(Errno::ESRCH)?,
            None => member.stat,
        };
        let ours = if member.outside {
            group.is_some_and(|group| group.lists(pid))
        } else {
            again.ppid == self.root || self.is_still(again.ppid)
        };
        if again.start != member.stat.start || !ours {
            return Err(Errno::ESRCH);
        }
        match (signal::pidfd_send_signal(handle.fd(), signal), proc) {
            // Refused by a filter, not by who it is: the null signal is as well.
            (Err(Errno::EPERM), Some(proc))
                if signal::pidfd_send_signal(self_handle(proc)?.fd(), 0).is_err() =>
            {
                Err(Errno::ENOSYS)
            }
            (answer, _) => answer,
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
