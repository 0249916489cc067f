//! The rows that are drawn for a batch, before they are copied.

use super::open::OpenPiece;
use crate::{
    batch::{Origin, Span},
    column::Pick,
};

/// A batch before its rows are copied.
#[derive(Debug)]
pub(super) struct PendingBatch {
    picks: Vec<Pick>,
    origins: Vec<Origin>,
    /// The drawn spans, each with its slot.
    spans: Vec<(u32, Span)>,
    /// The slots that provide rows, by index of the source.
    sources: Vec<u32>,
    slots: Vec<SlotEntry>,
}

/// The indices of the span and the source of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct SlotEntry {
    span: Option<u32>,
    source: Option<u32>,
}

impl PendingBatch {
    /// An empty batch with capacity for these slots and rows.
    pub(super) fn new(slots: usize, rows: usize) -> Self {
        Self {
            picks: Vec::with_capacity(rows),
            origins: Vec::with_capacity(rows),
            spans: Vec::new(),
            sources: Vec::new(),
            slots: vec![SlotEntry::default(); slots],
        }
    }

    /// Rows of the batch so far.
    pub(super) fn rows(&self) -> usize {
        self.picks.len()
    }

    /// Adds the row at a position of the piece in a slot. Positions of a piece must be added in order.
    #[inline]
    pub(super) fn add(&mut self, slot: u32, position: u32, open: &OpenPiece) {
        if slot as usize >= self.slots.len() {
            self.slots.resize(slot as usize + 1, SlotEntry::default());
        }
        let entry = &mut self.slots[slot as usize];
        let span = *entry.span.get_or_insert_with(|| {
            let span = Span {
                group: open.piece.group,
                lo: position,
                hi: position,
            };
            self.spans.push((slot, span));
            (self.spans.len() - 1) as u32
        });
        self.spans[span as usize].1.hi = position + 1;
        let Some((row, index)) = open.kept(position) else {
            return;
        };
        let source = *entry.source.get_or_insert_with(|| {
            self.sources.push(slot);
            (self.sources.len() - 1) as u32
        });
        self.picks.push(Pick { source, row: index });
        self.origins.push(Origin { span, row });
    }

    pub(super) fn picks(&self) -> &[Pick] {
        &self.picks
    }

    /// Removes and returns the origins of the rows.
    pub(super) fn take_origins(&mut self) -> Vec<Origin> {
        std::mem::take(&mut self.origins)
    }

    /// The slots that provide rows, by index of the source.
    pub(super) fn sources(&self) -> impl Iterator<Item = u32> {
        self.sources.iter().copied()
    }

    /// The drawn spans, each with its slot.
    pub(super) fn spans(&self) -> impl Iterator<Item = (u32, Span)> {
        self.spans.iter().copied()
    }
}
