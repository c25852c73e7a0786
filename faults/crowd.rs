//! Does: 200 (first argument; 5000 at most) sleeping children; with `chain` as the
//! second one each is the child of the one before.
//! corral must: end them all.
//! Exists: many, or many levels: neither a fixed table nor a stack may overflow.

#![no_std]
#![no_main]

mod support;

use support::*;

fault!(main);

fn main(args: Args) -> u8 {
    let count = args.number(1, 200).min(5000);
    let chain = args.get(2) == Some(b"chain");
    for made in 0..count {
        match fork() {
            0 if !chain => sleep_forever(),
            0 if made + 1 == count => ready(),
            0 => {}
            pid if pid < 0 => exit(CANNOT),
            _ if chain => sleep_forever(),
            _ => {}
        }
    }
    if !chain {
        ready();
    }
    sleep_forever()
}
