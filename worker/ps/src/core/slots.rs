//! Places for payloads in memory that two processes share. They are taken and given back in the same order.

use std::collections::VecDeque;

/// Places begin at multiples of this, and so do the values in them.
pub(crate) const ALIGN: usize = 64;

/// Where the parts of a payload are in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The first byte and the number of bytes of keys, lens and values.
    pub(crate) parts: [(usize, usize); 3],
    /// Bytes in all.
    pub(crate) len: usize,
}

impl Layout {
    /// The layout of a payload with so many bytes of keys, lens and values. `None` if that is more than there are numbers for.
    pub(crate) fn new([keys, lens, values]: [usize; 3]) -> Option<Self> {
        let values_at = keys.checked_add(lens)?.checked_next_multiple_of(ALIGN)?;
        Some(Self {
            parts: [(0, keys), (keys, lens), (values_at, values)],
            len: values_at.checked_add(values)?,
        })
    }
}

/// The places of one direction of a connection, as its sender knows them.
///
/// # Invariants
/// - Places that are taken do not overlap, and lie within the memory.
/// - While none is taken, the next one is at the start: memory that has just been used is in the cache.
#[derive(Debug)]
pub(crate) struct Slots {
    len: usize,
    /// Where the next place may begin.
    next: usize,
    /// The first byte of each place that is taken, and the one behind it.
    taken: VecDeque<(usize, usize)>,
}

impl Slots {
    /// All places in `len` bytes.
    pub(crate) fn new(len: usize) -> Self {
        Self {
            len,
            next: 0,
            taken: VecDeque::new(),
        }
    }

    /// Takes a place of so many bytes, one or more. `None` if there is no room now.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<usize> {
        let fits = |from: usize, to: usize| bytes <= to.saturating_sub(from);
        let start = match self.taken.front() {
            None => fits(0, self.len).then_some(0),
            // In front of the oldest place, since those before are taken up to the end.
            Some(&(oldest, _)) if self.next <= oldest => {
                fits(self.next, oldest).then_some(self.next)
            }
            Some(_) if fits(self.next, self.len) => Some(self.next),
            Some(&(oldest, _)) => fits(0, oldest).then_some(0),
        }?;
        let end = start + bytes;
        self.taken.push_back((start, end));
        self.next = end.next_multiple_of(ALIGN);
        Some(start)
    }

    /// Gives the oldest places back, so many.
    pub(crate) fn release(&mut self, count: usize) {
        self.taken.drain(..count.min(self.taken.len()));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_aligned_behind_keys_and_lens() {
        let layout = Layout::new([24, 12, 100]).unwrap();
        assert_eq!(layout.parts, [(0, 24), (24, 12), (64, 100)]);
        assert_eq!(layout.len, 164);
        assert_eq!(Layout::new([0, 0, 8]).unwrap().len, 8);
        assert_eq!(Layout::new([usize::MAX, 1, 0]), None);
        assert_eq!(Layout::new([1, 0, usize::MAX - 8]), None);
    }

    #[test]
    fn the_start_is_used_again_once_nothing_is_taken() {
        let mut slots = Slots::new(1000);
        assert_eq!(slots.take(1000), Some(0));
        assert_eq!(slots.take(1), None);
        slots.release(1);
        assert_eq!(slots.take(100), Some(0));
        assert_eq!(slots.take(100), Some(128));
        slots.release(1);
        // Behind the others while they are taken, and in front of them if there is no room.
        assert_eq!(slots.take(700), Some(256));
        assert_eq!(slots.take(200), None);
        assert_eq!(slots.take(128), Some(0));
        assert_eq!(slots.take(1), None);
        slots.release(9);
        assert_eq!(slots.take(1), Some(0));
        assert_eq!(slots.take(0x1_0000), None);
    }

    proptest! {
        #[test]
        fn places_never_overlap(len in 1usize..5000, steps in prop::collection::vec((1usize..900, 0usize..4), 1..200)) {
            let mut slots = Slots::new(len);
            let mut model: VecDeque<(usize, usize)> = VecDeque::new();
            for (bytes, released) in steps {
                if let Some(start) = slots.take(bytes) {
                    prop_assert!(start % ALIGN == 0 && start + bytes <= len);
                    let apart = |&(first, end): &(usize, usize)| start + bytes <= first || end <= start;
                    prop_assert!(model.iter().all(apart));
                    model.push_back((start, start + bytes));
                } else {
                    prop_assert!(!model.is_empty() || bytes > len);
                }
                slots.release(released);
                model.drain(..released.min(model.len()));
            }
        }
    }
}
