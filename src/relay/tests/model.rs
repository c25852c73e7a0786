//! What arrives, against a model that knows whole outputs.

use proptest::prelude::*;

use super::Rig;

/// What `--max-output` and `--output-limit` mean, on whole outputs: stdout,
/// stderr and the bytes passed.
fn model(
    chunks: &[(bool, Vec<u8>)],
    max: Option<(usize, Option<usize>)>,
    limit: Option<usize>,
) -> ([Vec<u8>; 2], usize) {
    let mut all: Vec<(bool, u8)> = Vec::new();
    for (second, bytes) in chunks {
        all.extend(bytes.iter().map(|&byte| (*second, byte)));
    }
    all.truncate(limit.unwrap_or(usize::MAX));
    let (head, tail) = max.unwrap_or((usize::MAX, None));
    let (head, rest) = all.split_at(head.min(all.len()));
    let end = &rest[rest.len() - tail.unwrap_or(0).min(rest.len())..];
    let left_out = rest.len() - end.len();
    let mut streams = [Vec::new(), Vec::new()];
    head.iter().for_each(|&(second, byte)| streams[usize::from(second)].push(byte));
    if tail.is_some() && left_out > 0 {
        streams[1].extend(format!("corral: {left_out} bytes left out\n").bytes());
    }
    end.iter().for_each(|&(second, byte)| streams[usize::from(second)].push(byte));
    (streams, head.len() + end.len())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..<_>::default() })]

    #[test]
    fn the_output_is_that_of_the_model(
        chunks in prop::collection::vec(
            (any::<bool>(), prop::collection::vec(any::<u8>(), 1..300)), 0..12),
        max in prop::option::of((0..1500_usize, prop::option::of(0..1500_usize))),
        limit in prop::option::of(1..3000_usize),
        lazy in any::<bool>(),
    ) {
        let wide = |bytes: usize| bytes as u64;
        let max_output = max.map(|(head, tail)| (wide(head), tail.map(wide)));
        let mut rig = Rig::pipes(max_output, limit.map(wide));
        for (second, bytes) in &chunks {
            assert_eq!(rig.write(usize::from(*second), bytes), Ok(bytes.len()));
            rig.settle(false);
            if !lazy {
                rig.read();
            }
        }
        let total: usize = chunks.iter().map(|(_, bytes)| bytes.len()).sum();
        let counts = rig.finish();
        let (expected, passed) = model(&chunks, max, limit);
        prop_assert_eq!(&rig.got, &expected);
        prop_assert_eq!(counts.passed_bytes, wide(passed));
        prop_assert_eq!(counts.dropped_bytes, wide(total - passed));
        prop_assert_eq!(rig.over > 0, limit.is_some_and(|limit| total > limit));
    }
}
