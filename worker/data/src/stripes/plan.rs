//! Which part of which stripe is read next, and how large it is.

use std::{cmp::Reverse, collections::BinaryHeap};

use elasticrun_core::random::Random;

use super::chunk::OVERHEAD;
use crate::decode::Decoder;

/// A row group is decoded at most so many times in an epoch, about, however little memory there is.
pub(super) const MOST_PASSES: u64 = 64;

/// Row groups that are looked at for the size of a row.
const SAMPLE: usize = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct Plan {
    memory: u64,
    /// Bytes of all parts of all stripes.
    bytes: u64,
    /// Bytes and rows: of footers at first, then of what came.
    size: (u64, u64),
    /// Bytes of a part beside its rows.
    overhead: u64,
    /// Rows of a row group, on average.
    group: u64,
    /// The position at which a stripe needs what is not asked for yet, and the place of the stripe: the next first.
    queue: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Plan {
    pub(super) fn new(decoder: &Decoder, memory: u64) -> Self {
        let groups = decoder.dataset.groups();
        let fields = decoder.selection.schema.fields();
        let every = groups.len().div_ceil(SAMPLE).max(1);
        let mut size = (0, 0);
        for (number, group) in groups.iter().enumerate().step_by(every) {
            let rows = u64::from(group.rows);
            let bytes = decoder.bytes(number as u32) + rows * size_of::<u32>() as u64;
            size = (size.0 + bytes, size.1 + rows);
        }
        Self {
            memory,
            bytes: 0,
            size: (size.0, size.1.max(1)),
            overhead: (fields.len() * OVERHEAD) as u64,
            group: (decoder.dataset.rows() / (groups.len() as u64).max(1)).max(1),
            queue: BinaryHeap::new(),
        }
    }

    /// All stripes are other ones.
    pub(super) fn begin(&mut self) {
        self.queue.clear();
        self.bytes = 0;
    }

    /// Bytes of all parts.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A stripe that has parts of so many bytes.
    pub(super) fn holds(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// A stripe needs rows at a position.
    pub(super) fn add(&mut self, needs_at: Option<u64>, place: usize) {
        self.queue.extend(needs_at.map(|at| Reverse((at, place))));
    }

    /// The stripe that needs rows first, and where.
    pub(super) fn first(&self) -> Option<(u64, usize)> {
        self.queue.peek().map(|Reverse(first)| *first)
    }

    /// It is dealt with.
    pub(super) fn remove_first(&mut self) {
        self.queue.pop();
    }

    /// Rows of a part, if the worker has so many stripes. A quarter of the memory is for parts that are read ahead.
    pub(super) fn rows(&self, stripes: usize) -> u64 {
        let each = self.memory / 4 * 3 / (stripes as u64).max(1);
        let (bytes, rows) = self.size;
        let fits = u128::from(each.saturating_sub(self.overhead)) * u128::from(rows)
            / u128::from(bytes.max(1));
        u64::try_from(fits)
            .unwrap_or(u64::MAX)
            .max(self.group.div_ceil(MOST_PASSES))
    }

    /// Rows of the first part of a stripe that begins in a row group. Parts of stripes end at different times then, so that there is
    /// always something to decode and never everything; but at one time for all stripes in a row group.
    pub(super) fn first_rows(&self, stripes: usize, group: u32) -> u64 {
        let rows = self.rows(stripes);
        if rows >= self.group {
            return rows;
        }
        let part = 0.25 + 0.75 * Random::keyed(&[group.into()]).unit();
        ((rows as f64 * part) as u64).max(1)
    }

    /// How often a row group is decoded, about.
    pub(super) fn passes(&self, stripes: usize) -> f64 {
        self.group as f64 / self.rows(stripes).min(self.group) as f64
    }

    /// Bytes of so many rows.
    pub(super) fn estimate(&self, rows: u64) -> u64 {
        let (bytes, of) = self.size;
        self.overhead + (u128::from(rows) * u128::from(bytes) / u128::from(of)) as u64
    }

    /// Whether the memory holds so many bytes more.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.bytes == 0 || self.bytes + bytes <= self.memory
    }

    /// Rows have come that need so many bytes, so many more than was thought.
    pub(super) fn came(&mut self, rows: u64, bytes: u64, more: i64) {
        self.bytes = self.bytes.saturating_add_signed(more);
        self.size = (self.size.0 + bytes, self.size.1 + rows);
    }

    /// Parts are gone.
    pub(super) fn gone(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}
