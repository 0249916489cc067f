//! How a layout divides its tensors into cells.
//!
//! Each element of a tensor is in one cell, and the shards that hold a part of a cell hold all of it. Tensors with the
//! same division have the same cells, whatever their shapes.

use std::collections::BTreeMap;

use super::{
    groups::Groups,
    pieces::{CutDim, Piece, common_with},
};
use crate::{
    Division, Layout, Mesh, Rect, Tensor,
    interval::{Cut, Interval, total},
    layout::product,
};

/// The cells of one division.
#[derive(Debug)]
pub(super) struct Cells {
    /// The dimensions that it cuts, in increasing order.
    pub(super) dims: Vec<usize>,
    kind: Kind,
    /// For each cell, the group of the shards that hold it.
    pub(super) groups: Vec<u32>,
}

#[derive(Debug)]
enum Kind {
    /// For each of `dims` its cuts. Cells are in row-major order of the parts.
    Grid(Vec<Vec<Cut>>),
    /// For each cell its interval in each of `dims`.
    Boxes(Vec<Vec<Interval>>),
}

/// The divisions of a layout.
#[derive(Debug, Default)]
pub(super) struct Divisions {
    pub(super) cells: Vec<Cells>,
    /// For each tensor the index of its cells.
    pub(super) by_tensor: Vec<u32>,
    pub(super) groups: Groups,
}

impl Divisions {
    pub(super) fn new(layout: &Layout) -> Self {
        let mut all = Self::default();
        let mut known: BTreeMap<(Division, Vec<u64>), u32> = BTreeMap::new();
        for tensor in layout.tensors() {
            let (key, dims) = key_of(tensor);
            let index = match known.get(&key) {
                Some(&index) => index,
                None => {
                    let index = all.cells.len() as u32;
                    let cells = Cells::new(layout, &key.0, dims, &mut all.groups);
                    all.cells.push(cells);
                    *known.entry(key).or_insert(index)
                }
            };
            all.by_tensor.push(index);
        }
        all
    }

    /// Bytes of all tensors that each shard holds.
    pub(super) fn bytes_by_shard(&self, layout: &Layout) -> Vec<u64> {
        // Tensors that are cut alike and have equal lengths there: bytes for each element of these dimensions.
        let mut classes: BTreeMap<(u32, Vec<u64>), u64> = BTreeMap::new();
        for (tensor, &cells) in layout.tensors().iter().zip(&self.by_tensor) {
            let dims = &self.cells[cells as usize].dims;
            let lens = dims.iter().map(|&dim| tensor.shape[dim]).collect();
            *classes.entry((cells, lens)).or_default() += unit(tensor, dims);
        }
        let mut bytes = vec![0; layout.shards() as usize];
        for ((cells, lens), unit) in classes {
            let cells = &self.cells[cells as usize];
            let sized = Sized::new(cells, &cells.dims, &lens);
            for (cell, &group) in (0..).zip(&cells.groups) {
                let elements = sized.elements(cell);
                for &shard in self.groups.shards(group) {
                    bytes[shard as usize] += elements * unit;
                }
            }
        }
        bytes
    }
}

/// Bytes of a tensor for each element of the given dimensions. 0 if the tensor has no element.
pub(super) fn unit(tensor: &Tensor, dims: &[usize]) -> u64 {
    if tensor.shape.contains(&0) {
        return 0;
    }
    let others = (0..tensor.shape.len()).filter(|dim| !dims.contains(dim));
    let lens: Vec<u64> = others.map(|dim| tensor.shape[dim]).collect();
    product(&lens) * u64::from(tensor.dtype.itemsize)
}

/// What tensors of the same cells have in common, and the dimensions that are cut.
fn key_of(tensor: &Tensor) -> ((Division, Vec<u64>), Vec<usize>) {
    let Division::Explicit(parts) = &tensor.division else {
        return ((tensor.division.clone(), Vec::new()), Vec::new());
    };
    let rects = || parts.iter().flat_map(|(_, rects)| rects);
    let dims: Vec<usize> = (0..tensor.shape.len())
        .filter(|&dim| rects().any(|rect| rect.len[dim] != tensor.shape[dim]))
        .collect();
    let at = |list: &[u64]| dims.iter().map(|&dim| list[dim]).collect();
    let rect = |rect: &Rect| Rect {
        offset: at(&rect.offset),
        len: at(&rect.len),
    };
    let parts = (parts.iter())
        .map(|(shard, rects)| (*shard, rects.iter().map(rect).collect()))
        .collect();
    // The dimensions follow the lengths, since others may have the same.
    let lens = (dims.iter().map(|&dim| tensor.shape[dim]))
        .chain(dims.iter().map(|&dim| dim as u64))
        .collect();
    ((Division::Explicit(parts), lens), dims)
}

impl Cells {
    /// The cells of a division. The dimensions are those of explicit rectangles, which have no others.
    fn new(layout: &Layout, division: &Division, dims: Vec<usize>, groups: &mut Groups) -> Self {
        match division {
            Division::Whole => Self {
                dims: Vec::new(),
                kind: Kind::Grid(Vec::new()),
                groups: vec![groups.intern((0..layout.shards()).collect())],
            },
            Division::Mesh { mesh, axes } => {
                let mesh = &layout.meshes()[usize::from(*mesh)];
                let mut by_dim: BTreeMap<usize, Vec<(usize, Cut)>> = BTreeMap::new();
                for (nth, (axis, &parts)) in axes.iter().zip(&mesh.shape).enumerate() {
                    // An axis with one coordinate cuts nothing.
                    if let Some((dim, cut)) = axis.cut(parts).filter(|_| parts > 1) {
                        by_dim.entry(dim).or_default().push((nth, cut));
                    }
                }
                let order: Vec<usize> = by_dim.values().flatten().map(|&(nth, _)| nth).collect();
                let cut = |cuts: Vec<(usize, Cut)>| cuts.into_iter().map(|(_, cut)| cut).collect();
                Self {
                    groups: groups_of_mesh(mesh, &order, groups),
                    dims: by_dim.keys().copied().collect(),
                    kind: Kind::Grid(by_dim.into_values().map(cut).collect()),
                }
            }
            Division::Explicit(parts) => {
                let (mut boxes, mut owners) = (Vec::new(), Vec::new());
                for (shard, rects) in parts {
                    let group = groups.intern(vec![*shard]);
                    for rect in rects {
                        boxes.push((0..dims.len()).map(|dim| rect.interval(dim)).collect());
                        owners.push(group);
                    }
                }
                let kind = Kind::Boxes(boxes);
                Self {
                    dims,
                    kind,
                    groups: owners,
                }
            }
        }
    }
}

/// The group of each cell of a mesh. The cells are in row-major order of the given dimensions of the mesh.
fn groups_of_mesh(mesh: &Mesh, order: &[usize], groups: &mut Groups) -> Vec<u32> {
    let count: u32 = order.iter().map(|&dim| mesh.shape[dim]).product();
    let mut shards: Vec<Vec<u32>> = vec![Vec::new(); count as usize];
    for (index, &shard) in (0..).zip(&mesh.shards) {
        let cell = order.iter().fold(0, |cell, &dim| {
            cell * mesh.shape[dim] + mesh.coordinate(index, dim)
        });
        shards[cell as usize].push(shard);
    }
    (shards.into_iter())
        .map(|mut shards| {
            shards.sort_unstable();
            shards.dedup();
            groups.intern(shards)
        })
        .collect()
}

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
pub(super) enum Sized {
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

impl Sized {
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
