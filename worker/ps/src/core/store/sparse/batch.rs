//! Short segments of a push, gathered: one call of the rule for many keys. A call for each of them would cost more than the rest.

use std::ops::Range;

use elasticrun_collectives::Element;

use super::{
    super::{Combine, Lens, columns::Columns},
    SparseStore,
    segments::Segment,
};

/// Segments with so few values are gathered.
const SHORT: usize = 16;

/// A batch has about so many values: it stays in the nearest cache.
const VALUES: usize = 1024;

/// Copies of what is stored for segments that follow each other in a request.
#[derive(Debug)]
pub(super) struct Batch<T> {
    columns: Columns<T>,
    segments: Vec<Segment>,
    /// Which values of the request belong to it.
    pushed: Range<usize>,
    /// Which keys of the request.
    positions: Range<usize>,
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Self {
            columns: Columns::default(),
            segments: Vec::new(),
            pushed: 0..0,
            positions: 0..0,
        }
    }
}

impl<T: Element> Batch<T> {
    /// Whether a segment with these values fits in behind the others.
    pub(super) fn takes(&self, segment: Segment) -> bool {
        let follows = self.positions.end == segment.position;
        self.segments.is_empty() || (follows && self.pushed.len() < VALUES)
    }

    pub(super) fn is_short(values: &Range<usize>) -> bool {
        values.len() < SHORT
    }

    /// Copies what is stored for a segment.
    pub(super) fn gather(
        &mut self,
        store: &SparseStore<T>,
        segment: Segment,
        values: Range<usize>,
    ) {
        let end = segment.position + segment.count;
        match self.segments.is_empty() {
            true => (self.pushed, self.positions) = (values, segment.position..end),
            false => (self.pushed.end, self.positions.end) = (values.end, end),
        }
        self.segments.push(segment);
        let run = store.run(segment.place);
        let keys = segment.index..segment.index + segment.count;
        let span = run.span(&keys);
        copy(&mut self.columns.values, &run.columns.values, &span);
        for (to, from) in self.columns.state.iter_mut().zip(&run.columns.state) {
            if !from.is_empty() {
                copy(to, from, &span);
            }
        }
        if !run.columns.steps.is_empty() {
            copy(&mut self.columns.steps, &run.columns.steps, &keys);
        }
    }

    /// Combines with what is pushed, writes the result back, and is empty then.
    pub(super) fn flush(
        &mut self,
        store: &mut SparseStore<T>,
        lens: Lens<'_>,
        values: &[T],
        combine: &impl Combine<T>,
    ) {
        if self.segments.is_empty() {
            return;
        }
        let columns = &mut self.columns;
        let (len, keys) = (columns.values.len(), self.positions.len());
        let lens = lens.slice(self.positions.clone());
        let pushed = &values[self.pushed.clone()];
        combine.combine(columns.cells(0..len, 0..keys, lens, pushed));
        let (mut value, mut key) = (0, 0);
        for segment in self.segments.drain(..) {
            let run = store.run_mut(segment.place);
            let keys = segment.index..segment.index + segment.count;
            let span = run.span(&keys);
            put(&mut run.columns.values, &columns.values, &span, value);
            for (to, from) in run.columns.state.iter_mut().zip(&columns.state) {
                if !from.is_empty() {
                    put(to, from, &span, value);
                }
            }
            if !columns.steps.is_empty() {
                put(&mut run.columns.steps, &columns.steps, &keys, key);
            }
            (value, key) = (value + span.len(), key + keys.len());
        }
        columns.values.clear();
        columns.state.iter_mut().for_each(Vec::clear);
        columns.steps.clear();
        (self.pushed, self.positions) = (0..0, 0..0);
    }
}

/// Appends a few elements, without a call for them.
#[inline]
fn copy<N: Copy>(to: &mut Vec<N>, from: &[N], range: &Range<usize>) {
    for &element in &from[range.clone()] {
        to.push(element);
    }
}

/// Writes a few elements, without a call for them.
#[inline]
fn put<N: Copy>(to: &mut [N], from: &[N], range: &Range<usize>, first: usize) {
    let from = &from[first..first + range.len()];
    for (to, &from) in to[range.clone()].iter_mut().zip(from) {
        *to = from;
    }
}
