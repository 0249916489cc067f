//! Cursor within a piece.

pub use elasticrun_ledger::Piece;

/// The progress in a piece: the positions `piece.lo..next` are processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The whole piece, as it was queued.
    pub piece: Piece,
    /// The next position to process; `piece.hi` if none is left.
    pub next: u32,
}

impl Cursor {
    /// Whether the whole piece is processed.
    pub fn is_done(&self) -> bool {
        self.next >= self.piece.hi
    }
}
