//! The cells of tensors of known lengths, and what a reader has in common with them.

use super::{
    cells::{Cells, Kind},
    pieces::{CutDim, Piece, common_with},
};
use crate::interval::{Interval, total};

/// What a reader has in common with a cell.
#[derive(Debug)]
pub(super) struct Overlap {
    pub(super) cell: u32,
    /// The pieces of each dimension, and the length of the cell in it.
    pub(super) dims: Vec<(Vec<Piece>, u64)>,
}

impl Overlap {
    /// Number of elements.
    pub(super) fn elements(&self) -> u64 {
        let len = |(pieces, _): &(Vec<Piece>, _)| {
            pieces.iter().map(|piece: &Piece| piece.len).sum::<u64>()
        };
        self.dims.iter().map(len).product()
    }
}

/// The cells of tensors whose lengths in some dimensions are known. Other dimensions are not cut.
#[derive(Debug)]
pub(super) enum SizedCells {
    Grid(Vec<CutDim>),
    Boxes {
        boxes: Vec<Vec<Interval>>,
        /// Where each box begins in the local tensor of its shard, in elements of these dimensions.
        starts: Vec<u64>,
        /// The dimension by whose offsets the boxes are found.
        dim: usize,
        /// The boxes by their offset in `dim`: offset, the last end so far, box.
        order: Vec<(u64, u64, u32)>,
    },
}

impl SizedCells {
    /// The cells, for tensors with these lengths in these dimensions, which have those that the cells cut.
    pub(super) fn new(cells: &Cells, dims: &[usize], lens: &[u64]) -> Self {
        let at = |dim: usize| cells.dims.binary_search(&dim).ok();
        let dims = dims.iter().map(|&dim| at(dim)).zip(lens.iter().copied());
        match &cells.kind {
            Kind::Grid(cuts) => {
                let cuts = |nth: Option<usize>| nth.map_or(&[][..], |nth| &cuts[nth]);
                Self::Grid(dims.map(|(nth, len)| CutDim::new(len, cuts(nth))).collect())
            }
            Kind::Boxes(boxes) => {
                let dims: Vec<(Option<usize>, u64)> = dims.collect();
                let interval = |list: &[Interval], (nth, len): (Option<usize>, u64)| {
                    nth.map_or(Interval { offset: 0, len }, |nth| list[nth])
                };
                let boxes: Vec<Vec<Interval>> = (boxes.iter())
                    .map(|list| dims.iter().map(|&dim| interval(list, dim)).collect())
                    .collect();
                Self::from_boxes(boxes, &cells.groups, dims.len())
            }
        }
    }

    /// Boxes, and the group of each. Boxes of the same group follow each other.
    fn from_boxes(boxes: Vec<Vec<Interval>>, groups: &[u32], dims: usize) -> Self {
        let mut starts = Vec::with_capacity(boxes.len());
        let mut end = 0;
        for (nth, list) in boxes.iter().enumerate() {
            let start = if nth > 0 && groups[nth] == groups[nth - 1] {
                end
            } else {
                0
            };
            starts.push(start);
            end = start + list.iter().map(|interval| interval.len).product::<u64>();
        }
        // The dimension with the most different offsets tells most boxes apart.
        let differ = |&dim: &usize| {
            let mut offsets: Vec<u64> = boxes.iter().map(|list| list[dim].offset).collect();
            offsets.sort_unstable();
            offsets.dedup();
            offsets.len()
        };
        let dim = (0..dims).max_by_key(differ).unwrap_or(0);
        let interval = |list: &Vec<Interval>| {
            list.get(dim)
                .copied()
                .unwrap_or(Interval { offset: 0, len: 1 })
        };
        let mut order: Vec<(u64, u64, u32)> = (boxes.iter().map(interval).zip(0..))
            .map(|(interval, index)| (interval.offset, interval.end(), index))
            .collect();
        order.sort_unstable();
        let mut last = 0;
        for (_, end, _) in &mut order {
            last = last.max(*end);
            *end = last;
        }
        Self::Boxes {
            boxes,
            starts,
            dim,
            order,
        }
    }

    /// The parts of a cell in each dimension of a grid.
    fn parts(dims: &[CutDim], cell: u32) -> Vec<u32> {
        let mut rest = cell;
        let mut parts: Vec<u32> = (dims.iter().rev())
            .map(|dim| {
                let part = rest % dim.parts();
                rest /= dim.parts();
                part
            })
            .collect();
        parts.reverse();
        parts
    }

    /// The intervals of a cell in each dimension.
    pub(super) fn intervals(&self, cell: u32) -> Vec<&[Interval]> {
        match self {
            Self::Grid(dims) => (dims.iter().zip(Self::parts(dims, cell)))
                .map(|(dim, part)| dim.part(part))
                .collect(),
            Self::Boxes { boxes, .. } => boxes[cell as usize]
                .iter()
                .map(std::slice::from_ref)
                .collect(),
        }
    }

    /// Where a cell begins in the local tensor of its shards, in elements of these dimensions.
    pub(super) fn start(&self, cell: u32) -> u64 {
        match self {
            Self::Grid(_) => 0,
            Self::Boxes { starts, .. } => starts[cell as usize],
        }
    }

    /// Number of elements of a cell in these dimensions.
    pub(super) fn elements(&self, cell: u32) -> u64 {
        let intervals = self.intervals(cell);
        intervals.into_iter().map(total).product()
    }

    /// What these intervals of each dimension have in common with each cell, by cell. None of it is empty.
    pub(super) fn overlaps(&self, target: &[&[Interval]]) -> Vec<Overlap> {
        match self {
            Self::Grid(dims) => {
                let mut overlaps = vec![Overlap {
                    cell: 0,
                    dims: Vec::new(),
                }];
                for (dim, target) in dims.iter().zip(target) {
                    let common = dim.common(target);
                    overlaps = (overlaps.iter())
                        .flat_map(|outer| {
                            common.iter().map(|common| Overlap {
                                cell: outer.cell * dim.parts() + common.part,
                                dims: (outer.dims.iter().cloned())
                                    .chain([(common.pieces.clone(), common.len)])
                                    .collect(),
                            })
                        })
                        .collect();
                }
                overlaps
            }
            Self::Boxes {
                boxes, dim, order, ..
            } => {
                let (from, to) = match target.get(*dim).map(|list| (list.first(), list.last())) {
                    Some((Some(first), Some(last))) => (first.offset, last.end()),
                    Some(_) => return Vec::new(),
                    None => (0, 1),
                };
                let first = order.partition_point(|&(_, end, _)| end <= from);
                let near = order[first..]
                    .iter()
                    .take_while(|&&(offset, ..)| offset < to);
                let mut overlaps: Vec<Overlap> = near
                    .filter_map(|&(_, _, cell)| {
                        let dims = (boxes[cell as usize].iter().zip(target))
                            .map(|(&interval, target)| {
                                let pieces = common_with(interval, target);
                                (!pieces.is_empty()).then_some((pieces, interval.len))
                            })
                            .collect::<Option<_>>()?;
                        Some(Overlap { cell, dims })
                    })
                    .collect();
                overlaps.sort_unstable_by_key(|overlap| overlap.cell);
                overlaps
            }
        }
    }
}
