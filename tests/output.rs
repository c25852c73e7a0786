//! Does a relay pass on what the command writes, and nothing else?
//!
//! Byte for byte, in order, up to the limits and with exact counts, into
//! whatever corral's own stdout is: a pipe, a file, a socket, a full device, a
//! reader that is slow, gone or asleep. And where no limit needs to see bytes,
//! the command has corral's own descriptors.

mod common;
mod kit;

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::time::Duration;

use common::{Run, Running, Signal};
use kit::{assert_record, have, number, only_line, script};

const SOON: Duration = Duration::from_secs(15);

fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap()
}

/// What is in a pipe whose writers are all gone.
fn drain(read: OwnedFd) -> Vec<u8> {
    let mut bytes = Vec::new();
    File::from(read).read_to_end(&mut bytes).unwrap();
    bytes
}

/// Bytes of every value in no period that a buffer has.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        })
        .collect()
}

#[test]
fn no_relay_without_a_limit() {
    let (read, write) = pipe();
    let ours = format!("pipe:[{}]\n", rustix::fs::fstat(&read).unwrap().st_ino);
    let text = "readlink /proc/$$/fd/1";
    let outcome = script(&["--wall=20s"], text).stdout(write).run();
    outcome.assert_status(0);
    assert_eq!(String::from_utf8_lossy(&drain(read)), ours);
    assert_eq!(outcome.record("/output/relayed"), false);
    let outcome = script(&["--max-output=1M"], "echo x").run();
    assert_eq!(outcome.record("/output/relayed"), true);
}

#[test]
fn bytes_pass_exactly() {
    let bytes = noise(3_000_000);
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("noise");
    std::fs::write(&path, &bytes).unwrap();
    for option in ["--max-output=10M", "--output-limit=10M", "--max-output=10M+10M"] {
        let outcome = script(&[option], "cat \"$P\"; head -c 1000001 \"$P\" >&2; exit 5")
            .env("P", &path)
            .run();
        outcome.assert_status(5);
        outcome.assert_nothing_left();
        assert!(outcome.stdout == bytes, "{option}: {outcome:#?}");
        assert_eq!(outcome.stderr_bytes, 1_000_001, "{option}");
        assert_record(&outcome, "exited", 5);
        assert_eq!(number(&outcome, "/output/stdout_bytes"), 3_000_000);
        assert_eq!(number(&outcome, "/output/stderr_bytes"), 1_000_001);
        assert_eq!(number(&outcome, "/output/passed_bytes"), 4_000_001);
        assert_eq!(number(&outcome, "/output/dropped_bytes"), 0);
    }
}

#[test]
fn odd_bytes_in_small_pieces() {
    let outcome = script(
        &["--max-output=1M"],
        "printf 'x\\000\\377\\376\\033[31m\\r\\n'; printf ''; printf '\\n'; printf 'no newline'",
    )
    .run();
    outcome.assert_status(0);
    assert_eq!(outcome.stdout, b"x\0\xff\xfe\x1b[31m\r\n\nno newline");
    assert_eq!(outcome.stderr, "");
}

#[test]
fn a_head_is_cut_and_the_rest_is_counted() {
    let outcome = script(&["--max-output=10"], "printf 0123456789abcdef; exit 6").run();
    outcome.assert_status(6);
    assert_eq!(outcome.stdout, b"0123456789");
    // With HEAD alone nothing is added.
    assert_eq!(outcome.stderr, "");
    assert_eq!(number(&outcome, "/output/passed_bytes"), 10);
    assert_eq!(number(&outcome, "/output/dropped_bytes"), 6);
    assert_eq!(number(&outcome, "/output/stdout_bytes"), 16);

    // Both streams together.
    let text = "printf 01234; sleep 0.3; printf abcde >&2; sleep 0.3; printf 56789; \
                sleep 0.3; printf fghij >&2";
    let outcome = script(&["--max-output=12"], text).run();
    outcome.assert_status(0);
    assert_eq!((outcome.stdout.as_slice(), outcome.stderr.as_str()), (&b"0123456"[..], "abcde"));
    assert_eq!(number(&outcome, "/output/passed_bytes"), 12);
    assert_eq!(number(&outcome, "/output/dropped_bytes"), 8);
}

#[test]
fn a_tail_comes_at_the_end() {
    let outcome =
        script(&["--max-output=10+5"], "printf 0123456789abcdefghijklmnopqrstuvwxyz; exit 6").run();
    outcome.assert_status(6);
    assert_eq!(outcome.stdout, b"0123456789vwxyz");
    assert!(only_line(&outcome).contains("21"), "{outcome:#?}");
    assert_eq!(number(&outcome, "/output/passed_bytes"), 15);
    assert_eq!(number(&outcome, "/output/dropped_bytes"), 21);

    // All of it fits: nothing was left out, so nothing is said.
    for text in ["printf 0123456789abcde", "printf 0123456789a", "printf 0", "true"] {
        let outcome = script(&["--max-output=10+5"], text).run();
        outcome.assert_status(0);
        let all = Run::argv(["sh", "-c", text]).run().stdout;
        assert_eq!(outcome.stdout, all);
        assert_eq!(outcome.stderr, "", "{text}");
        assert_eq!(number(&outcome, "/output/dropped_bytes"), 0);
    }
    let outcome = script(&["--max-output=10+5"], "printf 0123456789abcdef").run();
    assert_eq!(outcome.stdout, b"0123456789bcdef");
    assert!(only_line(&outcome).contains('1'));
}

#[test]
fn a_tail_goes_to_its_own_stream() {
    // In time, what is last is known; each byte goes where it was written to.
    let text = "printf HEAD; sleep 0.2; printf xxxxxxxx; sleep 0.2; printf '12\\n' >&2; \
                sleep 0.2; printf 34";
    let outcome = script(&["--max-output=4+5"], text).run();
    outcome.assert_status(0);
    assert_eq!(outcome.stdout, b"HEAD34");
    assert!(outcome.stderr.ends_with("\n12\n"), "{outcome:#?}");
    assert_eq!(outcome.stderr.lines().count(), 2, "{outcome:#?}");
    assert_eq!(number(&outcome, "/output/dropped_bytes"), 8);
}

#[test]
fn a_large_tail() {
    let bytes = noise(2_500_000);
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("noise");
    std::fs::write(&path, &bytes).unwrap();
    let outcome = script(&["--max-output=100K+300K"], "cat \"$P\"").env("P", &path).run();
    outcome.assert_status(0);
    let (head, tail) = (100 << 10, 300 << 10);
    let wanted = [&bytes[..head], &bytes[bytes.len() - tail..]].concat();
    assert!(outcome.stdout == wanted, "{outcome:#?}");
    let left_out = bytes.len() - head - tail;
    assert!(only_line(&outcome).contains(&left_out.to_string()));
    assert_eq!(number(&outcome, "/output/dropped_bytes"), left_out as u64);
}

#[test]
fn a_tail_after_a_limit() {
    // Also of a command that was ended.
    let text = "printf 0123456789; printf abcdefgh; sleep 0.3; echo ready >&2; sleep 30";
    let outcome = script(&["--max-output=4+9", "--wall=800ms"], text).run();
    outcome.assert_status(124);
    outcome.assert_nothing_left();
    assert_eq!(outcome.stdout, b"0123fgh", "{outcome:#?}");
    assert!(outcome.stderr.contains("ready\n"), "{outcome:#?}");
}

#[test]
fn very_much_output_under_a_cap() {
    let outcome = script(
        &["--max-output=1M"],
        "head -c 200000000 /dev/zero | tr '\\0' x; echo said >&2; exit 0",
    )
    .run();
    outcome.assert_status(0);
    outcome.assert_nothing_left();
    assert_eq!(outcome.stdout_bytes, 1 << 20);
    assert!(outcome.stdout.iter().all(|byte| *byte == b'x'));
    assert_record(&outcome, "exited", 0);
    assert_eq!(number(&outcome, "/output/stdout_bytes"), 200_000_000);
    assert_eq!(number(&outcome, "/output/stderr_bytes"), 5);
    assert_eq!(number(&outcome, "/output/passed_bytes"), 1 << 20);
    assert_eq!(number(&outcome, "/output/dropped_bytes"), 200_000_005 - (1 << 20));
    let rss = number(&outcome, "/usage/max_rss_bytes");
    assert!(rss < 64 << 20, "{rss}");
}

#[test]
fn an_output_limit() {
    // "Pass" is to go beyond.
    let outcome = script(&["--output-limit=1000"], "head -c 1000 /dev/zero; exit 2").run();
    outcome.assert_status(2);
    assert_eq!(outcome.stdout_bytes, 1000);
    for text in [
        "head -c 1001 /dev/zero; exec sleep 30",
        "head -c 600 /dev/zero; head -c 401 /dev/zero >&2; exec sleep 30",
        "yes & yes >&2 & setsid yes & wait",
    ] {
        let outcome = script(&["--output-limit=1000"], text).keep(1 << 16).run();
        outcome.assert_status(121);
        outcome.assert_nothing_left();
        assert!(outcome.elapsed < SOON);
        assert_record(&outcome, "output", 121);
        assert!(outcome.stderr.contains("corral: "), "{outcome:#?}");
    }
    // It counts what was written, passed on or not.
    let outcome = script(&["--output-limit=1M", "--max-output=100"], "yes; exec sleep 30").run();
    outcome.assert_status(121);
    assert_eq!(outcome.stdout_bytes, 100);
    assert!(number(&outcome, "/output/stdout_bytes") > 1 << 20);
}

#[test]
fn one_file_for_both_keeps_the_order() {
    let text = "i=0; while [ $i -lt 400 ]; do echo $i; echo $((i+1)) >&2; i=$((i+2)); done";
    let wanted: String = (0..400).map(|n| format!("{n}\n")).collect();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("both");
    let opened = File::create(&path).unwrap();
    let outcome = script(&["--max-output=10M"], text)
        .stdout(opened.try_clone().unwrap())
        .stderr(opened)
        .run();
    outcome.assert_status(0);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), wanted);
    // Nobody can tell them apart, so nobody claims to.
    assert!(outcome.record("/output/stdout_bytes").is_null(), "{outcome:#?}");
    assert!(outcome.record("/output/stderr_bytes").is_null());
    assert_eq!(number(&outcome, "/output/passed_bytes"), wanted.len() as u64);

    let (read, write) = pipe();
    let reader = std::thread::spawn(move || drain(read));
    let outcome = script(&["--output-limit=10M"], text)
        .stdout(write.try_clone().unwrap())
        .stderr(write)
        .run();
    outcome.assert_status(0);
    assert!(outcome.record("/output/stdout_bytes").is_null());
    assert_eq!(reader.join().unwrap(), wanted.as_bytes());

    // A socket too, and shell redirections.
    let outcome = Run::shell(&format!("$C --max-output=10M -- sh -c '{text}' 2>&1 | cat")).run();
    assert_eq!(outcome.stdout, wanted.as_bytes());
}

#[test]
fn two_descriptors_of_the_same_place_are_two() {
    // One path opened twice: two offsets, so two files as far as bytes go.
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("both");
    let open = || OpenOptions::new().create(true).append(true).open(&path).unwrap();
    let outcome =
        script(&["--max-output=1M"], "echo out; echo err >&2").stdout(open()).stderr(open()).run();
    outcome.assert_status(0);
    let mut lines: Vec<String> =
        std::fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    assert_eq!(lines, ["err", "out"]);
}

#[test]
fn into_a_file() {
    let bytes = noise(1_200_000);
    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("noise");
    std::fs::write(&source, &bytes).unwrap();
    // At an offset, and appended (which splice refuses).
    for append in [false, true] {
        let path = place.path().join(format!("into-{append}"));
        std::fs::write(&path, b"before\n").unwrap();
        let mut file = OpenOptions::new().write(!append).append(append).open(&path).unwrap();
        if !append {
            std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0)).unwrap();
        }
        let after = file.try_clone().unwrap();
        let outcome =
            script(&["--max-output=100M"], "cat \"$P\"").env("P", &source).stdout(file).run();
        outcome.assert_status(0);
        assert_eq!(number(&outcome, "/output/passed_bytes"), 1_200_000);
        (&after).write_all(b"after\n").unwrap();
        let written = std::fs::read(&path).unwrap();
        let wanted = [b"before\n", bytes.as_slice(), b"after\n"].concat();
        assert!(written == wanted, "append {append}: {} bytes", written.len());
    }
}

#[test]
fn into_a_socket() {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    let bytes = noise(1_200_000);
    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("noise");
    std::fs::write(&source, &bytes).unwrap();
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    let run = script(&["--max-output=100M"], "cat \"$P\"").env("P", &source).stdout(theirs).start();
    let got = drain(ours);
    let outcome = run.wait();
    outcome.assert_status(0);
    assert!(got == bytes, "{} bytes: {outcome:#?}", got.len());
}

#[test]
fn into_a_full_device() {
    for option in ["--max-output=1M", "--max-output=2+2", "--output-limit=1M"] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let outcome = script(&[option], "echo hello; exit 4").stdout(full).run();
        outcome.assert_status(4);
        outcome.assert_nothing_left();
        assert_eq!(number(&outcome, "/output/passed_bytes"), 0, "{outcome:#?}");
    }
    // Neither does a flood into it hold up the limit.
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let outcome = script(&["--max-output=1G", "--wall=800ms"], "yes; exit 0").stdout(full).run();
    outcome.assert_nothing_left();
    assert!(outcome.elapsed < SOON, "{outcome:#?}");
    assert!(matches!(outcome.status, Some(0 | 124)), "{outcome:#?}");
}

#[test]
fn a_closed_reader_ends_the_writer() {
    if !have(&["bash"]) {
        return;
    }
    for options in ["--max-output=1G", "--output-limit=1G", "--max-output=1G+1M"] {
        let text = format!("$C {options} --wall=20s -- yes | head -n 1; echo ${{PIPESTATUS[0]}}");
        let outcome = Run::argv(["bash", "-c", &text]).run();
        outcome.assert_status(0);
        outcome.assert_nothing_left();
        assert!(outcome.elapsed < SOON, "{outcome:#?}");
        assert_eq!(outcome.stdout, b"y\n141\n", "{outcome:#?}");
    }
}

#[test]
fn a_reader_that_is_gone_from_the_start() {
    let (read, write) = pipe();
    drop(read);
    let outcome = script(
        &["--max-output=1M", "--wall=20s"],
        "trap '' PIPE; while echo x 2>/dev/null; do :; done; echo over >&2; exit 7",
    )
    .stdout(write)
    .run();
    // It ignores SIGPIPE, so it sees EPIPE, and goes on with the other stream.
    outcome.assert_status(7);
    assert_eq!(outcome.stderr, "over\n", "{outcome:#?}");
}

/// A run whose stdout nobody reads; the reader's end is returned.
fn unread(options: &[&str], text: &str) -> (OwnedFd, Running) {
    let (read, write) = pipe();
    (read, script(options, text).stdout(write).start())
}

/// Writes more than fits into a pipe that nobody reads, and exits.
const EXITS_UNREAD: &str = "echo command $$ >&2; head -c 100000 /dev/zero; exit 3";

/// Waits until the command of [`EXITS_UNREAD`] has been reaped.
fn wait_exited(run: &mut Running) {
    run.wait_until("the command's end", |run| {
        let said = run.stderr();
        let pid = said.strip_prefix("command ").and_then(|rest| rest.lines().next()?.parse().ok());
        pid.is_some_and(|pid| common::proc_state(pid).is_none())
    });
}

#[test]
fn small_pieces_fill_a_pipe_no_sooner_than_large_ones() {
    // 400 writes, 1,500 bytes: `cat` passes them on into any pipe, read or not.
    // (A pipe holds few spliced pieces, however small they are.)
    let text = "i=0; while [ $i -lt 400 ]; do echo $i; i=$((i+1)); done; exit 3";
    let wanted: String = (0..400).map(|n| format!("{n}\n")).collect();
    for option in ["--max-output=10M", "--output-limit=10M", "--max-output=100+10M"] {
        let (read, run) = unread(&[option, "--wall=20s"], text);
        let outcome = run.wait();
        outcome.assert_status(3);
        assert!(outcome.elapsed < SOON, "waits for a reader: {outcome:#?}");
        assert_eq!(drain(read), wanted.as_bytes(), "{option}");
    }
}

#[test]
fn a_blocked_reader_does_not_hold_the_limit() {
    for options in [&["--max-output=50M"][..], &["--max-output=1M+1M"], &["--output-limit=900G"]] {
        let all = [&["--wall=700ms", "--grace=300ms"], options].concat();
        let (read, run) = unread(&all, "ulimit -t 20; yes & setsid yes & yes >&2 & wait");
        let outcome = run.wait();
        outcome.assert_nothing_left();
        outcome.assert_status(124);
        assert!(outcome.elapsed < SOON, "{outcome:#?}");
        assert_record(&outcome, "wall", 124);
        let passed = number(&outcome, "/output/passed_bytes");
        let written =
            number(&outcome, "/output/stdout_bytes") + number(&outcome, "/output/stderr_bytes");
        let dropped = number(&outcome, "/output/dropped_bytes");
        assert_eq!(passed + dropped, written, "{options:?}: {outcome:#?}");
        let got = drain(read).len() as u64 + outcome.stderr_bytes;
        assert!(got >= passed, "{got} bytes, {passed} passed");
    }
}

#[test]
fn what_a_reader_did_not_take_is_said() {
    // 200,000 bytes into a pipe of 65,536 that nobody reads, then the limit.
    let (read, run) = unread(
        &["--max-output=50M", "--wall=700ms", "--grace=300ms"],
        "head -c 100000 /dev/zero; echo written >&2; sleep 30",
    );
    let outcome = run.wait();
    outcome.assert_status(124);
    outcome.assert_nothing_left();
    let dropped = number(&outcome, "/output/dropped_bytes");
    let got = drain(read).len() as u64;
    assert_eq!(got + dropped, 100_000);
    assert!(dropped > 0 && outcome.stderr.contains(&dropped.to_string()), "{outcome:#?}");
}

#[test]
fn a_slow_reader_gets_everything_of_a_command_that_exited() {
    let (read, mut run) = unread(&["--max-output=50M"], EXITS_UNREAD);
    // The command has exited, the output is not all gone: corral waits.
    wait_exited(&mut run);
    assert_eq!(drain(read).len(), 100_000);
    let outcome = run.wait();
    outcome.assert_status(3);
    outcome.assert_nothing_left();
    assert_eq!(number(&outcome, "/output/dropped_bytes"), 0);
}

#[test]
fn a_reader_that_takes_nothing_is_left_at_the_wall_limit() {
    let (read, run) =
        unread(&["--max-output=50M", "--wall=900ms"], "head -c 100000 /dev/zero; exit 3");
    let outcome = run.wait();
    outcome.assert_nothing_left();
    assert!(outcome.elapsed < SOON);
    // The command had ended by itself, and that came first.
    assert_record(&outcome, "exited", 3);
    outcome.assert_status(3);
    let got = drain(read).len() as u64;
    assert_eq!(got + number(&outcome, "/output/dropped_bytes"), 100_000);
}

#[test]
fn a_reader_that_takes_nothing_is_left_when_cancelled() {
    let (read, mut run) = unread(&["--max-output=50M"], EXITS_UNREAD);
    wait_exited(&mut run);
    run.signal(Signal::TERM);
    let outcome = run.wait();
    outcome.assert_nothing_left();
    assert!(outcome.elapsed < SOON, "{outcome:#?}");
    assert_eq!(outcome.record("/cause"), "exited");
    let got = drain(read).len() as u64;
    assert_eq!(got + number(&outcome, "/output/dropped_bytes"), 100_000);
}

#[test]
fn a_blocked_stream_does_not_hold_the_other() {
    let (read, mut run) = unread(
        &["--max-output=50M"],
        "head -c 2000000 /dev/zero & i=0; while [ $i -lt 3000 ]; do echo line $i >&2; \
         i=$((i+1)); done; echo last >&2; wait; exit 0",
    );
    run.wait_until("the other stream", |run| run.stderr().ends_with("last\n"));
    let reader = std::thread::spawn(move || drain(read).len());
    let outcome = run.wait();
    outcome.assert_status(0);
    assert_eq!(reader.join().unwrap(), 2_000_000);
    assert_eq!(outcome.stderr.lines().count(), 3001);
}

#[test]
fn an_outlet_that_does_not_block() {
    // O_NONBLOCK set by whoever opened it: "again" is no error.
    let bytes = 400_000;
    let (read, write) = pipe();
    rustix::io::ioctl_fionbio(&write, true).unwrap();
    let run = script(&["--max-output=50M"], "head -c 400000 /dev/zero; exit 3")
        .stdout(write.try_clone().unwrap())
        .start();
    let reader = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        drain(read).len()
    });
    let outcome = run.wait();
    let flags = rustix::fs::fcntl_getfl(&write).unwrap();
    drop(write);
    outcome.assert_status(3);
    assert_eq!(reader.join().unwrap(), bytes);
    assert!(flags.contains(rustix::fs::OFlags::NONBLOCK));
}

#[test]
fn the_commands_own_closing_is_no_end() {
    let text = "exec >&- 2>&-; sleep 0.3; exit 9";
    let outcome = script(&["--max-output=1M"], text).run();
    outcome.assert_status(9);
    let text = "echo before; exec >&- 2>&-; kill -STOP $$; sleep 30";
    let outcome = script(&["--max-output=1M", "--wall=400ms"], text).run();
    outcome.assert_status(124);
    assert_eq!(outcome.stdout, b"before\n");
}

#[test]
fn a_relay_costs_nothing_while_nothing_happens() {
    let mut run = script(&["--max-output=1M", "--wall=40s"], "echo ready; sleep 30").start();
    run.ready();
    let switches = |pid: i32| -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status
            .lines()
            .filter_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
            .map(|count| count.trim().parse::<u64>().unwrap())
            .sum()
    };
    let (monitor, owner) = (run.pid(), kit::supervisor(&run));
    // Both have gone to sleep after "ready" once their counts stand still.
    let mut last = (0, 0);
    run.wait_until("quiet", |_| {
        std::thread::sleep(Duration::from_millis(50));
        let now = (switches(monitor), switches(owner));
        let quiet = now == last;
        last = now;
        quiet
    });
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!((switches(monitor), switches(owner)), last, "woken up");
    run.signal(Signal::TERM);
    assert_eq!(run.wait().signal, Some(15));
}
