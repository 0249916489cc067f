//! One stripe: its remaining rows, and the parts of them that are loaded or requested.

use std::{collections::VecDeque, ops::Range};

use elasticrun_ledger::Stripes;

use super::stripe_chunk::StripeChunk;

/// One stripe of a worker.
#[derive(Debug)]
pub(super) struct Stripe {
    pub(super) number: u64,
    /// Its first row in the epoch layout.
    first: u64,
    /// The remaining rows.
    pub(super) rest: Range<u64>,
    pub(super) parts: VecDeque<Part>,
    /// No part was requested yet.
    pub(super) is_new: bool,
    /// The state of the batch that is being gathered.
    pub(super) gathered: Option<GatherState>,
}

/// A part of a stripe in one row group.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) range: Range<u64>,
    /// Bytes that it needs in memory.
    pub(super) bytes: u64,
    pub(super) rows: Rows,
}

#[derive(Debug)]
pub(super) enum Rows {
    /// The number of the job that loads them.
    Requested(u64),
    Loaded(StripeChunk),
}

/// The part that the current batch reads from, with the indices of its span and its source.
#[derive(Clone, Copy, Debug)]
pub(super) struct GatherState {
    pub(super) part: usize,
    pub(super) span: u32,
    pub(super) source: Option<u32>,
}

impl Stripe {
    /// The stripe `number` with the remaining rows `rest`.
    pub(super) fn new(order: &Stripes, number: u64, rest: Range<u64>) -> Self {
        Self {
            number,
            first: order.stripe(number).start,
            rest,
            parts: VecDeque::new(),
            is_new: true,
            gathered: None,
        }
    }

    /// The same stripe from another row on. Parts in memory stay if the row is in one of them.
    pub(super) fn resumed_at(mut self, row: u64) -> Self {
        if self
            .parts
            .front()
            .is_some_and(|part| row < part.range.start)
        {
            self.parts.clear();
        }
        self.gathered = None;
        self.rest.start = row;
        self.drop_passed();
        self.is_new = self.parts.is_empty();
        self
    }

    /// Marks all rows before `row` as processed. Returns the bytes of dropped parts.
    pub(super) fn advance_to(&mut self, row: u64) -> u64 {
        self.rest.start = row;
        self.drop_passed()
    }

    fn drop_passed(&mut self) -> u64 {
        let mut bytes = 0;
        while let Some(part) = self
            .parts
            .pop_front_if(|part| part.range.end <= self.rest.start)
        {
            bytes += part.bytes;
        }
        bytes
    }

    /// The end of the loaded and requested parts.
    pub(super) fn planned_end(&self) -> u64 {
        self.parts
            .back()
            .map_or(self.rest.start, |part| part.range.end)
    }

    /// The position of the epoch at which it needs `row`, or `None` if the row is after its end.
    pub(super) fn needed_at(&self, row: u64, stripes: u64) -> Option<u64> {
        (row < self.rest.end).then(|| (row - self.first) * stripes + self.number)
    }

    /// The index of the part that contains a row.
    pub(super) fn part_of(&self, row: u64) -> Option<usize> {
        let part = self.parts.iter().position(|part| row < part.range.end)?;
        (self.parts[part].range.start <= row).then_some(part)
    }

    /// The numbers of the jobs that it waits for.
    pub(super) fn jobs(&self) -> impl Iterator<Item = u64> {
        self.parts.iter().filter_map(|part| match part.rows {
            Rows::Requested(job) => Some(job),
            Rows::Loaded(_) => None,
        })
    }

    /// Bytes of all parts.
    pub(super) fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// Stores a chunk if it is still wanted. Returns by how many bytes it exceeds the estimate.
    pub(super) fn load(&mut self, job: u64, chunk: StripeChunk) -> i64 {
        let matches = |part: &&mut Part| {
            part.range.start == chunk.request.start
                && matches!(part.rows, Rows::Requested(requested) if requested == job)
        };
        let Some(part) = self.parts.iter_mut().find(matches) else {
            return 0;
        };
        let more = chunk.bytes() as i64 - part.bytes as i64;
        part.bytes = chunk.bytes();
        part.rows = Rows::Loaded(chunk);
        more
    }
}
