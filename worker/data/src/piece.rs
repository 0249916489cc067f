//! How far a piece is that a worker reads.

pub use elasticrun_ledger::Piece;

/// The positions `piece.lo..at` of the piece are processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub piece: Piece,
    pub at: u32,
}

impl Cursor {
    /// Whether all of the piece is processed.
    pub fn is_done(&self) -> bool {
        self.at >= self.piece.hi
    }
}
