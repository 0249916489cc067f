//! Which row groups are in memory: read ahead as far as the budget goes, and given up when it is full.
//!
//! What makes room, in this order: groups that nobody reads any more (they are kept for a rollback, or for
//! the next epoch); groups of which little is left, whose rows that are left are copied out. The last quarter
//! of a group is read over a long time, since rows are drawn in proportion to what is left: without that copy
//! a buffer of so many rows holds several times their bytes.

use std::sync::Arc;

use super::{
    Reader,
    open::{OpenPiece, Rows},
};
use crate::{
    column::{Decoded, Pick, gather},
    decode::DecodedGroup,
};

impl Reader {
    /// Bytes of row groups in memory, with what those being read ahead will need.
    pub fn memory(&self) -> u64 {
        self.shelf.bytes() + self.bytes_owned()
    }

    /// Asks for the next groups of the queue: so many as fit into a quarter of the budget, so that the rest is
    /// there for open groups and those that a rollback may want; one in any case.
    pub(super) fn read_ahead(&mut self) {
        while let Some(piece) = self.queue.get(self.asked) {
            let group = piece.group;
            if !self.shelf.has(group) {
                let bytes = self.decoder.bytes(group);
                let ahead = self.shelf.bytes_ahead();
                if ahead > 0 && ahead + bytes > self.options.memory / 4 {
                    break;
                }
                self.shelf.want(group, bytes);
            }
            self.asked += 1;
        }
        self.grown = true;
    }

    /// See the module. Not called while a batch is drawn, since its rows stay where they were found.
    pub(super) fn make_room(&mut self) {
        if !std::mem::take(&mut self.grown) {
            return;
        }
        self.shelf
            .shrink(self.options.memory.saturating_sub(self.bytes_owned()));
        let mut memory = self.memory();
        // A window needs the rows behind its first, which may be read already.
        if memory <= self.options.memory || self.decoder.windows.is_some() {
            return;
        }
        let mut nearly_read: Vec<&mut OpenPiece> = self
            .open
            .iter_mut()
            .filter(|open| u64::from(open.left()) * 4 <= u64::from(open.rows_held()))
            .collect();
        nearly_read.sort_by_key(|open| open.left());
        for open in nearly_read {
            if memory <= self.options.memory {
                return;
            }
            let Some(copy) = copy_rest(open, &self.decoder.selection.schema) else {
                continue;
            };
            memory += copy.bytes as u64;
            memory = memory.saturating_sub(match open.rows {
                Rows::Group(_) => self.shelf.leave(open.piece.group),
                Rows::Own { ref group, .. } => group.bytes as u64,
            });
            open.rows = Rows::Own {
                group: Arc::new(copy),
                from: open.at,
            };
        }
    }

    /// Bytes of rows that pieces hold by themselves.
    fn bytes_owned(&self) -> u64 {
        self.open
            .iter()
            .map(|open| match &open.rows {
                Rows::Group(_) => 0,
                Rows::Own { group, .. } => group.bytes as u64,
            })
            .sum()
    }
}

/// The rows that are left of a piece, in the order of their positions. Nothing if they are too much for one
/// array, or not all of them are wanted: then the group stays.
fn copy_rest(open: &OpenPiece, schema: &arrow_schema::Schema) -> Option<DecodedGroup> {
    // Rows that are dropped may be missing there.
    if open.data().held.is_some() {
        return None;
    }
    let picks: Vec<Pick> = (open.at..open.piece.hi)
        .map(|position| Pick {
            source: 0,
            row: open.place(open.order.row(position), position),
        })
        .collect();
    let columns = schema
        .fields()
        .iter()
        .zip(&open.data().columns)
        .map(|(field, column)| {
            let copy = gather(field, &[column], &picks).ok()?;
            Some(Decoded::from_array(copy.array))
        })
        .collect::<Option<_>>()?;
    Some(DecodedGroup::new(columns, open.left()))
}
