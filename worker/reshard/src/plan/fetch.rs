//! What one member copies.

use std::collections::BTreeMap;

use super::{
    Class, Plan, Runs,
    divisions::unit,
    pieces::Piece,
    runs::{DimPart, Strided},
    sized_cells::Overlap,
};

/// A part of a tensor that a member copies from one source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetch {
    /// Index of the tensor in the new layout.
    pub tensor: u32,
    /// Index of the tensor in the old layout.
    pub old_tensor: u32,
    /// Whose memory to copy, by index in the list of the plan.
    pub holder: u32,
    /// The chain on which its bytes come, by index in [`Plan::chains`]. All members of the chain fetch the same.
    pub chain: Option<u32>,
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
    holder: u32,
    chain: Option<u32>,
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
                    holder: part.holder,
                    chain: part.chain,
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
        for (cell_of_target, &group) in (0..).zip(&new.groups) {
            if self
                .new_cells
                .groups
                .shards(group)
                .binary_search(&shard)
                .is_err()
            {
                continue;
            }
            let intervals = targets.intervals(cell_of_target);
            let lens = intervals.iter().map(|list| crate::interval::total(list));
            let lens: Vec<u64> = lens.collect();
            for overlap in sources.overlaps(&intervals) {
                let (holder, chain) = self.source(me, group, old.groups[overlap.cell as usize]);
                let Overlap { cell, dims } = overlap;
                let dims = dims.into_iter().zip(&lens);
                parts.push(Part {
                    holder,
                    chain,
                    source_start: sources.start(cell),
                    target_start: targets.start(cell_of_target),
                    dims: dims
                        .map(|((pieces, source), &target)| (pieces, source, target))
                        .collect(),
                });
            }
        }
        parts
    }

    /// Where a member reads what a group of the old layout holds: the holder, and the chain. `mine` is its own group in the
    /// new layout.
    fn source(&self, me: u32, mine: u32, group: u32) -> (u32, Option<u32>) {
        let seat = self.seats[me as usize];
        let near = self.choice.on_host(seat.host, group);
        let is_own = |holder: &u32| self.holders[*holder as usize].rank == Some(seat.rank);
        match near.iter().copied().find(is_own).or(near.first().copied()) {
            Some(holder) => (holder, None),
            None => self.choice.sender(seat.host, group, mine),
        }
    }
}
