//! What one member copies.

use std::collections::BTreeMap;

use super::{
    Class, Plan, Runs,
    divisions::unit,
    pieces::Piece,
    runs::{DimPart, Strided},
    sized_cells::Overlap,
};

/// Where a member copies from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Source {
    /// The memory of this holder, by index in the list of the plan.
    Holder(u32),
    /// The new tensors of this member of the same host, by index in the list of the plan. It fetches these bytes itself,
    /// from another host.
    Seat(u32),
}

/// A part of a tensor that a member copies from one source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetch {
    /// Index of the tensor in the new layout.
    pub tensor: u32,
    /// Index of the tensor in the old layout.
    pub old_tensor: u32,
    /// Where to copy from.
    pub from: Source,
    /// The shard of the source: of the old layout for a holder, of the new one for a member.
    pub shard: u32,
    part: Strided,
}

impl Fetch {
    /// Number of bytes, at least 1.
    pub fn bytes(&self) -> u64 {
        self.part.bytes()
    }

    /// The bytes to copy. Offsets are those in the local tensors of source and reader; a [`Body`](crate::Body) says where
    /// these begin.
    pub fn runs(&self) -> Runs<'_> {
        self.part.runs()
    }
}

/// What a member copies of each tensor of one class from one source.
struct Part {
    from: Source,
    shard: u32,
    /// Where the blocks begin in their local tensors, in elements of the dimensions of the class.
    source_start: u64,
    target_start: u64,
    /// For each dimension of the class the pieces, and the lengths of both blocks.
    dims: Vec<(Vec<Piece>, u64, u64)>,
}

impl Plan<'_> {
    /// What a member copies, by tensor. `me` is its index in the list of members.
    ///
    /// # Panics
    /// If there is no such member.
    pub fn fetches(&self, me: u32) -> Vec<Fetch> {
        let mut by_class: BTreeMap<u32, Vec<Part>> = BTreeMap::new();
        let mut fetches = Vec::new();
        for pair in &self.pairs {
            let class = &self.classes[pair.class as usize];
            let tensor = &self.new.tensors()[pair.new as usize];
            let unit = unit(tensor, &class.dims);
            if unit == 0 {
                continue;
            }
            let parts = by_class
                .entry(pair.class)
                .or_insert_with(|| self.parts(class, me));
            for part in parts {
                let whole: Vec<[Piece; 1]> = (tensor.shape.iter())
                    .map(|&len| {
                        [Piece {
                            source: 0,
                            target: 0,
                            len,
                        }]
                    })
                    .collect();
                let mut dims: Vec<DimPart<'_>> = (whole.iter())
                    .map(|pieces| DimPart {
                        pieces,
                        source: pieces[0].len,
                        target: pieces[0].len,
                    })
                    .collect();
                for (&dim, (pieces, source, target)) in class.dims.iter().zip(&part.dims) {
                    let (source, target) = (*source, *target);
                    dims[dim] = DimPart {
                        pieces,
                        source,
                        target,
                    };
                }
                fetches.push(Fetch {
                    tensor: pair.new,
                    old_tensor: pair.old,
                    from: part.from,
                    shard: part.shard,
                    part: Strided::new(
                        &dims,
                        tensor.dtype.itemsize.into(),
                        part.source_start * unit,
                        part.target_start * unit,
                    ),
                });
            }
        }
        fetches
    }

    /// What a member copies of a class.
    fn parts(&self, class: &Class, me: u32) -> Vec<Part> {
        let shard = self.seats[me as usize].shard;
        let old = &self.old_cells.cells[class.old as usize];
        let new = &self.new_cells.cells[class.new as usize];
        let [sources, targets] = self.sized(class);
        let mut parts = Vec::new();
        for (cell, &group) in (0..).zip(&new.groups) {
            if self
                .new_cells
                .groups
                .shards(group)
                .binary_search(&shard)
                .is_err()
            {
                continue;
            }
            let intervals = targets.intervals(cell);
            let lens = intervals.iter().map(|list| crate::interval::total(list));
            let lens: Vec<u64> = lens.collect();
            for overlap in sources.overlaps(&intervals) {
                let from = self.source(me, group, old.groups[overlap.cell as usize]);
                let target_start = targets.start(cell);
                let Overlap { cell, dims } = overlap;
                let dims = dims.into_iter().zip(&lens);
                parts.push(match from {
                    Source::Holder(holder) => Part {
                        from,
                        shard: self.holders[holder as usize].shard,
                        source_start: sources.start(cell),
                        target_start,
                        dims: dims
                            .map(|((pieces, source), &target)| (pieces, source, target))
                            .collect(),
                    },
                    // It has the same cell, so its local tensor is like mine.
                    Source::Seat(seat) => Part {
                        from,
                        shard: self.seats[seat as usize].shard,
                        source_start: target_start,
                        target_start,
                        dims: dims
                            .map(|((pieces, _), &len)| (in_target(pieces), len, len))
                            .collect(),
                    },
                });
            }
        }
        parts
    }

    /// Where a member reads what a group of the old layout holds. `mine` is its own group in the new layout.
    fn source(&self, me: u32, mine: u32, group: u32) -> Source {
        let seat = self.seats[me as usize];
        let near = self.choice.on_host(seat.host, group);
        let is_own = |holder: &u32| self.holders[*holder as usize].rank == Some(seat.rank);
        if let Some(holder) = near.iter().copied().find(is_own).or(near.first().copied()) {
            return Source::Holder(holder);
        }
        let readers = self.choice.readers(mine).iter().copied();
        let first = readers
            .into_iter()
            .find(|&seat_of| self.seats[seat_of as usize].host == seat.host);
        match first.filter(|&first| first != me) {
            Some(first) => Source::Seat(first),
            None => Source::Holder(self.choice.sender(seat.host, group)),
        }
    }
}

/// The same pieces, read from a local tensor that is like the reader's.
fn in_target(pieces: Vec<Piece>) -> Vec<Piece> {
    let piece = |piece: Piece| Piece {
        source: piece.target,
        ..piece
    };
    pieces.into_iter().map(piece).collect()
}
