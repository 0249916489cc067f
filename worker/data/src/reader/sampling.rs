//! Draws the rows of a batch: opens pieces when they fit, and draws rows among the open ones.

use super::{
    Reader,
    open::{OpenPiece, Rows},
    pending_batch::PendingBatch,
};
use crate::{
    batch::Span,
    error::{Error, Result},
    group_order::GroupOrder,
    options::OnError,
    piece::{Cursor, Piece},
};

impl Reader {
    /// Draws rows until the batch has `rows` rows or none is left.
    pub(super) fn draw(&mut self, rows: usize, pending: &mut PendingBatch) -> Result<()> {
        while pending.rows() < rows {
            self.open_pieces()?;
            // The open pieces do not change until the next one fits.
            let draws = (rows - pending.rows()).min(self.rows_until_next_open());
            if draws == 0 {
                break;
            }
            self.open.draw(draws, |slot, position, open| {
                pending.add(slot, position, open)
            });
        }
        Ok(())
    }

    /// Opens pieces while the next one fits into the row budget, and at least one.
    fn open_pieces(&mut self) -> Result<()> {
        while let Some(piece) = self.queue.front().copied() {
            if self.rows_until_next_open() > 0 {
                break;
            }
            match self.open_piece(piece) {
                Ok(()) => {}
                Err(error) if self.options.on_error == OnError::Skip => self.skip(piece, error),
                Err(error) => return Err(error),
            }
            self.queue.pop_front();
            self.prefetched = self.prefetched.saturating_sub(1);
            self.read_ahead();
        }
        Ok(())
    }

    /// Rows to draw before the next piece opens; all remaining rows if there is no next piece.
    fn rows_until_next_open(&self) -> usize {
        let left = self.open.left();
        match self.queue.front() {
            None => left,
            Some(_) if !self.options.shuffle => left,
            Some(next) => left.saturating_sub(
                self.options
                    .shuffle_rows
                    .saturating_sub(next.rows() as usize),
            ),
        }
    }

    fn open_piece(&mut self, piece: Piece) -> Result<()> {
        let group = self.cache.acquire(piece.group)?;
        if group.is_dropped() {
            self.cache.release(piece.group);
            self.drop_piece(piece);
            return Ok(());
        }
        let rows = self.dataset.groups()[piece.group as usize].rows;
        let order = if self.options.shuffle {
            GroupOrder::shuffled(self.options.seed, self.epoch, piece.group, rows)
        } else {
            GroupOrder::Identity
        };
        self.open.add(OpenPiece {
            piece,
            next: piece.lo,
            reported: piece.lo,
            order,
            keep: group.keep.clone(),
            rows: Rows::Group(group),
        });
        Ok(())
    }

    /// Counts an unreadable piece as processed.
    fn skip(&mut self, piece: Piece, error: Error) {
        tracing::warn!(%error, rows = piece.rows(), "skipped");
        self.skipped.pieces += 1;
        self.skipped.rows += u64::from(piece.rows());
        self.unreadable += u64::from(piece.rows());
        self.skipped.last = Some(error);
        self.drop_piece(piece);
    }

    /// Counts a piece without rows in a batch as processed.
    fn drop_piece(&mut self, piece: Piece) {
        self.finished.push(Cursor {
            piece,
            next: piece.hi,
        });
        self.dropped.push(Span {
            group: piece.group,
            lo: piece.lo,
            hi: piece.hi,
        });
    }
}
