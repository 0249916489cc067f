//! How the keys of a request lie in a sparse store.

use std::hint::select_unpredictable;

use elasticrun_collectives::Element;

use super::{
    super::{
        Expected, Lens, StoreError,
        run::{Run, lower_bound},
    },
    SparseStore,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Where {
    Large,
    Small,
    Nowhere,
}

/// Neighbouring keys of a request that are neighbours in the store too, or are all not there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) place: Where,
    /// Index of the first key in the run.
    pub(super) index: usize,
    /// Position of the first key in the request.
    pub(super) position: usize,
    pub(super) count: usize,
}

impl<T: Element> SparseStore<T> {
    pub(super) fn run(&self, place: Where) -> &Run<T> {
        match place {
            Where::Small => &self.small,
            _ => &self.large,
        }
    }

    /// Divides the keys of a request into segments, in order.
    pub(super) fn segments(
        &self,
        keys: &[u64],
        mut each: impl FnMut(Segment) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let (large, small) = (&self.large.keys, &self.small.keys);
        let (mut in_large, mut in_small) = (0, 0);
        let (large_window, small_window) = (window(large, keys), window(small, keys));
        let mut position = 0;
        while position < keys.len() {
            let key = keys[position];
            self.large.prefetch(in_large + AHEAD * large_window);
            in_large = near_lower_bound(large, in_large, key, large_window);
            let (place, index, run): (_, _, &[u64]) = if large.get(in_large) == Some(&key) {
                (Where::Large, in_large, large)
            } else {
                in_small = near_lower_bound(small, in_small, key, small_window);
                match small.get(in_small) == Some(&key) {
                    true => (Where::Small, in_small, small),
                    false => (Where::Nowhere, 0, &[]),
                }
            };
            let count = match place {
                Where::Nowhere => {
                    // Up to the next key that is there.
                    let next = |keys: &[u64], index: usize| keys.get(index).copied();
                    let next = [next(large, in_large), next(small, in_small)];
                    match next.into_iter().flatten().min() {
                        Some(limit) => lower_bound(keys, position, limit) - position,
                        None => keys.len() - position,
                    }
                }
                _ => common_prefix(&keys[position..], &run[index..]),
            };
            each(Segment {
                place,
                index,
                position,
                count,
            })?;
            position += count;
            match place {
                Where::Large => in_large += count,
                Where::Small => in_small += count,
                Where::Nowhere => {}
            }
        }
        Ok(())
    }

    /// Compares the lengths of a segment with those of a request.
    #[inline(always)]
    pub(super) fn check(
        &self,
        segment: Segment,
        keys: &[u64],
        expected: Expected<'_>,
    ) -> Result<(), StoreError> {
        let run = self.run(segment.place);
        if let (Expected::Known(Lens::Uniform(given)), Some(stored)) = (expected, run.uniform())
            && given == stored
        {
            return Ok(());
        }
        for step in 0..segment.count {
            let position = segment.position + step;
            let stored = run.len_at(segment.index + step);
            match expected.len_at(position) {
                Some(given) if given != stored => {
                    let key = keys[position];
                    return Err(StoreError::LenDiffers { key, stored, given });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Finds the keys of a request that are here, checks their lengths, and returns those that are not here.
    pub(super) fn divide(
        &self,
        keys: &[u64],
        lens: Lens<'_>,
        found: &mut Vec<Segment>,
    ) -> Result<Vec<Segment>, StoreError> {
        found.clear();
        let mut missing = Vec::new();
        self.segments(keys, |segment| {
            if segment.place == Where::Nowhere {
                missing.push(segment);
                return Ok(());
            }
            self.check(segment, keys, Expected::Known(lens))?;
            found.push(segment);
            Ok(())
        })?;
        Ok(missing)
    }
}

/// Where the values of ascending segments are in a request.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    position: usize,
    value: usize,
}

impl Cursor {
    #[inline(always)]
    pub(super) fn values(&mut self, lens: Lens<'_>, segment: Segment) -> (usize, usize) {
        let first = self.value + lens.total(self.position, segment.position);
        let end = first + lens.total(segment.position, segment.position + segment.count);
        self.position = segment.position + segment.count;
        self.value = end;
        (first, end)
    }
}

/// In how many keys of a run the next key of a request usually is, if its keys are spread over the run.
fn window(run: &[u64], keys: &[u64]) -> usize {
    (3 * run.len() / keys.len().max(1))
        .clamp(1, MAX_WINDOW)
        .next_power_of_two()
}

const MAX_WINDOW: usize = 1 << 12;

/// So many windows ahead memory is asked for: each key depends on where the one before it was found, so that the processor does not
/// look ahead by itself.
const AHEAD: usize = 4;

/// [`lower_bound`] that looks into the window first, with equally many steps for each key: no branch is mispredicted.
#[inline(always)]
fn near_lower_bound(run: &[u64], from: usize, key: u64, window: usize) -> usize {
    match run.get(from..from + window) {
        Some(near) if near[window - 1] >= key => {
            let (mut base, mut left) = (0, window);
            while left > 1 {
                let half = left / 2;
                base += select_unpredictable(near[base + half - 1] < key, half, 0);
                left -= half;
            }
            from + base + usize::from(near[base] < key)
        }
        _ => lower_bound(run, from, key),
    }
}

/// How many elements of both are equal from the start. Compares blocks, as long common parts are usual.
#[inline(always)]
fn common_prefix(a: &[u64], b: &[u64]) -> usize {
    const BLOCK: usize = 64;
    let max = a.len().min(b.len());
    if max < 2 || a[1] != b[1] {
        return usize::from(max > 0 && a[0] == b[0]);
    }
    let mut count = 0;
    while count + BLOCK <= max && a[count..count + BLOCK] == b[count..count + BLOCK] {
        count += BLOCK;
    }
    let rest = a[count..max].iter().zip(&b[count..max]);
    count + rest.take_while(|(a, b)| a == b).count()
}
