//! What does the process that the user sees do?
//!
//! It checks everything that can fail, forks the supervisor and then only
//! listens: signals that come are told to the supervisor, what the supervisor
//! decides is carried out (stop with it on Ctrl-Z, restore the terminal, die of
//! the signal that cancelled), its exit status is corral's. If the supervisor is
//! killed, its orphans come to this process, a subreaper too, which ends them.
//!
//! Where this process has children that it did not start (`sleep & exec corral`)
//! or can get some (PID 1), orphans of strangers could not be told from those of
//! the run. Then a childless process stands between, the guard, which does the
//! same for the supervisor and has nothing else below it.
//!
//! Every signal is blocked and read from a signalfd; a signal that was ignored
//! when we started is read as well, for blocking comes before ignoring, and is
//! passed over (signalfd(2)). A fault of our own is not held up by that
//! (signal(7): the kernel forces it).
//!
//! A supervisor that somebody stops could keep no deadline, so its stop, which
//! SIGCHLD tells, is answered with SIGCONT.
//!
//! May use: everything.

use crate::channel::{Channel, Heard, Message};
use crate::cli::parse::{self, Given};
use crate::cli::plan::{Plan, Target};
use crate::cli::visible::hex;
use crate::cli::{base_name, tini};
use crate::loss;
use crate::os::host;
use crate::os::put::put;
use crate::os::sink;
use crate::policy::time::{Instant, Span};
use crate::policy::verdict;
use crate::report::record::Text;
use crate::run::{self, Run, WRITING, now};
use crate::scope;
use crate::supervisor::{self, Ties};
use crate::sys::errno::Errno;
use crate::sys::event::{self, Wait};
use crate::sys::fd::{OwnedFd, STDIN, STDOUT};
use crate::sys::process::{self, Ended, Forked, Waited};
use crate::sys::signal::{self, Received, SignalSet};
use crate::sys::start::Start;
use crate::sys::terminal::{self, Modes};
use crate::sys::time::{self, Clock};

/// What the guard calls itself in /proc/PID/comm.
const GUARD_NAME: &core::ffi::CStr = c"crl-guard";

/// timeout(1) and others send a signal to a process and at once to its group, in
/// which the process is: within this time the same one from the same sender, with
/// no other in between, is one.
const ECHO: Span = Span::from_millis(3);

/// How long the end of a PID namespace may take once its init ends: whoever is
/// traced from outside, or not reaped there, holds it up for ever.
const LEAVING: Span = Span::from_secs(5);

/// What to do where prctl(2) fails.
const PRCTL: &str = "allow prctl(2) in this sandbox";

/// Runs corral from the first instruction to the last.
pub fn enter(start: Start) -> ! {
    process::exit(main(start))
}

fn main(start: Start) -> u8 {
    if start.secure {
        let advice = "it serves the user who starts it: remove its setuid or setgid bit, its \
                      file capabilities, or the security module's transition";
        run::complain("run with", b"raised privileges", "EPERM (operation not permitted)", advice);
        return verdict::MISUSE;
    }
    let given = if tini::is_name(start.args.get(0).map_or(b"", base_name)) {
        tini::parse(&start.args, &|name| start.environment.get(name))
    } else {
        parse::parse(&start.args)
    };
    let plan = match given {
        Ok(Given::Run(plan)) => plan,
        Ok(Given::Text(text)) => return print(text.as_bytes()),
        Err(misuse) => {
            run::say(|out| {
                misuse.write(out);
                out(b"\n");
            });
            return verdict::MISUSE;
        }
    };
    run::leave(plan.at_exit, prepare(start, plan))
}

/// Checks all that can fail, and runs the command.
fn prepare(mut start: Start, plan: Plan) -> u8 {
    if scope::is_asked_for(&start, &plan) {
        return scope::enter(&start, &plan);
    }
    // From here on numbers 0, 1 and 2 are what they should be.
    let open = match host::standard_descriptors() {
        Ok(open) => open,
        Err(errno) => {
            return run::refuse("look at", b"descriptors 0 to 2", errno, "open them");
        }
    };
    let mut sink = None;
    if let Some(target) = plan.json {
        let prepared = match target {
            Target::Path(path) => sink::prepare_path(path),
            Target::Fd(number) => sink::prepare_descriptor(number),
        };
        match prepared {
            Ok(prepared) => sink = Some(prepared),
            Err(errno) => {
                let name = run::target_name(target);
                return run::refuse("write the record to", name, errno, sink::advice(errno));
            }
        }
    }
    let id = match plan.run_id {
        Some(id) => Text::new(id),
        None => hexadecimal(start.random),
    };
    start.export_run_id(id.as_bytes());
    let written = sink.is_some();
    let run = Run {
        plan,
        start,
        id,
        uid: if written { process::getuid() } else { 0 },
        parent_pid: if written { process::getppid() } else { 0 },
        open,
        group: None,
        obstacle: None,
        began: now(),
        began_at: if written { time::now(Clock::Real) } else { 0 },
        sink,
    };
    watch(run)
}

/// What was asked for on stdout; 125 where it cannot be written.
fn print(text: &[u8]) -> u8 {
    match put(STDOUT, text, now().plus(Span::from_secs(10))) {
        Ok(()) => 0,
        Err(errno) => run::refuse("write to", b"standard output", errno, "open it for writing"),
    }
}

fn hexadecimal(bytes: [u8; 16]) -> Text<64> {
    let mut text = Text::EMPTY;
    for byte in bytes {
        text.push(&hex(byte));
    }
    text
}

/// The monitor's view of the run.
struct Monitor {
    run: Run,
    channel: Channel,
    signals: OwnedFd,
    child: i32,
    /// The child is the guard, and the supervisor its child.
    guarded: bool,
    modes: Option<Modes>,
    /// The terminal was given to the command's session.
    handed: bool,
    verdict: Option<(u8, i32, bool)>,
    /// The last cancelling signal, and when it came.
    cancelled: Option<(Received, Instant)>,
    /// Ctrl-Z came, and nothing since has taken it back.
    stopping: bool,
    /// When the record is given up that the supervisor is writing, or its own end.
    patience: Option<Instant>,
    /// The supervisor is ending, and what is left in its PID namespace with it.
    leaving: bool,
}

/// Blocks what is to be read from the signalfd.
fn block_signals() {
    signal::block_exactly(SignalSet::ALL);
    // An ignored SIGCHLD would lose the command's status; the other two the
    // command is to have at their defaults.
    for signal in [process::SIGCHLD, process::SIGPIPE, process::SIGXFSZ] {
        signal::set_default(signal);
    }
}

fn watch(mut run: Run) -> u8 {
    let advice = "raise the limits on open files and processes";
    block_signals();
    if let Some(signal) = run.plan.parent_death
        && let Err(errno) = process::set_parent_death_signal(signal)
    {
        return run::refuse("ask for", b"a parent-death signal", errno, PRCTL);
    }
    process::set_dumpable(false);
    let modes = if run.open.first() == Some(&true) { terminal::modes(STDIN).ok() } else { None };
    let handed = modes.is_some() && hand_over_terminal();
    let (ours, theirs) = match Channel::pair() {
        Ok(pair) => pair,
        Err(errno) => return run::refuse("make", b"a socket pair", errno, advice),
    };
    let signals = match signal::signalfd(SignalSet::ALL) {
        Ok(signals) => signals,
        Err(errno) => return run::refuse("read", b"signals", errno, advice),
    };
    let monitor = process::pidfd_open(process::getpid()).ok();
    let guarded = process::getpid() == 1 || process::has_children();
    if !guarded && let Err(errno) = process::set_child_subreaper() {
        return no_subreaper(errno);
    }
    if let Err(status) = run.take_group() {
        return status;
    }
    let (child, pidfd) = match run.fork(!guarded) {
        Ok((Forked::Child, namespace)) => {
            drop(ours);
            let ties = Ties { channel: theirs, monitor, signals, hand_terminal: handed, namespace };
            if guarded {
                guard(run, ties)
            } else if process::getppid() == 0 && process::getpid() != 1 {
                // Our children live in a PID namespace that has an init of its
                // own: what is orphaned there does not come up to the monitor.
                ties.channel.say(Message::Guarded);
                guard(run, ties)
            } else {
                supervisor::supervise(run, ties)
            }
        }
        Ok((Forked::Parent(child, pidfd), _)) => (child, pidfd),
        Err(status) => {
            run.give_back(status);
            return status;
        }
    };
    // The supervisor's end of the channel must be its own alone.
    drop((theirs, monitor));
    host::close_inherited();
    let mut monitor = Monitor {
        run,
        channel: ours,
        signals,
        child,
        guarded,
        modes,
        handed,
        verdict: None,
        cancelled: None,
        stopping: false,
        patience: None,
        leaving: false,
    };
    // As in the supervisor: nothing is dropped, the kernel closes it all.
    let status = monitor.listen(pidfd);
    run::leave(monitor.run.plan.at_exit, status)
}

fn no_subreaper(errno: Errno) -> u8 {
    run::refuse("become", b"a child subreaper", errno, PRCTL)
}

/// Gives up a controlling terminal that this session leader has, so that the
/// command's session can have it and with it job control (`docker run -it`).
fn hand_over_terminal() -> bool {
    if process::session() != process::getpid() || terminal::foreground_group(STDIN).is_err() {
        return false;
    }
    // Giving it up hangs up the foreground group, in which others may be: first
    // that becomes a group of a process that is gone by then.
    match process::fork() {
        Ok(Forked::Child) => {
            let led = process::lead_group();
            let _ = led.and_then(|()| terminal::set_foreground_group(STDIN, process::getpid()));
            process::exit(0)
        }
        Ok(Forked::Parent(child, _)) => {
            process::wait_for(child);
        }
        Err(_) => return false,
    }
    terminal::disown(STDIN).is_ok()
}

impl Monitor {
    fn listen(&mut self, pidfd: Option<OwnedFd>) -> u8 {
        let mut pidfd = pidfd;
        let mut connected = true;
        loop {
            let mut waits = [Wait::readable(self.signals.fd()), Wait::NOTHING, Wait::NOTHING];
            let [_, child, channel] = &mut waits;
            if let Some(pidfd) = &pidfd {
                *child = Wait::readable(pidfd.fd());
            }
            if connected {
                *channel = Wait::readable(self.channel.fd());
            }
            let timeout = self.patience.map(|until| until.since(now()).0);
            let _ = event::ppoll(&mut waits, timeout);
            let [signals, child, channel] = waits;
            if channel.fired() {
                connected = self.hear();
                if !connected && self.run.plan.pid_namespace {
                    self.leaving = true;
                    self.patience = Some(now().plus(LEAVING));
                }
            }
            if child.fired() {
                // Once: one that a tracer holds stays readable. SIGCHLD tells.
                pidfd = None;
            }
            if (child.fired() || signals.fired())
                && let Some(status) = self.reap()
            {
                return status;
            }
            if signals.fired() {
                self.hear_signals();
            }
            if self.guarded && self.child == 0 && !connected {
                // The guard was lost, and now the supervisor is through.
                let (status, ..) = self.verdict.unwrap_or((verdict::NOT_PROVED, 0, true));
                return self.end(status);
            }
            if self.patience.is_some_and(|until| now() >= until) {
                let Some((status, ..)) = self.verdict else {
                    if self.guarded {
                        // Its orphans would not be told from strangers.
                        return self.end(verdict::NOT_PROVED);
                    }
                    let status = loss::end_orphans(&mut self.run);
                    self.verdict = Some((status, 0, true));
                    return self.end(status);
                };
                // What has left has written its record.
                if self.leaving || self.run.sink.is_none() {
                    return self.end(status);
                }
                let advice = "its disk or its reader does not answer";
                let error = Errno::ETIMEDOUT.text();
                run::complain("write the record to", self.run.json_name(), error, advice);
                return self.end(verdict::with_record(status, false));
            }
        }
    }

    /// Whether the supervisor's end is still open.
    fn hear(&mut self) -> bool {
        loop {
            match self.channel.hear() {
                Heard::Nothing => return true,
                Heard::Closed => return false,
                Heard::Message(Message::Stopped) => self.stop(),
                Heard::Message(Message::Guarded) => self.guarded = true,
                Heard::Message(Message::Verdict { status, signal, restore_terminal }) => {
                    self.verdict = Some((status, signal, restore_terminal));
                    let longest = WRITING.0.saturating_mul(2);
                    self.patience = Some(now().plus(Span(longest)));
                }
                Heard::Message(
                    Message::Cancel(_)
                    | Message::Forward(_)
                    | Message::Stop
                    | Message::Continue
                    | Message::GuardLost,
                ) => {}
            }
        }
    }

    /// Reaps our child, and strangers where we have any. The status to end with
    /// once our child is through.
    fn reap(&mut self) -> Option<u8> {
        loop {
            let waited = if self.guarded { process::reap_any() } else { process::reap(self.child) };
            match waited {
                Waited::NoChild | Waited::Nothing => return None,
                Waited::Stopped => {}
                Waited::Reaped(pid, ended) if pid == self.child => {
                    // The last word may still be in the channel.
                    self.hear();
                    match ended {
                        Ended::Code(status) => return Some(self.end(status)),
                        Ended::Signal(..) if self.guarded => {
                            self.child = 0;
                            self.channel.say(Message::GuardLost);
                        }
                        Ended::Signal(..) => {
                            let status = loss::end_orphans(&mut self.run);
                            self.verdict = Some((status, 0, true));
                            return Some(self.end(status));
                        }
                    }
                }
                Waited::Reaped(..) => {}
            }
        }
    }

    fn hear_signals(&mut self) {
        while let Some(received) = signal::receive(&self.signals) {
            self.heed(received);
        }
    }

    fn heed(&mut self, received: Received) {
        match received.signal {
            process::SIGCHLD => {
                let _ = signal::kill(self.child, process::SIGCONT);
            }
            // From writing or setting the terminal in the background, or to a
            // reader that is gone.
            process::SIGTTIN | process::SIGTTOU | process::SIGPIPE | process::SIGXFSZ => {}
            _ if self.run.plan.verbatim => self.channel.say(Message::Forward(received)),
            process::SIGCONT => {
                self.stopping = false;
                self.channel.say(Message::Continue);
            }
            signal if signal::is_ignored(signal) => {}
            process::SIGTSTP if self.stopping => {}
            process::SIGTSTP => {
                self.stopping = true;
                self.channel.say(Message::Stop);
            }
            process::SIGTERM | process::SIGINT | process::SIGHUP | process::SIGQUIT => {
                let now = now();
                let last = self.cancelled.replace((received, now));
                let echo = last.is_some_and(|(last, at)| {
                    last == received && received.pid != 0 && now.since(at) < ECHO
                });
                if !echo {
                    self.channel.say(Message::Cancel(received));
                }
            }
            _ => {
                self.cancelled = None;
                self.channel.say(Message::Forward(received));
            }
        }
    }

    /// The tree is stopped: stops too, as an ordinary process would, so that the
    /// kernel's rule for orphaned groups holds. Goes on with SIGCONT, or at once
    /// where the kernel drops the signal.
    fn stop(&mut self) {
        // A SIGCONT may be waiting that takes it back.
        self.hear_signals();
        if self.stopping {
            let _ = signal::kill(process::getpid(), process::SIGTSTP);
            signal::block_exactly(SignalSet::ALL.without(process::SIGTSTP));
            signal::block_exactly(SignalSet::ALL);
            self.stopping = false;
        }
        self.channel.say(Message::Continue);
    }

    /// Ends as the verdict says; returns the status where no signal does it.
    fn end(&self, status: u8) -> u8 {
        self.run.give_back(status);
        let (_, signal, restore) = self.verdict.unwrap_or((status, 0, false));
        if restore {
            self.restore_terminal();
        }
        if signal != 0 && status == verdict::signalled(signal) && process::getpid() != 1 {
            signal::set_default(signal);
            let _ = signal::kill(process::getpid(), signal);
            signal::block_exactly(SignalSet::ALL.without(signal));
        }
        status
    }

    /// Gives the terminal the modes that it had, but only while it is ours: in
    /// the background it is somebody else's.
    fn restore_terminal(&self) {
        let Some(modes) = &self.modes else { return };
        let foreground = terminal::foreground_group(STDIN) == Ok(process::group());
        if self.handed || foreground {
            let _ = terminal::set_modes(STDIN, modes);
        }
    }
}

/// The childless process between monitor and supervisor: waits for the one, and
/// if it is killed ends what it leaves.
fn guard(mut run: Run, ties: Ties) -> ! {
    process::setsid();
    process::set_name(GUARD_NAME);
    if let Err(errno) = process::set_child_subreaper() {
        process::exit(no_subreaper(errno));
    }
    let child = match run.fork(true) {
        Ok((Forked::Child, namespace)) => supervisor::supervise(run, Ties { namespace, ..ties }),
        Ok((Forked::Parent(child, _), _)) => child,
        Err(status) => process::exit(status),
    };
    // The supervisor's end of the channel must be its own alone.
    let Ties { signals, channel, monitor, .. } = ties;
    drop((channel, monitor));
    host::close_inherited();
    loop {
        match process::reap(child) {
            Waited::Reaped(_, Ended::Code(status)) => {
                run.give_back(status);
                process::exit(status)
            }
            Waited::Reaped(_, Ended::Signal(..)) => process::exit(loss::end_orphans(&mut run)),
            Waited::NoChild => process::exit(verdict::NOT_PROVED),
            Waited::Nothing | Waited::Stopped => {}
        }
        let _ = event::ppoll(&mut [Wait::readable(signals.fd())], None);
        while signal::receive(&signals).is_some() {}
        // It may have been stopped, see the head.
        let _ = signal::kill(child, process::SIGCONT);
    }
}
