//! What two divisions of one dimension have in common.

use crate::interval::{Cut, Interval, whole};

/// Indices of one dimension that two local tensors have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    /// The first one, in the local tensor of the source.
    pub(super) source: u64,
    /// The first one, in the local tensor of the reader.
    pub(super) target: u64,
    /// How many there are.
    pub(super) len: u64,
}

/// What a reader's intervals have in common with one part of the source.
#[derive(Debug)]
pub(super) struct Common {
    /// Index of the part.
    pub(super) part: u32,
    /// How many elements the part has, also those that the reader does not need.
    pub(super) len: u64,
    pub(super) pieces: Vec<Piece>,
}

/// A dimension that is cut into parts.
#[derive(Debug)]
pub(super) struct CutDim {
    /// The intervals of each part.
    parts: Vec<Vec<Interval>>,
    lens: Vec<u64>,
    /// The same intervals in order, each with its part, and with its index in the local tensor of the part.
    segments: Vec<(Interval, u32, u64)>,
}

impl CutDim {
    /// A dimension with `len` elements, cut one after the other. The parts are in row-major order.
    pub(super) fn new(len: u64, cuts: &[Cut]) -> Self {
        let mut parts = vec![whole(len)];
        for &cut in cuts {
            parts = (parts.iter())
                .flat_map(|list| (0..cut.parts).map(move |index| cut.apply(list, index)))
                .collect();
        }
        let mut segments = Vec::with_capacity(parts.len());
        let mut lens = Vec::with_capacity(parts.len());
        for (part, list) in (0..).zip(&parts) {
            let mut local = 0;
            for &interval in list {
                segments.push((interval, part, local));
                local += interval.len;
            }
            lens.push(local);
        }
        segments.sort_unstable();
        Self {
            parts,
            lens,
            segments,
        }
    }

    /// Number of parts.
    pub(super) fn parts(&self) -> u32 {
        self.parts.len() as u32
    }

    /// The intervals of a part.
    pub(super) fn part(&self, index: u32) -> &[Interval] {
        &self.parts[index as usize]
    }

    /// What the intervals have in common with each part, by part.
    pub(super) fn common(&self, target: &[Interval]) -> Vec<Common> {
        let mut found: Vec<(u32, Piece)> = Vec::new();
        let mut local = 0;
        for interval in target {
            let first = self
                .segments
                .partition_point(|(segment, ..)| segment.end() <= interval.offset);
            for &(segment, part, start) in &self.segments[first..] {
                if segment.offset >= interval.end() {
                    break;
                }
                let from = segment.offset.max(interval.offset);
                let piece = Piece {
                    source: start + (from - segment.offset),
                    target: local + (from - interval.offset),
                    len: segment.end().min(interval.end()) - from,
                };
                found.push((part, piece));
            }
            local += interval.len;
        }
        // Pieces of the same part stay in order.
        found.sort_by_key(|&(part, _)| part);
        found
            .chunk_by(|a, b| a.0 == b.0)
            .map(|same| Common {
                part: same[0].0,
                len: self.lens[same[0].0 as usize],
                pieces: merged(same.iter().map(|&(_, piece)| piece)),
            })
            .collect()
    }
}

/// What the intervals have in common with one interval.
pub(super) fn common_with(source: Interval, target: &[Interval]) -> Vec<Piece> {
    let mut local = 0;
    let mut pieces = Vec::new();
    for interval in target {
        let from = source.offset.max(interval.offset);
        let to = source.end().min(interval.end());
        if from < to {
            pieces.push(Piece {
                source: from - source.offset,
                target: local + (from - interval.offset),
                len: to - from,
            });
        }
        local += interval.len;
    }
    merged(pieces.into_iter())
}

/// Joins pieces that follow each other in both local tensors.
fn merged(pieces: impl Iterator<Item = Piece>) -> Vec<Piece> {
    let mut joined: Vec<Piece> = Vec::new();
    for piece in pieces {
        match joined.last_mut() {
            Some(last)
                if last.source + last.len == piece.source
                    && last.target + last.len == piece.target =>
            {
                last.len += piece.len;
            }
            _ => joined.push(piece),
        }
    }
    joined
}
