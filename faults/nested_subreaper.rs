//! Does: a subreaper between corral and a daemon that ignores SIGTERM: the daemon's
//! own parent is gone, the subreaper has adopted it and ends at the first signal.
//! corral must: get the daemon when the subreaper dies, and end it.
//! Exists: build tools and terminal multiplexers are subreapers themselves.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(_: Args) -> u8 {
    if fork() == 0 {
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        detach(|| {
            ignore(SIGTERM);
            ready();
            sleep_forever()
        });
        sleep_forever();
    }
    sleep_forever()
}
