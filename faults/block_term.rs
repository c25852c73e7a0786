//! Does: blocks every signal that asks, so that it stays pending.
//! corral must: use SIGKILL when the grace is over.
//! Exists: unlike an ignored signal a blocked one stays in the queue, and a second
//! one of the same kind is lost.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(_: Args) -> u8 {
    block(mask(&[SIGTERM, SIGINT, SIGHUP, SIGQUIT]));
    ready();
    sleep_forever()
}
