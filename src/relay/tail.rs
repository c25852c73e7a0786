//! Which were the last bytes, and whose were they?
//!
//! A ring of the last `most` bytes of both streams together. Beside each byte
//! stands one bit for the stream that it came from, so that each finds its way
//! at the end. A byte's position is its number in the order of arrival, and its
//! place in the ring that number modulo the ring's size.
//!
//! The ring grows as bytes come, so a large TAIL costs nothing where little is
//! written. It never grows once it has wrapped, so no byte has to move. Where
//! memory runs out, the ring keeps the size it has: fewer last bytes, but still
//! the last ones.
//!
//! May use: `sys::memory`.

use core::ops::Range;

use crate::sys::memory::List;

/// What the ring begins with, unless it is to be smaller.
const FIRST: usize = 64 * 1024;
/// Most positions looked at in one call of [`Tail::run`].
const GLANCE: usize = 1024 * 1024;

/// The last bytes, with their streams.
#[derive(Debug)]
pub(super) struct Tail {
    bytes: List<u8>,
    /// Bit N of byte N/8: whether the byte in place N is of stream 1.
    marks: List<u8>,
    /// TAIL, or what there was memory for.
    most: usize,
    /// How many bytes ever came: the position of the next one.
    end: u64,
}

impl Tail {
    /// Nothing yet; no memory is taken.
    pub(super) const fn new(most: usize) -> Self {
        Self { bytes: List::new(), marks: List::new(), most, end: 0 }
    }

    /// Position behind the last byte.
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// How many bytes came and are no longer here: the position of the oldest
    /// one that is.
    pub(super) fn left_out(&self) -> u64 {
        self.end.saturating_sub(self.bytes.len() as u64)
    }

    /// Takes the next bytes of a stream.
    pub(super) fn push(&mut self, bytes: &[u8], second: bool) {
        self.make_room(bytes.len());
        // What would be overwritten in this same call is not even copied.
        let early = bytes.len().saturating_sub(self.bytes.len());
        self.end += early as u64;
        let mut rest = bytes.get(early..).unwrap_or_default();
        while !rest.is_empty() {
            let place = self.place(self.end);
            let room = self.bytes.get_mut(place..).unwrap_or_default();
            let count = super::copy(room, rest);
            if count == 0 {
                break;
            }
            self.mark(place..place + count, second);
            self.end += count as u64;
            rest = rest.get(count..).unwrap_or_default();
        }
    }

    /// The first bytes of a stream at or behind position `from`: where they
    /// begin, and as many as lie together, `most` at most. Empty where there are
    /// none up to the position returned, which may be short of the end: a long
    /// stretch of the other stream is passed over in steps.
    pub(super) fn run(&self, from: u64, second: bool, most: usize) -> (u64, &[u8]) {
        let from = from.max(self.left_out());
        let place = self.place(from);
        // Up to the newest byte or to the ring's end, whichever comes first.
        let newest = usize::try_from(self.end.saturating_sub(from)).unwrap_or(usize::MAX);
        let reach = newest.min(self.bytes.len().saturating_sub(place)).min(GLANCE);
        let stop = place + reach;
        let start = self.find(place..stop, second);
        let end = self.find(start..stop.min(start.saturating_add(most)), !second);
        (from + (start - place) as u64, self.bytes.get(start..end).unwrap_or_default())
    }

    fn place(&self, position: u64) -> usize {
        let size = (self.bytes.len() as u64).max(1);
        usize::try_from(position % size).unwrap_or(0)
    }

    /// Grows, if it may, before the ring would wrap.
    fn make_room(&mut self, more: usize) {
        let size = self.bytes.len();
        let wanted = usize::try_from(self.end).unwrap_or(usize::MAX).saturating_add(more);
        if size >= self.most || wanted <= size {
            return;
        }
        let fresh = wanted.max(size.saturating_mul(2)).max(FIRST).min(self.most);
        let grown = self.marks.resize(fresh / 8 + 1).and_then(|()| self.bytes.resize(fresh));
        if grown.is_err() {
            self.most = size;
        }
    }

    fn mark(&mut self, mut places: Range<usize>, second: bool) {
        while let Some(marks) = self.marks.get_mut(places.start / 8) {
            if places.is_empty() {
                break;
            }
            let next = (places.start / 8 + 1) * 8;
            let mask = mask(places.start % 8, places.end.min(next) - places.start);
            *marks = if second { *marks | mask } else { *marks & !mask };
            places.start = next;
        }
    }

    /// The first of `places` whose byte is of the stream asked for, their end if
    /// there is none.
    fn find(&self, places: Range<usize>, second: bool) -> usize {
        let mut place = places.start;
        while place < places.end {
            let Some(&marks) = self.marks.get(place / 8) else {
                break;
            };
            let wanted = if second { marks } else { !marks };
            let ahead = wanted >> (place % 8);
            if ahead != 0 {
                place += ahead.trailing_zeros() as usize;
                break;
            }
            place = (place / 8 + 1) * 8;
        }
        place.min(places.end)
    }

    /// No more memory from now on, as if the kernel had said so.
    #[cfg(test)]
    fn starve(&mut self) {
        self.most = self.bytes.len();
    }
}

/// `count` bits from bit `first` on, of eight.
const fn mask(first: usize, count: usize) -> u8 {
    let ones = if count < 8 { !(0xff_u8 << count) } else { 0xff };
    ones << first
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the ring holds, a stream and a byte each, in order of arrival.
    fn contents(tail: &Tail) -> Vec<(bool, u8)> {
        let mut found = Vec::new();
        for second in [false, true] {
            let mut at = 0;
            while at < tail.end() {
                let (start, run) = tail.run(at, second, 5);
                assert!(start >= at && run.len() <= 5);
                found.extend((start..).zip(run).map(|(at, &byte)| (at, second, byte)));
                assert!(start + run.len() as u64 > at, "no progress at {at}");
                at = start + run.len() as u64;
            }
        }
        found.sort_unstable();
        found.into_iter().map(|(_, second, byte)| (second, byte)).collect()
    }

    fn last(all: &[(bool, u8)], most: usize) -> &[(bool, u8)] {
        &all[all.len().saturating_sub(most)..]
    }

    #[test]
    fn keeps_the_last_bytes_over_many_wraps() {
        for most in [0, 1, 7, 8, 9, 64, 1000] {
            let mut tail = Tail::new(most);
            let mut all = Vec::new();
            for round in 0..200_usize {
                let second = round % 3 == 1;
                let chunk: Vec<u8> =
                    (0..round * 7 % 31).map(|byte| (byte ^ round).to_le_bytes()[0]).collect();
                tail.push(&chunk, second);
                all.extend(chunk.iter().map(|&byte| (second, byte)));
            }
            assert_eq!(contents(&tail), last(&all, most), "most = {most}");
            assert_eq!(tail.left_out(), (all.len() - most.min(all.len())) as u64);
        }
    }

    #[test]
    fn a_huge_tail_takes_memory_for_what_comes() {
        let mut tail = Tail::new(usize::MAX);
        let chunk = [9; 100_000];
        for _ in 0..5 {
            tail.push(&chunk, true);
        }
        assert_eq!(tail.left_out(), 0);
        assert!(tail.bytes.len() <= 1_000_000);
        assert_eq!(contents(&tail), vec![(true, 9); 500_000]);
    }

    #[test]
    fn a_starved_ring_keeps_the_last_bytes_that_fit() {
        let mut tail = Tail::new(usize::MAX);
        tail.push(&[1; 10], false);
        tail.starve();
        let size = tail.bytes.len();
        tail.push(&vec![2; size], true);
        tail.push(&[3; 20], false);
        assert_eq!(tail.bytes.len(), size);
        assert_eq!(tail.left_out(), 30);
        let mut expected = vec![(true, 2); size - 20];
        expected.extend([(false, 3); 20]);
        assert_eq!(contents(&tail), expected);
    }

    #[test]
    fn a_ring_that_never_got_memory_leaves_all_out() {
        let mut tail = Tail::new(usize::MAX);
        tail.starve();
        tail.push(b"lost", false);
        assert_eq!((tail.left_out(), tail.end()), (4, 4));
        assert!(contents(&tail).is_empty());
    }

    #[test]
    fn a_long_stretch_of_the_other_stream_is_passed_over_in_steps() {
        let mut tail = Tail::new(3 * GLANCE);
        tail.push(&vec![0; 2 * GLANCE], false);
        tail.push(b"x", true);
        let (at, run) = tail.run(0, true, 10);
        assert_eq!((at, run), (GLANCE as u64, &b""[..]));
        let (at, run) = tail.run(2 * GLANCE as u64, true, 10);
        assert_eq!((at, run), (2 * GLANCE as u64, &b"x"[..]));
    }
}
