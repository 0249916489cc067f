//! What to copy between two local tensors, as runs of contiguous bytes.

use std::iter::Peekable;

use super::pieces::Piece;

/// Bytes to copy from one local tensor to another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Offset in the local tensor of the source, in bytes.
    pub source: u64,
    /// Offset in the local tensor of the reader, in bytes.
    pub target: u64,
    /// Number of bytes.
    pub len: u64,
}

/// A part that two blocks of one tensor share: for each dimension the pieces that both have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Strided {
    /// Where the blocks begin in their local tensors, in bytes.
    source: u64,
    target: u64,
    /// Dimensions from the outermost. The innermost has runs of contiguous bytes; the others are walked by index.
    outer: Vec<Dim>,
    inner: Dim,
    /// Bytes of an index of the innermost dimension.
    unit: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Dim {
    pieces: Vec<Piece>,
    /// Bytes of a step to the next index.
    source: u64,
    target: u64,
}

/// One dimension of a part: what both blocks have of it, and the lengths of both.
#[derive(Clone, Copy, Debug)]
pub(super) struct DimPart<'a> {
    pub(super) pieces: &'a [Piece],
    pub(super) source: u64,
    pub(super) target: u64,
}

impl Strided {
    /// A part with these dimensions and bytes of an element. The blocks begin at these bytes of their local tensors.
    pub(super) fn new(parts: &[DimPart<'_>], itemsize: u64, source: u64, target: u64) -> Self {
        // Dimensions that both blocks have in full are a part of the unit.
        let is_full = |part: &&DimPart<'_>| match part.pieces {
            [piece] => piece.len == part.source && piece.len == part.target,
            _ => false,
        };
        let full = parts.iter().rev().take_while(is_full).count();
        let (cut, full) = parts.split_at(parts.len() - full);
        let unit = full.iter().fold(itemsize, |unit, part| unit * part.source);
        let (mut source_step, mut target_step) = (unit, unit);
        let mut dims: Vec<Dim> = (cut.iter().rev())
            .map(|part| {
                let dim = Dim {
                    pieces: part.pieces.to_vec(),
                    source: source_step,
                    target: target_step,
                };
                source_step *= part.source;
                target_step *= part.target;
                dim
            })
            .collect();
        dims.reverse();
        let inner = dims.pop().unwrap_or(Dim {
            pieces: vec![Piece {
                source: 0,
                target: 0,
                len: 1,
            }],
            source: unit,
            target: unit,
        });
        Self {
            source,
            target,
            outer: dims,
            inner,
            unit,
        }
    }

    /// Bytes of the part.
    pub(super) fn bytes(&self) -> u64 {
        let dims = self.outer.iter().chain([&self.inner]);
        let len = |dim: &Dim| dim.pieces.iter().map(|piece| piece.len).sum::<u64>();
        dims.fold(self.unit, |bytes, dim| bytes * len(dim))
    }

    /// The part as runs, in increasing order of both offsets.
    pub(super) fn runs(&self) -> Runs<'_> {
        Runs {
            pieces: PieceRuns::new(self).peekable(),
        }
    }
}

/// Runs of contiguous bytes, in increasing order of both offsets. No two of them could be one.
#[derive(Debug)]
pub struct Runs<'a> {
    pieces: Peekable<PieceRuns<'a>>,
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let mut run = self.pieces.next()?;
        let follows = |run: Run, next: &Run| {
            next.source == run.source + run.len && next.target == run.target + run.len
        };
        while let Some(next) = self.pieces.next_if(|next| follows(run, next)) {
            run.len += next.len;
        }
        Some(run)
    }
}

/// A run for each piece of the innermost dimension and each index of the others.
#[derive(Debug)]
struct PieceRuns<'a> {
    part: &'a Strided,
    /// For each outer dimension a piece, and an index in it.
    outer: Vec<(usize, u64)>,
    inner: usize,
    /// Where the current indices of the outer dimensions begin, in bytes.
    source: u64,
    target: u64,
    is_done: bool,
}

impl<'a> PieceRuns<'a> {
    fn new(part: &'a Strided) -> Self {
        let mut runs = Self {
            part,
            outer: vec![(0, 0); part.outer.len()],
            inner: 0,
            source: 0,
            target: 0,
            is_done: part.bytes() == 0,
        };
        if !runs.is_done {
            runs.locate();
        }
        runs
    }

    /// Computes the offsets of the current indices.
    fn locate(&mut self) {
        (self.source, self.target) = (self.part.source, self.part.target);
        for (dim, &(piece, index)) in self.part.outer.iter().zip(&self.outer) {
            let piece = dim.pieces[piece];
            self.source += (piece.source + index) * dim.source;
            self.target += (piece.target + index) * dim.target;
        }
    }

    /// The next indices of the outer dimensions.
    fn advance(&mut self) {
        for (nth, dim) in self.part.outer.iter().enumerate().rev() {
            let (piece, index) = &mut self.outer[nth];
            *index += 1;
            if *index < dim.pieces[*piece].len {
                // The usual case, for which nothing else changes.
                self.source += dim.source;
                self.target += dim.target;
                if nth + 1 < self.part.outer.len() {
                    self.locate();
                }
                return;
            }
            *index = 0;
            *piece += 1;
            if *piece < dim.pieces.len() {
                self.locate();
                return;
            }
            *piece = 0;
        }
        self.is_done = true;
    }
}

impl Iterator for PieceRuns<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        if self.is_done {
            return None;
        }
        let dim = &self.part.inner;
        let piece = dim.pieces[self.inner];
        let run = Run {
            source: self.source + piece.source * dim.source,
            target: self.target + piece.target * dim.target,
            len: piece.len * self.part.unit,
        };
        self.inner += 1;
        if self.inner == dim.pieces.len() {
            self.inner = 0;
            self.advance();
        }
        Some(run)
    }
}
