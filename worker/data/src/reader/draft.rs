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
    spans: Vec<(u32, Span)>,
    /// For each slot the number of its span, if it has one.
    span_of: Vec<Option<u32>>,
}

impl Draft {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            picks: Vec::new(),
            origins: Vec::new(),
            spans: Vec::new(),
            span_of: vec![None; slots],
        }
    }

    /// Rows in it.
    pub(super) fn rows(&self) -> usize {
        self.picks.len()
    }

    /// Adds the row at a position of the piece in a slot. Positions of a piece come in their order.
    #[inline]
    pub(super) fn add(&mut self, slot: u32, position: u32, open: &OpenPiece) {
        let span = self.span(slot, position, open);
        self.spans[span as usize].1.hi = position + 1;
        self.picks.push(Pick {
            source: span,
            row: open.place(position),
        });
        self.origins.push(Origin {
            span,
            row: open.order.row(position),
        });
    }

    /// The number of the slot's span, which begins at `position` if it is new.
    fn span(&mut self, slot: u32, position: u32, open: &OpenPiece) -> u32 {
        if slot as usize >= self.span_of.len() {
            self.span_of.resize(slot as usize + 1, None);
        }
        *self.span_of[slot as usize].get_or_insert_with(|| {
            let span = Span {
                group: open.piece.group,
                lo: position,
                hi: position,
            };
            self.spans.push((slot, span));
            (self.spans.len() - 1) as u32
        })
    }

    pub(super) fn picks(&self) -> &[Pick] {
        &self.picks
    }

    pub(super) fn origins(&self) -> &[Origin] {
        &self.origins
    }

    /// The slots that rows came from, in the order of the spans.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        self.spans.iter().map(|(slot, _)| *slot)
    }

    /// What was drawn, with the slot of each.
    pub(super) fn spans(&self) -> impl Iterator<Item = (u32, Span)> {
        self.spans.iter().copied()
    }
}
