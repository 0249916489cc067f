//! One stripe: what is left of it, and which of that is in memory or on its way there.

use std::{collections::VecDeque, ops::Range};

use elasticrun_ledger::Stripes;

use super::chunk::Chunk;

/// See the module.
#[derive(Debug)]
pub(super) struct Stripe {
    pub(super) number: u64,
    /// Where it begins on the line.
    first: u64,
    /// What is left of it.
    pub(super) rest: Range<u64>,
    pub(super) parts: VecDeque<Part>,
    /// No part was asked for yet.
    pub(super) is_new: bool,
    /// What the batch that is being made has of it.
    pub(super) mark: Option<Mark>,
}

/// A part of a stripe in one row group.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) range: Range<u64>,
    /// Bytes that it needs.
    pub(super) bytes: u64,
    pub(super) rows: Rows,
}

#[derive(Debug)]
pub(super) enum Rows {
    /// The number of the visit that brings them.
    Asked(u64),
    Here(Chunk),
}

/// A part that the batch has rows of, with the numbers of its span and its source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) part: usize,
    pub(super) span: u32,
    pub(super) source: Option<u32>,
}

impl Stripe {
    /// The stripe of that number, of which so much is left.
    pub(super) fn new(order: &Stripes, number: u64, rest: Range<u64>) -> Self {
        Self {
            number,
            first: order.stripe(number).start,
            rest,
            parts: VecDeque::new(),
            is_new: true,
            mark: None,
        }
    }

    /// The same stripe from another row on: what is in memory stays, if the row is part of it.
    pub(super) fn starting(mut self, row: u64) -> Self {
        if self
            .parts
            .front()
            .is_some_and(|part| row < part.range.start)
        {
            self.parts.clear();
        }
        self.mark = None;
        self.rest.start = row;
        self.drop_passed();
        self.is_new = self.parts.is_empty();
        self
    }

    /// All rows before this one are processed. Gives the bytes of what is not needed any more.
    pub(super) fn pass(&mut self, row: u64) -> u64 {
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

    /// The row up to which there are parts.
    pub(super) fn planned(&self) -> u64 {
        self.parts
            .back()
            .map_or(self.rest.start, |part| part.range.end)
    }

    /// The position of the epoch at which it needs a row, if it has that row.
    pub(super) fn needs_at(&self, row: u64, stripes: u64) -> Option<u64> {
        (row < self.rest.end).then(|| (row - self.first) * stripes + self.number)
    }

    /// The part that a row is in.
    pub(super) fn part_of(&self, row: u64) -> Option<usize> {
        let part = self.parts.iter().position(|part| row < part.range.end)?;
        (self.parts[part].range.start <= row).then_some(part)
    }

    /// The visits that it waits for.
    pub(super) fn visits(&self) -> impl Iterator<Item = u64> {
        self.parts.iter().filter_map(|part| match part.rows {
            Rows::Asked(visit) => Some(visit),
            Rows::Here(_) => None,
        })
    }

    /// Bytes of all parts.
    pub(super) fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// Rows have come, if they are still wanted: gives how many bytes more they need than was thought.
    pub(super) fn take(&mut self, visit: u64, chunk: Chunk) -> i64 {
        let is_it = |part: &&mut Part| {
            part.range.start == chunk.cut.at
                && matches!(part.rows, Rows::Asked(asked) if asked == visit)
        };
        let Some(part) = self.parts.iter_mut().find(is_it) else {
            return 0;
        };
        let more = chunk.bytes() as i64 - part.bytes as i64;
        part.bytes = chunk.bytes();
        part.rows = Rows::Here(chunk);
        more
    }
}
