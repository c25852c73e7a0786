//! A pipe of 16 pages holds as many bytes with a relay in front of it as without.

use super::{Rig, pattern};
use crate::relay::WAITS;
use crate::sys::event::{Wait, ppoll};

#[test]
fn few_bytes_at_a_time_fill_the_pages_of_a_pipe_that_nobody_reads() {
    for one_file in [false, true] {
        let mut rig = Rig::merged(one_file, None);
        let mut expected = Vec::new();
        for round in 0..1000_usize {
            let bytes = pattern(round + 4).split_off(round);
            assert_eq!(rig.write(round % 2, &bytes), Ok(4));
            let progress = rig.settle(false);
            assert!(!progress.held, "round {round}");
            expected.extend(bytes);
        }
        let progress = rig.settle(true);
        assert!(progress.drained && !progress.held);
        rig.read();
        assert!(rig.got[0] == expected);
        assert_eq!(rig.relay.counts().passed_bytes, 4000);
    }
}

#[test]
fn bytes_of_any_number_fill_the_pipe_to_its_last_byte() {
    let mut rig = Rig::merged(true, None);
    let bytes = pattern(65_536);
    let mut rest = &bytes[..];
    for (round, size) in [7, 2100, 4095, 4097, 1, 3000, 9000].into_iter().cycle().enumerate() {
        let (piece, later) = rest.split_at(size.min(rest.len()));
        assert_eq!(rig.write(round % 2, piece), Ok(piece.len()));
        assert!(!rig.settle(false).held, "{} bytes to come", rest.len());
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    assert!(rig.settle(true).drained);
    rig.read();
    assert!(rig.got[0] == bytes);
}

#[test]
fn a_tail_of_many_short_runs_fills_the_pipe_to_its_last_byte() {
    // As much as a pipe of 16 pages holds, in pieces that fit a page evenly.
    let mut rig = Rig::merged(false, Some((0, Some(65_536))));
    let bytes = pattern(65_536);
    for (round, piece) in bytes.chunks(64).enumerate() {
        assert_eq!(rig.write(round % 2, piece), Ok(64));
        rig.settle(false);
    }
    // Only when something fires, or the relay asks for it: as the loop does.
    let mut waits = [Wait::NOTHING; WAITS];
    let mut progress = rig.relay.drain(&waits);
    for _ in 0..10_000 {
        rig.relay.waits(&mut waits);
        let fired = ppoll(&mut waits, Some(0)).unwrap();
        if progress.drained || (fired == 0 && progress.retry.is_none()) {
            break;
        }
        progress = rig.relay.drain(&waits);
        assert!(progress.moved || progress.drained, "a turn for nothing");
    }
    assert!(progress.drained);
    rig.read();
    assert!(rig.got[0] == bytes);
}

#[test]
fn few_bytes_and_many_keep_their_order() {
    let mut rig = Rig::pipes(Some((1_500_000, Some(100_000))), None);
    let bytes = pattern(2_000_000);
    let mut rest = &bytes[..];
    for size in [1, 65_535, 3, 16_383, 16_384, 150_000, 4096, 100, 66_000, 200].into_iter().cycle()
    {
        let (piece, later) = rest.split_at(size.min(rest.len()));
        rig.write(0, piece).unwrap();
        rig.settle(false);
        // Sometimes the outlet is full, and then the reader takes it all.
        if size < 1000 {
            while rig.settle(false).held {
                rig.read();
            }
        }
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    let counts = rig.finish();
    assert!(rig.got[0] == [&bytes[..1_500_000], &bytes[1_900_000..]].concat());
    assert_eq!((counts.passed_bytes, counts.dropped_bytes), (1_600_000, 400_000));
}
