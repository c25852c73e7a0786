//! How is a whole tree signalled, stopped, ended and described?
//!
//! The hands of the supervisor, and of the monitor once the supervisor is lost:
//! everything that is done to the processes below this one. What is done when is
//! the machine's business.
//!
//! A first pass of SIGKILL goes over the tree as it stands, which ends all that
//! is not growing. From the second on the tree is stopped before it is killed:
//! killing alone frees process slots that a fork storm fills again, stopping
//! does not. The stopping is bounded, for a vfork parent or a frozen process
//! never reads as stopped.
//!
//! The init of a PID namespace that was made for the run alone needs no such
//! care: one call reaches everybody.
//!
//! In enforced mode there is a group as well. SIGKILL then begins with the group,
//! at once for all that is in it; who is left by the second pass is found as
//! without one, members that are no descendants included. Empty means both: no
//! child, and the group removed.
//!
//! May use: `sys`, `os`, `report` types.

use crate::os::cgroup::{Counts, Group, Removal};
use crate::os::procfs::Stat;
use crate::os::tree::{Found, Nested, Tree};
use crate::report::record::{Detached, Listing, Process, Text, Usage};
use crate::sys::errno::{Errno, Result};
use crate::sys::event;
use crate::sys::memory::List;
use crate::sys::process::{self, Ended, Waited};
use crate::sys::time::{self, Clock};

/// Longest time that one pass spends on stopping the tree, in nanoseconds.
const STOPPING: u64 = 400_000_000;
/// Longest time that is spent on finding whom to signal first.
const WALKING: u64 = 100_000_000;
/// In a tree larger than this nobody's command line is read.
const CALM: u64 = 200;
/// How often one looks for whoever is there and never where it was seen.
const LOOKS: u32 = 64;
/// How often those that do not read as stopped are looked at again, 1 ms apart.
const PATIENCE: u32 = 15;
/// Most walks before the first signals; a tree that still grows then is signalled
/// as it stands.
const MOST_WALKS: u32 = 8;
/// Most children reaped before the loop looks at anything else.
const REAP_AT_ONCE: u32 = 4096;

/// What a round of reaping found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaped {
    /// No child is left at all, and no group.
    Empty,
    /// No child is left, but something lives in the group.
    Outside,
    /// The ones that are left have not ended.
    Some,
    /// There may be more to reap at once.
    More,
}

/// A list of processes as it was.
#[derive(Debug, Default)]
pub struct Seen {
    /// The first of them.
    pub first: List<Process>,
    /// All of them.
    pub total: u64,
}

impl Seen {
    /// As the record takes it.
    #[must_use]
    pub fn listing(&self) -> Listing<'_> {
        Listing { first: &self.first, total: self.total }
    }
}

/// The processes below this one.
#[derive(Debug)]
pub struct Sweep {
    tree: Option<Tree>,
    command: i32,
    /// How the command ended, once it is reaped.
    pub command_ended: Option<Ended>,
    /// How many processes were reaped.
    pub reaped: u64,
    /// Of these, those that died of SIGKILL.
    killed: u64,
    ticks_per_second: u64,
    passes: u32,
    hurried: bool,
    group: Option<Group>,
    /// The group has been removed.
    removed: bool,
    /// Why it could not be, though nothing lived in it.
    pub stuck: Option<Errno>,
    /// What the group counted, as of when it was last looked at.
    pub counts: Counts,
    /// What is to be known of it.
    pub interest: Interest,
    /// The OOM killer has ended somebody in the group.
    pub out_of_memory: bool,
    /// This process is the init of a PID namespace that was made for the run.
    pub is_init: bool,
}

/// What a sweep is to find out about its group.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interest {
    /// What it counts.
    pub counts: bool,
    /// Whether it ran out of memory.
    pub memory: bool,
}

impl Sweep {
    /// Of this process, whose command is `command` (0: unknown).
    #[must_use]
    pub fn new(command: i32, ticks_per_second: u64, group: Option<Group>) -> Self {
        Self {
            tree: None,
            command,
            command_ended: None,
            reaped: 0,
            killed: 0,
            ticks_per_second,
            passes: 0,
            hurried: false,
            group,
            removed: false,
            stuck: None,
            counts: Counts::default(),
            interest: Interest::default(),
            out_of_memory: false,
            is_init: false,
        }
    }

    fn tree(&mut self) -> (&mut Tree, Option<&Group>) {
        let command = self.command;
        let group = self.group.as_ref().filter(|_| !self.removed);
        (self.tree.get_or_insert_with(|| Tree::new(command)), group)
    }

    /// The group, as long as it is there.
    #[must_use]
    pub fn group(&self) -> Option<&Group> {
        self.group.as_ref().filter(|_| !self.removed)
    }

    /// Whether there was a group.
    #[must_use]
    pub const fn is_enforced(&self) -> bool {
        self.group.is_some()
    }

    /// Gives corral's own group back as it was.
    pub fn retire(&self) {
        if let Some(group) = &self.group {
            group.retire();
        }
    }

    /// Reaps what has ended, and removes the group when nothing is left.
    pub fn reap(&mut self) -> Reaped {
        let killed = self.killed;
        let reaped = self.reap_children();
        if self.interest.memory && (self.killed > killed || reaped == Reaped::Empty) {
            self.out_of_memory |= self.group().is_some_and(Group::is_out_of_memory);
        }
        if reaped == Reaped::Empty && !self.remove_group() { Reaped::Outside } else { reaped }
    }

    /// Whether there is no group any more.
    fn remove_group(&mut self) -> bool {
        if self.group().is_none() {
            return true;
        }
        self.count();
        let removal = self.group().map_or(Removal::Gone, Group::remove);
        self.removed = removal == Removal::Gone;
        self.stuck = if let Removal::Stuck(errno) = removal { Some(errno) } else { None };
        self.removed
    }

    /// Notes what the group has counted so far.
    pub fn count(&mut self) {
        if self.interest.counts
            && let Some(group) = self.group()
        {
            self.counts = group.counts();
        }
    }

    /// What the run has used: as the group counted, unless what left it has used
    /// more.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let reaped = process::usage_of_children();
        let (user, system) = (self.counts.cpu_user_us, self.counts.cpu_system_us);
        let grouped = user.unwrap_or(0).saturating_add(system.unwrap_or(0));
        let more = grouped > cpu_us(&reaped);
        Usage {
            cpu_user_us: user.filter(|_| more).unwrap_or(reaped.user_us),
            cpu_system_us: system.filter(|_| more).unwrap_or(reaped.system_us),
            max_rss_bytes: reaped.max_rss_bytes,
            processes_reaped: self.reaped,
            memory_peak_bytes: self.counts.memory_peak,
            pids_peak: self.counts.pids_peak,
            oom_kills: self.counts.oom_kills,
            pids_refused: self.counts.pids_refused,
        }
    }

    /// How much CPU time the tree has used, in nanoseconds: what the group has
    /// counted, or those in /proc and those that somebody has waited for, if that is
    /// more.
    pub fn cpu_time_ns(&mut self) -> u64 {
        let ticks_per_second = self.ticks_per_second.max(1);
        let (tree, group) = self.tree();
        let mut ticks = 0u64;
        if tree.walk_with_dead(group).is_ok() {
            for member in tree.found() {
                let Stat { cpu_ticks, waited_ticks, .. } = member.stat;
                ticks = ticks.saturating_add(cpu_ticks).saturating_add(waited_ticks);
            }
        }
        let seen = ticks.saturating_mul(1_000_000) / ticks_per_second;
        let [user, system] = group.map_or([None; 2], Group::cpu_time);
        let grouped = user.unwrap_or(0).saturating_add(system.unwrap_or(0));
        let waited = cpu_us(&process::usage_of_children());
        grouped.max(seen.saturating_add(waited)).saturating_mul(1000)
    }

    fn reap_children(&mut self) -> Reaped {
        for _ in 0..REAP_AT_ONCE {
            if let Some(tree) = &self.tree {
                tree.kill_owed_group();
            }
            match process::reap_any() {
                Waited::NoChild => return Reaped::Empty,
                Waited::Nothing => {
                    if let Some(tree) = &mut self.tree {
                        tree.pay_owed();
                    }
                    return Reaped::Some;
                }
                Waited::Stopped => {}
                Waited::Reaped(pid, ended) => {
                    self.reaped += 1;
                    self.killed += u64::from(matches!(ended, Ended::Signal(process::SIGKILL, _)));
                    if pid == self.command {
                        self.command_ended = Some(ended);
                    }
                    if let Some(tree) = &mut self.tree {
                        tree.reaped(pid);
                    }
                }
            }
        }
        Reaped::More
    }

    /// From now on before all ordinary processes, if this one may (SCHED_FIFO): a
    /// storm that has all the CPUs would keep it from its deadlines.
    pub fn hurry(&mut self) {
        if !self.hurried {
            self.hurried = true;
            let _ = process::set_realtime();
        }
    }

    /// Sends a signal to the command alone, while it is there. Whether it was.
    pub fn signal_command(&self, signal: i32) -> bool {
        self.command_ended.is_none() && crate::sys::signal::kill(self.command, signal).is_ok()
    }

    /// Sends a signal to the process group of the command, while that is there:
    /// until then no other group can have its number.
    pub fn signal_group(&self, signal: i32) {
        let ended = self.command_ended.is_some();
        if !ended && crate::sys::signal::kill_group(self.command, signal).is_err() {
            // It was born just now and leads no group yet.
            self.signal_command(signal);
        }
    }

    /// Sends a signal, and where `wake` says so SIGCONT, to every process of the
    /// tree, once to each: the tree is walked until a walk finds nobody new.
    /// Returns how many it reached.
    pub fn signal_tree(&mut self, signal: i32, wake: bool) -> u64 {
        let began = time::now(Clock::Monotonic);
        let (tree, group) = self.tree();
        for _ in 0..MOST_WALKS {
            match tree.walk(Nested::Leave, group) {
                Ok(Found { fresh: 0, .. }) | Err(_) => break,
                Ok(_) if time::now(Clock::Monotonic).saturating_sub(began) > WALKING => break,
                Ok(_) => {}
            }
        }
        let reached = tree.signal_found(signal, Nested::Leave, group);
        if wake {
            tree.signal_found(process::SIGCONT, Nested::Leave, group);
        }
        reached
    }

    /// One pass of SIGKILL over all that is alive. Returns how many that were.
    pub fn kill_pass(&mut self) -> u64 {
        self.passes += 1;
        let stop_first = self.passes > 1;
        if let Some(group) = self.group() {
            let mut alive = 0;
            if !stop_first {
                group.members(&mut |_| alive += 1);
            }
            if group.kill() && alive > 0 {
                // Whoever has left the group is found by the next pass.
                return alive;
            }
        }
        let is_init = self.is_init;
        let (tree, group) = self.tree();
        if is_init {
            // At one stroke, which no fork gets around. Whoever came in from
            // outside ends with the namespace anyway.
            let alive = tree.walk(Nested::Enter, group).map_or(1, |found| found.alive);
            crate::sys::signal::kill_everybody();
            return alive;
        }
        tree.forget_sent(process::SIGKILL);
        let found = if stop_first { stop(tree, group) } else { tree.walk(Nested::Enter, group) };
        let Ok(found) = found else {
            // No memory for the tree: our own children, level by level as their
            // parents die.
            return tree.signal_own_children(process::SIGKILL);
        };
        tree.signal_found(process::SIGKILL, Nested::Enter, group);
        found.alive
    }

    /// Stops every process of the tree that is not stopped already (Ctrl-Z).
    pub fn stop_tree(&mut self) {
        let (tree, group) = self.tree();
        if stop(tree, group).is_ok() {
            tree.hold_found();
        }
    }

    /// Lets those go on that [`Sweep::stop_tree`] stopped, and nobody else.
    pub fn continue_tree(&mut self) {
        let (tree, group) = self.tree();
        tree.release_held(group);
    }

    /// Describes what is alive, `most` of it in full.
    pub fn list(&mut self, most: usize) -> Seen {
        let mut found = Found::default();
        for _ in 0..LOOKS {
            let (tree, group) = self.tree();
            found = tree.walk(Nested::Enter, group).unwrap_or_default();
            if found.alive > 0 || self.reap() == Reaped::Empty {
                return self.describe(found, most);
            }
        }
        // Somebody is there who is gone from every number before it is looked at.
        found.alive = 1;
        self.describe(found, most)
    }

    /// As [`Sweep::list`], with the dead that cannot be reaped.
    pub fn list_survivors(&mut self, most: usize) -> Seen {
        let (tree, group) = self.tree();
        let found = tree.walk_with_dead(group).unwrap_or_default();
        self.describe(found, most)
    }

    fn describe(&mut self, found: Found, most: usize) -> Seen {
        let (command, ticks) = (self.command, self.ticks_per_second);
        let now = time::now(Clock::Boot);
        let (tree, group) = self.tree();
        let mut inside = group.map(|_| List::new());
        if let (Some(group), Some(inside)) = (group, &mut inside) {
            group.members(&mut |pid| {
                // One that is missing for want of memory is told as having left.
                let _ = inside.push(pid);
            });
        }
        let mut seen = Seen { first: List::new(), total: found.alive };
        let calm = found.alive <= CALM;
        for member in tree.found().take(most) {
            let mut process = describe(tree, &member.stat, command, ticks, now, calm);
            if inside.as_ref().is_some_and(|inside| !inside.contains(&process.pid)) {
                process.detached = Detached::Cgroup;
            }
            if seen.first.push(process).is_err() {
                break;
            }
        }
        seen
    }

    /// Who traces this process (0: nobody, or unknown).
    pub fn tracer_of(&mut self, pid: i32) -> i32 {
        let (tree, _) = self.tree();
        tree.proc().and_then(|proc| proc.uid_and_tracer(pid)).map_or(0, |(_, tracer)| tracer)
    }
}

/// User and system time together.
const fn cpu_us(usage: &process::Usage) -> u64 {
    usage.user_us.saturating_add(usage.system_us)
}

/// Stops the tree until a walk finds nobody new and all that were found stopped.
fn stop(tree: &mut Tree, group: Option<&Group>) -> Result<Found> {
    let began = time::now(Clock::Monotonic);
    let mut patience = PATIENCE;
    tree.forget_sent(process::SIGSTOP);
    loop {
        let found = tree.walk(Nested::Enter, group)?;
        let sent = tree.stop_found(group);
        if sent == 0 && found.fresh == 0 {
            if found.running == 0 || patience == 0 {
                return Ok(found);
            }
            patience -= 1;
            // They need a CPU to stop on, which may be ours.
            let _ = event::ppoll(&mut [], Some(1_000_000));
        }
        if time::now(Clock::Monotonic).saturating_sub(began) > STOPPING {
            return Ok(found);
        }
    }
}

fn describe(tree: &Tree, stat: &Stat, command: i32, ticks: u64, now: u64, calm: bool) -> Process {
    let (mut argv0, mut wchan) = ([0; 64], [0; 32]);
    let proc = tree.proc();
    let to_ms = |count: u64| count.saturating_mul(1000) / ticks.max(1);
    // Reading a command line waits for the lock on the process's memory, which
    // one that forks, or is stuck in the kernel, may keep for long: only who
    // sleeps alone is asked, and nobody in a storm.
    let asked = calm && stat.threads == 1 && matches!(stat.state, b'S' | b'T' | b't');
    let known = stat.sid != 0;
    let detached = if known && stat.sid != command {
        Detached::Session
    } else if known && stat.pgid != command {
        Detached::Group
    } else {
        Detached::No
    };
    Process {
        pid: stat.pid,
        name: Text::new(stat.name()),
        argv0: Text::new(
            proc.filter(|_| asked).map_or(&[], |proc| proc.argv0(stat.pid, &mut argv0)),
        ),
        uid: proc.and_then(|proc| proc.uid_and_tracer(stat.pid)).map(|(uid, _)| uid),
        state: stat.state,
        wchan: Text::new(proc.map_or(&[], |proc| proc.wchan(stat.pid, &mut wchan))),
        age_ms: if known { (now / 1_000_000).saturating_sub(to_ms(stat.start)) } else { 0 },
        cpu_ms: to_ms(stat.cpu_ticks),
        ppid: stat.ppid,
        pgid: stat.pgid,
        sid: stat.sid,
        detached,
    }
}
