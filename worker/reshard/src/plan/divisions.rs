//! The divisions of a layout: its tensors by the cells that they have.

use std::collections::BTreeMap;

use super::{cells::Cells, groups::Groups, sized_cells::SizedCells};
use crate::{Division, Layout, Rect, Tensor, layout::product};

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
            let sized = SizedCells::new(cells, &cells.dims, &lens);
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
