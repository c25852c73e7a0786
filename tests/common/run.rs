//! How is one run started, watched and judged?
//!
//! [`Run`] says what to run, [`Run::start`] gives a [`Running`], and
//! [`Running::wait`] the [`Outcome`]; [`Run::run`] is both. One poll loop reads
//! the output, feeds stdin and waits for the end, so no thread of ours lags
//! behind: what is known about the pipes is exact at the moment of the return.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SigHandler};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Gid, Pid, PidfdFlags, Signal, Uid, pidfd_open, pidfd_send_signal};

use super::ground::{Ground, Survivor, children};
use super::outcome::{Outcome, read_record};
use super::stream::Stream;
use super::{corral, fault, install, mode_asked, no_newborn, open_to_all, refuse};

/// A run that takes longer has hung.
const HARD_LIMIT: Duration = Duration::from_secs(45);
/// Most bytes kept of one stream; the rest is read and counted.
const KEEP: usize = 16 << 20;

/// Where stdin comes from.
pub enum Stdin {
    /// /dev/null.
    Null,
    /// These bytes, then the end.
    Bytes(Vec<u8>),
    /// A pipe that stays open until [`Running::close_stdin`].
    Open,
    /// A descriptor.
    From(OwnedFd),
}

type Hook = Box<dyn FnMut() -> io::Result<()> + Send + Sync>;

/// A run that is being put together.
pub struct Run {
    program: OsString,
    options: Vec<OsString>,
    words: Vec<OsString>,
    is_corral: bool,
    envs: Vec<(OsString, Option<OsString>)>,
    stdin: Stdin,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    closed: Vec<i32>,
    uid: Option<u32>,
    delegated: bool,
    record: bool,
    marker: bool,
    keep: usize,
    limit: Duration,
    hook: Option<Hook>,
    refused: Option<String>,
}

impl Run {
    fn new(program: OsString, is_corral: bool) -> Self {
        Self {
            program,
            options: Vec::new(),
            words: Vec::new(),
            is_corral,
            envs: Vec::new(),
            stdin: Stdin::Null,
            stdout: None,
            stderr: None,
            closed: Vec::new(),
            uid: None,
            delegated: false,
            record: is_corral,
            marker: false,
            keep: KEEP,
            limit: HARD_LIMIT,
            hook: None,
            refused: refuse::asked(),
        }
    }

    /// corral with these options, and `--json` to a file of the run's own.
    pub fn corral(options: &[&str]) -> Self {
        let mut run = Self::new(corral().into(), true);
        run.options = options.iter().map(OsString::from).collect();
        run
    }

    /// Anything else; `$C` is the path of corral. It has no record.
    pub fn argv<S: AsRef<OsStr>>(argv: impl IntoIterator<Item = S>) -> Self {
        let mut words = argv.into_iter().map(|word| word.as_ref().to_owned());
        let mut run = Self::new(words.next().expect("a program"), false);
        run.words = words.collect();
        run.env("C", corral())
    }

    /// A shell script; `$C` is the path of corral, `$F` the faults' directory.
    pub fn shell(script: &str) -> Self {
        let directory = corral().parent().unwrap().to_owned();
        Self::argv(["sh", "-c", script]).env("F", directory)
    }

    /// A fault program by itself.
    pub fn fault_alone(name: &str, arguments: &[&str]) -> Self {
        Self::argv([fault(name).as_os_str()]).args(arguments)
    }

    /// The command that corral runs: a fault program.
    pub fn fault(self, name: &str, arguments: &[&str]) -> Self {
        let path = fault(name);
        self.command([path.as_os_str()]).args(arguments)
    }

    /// The command that corral runs: any.
    pub fn command<S: AsRef<OsStr>>(mut self, argv: impl IntoIterator<Item = S>) -> Self {
        assert!(self.is_corral && self.words.is_empty(), "one command, for corral");
        self.words.push("--".into());
        self.args(argv)
    }

    /// More words behind those that are there.
    pub fn args<S: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.words.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.envs.push((key.as_ref().to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    pub fn env_remove(mut self, key: impl AsRef<OsStr>) -> Self {
        self.envs.push((key.as_ref().to_owned(), None));
        self
    }

    pub fn stdin(mut self, stdin: Stdin) -> Self {
        self.stdin = stdin;
        self
    }

    /// Instead of a pipe of ours.
    pub fn stdout(mut self, fd: impl Into<OwnedFd>) -> Self {
        self.stdout = Some(fd.into());
        self
    }

    /// Instead of a pipe of ours.
    pub fn stderr(mut self, fd: impl Into<OwnedFd>) -> Self {
        self.stderr = Some(fd.into());
        self
    }

    /// Starts with this descriptor closed.
    pub fn closed(mut self, fd: i32) -> Self {
        self.closed.push(fd);
        self
    }

    /// As this user and group, with no other groups; needs root. corral and the
    /// fault are copied to where that user can reach them.
    pub fn uid(mut self, uid: u32) -> Self {
        self.uid = Some(uid);
        self
    }

    /// Where these calls are refused, as [`refuse`] has it; needs root.
    pub fn refusing(mut self, what: &str) -> Self {
        self.refused = Some(what.into());
        self
    }

    /// With the cgroup that it starts in as that user's own.
    pub fn delegated(mut self) -> Self {
        self.delegated = true;
        self
    }

    /// Without `--json`.
    pub fn no_record(mut self) -> Self {
        self.record = false;
        self
    }

    /// With an inherited pipe as a second witness (descriptor 200): sees what
    /// left the cgroup.
    pub fn marker(mut self) -> Self {
        self.marker = true;
        self
    }

    /// How much of each stream is kept.
    pub fn keep(mut self, bytes: usize) -> Self {
        self.keep = bytes;
        self
    }

    /// When the run counts as hung.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Something to do in the newborn, after it entered its ground and before
    /// it becomes another user. As between fork and exec: only what is
    /// async-signal-safe, no allocation.
    pub fn before(mut self, hook: impl FnMut() -> io::Result<()> + Send + Sync + 'static) -> Self {
        self.hook = Some(Box::new(hook));
        self
    }

    /// Runs to the end.
    pub fn run(self) -> Outcome {
        self.start().wait()
    }

    /// Copies the programs to where another user can execute them.
    fn make_reachable(&mut self, directory: &Path) {
        open_to_all(directory);
        let home = corral().parent().unwrap().to_owned();
        for word in std::iter::once(&mut self.program).chain(&mut self.words) {
            let path = PathBuf::from(&*word);
            if path.parent() == Some(&home) {
                let copy = directory.join(path.file_name().unwrap());
                if !copy.exists() {
                    install(&path, &copy, 0o755);
                }
                *word = copy.into();
            }
        }
    }

    /// Starts it; returns when its exec has succeeded.
    pub fn start(mut self) -> Running {
        let directory = tempfile::tempdir().unwrap();
        if self.uid.is_some() {
            self.make_reachable(directory.path());
        }
        let record = self.record.then(|| directory.path().join("record.json"));

        let mut command = Command::new(&self.program);
        command.args(&self.options);
        if self.is_corral
            && let Some(mode) = mode_asked()
            && !self.options.iter().any(|option| option.as_bytes().starts_with(b"--cgroup-mode"))
        {
            command.arg(format!("--cgroup-mode={mode}"));
        }
        if let Some(record) = &record {
            command.arg("--json").arg(record);
        }
        command.args(&self.words);
        for (key, value) in &self.envs {
            match value {
                Some(value) => command.env(key, value),
                None => command.env_remove(key),
            };
        }

        let (ground, entry) = Ground::new(self.marker);
        if let (true, Some(uid), Some(group)) = (self.delegated, self.uid, ground.group()) {
            for file in ["", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"] {
                std::os::unix::fs::chown(group.join(file), Some(uid), Some(uid)).unwrap();
            }
        }
        let (closed, uid) = (self.closed, self.uid);
        let mut hook = self.hook;
        let refused = self.refused.map(|what| refuse::filter(&what));
        // SAFETY: raw system calls on values made before the fork; the hook has
        // promised the same.
        unsafe {
            command.pre_exec(move || {
                entry.enter()?;
                heed_signals()?;
                if let Some(hook) = &mut hook {
                    hook()?;
                }
                if let Some(filter) = &refused {
                    refuse::install(filter)?;
                }
                if let Some(uid) = uid {
                    become_user(uid)?;
                }
                for fd in &closed {
                    rustix::io::close(*fd);
                }
                Ok(())
            });
        }

        // Everything inheritable lives only while no other newborn can get it.
        let guard = no_newborn();
        let (mut input, mut feed, mut hold) = (None, Vec::new(), false);
        let mut piped = |bytes, held| {
            let (read, write) = pipe();
            rustix::io::ioctl_fionbio(&write, true).unwrap();
            (input, feed, hold) = (Some(write), bytes, held);
            Stdio::from(read)
        };
        command.stdin(match self.stdin {
            Stdin::Null => Stdio::null(),
            Stdin::From(fd) => fd.into(),
            Stdin::Open => piped(Vec::new(), true),
            Stdin::Bytes(bytes) => piped(bytes, false),
        });
        let stream = |given: Option<OwnedFd>| {
            let (fd, write) = match given {
                Some(fd) => (None, fd),
                None => {
                    let (read, write) = pipe();
                    rustix::io::ioctl_fionbio(&read, true).unwrap();
                    (Some(read), write)
                }
            };
            (Stream { fd, kept: Vec::new(), total: 0, keep: self.keep }, Stdio::from(write))
        };
        let (out, write) = stream(self.stdout);
        command.stdout(write);
        let (err, write) = stream(self.stderr);
        command.stderr(write);

        let started = Instant::now();
        let child = command.spawn().unwrap_or_else(|e| panic!("{:?}: {e}", self.program));
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        // With it go our copies of what the newborn inherited.
        drop(command);
        drop(guard);

        Running {
            child,
            pidfd,
            ground: Some(ground),
            directory: Some(directory),
            record,
            input,
            feed,
            hold,
            out,
            err,
            started,
            limit: self.limit,
        }
    }
}

/// Whoever runs the tests may ignore some (nohup, a background job of sh), which
/// would be inherited.
fn heed_signals() -> io::Result<()> {
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        // SAFETY: no handler of ours is installed or replaced.
        unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) }?;
    }
    Ok(())
}

/// Becomes this user, with nothing of the old one left.
fn become_user(uid: u32) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)?;
    Ok(())
}

fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap()
}

/// A run on its way. Dropping it ends everything of it.
pub struct Running {
    child: Child,
    pidfd: OwnedFd,
    ground: Option<Ground>,
    directory: Option<tempfile::TempDir>,
    record: Option<PathBuf>,
    input: Option<OwnedFd>,
    /// What stdin still has to get.
    feed: Vec<u8>,
    /// Whether stdin stays open after that.
    hold: bool,
    out: Stream,
    err: Stream,
    started: Instant,
    limit: Duration,
}

impl Running {
    /// The process that was started: corral's monitor, or the argv given.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// corral's other process, the one that owns the run: the youngest child.
    /// Ask after [`Running::ready`].
    pub fn supervisor(&self) -> i32 {
        *children(self.pid()).last().expect("corral's monitor has a child")
    }

    /// Who is alive on the run's ground, corral's own processes included.
    pub fn members(&self) -> Vec<Survivor> {
        self.ground().members()
    }

    pub fn ground(&self) -> &Ground {
        self.ground.as_ref().expect("only wait takes it")
    }

    /// A directory of the run's own, gone with its outcome.
    pub fn directory(&self) -> &Path {
        self.directory.as_ref().expect("only wait takes it").path()
    }

    /// What came on stdout up to now.
    pub fn stdout(&self) -> &[u8] {
        &self.out.kept
    }

    /// What came on stderr up to now.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.err.kept).into_owned()
    }

    /// Whether this line came on stdout.
    pub fn has_line(&self, line: &str) -> bool {
        self.out.has_line(line)
    }

    /// Whether the process that was started has ended; it stays waitable.
    pub fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
    }

    /// Waits for a fault's `ready`.
    pub fn ready(&mut self) {
        self.wait_line("ready");
    }

    /// Waits for this line on stdout.
    pub fn wait_line(&mut self, line: &str) {
        self.wait_until(&format!("line {line:?}"), |run| run.has_line(line));
    }

    /// Waits until `done`, looking again whenever output comes and every few
    /// milliseconds. Fails if the run ends or hangs first.
    pub fn wait_until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        loop {
            if done(self) {
                return;
            }
            let over = self.pump(Duration::from_millis(5));
            if over {
                self.out.read();
                self.err.read();
                assert!(done(self), "ended before {what}: {}", self.describe());
                return;
            }
        }
    }

    /// Sends a signal to the process that was started.
    pub fn signal(&self, signal: Signal) {
        pidfd_send_signal(&self.pidfd, signal).unwrap();
    }

    /// Sends a signal to a member of the run.
    pub fn signal_member(&self, pid: i32, signal: Signal) {
        pidfd_send_signal(self.member(pid), signal).unwrap();
    }

    /// The pidfd of a member of the run.
    pub fn member(&self, pid: i32) -> OwnedFd {
        let fd = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
        assert!(self.members().iter().any(|member| member.pid == pid), "{pid} is not of this run");
        fd
    }

    /// Gives stdin more to read, while the run is waited for.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.feed.extend_from_slice(bytes);
    }

    /// Ends stdin, once everything is fed.
    pub fn close_stdin(&mut self) {
        self.hold = false;
    }

    /// One round of the loop; whether the process has ended.
    fn pump(&mut self, at_most: Duration) -> bool {
        let left = (self.started + self.limit).saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "hung: {}", self.describe());
        if self.feed.is_empty() && !self.hold {
            self.input = None;
        }
        let mut fds = vec![PollFd::new(&self.pidfd, PollFlags::IN)];
        fds.extend(self.out.fd.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        fds.extend(self.err.fd.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        if !self.feed.is_empty() {
            fds.extend(self.input.as_ref().map(|fd| PollFd::new(fd, PollFlags::OUT)));
        }
        let wait = Timespec::try_from(at_most.min(left)).unwrap();
        let _ = poll(&mut fds, Some(&wait));
        let over = !fds[0].revents().is_empty();
        drop(fds);
        self.out.read();
        self.err.read();
        if let (Some(input), false) = (&self.input, self.feed.is_empty()) {
            match rustix::io::write(input, &self.feed) {
                Ok(n) => drop(self.feed.drain(..n)),
                Err(rustix::io::Errno::AGAIN) => {}
                // Nobody reads it any more.
                Err(_) => (self.feed, self.input) = (Vec::new(), None),
            }
        }
        over
    }

    /// Waits for the end and looks at what is left.
    pub fn wait(mut self) -> Outcome {
        while !self.pump(Duration::from_secs(1)) {}
        let elapsed = self.started.elapsed();
        let status = self.child.wait().unwrap();
        let survivors = self.ground().members();
        let eof = {
            let _guard = no_newborn();
            // Nobody of ours writes any more: read up to the end or to "again".
            let mut last = (u64::MAX, u64::MAX);
            while last != (self.out.total, self.err.total) {
                last = (self.out.total, self.err.total);
                self.out.read();
                self.err.read();
            }
            self.out.fd.is_none() && self.err.fd.is_none()
        };
        let record = self.record.as_deref().and_then(read_record);
        Outcome {
            status: status.code(),
            signal: status.signal(),
            stdout: std::mem::take(&mut self.out.kept),
            stdout_bytes: self.out.total,
            stderr: self.stderr(),
            stderr_bytes: self.err.total,
            elapsed,
            survivors,
            eof,
            record,
            record_path: self.record.take(),
            ground: self.ground.take().expect("taken once"),
            directory: self.directory.take().expect("taken once"),
        }
    }

    /// What a failed test should show.
    fn describe(&self) -> String {
        let tail = |stream: &Stream| {
            let from = stream.kept.len().saturating_sub(2000);
            String::from_utf8_lossy(&stream.kept[from..]).into_owned()
        };
        format!(
            "pid {}, after {:?}, members {:#?}\nstdout ({} bytes): {}\nstderr ({} bytes): {}",
            self.pid(),
            self.started.elapsed(),
            self.ground().members(),
            self.out.total,
            tail(&self.out),
            self.err.total,
            tail(&self.err),
        )
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(ground) = self.ground.take() {
            let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
            ground.end(Duration::from_secs(5));
            let _ = self.child.wait();
        }
    }
}
