//! The relay between real pipes: what arrives, in which order, and that nothing
//! blocks or spins.

mod model;
mod room;

use std::io::Read;
use std::os::fd::AsRawFd;

use super::*;
use crate::sys::errno::Errno;
use crate::sys::event::ppoll;
use crate::sys::fd::OwnedFd;
use crate::sys::file::Open;

/// A command's end, a relay and the readers, all in one thread: a call that
/// blocked would hang the test.
pub(super) struct Rig {
    pub(super) relay: Relay,
    readers: [Option<OwnedFd>; 2],
    outlets: Vec<OwnedFd>,
    /// What the readers got.
    pub(super) got: [Vec<u8>; 2],
    over: u32,
}

fn keep(max: Option<(u64, Option<u64>)>) -> Option<MaxOutput> {
    max.map(|(head, tail)| MaxOutput { head, tail })
}

/// More than anything here takes, in nanoseconds.
const LONG: u64 = 60_000_000_000;

/// An open file of our own for the same pipe.
fn again(fd: Fd<'_>) -> OwnedFd {
    let path = std::ffi::CString::new(format!("/proc/self/fd/{}", fd.number())).unwrap();
    file::open(file::CWD, &path, Open::Write).expect("/proc is there in tests")
}

impl Rig {
    /// Two pipes, to two readers.
    fn pipes(max: Option<(u64, Option<u64>)>, limit: Option<u64>) -> Self {
        let ((out, out_end), (err, err_end)) = (fd::pipe().unwrap(), fd::pipe().unwrap());
        let relay =
            Relay::new([number(&out_end), number(&err_end)], keep(max), limit, false).unwrap();
        Self::over(relay, [Some(out), Some(err)], vec![out_end, err_end])
    }

    /// stdout and stderr to one reader; as one open file, or as two.
    fn merged(one_file: bool, max: Option<(u64, Option<u64>)>) -> Self {
        let (out, end) = fd::pipe().unwrap();
        let other = if one_file { fd::duplicate(end.fd()).unwrap() } else { again(end.fd()) };
        let relay = Relay::new([number(&end), number(&other)], keep(max), None, false).unwrap();
        Self::over(relay, [Some(out), None], vec![end, other])
    }

    pub(super) fn over(relay: Relay, readers: [Option<OwnedFd>; 2], outlets: Vec<OwnedFd>) -> Self {
        for reader in readers.iter().flatten() {
            fd::set_nonblocking(reader).unwrap();
        }
        Self { relay, readers, outlets, got: [Vec::new(), Vec::new()], over: 0 }
    }

    /// Writes as the command does, all of it or as much as fits.
    pub(super) fn write(&self, stream: usize, bytes: &[u8]) -> Result<usize> {
        let end = Fd::inherited(self.relay.ends()[stream].expect("a pipe"));
        fd::write(again(end).fd(), bytes)
    }

    /// What can be moved now is moved; returns what was last reported.
    pub(super) fn settle(&mut self, drain: bool) -> Progress {
        let mut last = Progress::default();
        // Each turn moves something, so as many as this would be a spin.
        for round in 0..10_000 {
            let mut waits = [Wait::NOTHING; WAITS];
            self.relay.waits(&mut waits);
            let fired = ppoll(&mut waits, Some(0)).unwrap();
            if round > 0 && fired == 0 && (!drain || last.drained || last.held) {
                return last;
            }
            last = if drain { self.relay.drain(&waits) } else { self.relay.turn(&waits) };
            self.over += u32::from(last.over_limit);
        }
        panic!("the relay spins: {:?}", self.relay);
    }

    /// The readers take what is there.
    pub(super) fn read(&mut self) {
        for (reader, got) in self.readers.iter().zip(&mut self.got) {
            let mut buffer = [0; 4096];
            while let Some(reader) = reader {
                match fd::read(reader.fd(), &mut buffer) {
                    Ok(count) if count > 0 => got.extend(&buffer[..count]),
                    Ok(_) | Err(Errno::EAGAIN | Errno::EIO) => break,
                    Err(errno) => panic!("cannot read: {errno:?}"),
                }
            }
        }
    }

    pub(super) fn pump(&mut self, stream: usize, bytes: &[u8]) {
        assert_eq!(self.write(stream, bytes), Ok(bytes.len()));
        self.settle(false);
        self.read();
    }

    /// The end of the run, with readers that read.
    pub(super) fn finish(&mut self) -> Output {
        for _ in 0..10_000 {
            let progress = self.settle(true);
            self.read();
            if progress.drained {
                let counts = self.relay.counts();
                assert_eq!(counts.given_up_bytes, 0);
                return counts;
            }
        }
        panic!("never drained: {:?}", self.relay);
    }

    fn text(&self, stream: usize) -> &str {
        std::str::from_utf8(&self.got[stream]).unwrap()
    }
}

pub(super) fn number(fd: &OwnedFd) -> Option<Fd<'static>> {
    Some(Fd::inherited(fd.fd().number()))
}

/// Bytes in which each place is told from its neighbours.
pub(super) fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|at| ((at * 7) ^ (at >> 8)).to_le_bytes()[0]).collect()
}

#[test]
fn everything_passes_and_is_counted() {
    let mut rig = Rig::pipes(Some((u64::MAX, None)), None);
    rig.pump(0, b"out\0\xff");
    rig.pump(1, b"err");
    assert_eq!((&rig.got[0][..], &rig.got[1][..]), (&b"out\0\xff"[..], &b"err"[..]));
    let counts = Output {
        relayed: true,
        stdout_bytes: Some(5),
        stderr_bytes: Some(3),
        passed_bytes: 8,
        dropped_bytes: 0,
        given_up_bytes: 0,
    };
    assert_eq!(rig.finish(), counts);
}

#[test]
fn head_ends_at_its_last_byte() {
    let mut rig = Rig::pipes(Some((10, None)), None);
    rig.pump(0, b"1234567");
    rig.pump(1, b"abcdef");
    rig.pump(0, b"89");
    let counts = rig.finish();
    assert_eq!((rig.text(0), rig.text(1)), ("1234567", "abc"));
    assert_eq!((counts.passed_bytes, counts.dropped_bytes), (10, 5));
}

#[test]
fn tail_follows_head_and_each_byte_finds_its_stream() {
    let mut rig = Rig::pipes(Some((3, Some(6))), None);
    rig.pump(0, b"one");
    rig.pump(0, b"lost");
    rig.pump(1, b"xyz");
    rig.pump(0, b"end");
    assert_eq!((rig.text(0), rig.text(1)), ("one", ""));
    let counts = rig.finish();
    assert_eq!(rig.text(0), "oneend");
    assert_eq!(rig.text(1), "corral: 4 bytes left out\nxyz");
    assert_eq!((counts.passed_bytes, counts.dropped_bytes), (9, 4));
}

#[test]
fn without_a_gap_there_is_no_line() {
    let mut rig = Rig::pipes(Some((3, Some(4))), None);
    rig.pump(0, b"abcd");
    rig.pump(1, b"efg");
    assert_eq!(rig.finish().dropped_bytes, 0);
    assert_eq!((rig.text(0), rig.text(1)), ("abcd", "efg"));
}

#[test]
fn a_tail_of_nothing_still_says_what_was_left_out() {
    let mut rig = Rig::pipes(Some((0, Some(0))), None);
    rig.pump(0, &pattern(5000));
    assert_eq!(rig.finish().dropped_bytes, 5000);
    assert_eq!((rig.text(0), rig.text(1)), ("", "corral: 5000 bytes left out\n"));
}

#[test]
fn a_long_tail_goes_through_a_small_pipe() {
    let mut rig = Rig::pipes(Some((0, Some(1_000_000))), None);
    let bytes = pattern(3_000_000);
    for chunk in bytes.chunks(60_000) {
        rig.pump(0, chunk);
    }
    assert_eq!(rig.finish().passed_bytes, 1_000_000);
    assert!(rig.got[0] == bytes[2_000_000..]);
}

#[test]
fn one_open_file_gets_one_pipe_and_keeps_its_order() {
    let mut rig = Rig::merged(true, Some((u64::MAX, None)));
    assert_eq!(rig.relay.ends()[0], rig.relay.ends()[1]);
    for round in 0..50_u8 {
        assert_eq!(rig.write(usize::from(round % 2), &[round]), Ok(1));
    }
    let counts = rig.finish();
    assert_eq!(rig.got[0], (0..50).collect::<Vec<_>>());
    assert_eq!((counts.stdout_bytes, counts.stderr_bytes), (None, None));
    assert_eq!(counts.passed_bytes, 50);
}

#[test]
fn one_pipe_gets_the_line_between_head_and_tail() {
    let mut rig = Rig::merged(true, Some((4, Some(3))));
    rig.pump(1, b"headgone");
    rig.pump(0, b"end");
    rig.finish();
    assert_eq!(rig.text(0), "headcorral: 4 bytes left out\nend");
}

#[test]
fn two_open_files_get_the_tail_in_order_of_arrival() {
    let mut rig = Rig::merged(false, Some((1, Some(6))));
    assert_ne!(rig.relay.ends()[0], rig.relay.ends()[1]);
    for (stream, text) in [(0, "-gone"), (0, "a"), (1, "B"), (0, "cd"), (1, "EF")] {
        rig.pump(stream, text.as_bytes());
    }
    rig.finish();
    assert_eq!(rig.text(0), "-corral: 4 bytes left out\naBcdEF");
}

#[test]
fn a_closed_outlet_is_neither_piped_nor_passed() {
    let (reader, outlet) = fd::pipe().unwrap();
    let relay = Relay::new([None, number(&outlet)], keep(Some((9, Some(9)))), None, false).unwrap();
    let mut rig = Rig::over(relay, [None, Some(reader)], vec![outlet]);
    assert_eq!(rig.relay.ends()[0], None);
    rig.pump(1, b"alone");
    assert_eq!(rig.finish().stdout_bytes, Some(0));
    assert_eq!(rig.text(1), "alone");
    let mut none = Relay::new([None, None], keep(Some((9, Some(9)))), None, false).unwrap();
    assert!(none.drain(&[Wait::NOTHING; WAITS]).drained);
}

#[test]
fn the_line_is_not_owed_to_a_closed_stderr() {
    let (reader, outlet) = fd::pipe().unwrap();
    let relay = Relay::new([number(&outlet), None], keep(Some((1, Some(1)))), None, false).unwrap();
    let mut rig = Rig::over(relay, [Some(reader), None], vec![outlet]);
    rig.pump(0, b"abc");
    rig.finish();
    assert_eq!(rig.text(0), "ac");
}

#[test]
fn end_of_file_is_heeded_and_leaves_nothing_to_wait_for() {
    let mut rig = Rig::pipes(Some((9, None)), None);
    rig.relay.close_ends();
    rig.settle(false);
    let mut waits = [Wait::NOTHING; WAITS];
    rig.relay.waits(&mut waits);
    assert_eq!(ppoll(&mut waits, Some(0)), Ok(0));
    assert!(rig.settle(true).drained);
}

#[test]
fn a_reader_that_goes_is_a_reader_gone_for_the_command_too() {
    for full in [false, true] {
        let mut rig = Rig::pipes(Some((u64::MAX, None)), None);
        let mut written = 0;
        if full {
            written += rig.write(0, &pattern(300_000)).unwrap();
            assert!(rig.settle(false).held);
        }
        let end = again(Fd::inherited(rig.relay.ends()[0].unwrap()));
        rig.readers[0] = None;
        rig.settle(false);
        assert_eq!(fd::write(end.fd(), b"x"), Err(Errno::EPIPE));
        rig.pump(1, b"the other lives");
        assert_eq!(rig.text(1), "the other lives");
        let counts = rig.finish();
        assert_eq!(counts.stdout_bytes, Some(written as u64));
        assert_eq!(counts.passed_bytes + counts.dropped_bytes, written as u64 + 15);
        assert!(counts.dropped_bytes > 0 || !full);
    }
}

#[test]
fn a_reader_gone_loses_its_part_of_the_tail_only() {
    let mut rig = Rig::pipes(Some((0, Some(100))), None);
    rig.pump(0, b"nobody");
    rig.pump(1, b"somebody");
    rig.readers[0] = None;
    let counts = rig.finish();
    assert_eq!(rig.text(1), "somebody");
    assert_eq!((counts.passed_bytes, counts.dropped_bytes), (8, 6));
}

#[test]
fn a_slow_reader_holds_its_command_and_nobody_else() {
    let mut rig = Rig::pipes(Some((u64::MAX, None)), None);
    let bytes = pattern(4_000_000);
    let mut written = 0;
    while let Ok(count) = rig.write(0, &bytes[written..]) {
        written += count;
        // `settle` ends only when nothing fires: a blocked reader costs no turns.
        rig.settle(false);
    }
    assert!(written < bytes.len(), "backpressure");
    assert_eq!(rig.write(0, b"x"), Err(Errno::EAGAIN));
    assert_eq!(rig.write(1, b"quick"), Ok(5));
    assert!(rig.settle(false).held);
    let mut buffer = [0; 10];
    assert_eq!(fd::read(rig.readers[1].as_ref().unwrap().fd(), &mut buffer), Ok(5));
    let counts = rig.finish();
    assert!(rig.got[0] == bytes[..written]);
    assert_eq!(counts.passed_bytes, written as u64 + 5);
}

#[test]
fn an_outlet_that_others_have_filled_is_waited_for() {
    let mut rig = Rig::pipes(Some((u64::MAX, None)), None);
    let other = again(rig.outlets[0].fd());
    while fd::write(other.fd(), &[0; 4096]).is_ok() {}
    assert_eq!(rig.write(0, b"later"), Ok(5));
    assert!(rig.settle(false).held);
    assert_eq!(rig.finish().passed_bytes, 5);
    assert!(rig.got[0].ends_with(b"\0later"));
}

#[test]
fn what_is_over_the_head_is_dropped_though_the_reader_is_slow() {
    let mut rig = Rig::pipes(Some((300_000, Some(10))), None);
    assert_eq!(rig.write(0, &pattern(299_990)), Ok(299_990));
    assert!(rig.settle(false).held);
    // stderr uses the head up; what stdout still holds belongs to the tail.
    rig.pump(1, &pattern(60_000));
    rig.pump(1, &pattern(60_000));
    rig.pump(1, &pattern(60_000));
    rig.pump(1, &pattern(60_000));
    assert!(!rig.settle(false).held);
    let counts = rig.finish();
    assert_eq!(counts.passed_bytes, 300_010);
    assert_eq!(counts.dropped_bytes, 239_980);
}

#[test]
fn the_output_limit_is_exact_and_told_once() {
    let mut rig = Rig::pipes(None, Some(10));
    rig.pump(0, b"12345");
    rig.pump(1, b"67890");
    assert_eq!(rig.over, 0);
    rig.pump(1, b"!");
    assert_eq!(rig.over, 1);
    rig.pump(0, &pattern(5000));
    let counts = rig.finish();
    assert_eq!((rig.text(0), rig.text(1), rig.over), ("12345", "67890", 1));
    assert_eq!((counts.passed_bytes, counts.dropped_bytes), (10, 5001));
}

#[test]
fn a_limit_passed_in_one_write_is_told_at_the_end_too() {
    let mut rig = Rig::pipes(Some((2, Some(2))), Some(6));
    assert_eq!(rig.write(0, b"abcdefghi"), Ok(9));
    rig.finish();
    assert_eq!(rig.over, 1);
    assert_eq!((rig.text(0), rig.text(1)), ("abef", "corral: 2 bytes left out\n"));
}

#[test]
fn draining_does_not_wait_for_an_outsider() {
    let mut rig = Rig::pipes(Some((u64::MAX, None)), None);
    let outsider = again(Fd::inherited(rig.relay.ends()[0].unwrap()));
    assert_eq!(fd::write(outsider.fd(), &pattern(200_000)), Ok(200_000));
    assert!(rig.settle(true).held);
    // It writes on while what was there is still blocked: not ours any more.
    assert_eq!(fd::write(outsider.fd(), b"late"), Ok(4));
    assert_eq!(rig.finish().passed_bytes, 200_000);
    assert!(rig.got[0] == pattern(200_000));
}

#[test]
fn what_is_given_up_is_counted() {
    let mut rig = Rig::pipes(Some((u64::MAX, None)), None);
    assert_eq!(rig.write(0, &pattern(300_000)), Ok(300_000));
    assert!(rig.settle(true).held);
    rig.relay.give_up();
    rig.read();
    let counts = rig.relay.counts();
    assert_eq!(counts.passed_bytes, rig.got[0].len() as u64);
    assert_eq!(counts.passed_bytes + counts.dropped_bytes, 300_000);
    assert_eq!(counts.given_up_bytes, counts.dropped_bytes);
    assert!(rig.settle(true).drained);
    assert_eq!(rig.relay.counts(), counts);
}

#[test]
fn a_tail_that_its_reader_does_not_take_is_given_up() {
    let mut rig = Rig::pipes(Some((0, Some(150_000))), None);
    rig.write(0, &pattern(200_000)).unwrap();
    rig.write(1, b"ok").unwrap();
    assert!(rig.settle(true).held);
    rig.relay.give_up();
    rig.read();
    let counts = rig.relay.counts();
    assert_eq!(rig.text(1), "corral: 50002 bytes left out\nok");
    assert_eq!(rig.got[0].len() as u64 + 2, counts.passed_bytes);
    assert_eq!(counts.passed_bytes + counts.dropped_bytes, 200_002);
    assert_eq!(counts.given_up_bytes, counts.dropped_bytes - 50_002);
    assert!(counts.given_up_bytes > 0);
}

#[test]
fn inherited_descriptors_stay_as_they_are() {
    let look = |fd: &OwnedFd| {
        let borrowed = rustix_fd(fd);
        (fd::status_flags(fd.fd()).unwrap(), rustix::pipe::fcntl_getpipe_size(borrowed).unwrap())
    };
    let (_reader, outlet) = fd::pipe().unwrap();
    let before = look(&outlet);
    let relay = Relay::new([number(&outlet), None], keep(Some((1, Some(5)))), None, false).unwrap();
    let end = Fd::inherited(relay.ends()[0].unwrap());
    assert_eq!(fd::status_flags(end).unwrap() & O_NONBLOCK, 0, "the command's end blocks");
    let mut rig = Rig::over(relay, [None, None], vec![]);
    rig.pump(0, &pattern(50_000));
    rig.settle(true);
    assert_eq!(look(&outlet), before);
}

const O_NONBLOCK: u32 = 0o4000;

fn rustix_fd(fd: &OwnedFd) -> rustix::fd::BorrowedFd<'_> {
    #[expect(unsafe_code, reason = "two libraries, two types for the same number")]
    // SAFETY: the number is open as long as `fd` lives.
    unsafe {
        rustix::fd::BorrowedFd::borrow_raw(fd.fd().number())
    }
}

#[test]
fn the_guess_tells_one_open_file_from_two() {
    let dir = std::env::temp_dir();
    let path = dir.join(format!("corral-relay-{}", std::process::id()));
    let open = || std::fs::File::create(&path).unwrap();
    let (one, two) = (open(), open());
    let fd = |file: &std::fs::File| Fd::inherited(file.as_raw_fd());
    std::fs::remove_file(&path).unwrap();
    assert!(looks_same(fd(&one), fd(&one)));
    assert!(looks_same(fd(&one), fd(&two)), "both at the start: a guess");
    std::io::Write::write_all(&mut &one, b"x").unwrap();
    assert!(!looks_same(fd(&one), fd(&two)));
    assert!(!is_same_file(fd(&one), fd(&two)));
    assert!(is_same_file(fd(&one), fd(&one.try_clone().unwrap())));
    let (reader, writer) = std::io::pipe().unwrap();
    let (reader, writer) = (Fd::inherited(reader.as_raw_fd()), Fd::inherited(writer.as_raw_fd()));
    assert!(looks_same(reader, writer) && !looks_same(fd(&one), writer));
}

#[test]
fn numbers_are_decimal() {
    for value in [0, 7, 10, 4096, u64::MAX] {
        let mut digits = [0; MOST_DIGITS];
        assert_eq!(decimal(value, &mut digits), value.to_string().as_bytes());
    }
}

#[test]
fn what_moves_is_told_and_what_stands_too() {
    let mut rig = Rig::pipes(Some((u64::MAX, None)), None);
    let nothing = [Wait::NOTHING; WAITS];
    assert!(!rig.relay.turn(&nothing).moved);
    assert_eq!(rig.write(0, &pattern(300_000)), Ok(300_000));
    assert!(rig.relay.drain(&nothing).moved);
    assert!(rig.settle(true).held);
    assert!(!rig.relay.drain(&nothing).moved, "the reader takes nothing");
    rig.read();
    let mut waits = nothing;
    rig.relay.waits(&mut waits);
    assert_eq!(ppoll(&mut waits, Some(0)), Ok(1));
    assert!(rig.relay.drain(&waits).moved, "the reader has made room");
}

#[test]
fn a_quiet_relay_writes_no_line_of_its_own() {
    let ((out, out_end), (err, err_end)) = (fd::pipe().unwrap(), fd::pipe().unwrap());
    let outlets = [number(&out_end), number(&err_end)];
    let relay = Relay::new(outlets, keep(Some((2, Some(2)))), None, true).unwrap();
    let mut rig = Rig::over(relay, [Some(out), Some(err)], vec![out_end, err_end]);
    rig.pump(1, b"abcdef");
    let counts = rig.finish();
    assert_eq!((rig.text(0), rig.text(1)), ("", "abef"));
    assert_eq!((counts.passed_bytes, counts.dropped_bytes), (4, 2));
}

/// Two threads, a pipe that is smaller than what goes through it.
#[test]
fn a_large_output_arrives_whole() {
    let bytes = pattern(20_000_000);
    let (mut reader, writer) = std::io::pipe().unwrap();
    let outlet = Fd::inherited(writer.as_raw_fd());
    let mut relay =
        Relay::new([Some(outlet), None], keep(Some((u64::MAX, None))), None, false).unwrap();
    let end = again(Fd::inherited(relay.ends()[0].unwrap()));
    relay.close_ends();
    let source = bytes.clone();
    let command = std::thread::spawn(move || {
        let mut rest = &source[..];
        while !rest.is_empty() {
            match fd::write(end.fd(), rest) {
                Ok(count) => rest = &rest[count..],
                Err(Errno::EAGAIN) => {
                    assert_eq!(ppoll(&mut [Wait::writable(end.fd())], Some(LONG)), Ok(1));
                }
                Err(errno) => panic!("{errno:?}"),
            }
        }
    });
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut got = Vec::new();
        reader.read_to_end(&mut got).unwrap();
        let _ = sender.send(got);
    });
    let mut waits = [Wait::NOTHING; WAITS];
    while !relay.streams.iter().flatten().all(Stream::is_at_end) {
        relay.waits(&mut waits);
        assert_ne!(ppoll(&mut waits, Some(LONG)), Ok(0));
        relay.turn(&waits);
    }
    assert_eq!(relay.counts().passed_bytes, 20_000_000);
    // Both are write ends: the one inherited, and the relay's own of the same pipe.
    drop((relay, writer));
    command.join().unwrap();
    let got = receiver.recv_timeout(std::time::Duration::from_nanos(LONG));
    assert!(got.expect("the end of the file") == bytes);
}
