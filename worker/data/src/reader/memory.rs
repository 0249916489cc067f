//! Which row groups are in memory: prefetched within the budget, and evicted when it is full.
//!
//! Two kinds of row groups are evicted, in this order. First, row groups without a reader, which are kept for a
//! rollback or the next epoch. Second, row groups with few remaining rows, whose remaining rows are copied out. The
//! last quarter of a row group takes long to read, since rows are drawn in proportion to the remaining rows. Without
//! the copy, the shuffle buffer would hold several times the bytes of its rows.

use std::sync::Arc;

use super::{
    Reader,
    open::{OpenPiece, Rows},
};
use crate::{
    column::{DecodedColumn, Pick, gather},
    decode::DecodedGroup,
};

impl Reader {
    /// Bytes of row groups in memory, including the estimated bytes of those being prefetched.
    pub fn memory(&self) -> u64 {
        self.cache.bytes() + self.copied_bytes()
    }

    /// Prefetches the next row groups of the queue. They may take a quarter of the budget, which leaves the rest for
    /// open row groups and for a rollback. At least one is prefetched.
    pub(super) fn read_ahead(&mut self) {
        while let Some(piece) = self.queue.get(self.prefetched) {
            let group = piece.group;
            if !self.cache.contains(group) {
                let bytes = self.decoder.bytes(group);
                let ahead = self.cache.pending_bytes();
                if ahead > 0 && ahead + bytes > self.options.memory / 4 {
                    break;
                }
                self.cache.prefetch(group, bytes);
            }
            self.prefetched += 1;
        }
        self.grown = true;
    }

    /// Evicts row groups; see the module. Must not run while a batch is drawn, since the picked rows must stay in
    /// place.
    pub(super) fn free_memory(&mut self) {
        if !std::mem::take(&mut self.grown) {
            return;
        }
        self.cache
            .evict_to(self.options.memory.saturating_sub(self.copied_bytes()));
        let mut memory = self.memory();
        // A window needs rows after its first one, which may be processed already.
        if memory <= self.options.memory || self.decoder.ngram.is_some() {
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
                Rows::Group(_) => self.cache.release_and_evict(open.piece.group),
                Rows::Copied { ref group, .. } => group.bytes as u64,
            });
            open.rows = Rows::Copied {
                group: Arc::new(copy),
                from: open.next,
            };
        }
    }

    /// Bytes of copied rows.
    fn copied_bytes(&self) -> u64 {
        self.open
            .iter()
            .map(|open| match &open.rows {
                Rows::Group(_) => 0,
                Rows::Copied { group, .. } => group.bytes as u64,
            })
            .sum()
    }
}

/// Copies the remaining rows of a piece, in the order of their positions. Returns `None` if they exceed one array, or
/// if the predicate drops some of them. The row group then stays.
fn copy_rest(open: &OpenPiece, schema: &arrow_schema::Schema) -> Option<DecodedGroup> {
    // Dropped rows may be missing in the columns.
    if open.data().held.is_some() {
        return None;
    }
    let picks: Vec<Pick> = (open.next..open.piece.hi)
        .map(|position| Pick {
            source: 0,
            row: open.data_index(open.order.row(position), position),
        })
        .collect();
    let columns = schema
        .fields()
        .iter()
        .zip(&open.data().columns)
        .map(|(field, column)| {
            let copy = gather(field, &[column], &picks).ok()?;
            Some(DecodedColumn::from_array(copy.array))
        })
        .collect::<Option<_>>()?;
    Some(DecodedGroup::new(columns, open.left()))
}
