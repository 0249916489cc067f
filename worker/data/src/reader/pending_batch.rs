//! The rows that were drawn for a batch, before they are copied.

use super::open::OpenPiece;
use crate::{
    batch::{Origin, Span},
    column::Pick,
};

/// See the module.
#[derive(Debug)]
pub(super) struct Draft {
    picks: Vec<Pick>,
    origins: Vec<Origin>,
    /// What was drawn, with the slot of each.
    spans: Vec<(u32, Span)>,
    /// The slots that rows of the batch come from.
    sources: Vec<u32>,
    of_slot: Vec<OfSlot>,
}

/// The numbers of a slot's span and source, if it has them.
#[derive(Clone, Copy, Debug, Default)]
struct OfSlot {
    span: Option<u32>,
    source: Option<u32>,
}

impl Draft {
    /// With room for the rows of so many slots, and for so many rows.
    pub(super) fn new(slots: usize, rows: usize) -> Self {
        Self {
            picks: Vec::with_capacity(rows),
            origins: Vec::with_capacity(rows),
            spans: Vec::new(),
            sources: Vec::new(),
            of_slot: vec![OfSlot::default(); slots],
        }
    }

    /// Rows that the batch will have.
    pub(super) fn rows(&self) -> usize {
        self.picks.len()
    }

    /// Adds the row at a position of the piece in a slot. Positions of a piece come in their order.
    #[inline]
    pub(super) fn add(&mut self, slot: u32, position: u32, open: &OpenPiece) {
        if slot as usize >= self.of_slot.len() {
            self.of_slot.resize(slot as usize + 1, OfSlot::default());
        }
        let of_slot = &mut self.of_slot[slot as usize];
        let span = *of_slot.span.get_or_insert_with(|| {
            let span = Span {
                group: open.piece.group,
                lo: position,
                hi: position,
            };
            self.spans.push((slot, span));
            (self.spans.len() - 1) as u32
        });
        self.spans[span as usize].1.hi = position + 1;
        let Some((row, place)) = open.kept(position) else {
            return;
        };
        let source = *of_slot.source.get_or_insert_with(|| {
            self.sources.push(slot);
            (self.sources.len() - 1) as u32
        });
        self.picks.push(Pick { source, row: place });
        self.origins.push(Origin { span, row });
    }

    pub(super) fn picks(&self) -> &[Pick] {
        &self.picks
    }

    /// Where the rows come from. They are there once.
    pub(super) fn take_origins(&mut self) -> Vec<Origin> {
        std::mem::take(&mut self.origins)
    }

    /// The slots that rows come from: source after source.
    pub(super) fn sources(&self) -> impl Iterator<Item = u32> {
        self.sources.iter().copied()
    }

    /// What was drawn, with the slot of each.
    pub(super) fn spans(&self) -> impl Iterator<Item = (u32, Span)> {
        self.spans.iter().copied()
    }
}
