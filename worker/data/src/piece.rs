//! What a worker is to read: ranges of row groups, and how far each of them is.

/// The rows at the permuted positions `lo..hi` of a row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Piece {
    /// Number of the row group within the data set; see [`Dataset::groups`](crate::Dataset::groups).
    pub group: u32,
    pub lo: u32,
    pub hi: u32,
}

impl Piece {
    /// Number of rows.
    pub fn rows(&self) -> u32 {
        self.hi.saturating_sub(self.lo)
    }
}

/// How far a piece is: the positions `piece.lo..at` are processed.
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
