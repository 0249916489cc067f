//! How a batch is drawn: pieces open when they fit, and rows are drawn among the open ones.

use super::{
    Reader,
    open::{OpenPiece, Rows},
    pending_batch::Draft,
};
use crate::{
    batch::Span,
    error::{Error, Result},
    options::OnError,
    order::GroupOrder,
    piece::{Cursor, Piece},
};

impl Reader {
    /// Draws rows until the draft holds so many or none is left.
    pub(super) fn draw(&mut self, rows: usize, draft: &mut Draft) -> Result<()> {
        while draft.rows() < rows {
            self.fill()?;
            // A piece opens when it fits, so until then the open set is fixed.
            let draws = (rows - draft.rows()).min(self.rows_to_opening());
            if draws == 0 {
                break;
            }
            self.open.draw(draws, |slot, position, open| {
                draft.add(slot, position, open)
            });
        }
        Ok(())
    }

    /// Opens pieces as long as the next one fits whole into the row budget, and one in any case.
    fn fill(&mut self) -> Result<()> {
        while let Some(piece) = self.queue.front().copied() {
            if self.rows_to_opening() > 0 {
                break;
            }
            match self.open_piece(piece) {
                Ok(()) => {}
                Err(error) if self.options.on_error == OnError::Skip => self.skip(piece, error),
                Err(error) => return Err(error),
            }
            self.queue.pop_front();
            self.asked = self.asked.saturating_sub(1);
            self.read_ahead();
        }
        Ok(())
    }

    /// Rows to draw before the next piece opens; all that are left if there is no next one.
    fn rows_to_opening(&self) -> usize {
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
        let group = self.shelf.open(piece.group)?;
        if group.is_dropped() {
            self.shelf.close(piece.group);
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
            at: piece.lo,
            reported: piece.lo,
            order,
            keep: group.keep.clone(),
            rows: Rows::Group(group),
        });
        Ok(())
    }

    /// Counts a piece as processed that cannot be read.
    fn skip(&mut self, piece: Piece, error: Error) {
        tracing::warn!(%error, rows = piece.rows(), "skipped");
        self.skipped.pieces += 1;
        self.skipped.rows += u64::from(piece.rows());
        self.skipped.last = Some(error);
        self.drop_piece(piece);
    }

    /// Counts a piece as processed of which no row is in a batch.
    fn drop_piece(&mut self, piece: Piece) {
        self.finished.push(Cursor {
            piece,
            at: piece.hi,
        });
        self.dropped.push(Span {
            group: piece.group,
            lo: piece.lo,
            hi: piece.hi,
        });
    }
}
