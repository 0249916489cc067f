//! Decides which part of which stripe is read next, and its size.

use std::{cmp::Reverse, collections::BinaryHeap};

use elasticrun_core::random::Random;

use super::stripe_chunk::OVERHEAD;
use crate::decode::Decoder;

/// Approximate maximum number of times that a row group is decoded in an epoch, with however little memory.
pub(super) const MAX_PASSES: u64 = 64;

/// Number of row groups that are sampled for the size of a row.
const SAMPLE: usize = 64;

/// The order and the size of requests, within the memory budget.
#[derive(Debug)]
pub(super) struct PrefetchPlan {
    memory: u64,
    /// Bytes of all parts of all stripes.
    bytes: u64,
    /// Bytes and rows of a sample: first from the footers, then of loaded parts.
    size: (u64, u64),
    /// Bytes of a part in addition to its rows.
    overhead: u64,
    /// Average number of rows of a row group.
    group: u64,
    /// The position at which a stripe needs rows that are not requested yet, and the index of the stripe. The next one
    /// first.
    queue: BinaryHeap<Reverse<(u64, usize)>>,
}

impl PrefetchPlan {
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

    /// Resets the plan for another set of stripes.
    pub(super) fn begin(&mut self) {
        self.queue.clear();
        self.bytes = 0;
    }

    /// Bytes of all parts.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds the bytes of parts.
    pub(super) fn reserve(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Queues a stripe that needs rows at a position.
    pub(super) fn push(&mut self, needed_at: Option<u64>, index: usize) {
        self.queue
            .extend(needed_at.map(|position| Reverse((position, index))));
    }

    /// The stripe that needs rows first, and the position.
    pub(super) fn peek(&self) -> Option<(u64, usize)> {
        self.queue.peek().map(|Reverse(first)| *first)
    }

    /// Removes the stripe that needs rows first.
    pub(super) fn pop(&mut self) {
        self.queue.pop();
    }

    /// Rows of a part, for a worker with this number of stripes. A quarter of the memory is for parts that are read
    /// ahead.
    pub(super) fn rows(&self, stripes: usize) -> u64 {
        let each = self.memory / 4 * 3 / (stripes as u64).max(1);
        let (bytes, rows) = self.size;
        let fits = u128::from(each.saturating_sub(self.overhead)) * u128::from(rows)
            / u128::from(bytes.max(1));
        u64::try_from(fits)
            .unwrap_or(u64::MAX)
            .max(self.group.div_ceil(MAX_PASSES))
    }

    /// Rows of the first part of a stripe that begins in a row group. It is random, so that the parts of stripes end
    /// at different times and decoding is spread out. Stripes in the same row group get the same size.
    pub(super) fn first_rows(&self, stripes: usize, group: u32) -> u64 {
        let rows = self.rows(stripes);
        if rows >= self.group {
            return rows;
        }
        let part = 0.25 + 0.75 * Random::keyed(&[group.into()]).unit();
        ((rows as f64 * part) as u64).max(1)
    }

    /// Approximate number of times that a row group is decoded.
    pub(super) fn passes(&self, stripes: usize) -> f64 {
        self.group as f64 / self.rows(stripes).min(self.group) as f64
    }

    /// Estimated bytes of a part with `rows` rows.
    pub(super) fn estimate(&self, rows: u64) -> u64 {
        let (bytes, sampled_rows) = self.size;
        self.overhead + (u128::from(rows) * u128::from(bytes) / u128::from(sampled_rows)) as u64
    }

    /// Whether `bytes` more fit into the memory.
    pub(super) fn fits(&self, bytes: u64) -> bool {
        self.bytes == 0 || self.bytes + bytes <= self.memory
    }

    /// Records a loaded part: its rows and bytes, and by how much it exceeds the estimate.
    pub(super) fn loaded(&mut self, rows: u64, bytes: u64, more: i64) {
        self.bytes = self.bytes.saturating_add_signed(more);
        self.size = (self.size.0 + bytes, self.size.1 + rows);
    }

    /// Subtracts the bytes of parts that were dropped.
    pub(super) fn release(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}
