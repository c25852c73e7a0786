//! Does: when asked to end it starts five daemons that heed nothing, and exits 0.
//! corral must: end them when the grace is over, though the command is long gone.
//! Exists: work begun inside the grace was not there when the tree was walked.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(_: Args) -> u8 {
    let term = mask(&[SIGTERM]);
    block(term);
    ready();
    sigwait(term);
    for _ in 0..5 {
        // The mask is inherited: TERM stays blocked in them.
        detach(|| sleep_forever());
    }
    0
}
