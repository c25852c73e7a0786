//! Each kind of file that stdout can be, with a relay in front of it: what
//! arrives, and that it never blocks.

use std::os::fd::{AsRawFd, OwnedFd as StdFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Action, OptionalActions, tcflow, tcgetattr, tcsetattr};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use super::*;
use crate::cli::plan::MaxOutput;
use crate::relay::tests::{Rig, pattern};
use crate::relay::{Progress, Relay, WAITS};

fn inherited(file: &impl AsRawFd) -> Fd<'static> {
    Fd::inherited(file.as_raw_fd())
}

fn outlet(file: &impl AsRawFd) -> Outlet {
    Outlet::new(inherited(file), true).unwrap()
}

/// A relay to one outlet as stdout. The reader is what the test makes of it.
fn rig(outlet: Outlet, head: u64, tail: Option<u64>) -> Rig {
    let max = Some(MaxOutput { head, tail });
    let relay = Relay::with([Some(outlet), None], false, max, None, false).unwrap();
    Rig::over(relay, [None, None], vec![])
}

/// A file that is gone when the test is.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("corral-{name}-{}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Master and slave, the slave passing bytes unchanged.
fn terminal() -> (StdFd, StdFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let slave = file::open(file::CWD, &name, Open::Write).unwrap();
    // A blocking one, as a shell gives it.
    let slave = rustix::fs::open(
        format!("/proc/self/fd/{}", slave.fd().number()),
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .unwrap();
    let mut modes = tcgetattr(&slave).unwrap();
    modes.make_raw();
    tcsetattr(&slave, OptionalActions::Now, &modes).unwrap();
    rustix::fs::fcntl_setfl(&master, rustix::fs::OFlags::NONBLOCK).unwrap();
    (master, slave)
}

/// Whether the loop is at rest with bytes in its hands.
fn assert_held(rig: &mut Rig) {
    let Progress { held, retry, .. } = rig.settle(false);
    assert!(held && retry.is_none());
}

#[test]
fn a_regular_file_gets_head_line_and_tail() {
    for append in [false, true] {
        let path = Scratch::new(if append { "append" } else { "regular" });
        std::fs::write(&path.0, "before\n").unwrap();
        let file = std::fs::OpenOptions::new().append(append).write(true).open(&path.0).unwrap();
        let bytes = pattern(500_000);
        let mut rig = rig(outlet(&file), 400_000, Some(50_000));
        for chunk in bytes.chunks(50_000) {
            rig.pump(0, chunk);
        }
        let counts = rig.finish();
        assert_eq!((counts.passed_bytes, counts.dropped_bytes), (450_000, 50_000));
        let mut expected = if append { b"before\n".to_vec() } else { Vec::new() };
        expected.extend(&bytes[..400_000]);
        expected.extend(&bytes[450_000..]);
        assert!(std::fs::read(&path.0).unwrap() == expected, "append = {append}");
    }
}

#[test]
fn a_file_that_takes_no_more_ends_the_stream() {
    let file = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut rig = rig(outlet(&file), u64::MAX, None);
    rig.write(0, b"never").unwrap();
    rig.settle(false);
    assert_eq!(rig.relay.counts().dropped_bytes, 5);
    assert!(rig.settle(true).drained);
}

#[test]
fn the_null_device_takes_everything() {
    let file = std::fs::OpenOptions::new().write(true).open("/dev/null").unwrap();
    let mut rig = rig(outlet(&file), 100_000, Some(10));
    for chunk in pattern(300_000).chunks(50_000) {
        rig.pump(0, chunk);
    }
    assert_eq!(rig.finish().passed_bytes, 100_010);
}

#[test]
fn a_socket_never_blocks() {
    let (mut reader, socket) = UnixStream::pair().unwrap();
    let bytes = pattern(2_000_000);
    let mut rig = rig(outlet(&socket), u64::MAX, None);
    let mut written = 0;
    while let Ok(count) = rig.write(0, &bytes[written..]) {
        written += count;
        rig.settle(false);
    }
    assert!(written < bytes.len(), "backpressure");
    assert_held(&mut rig);
    reader.set_nonblocking(true).unwrap();
    let mut got = Vec::new();
    let drained = (0..10_000).any(|_| {
        let progress = rig.settle(true);
        assert!(std::io::Read::read_to_end(&mut reader, &mut got).is_err(), "not closed");
        progress.drained
    });
    assert!(drained);
    assert!(got == bytes[..written]);
    assert!(!socket.take_error().is_ok_and(|error| error.is_some()));
}

#[test]
fn a_closed_socket_is_a_reader_gone() {
    let (reader, socket) = UnixStream::pair().unwrap();
    let mut rig = rig(outlet(&socket), u64::MAX, None);
    rig.pump(0, b"unread");
    drop(reader);
    rig.settle(false);
    rig.relay.close_ends();
    assert!(rig.settle(true).drained);
    assert_eq!(rig.relay.counts().passed_bytes, 6);
}

#[test]
fn giving_up_a_socket_leaves_stderr_its_tail() {
    let (_reader, socket) = UnixStream::pair().unwrap();
    let (reader, pipe) = fd::pipe().unwrap();
    let outlets = [
        Some(outlet(&socket)),
        Some(Outlet::new(Fd::inherited(pipe.fd().number()), true).unwrap()),
    ];
    let max = Some(MaxOutput { head: 300_000, tail: Some(1000) });
    let relay = Relay::with(outlets, false, max, None, false).unwrap();
    let mut rig = Rig::over(relay, [None, Some(reader)], vec![pipe]);
    let stdout = rig.write(0, &pattern(400_000)).unwrap();
    assert_held(&mut rig);
    let stderr = rig.write(1, &pattern(60_000)).unwrap();
    rig.settle(false);
    rig.read();
    rig.settle(false);
    rig.write(1, b"last words").unwrap();
    assert!(rig.settle(true).held);
    rig.relay.give_up();
    rig.read();
    assert!(rig.got[1].ends_with(b"last words"));
    let counts = rig.relay.counts();
    assert_eq!(counts.stdout_bytes, Some(stdout as u64));
    assert_eq!(counts.stderr_bytes, Some(stderr as u64 + 10));
    assert_eq!(counts.passed_bytes + counts.dropped_bytes, (stdout + stderr) as u64 + 10);
    assert!(0 < counts.given_up_bytes && counts.given_up_bytes < counts.dropped_bytes);
}

/// Reader and writer.
fn pipe() -> (OwnedFd, OwnedFd) {
    fd::pipe().unwrap()
}

/// A pipe, opened again.
fn opened(end: &OwnedFd) -> Outlet {
    Outlet::new(Fd::inherited(end.fd().number()), true).unwrap()
}

/// A pipe that could not be.
fn not_opened(end: &OwnedFd) -> Outlet {
    let way = Way::SplicedPipe(Some(Chute::new().unwrap()));
    Outlet::with(Fd::inherited(end.fd().number()), way)
}

/// A head and a tail get through a pipe into which this outlet leads.
fn assert_head_and_tail(outlet: fn(&OwnedFd) -> Outlet) {
    let (reader, end) = pipe();
    let max = Some(MaxOutput { head: 100_000, tail: Some(150_000) });
    let relay = Relay::with([Some(outlet(&end)), None], false, max, None, false).unwrap();
    let mut rig = Rig::over(relay, [Some(reader), None], vec![end]);
    let bytes = pattern(300_000);
    for chunk in bytes.chunks(20_000) {
        rig.pump(0, chunk);
    }
    assert_eq!(rig.finish().passed_bytes, 250_000);
    // There is no stderr to get the line about the rest.
    assert!(rig.got[0] == [&bytes[..100_000], &bytes[150_000..]].concat());
}

#[test]
fn a_pipe_is_opened_again_and_one_that_cannot_be_is_spliced_into() {
    let (_reader, end) = pipe();
    assert!(matches!(opened(&end).way, Way::Pipe(_)));
    assert_head_and_tail(not_opened);
}

/// Makes splice answer this error in this thread, for good.
fn refuse_splice(error: i32) {
    let rules = [(nix::libc::SYS_splice, Vec::new())].into();
    let refuse = SeccompAction::Errno(error.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch).unwrap();
    seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

#[test]
fn where_splice_is_refused_all_is_written() {
    for error in [nix::libc::ENOSYS, nix::libc::EPERM] {
        for outlet in [opened, not_opened] {
            let run = move || {
                refuse_splice(error);
                assert_head_and_tail(outlet);
            };
            // A filter stays with its thread.
            std::thread::spawn(run).join().unwrap();
        }
    }
}

#[test]
fn the_reading_end_of_a_pipe_is_no_outlet() {
    let (reader, end) = pipe();
    let outlet = Outlet::new(Fd::inherited(reader.fd().number()), false).unwrap();
    let relay = Relay::with([Some(outlet), None], false, None, None, false).unwrap();
    let mut rig = Rig::over(relay, [None, None], vec![reader, end]);
    rig.write(0, b"never").unwrap();
    rig.settle(false);
    assert_eq!(rig.relay.counts().dropped_bytes, 5);
    assert!(rig.settle(true).drained);
}

/// A terminal that is stopped, and then goes on.
fn stop_and_go(make: fn(&StdFd) -> Outlet) {
    let (master, slave) = terminal();
    let mut rig = rig(make(&slave), u64::MAX, None);
    let mut got = Vec::new();
    let read = |got: &mut Vec<u8>| {
        let mut buffer = [0; 4096];
        while let Ok(count) = rustix::io::read(&master, &mut buffer) {
            got.extend(&buffer[..count]);
        }
    };
    let bytes = pattern(200_000);
    rig.write(0, &bytes[..10]).unwrap();
    rig.settle(false);
    tcflow(&slave, Action::OOff).unwrap();
    let mut written = 10;
    while let Ok(count) = rig.write(0, &bytes[written..]) {
        written += count;
        rig.settle(false);
        if written == bytes.len() {
            break;
        }
    }
    assert_held(&mut rig);
    read(&mut got);
    assert!(got.len() <= 10, "stopped");
    tcflow(&slave, Action::OOn).unwrap();
    // The kernel moves a terminal's bytes to its other side when it likes.
    let late = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while got.len() < written {
        assert!(std::time::Instant::now() < late, "{} of {written} bytes", got.len());
        rig.settle(false);
        read(&mut got);
        std::thread::yield_now();
    }
    assert!(got == bytes[..written]);
    assert!(rig.settle(true).drained);
}

#[test]
fn a_stopped_terminal_never_blocks() {
    stop_and_go(|slave| {
        let outlet = outlet(slave);
        assert!(matches!(outlet.way, Way::Terminal(_)));
        outlet
    });
}

#[test]
fn a_terminal_that_cannot_be_opened_again_is_fed_little_by_little() {
    stop_and_go(|slave| Outlet::with(inherited(slave), Way::Blocking(LITTLE)));
}

#[test]
fn a_terminal_with_a_slow_reader_never_blocks() {
    for blocking in [false, true] {
        let (master, slave) = terminal();
        let way = if blocking { Some(Way::Blocking(LITTLE)) } else { None };
        let outlet = way.map_or_else(|| outlet(&slave), |way| Outlet::with(inherited(&slave), way));
        let mut rig = rig(outlet, u64::MAX, None);
        let bytes = pattern(300_000);
        let written = rig.write(0, &bytes).unwrap();
        assert_held(&mut rig);
        drop(master);
        rig.settle(false);
        let counts = rig.relay.counts();
        assert_eq!(counts.passed_bytes + counts.dropped_bytes, written as u64);
        assert!(counts.dropped_bytes > 0);
        assert!(rig.settle(true).drained);
    }
}

#[test]
fn what_poll_wrongly_promises_is_tried_now_and_then() {
    // An eventfd has room for small numbers, and is given a large one.
    use rustix::event::{EventfdFlags, eventfd};
    let counter = eventfd(10, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
    let own = fd::duplicate(inherited(&counter)).unwrap();
    let mut rig = rig(Outlet::with(inherited(&counter), Way::Terminal(own)), u64::MAX, None);
    let large = (u64::MAX - 5).to_ne_bytes();
    rig.write(0, &large).unwrap();
    // It comes to rest, though poll(2) would go on promising.
    let Progress { held, retry, .. } = rig.settle(false);
    assert!(held && retry.is_some());
    assert!(event::ppoll(&mut [Wait::writable(inherited(&counter))], Some(0)) == Ok(1));
    assert!(rig.relay.turn(&[Wait::NOTHING; WAITS]).retry.is_some());
    rustix::io::read(&counter, &mut [0; 8]).unwrap();
    let progress = rig.relay.turn(&[Wait::NOTHING; WAITS]);
    assert_eq!((progress.held, progress.retry), (false, None));
    assert_eq!(rig.relay.counts().passed_bytes, 8);
}

#[test]
fn only_the_same_pipe_or_terminal_is_opened_again() {
    let (master, slave) = terminal();
    let own = open_again(inherited(&slave)).expect("a terminal can be opened again");
    assert_ne!(fd::status_flags(own.fd()).unwrap() & NONBLOCK, 0);
    assert_eq!(fd::status_flags(inherited(&slave)).unwrap() & NONBLOCK, 0);
    assert!(open_again(inherited(&master)).is_none());
    let (reader, writer) = std::io::pipe().unwrap();
    assert!(open_again(inherited(&reader)).is_none(), "who may only read may not write");
    assert!(open_again(inherited(&writer)).is_some());
    let null = std::fs::OpenOptions::new().write(true).open("/dev/null").unwrap();
    assert!(open_again(inherited(&null)).is_none(), "neither a pipe nor a terminal");
}

const NONBLOCK: u32 = 0o4000;
