//! How a division cuts tensors into cells.
//!
//! Each element of a tensor is in one cell, and the shards that hold a part of a cell hold all of it. Tensors with the
//! same division have the same cells, whatever their shapes.

use std::collections::BTreeMap;

use super::groups::Groups;
use crate::{
    Division, Layout, Mesh,
    interval::{Cut, Interval},
};

/// The cells of one division.
#[derive(Debug)]
pub(super) struct Cells {
    /// The dimensions that it cuts, in increasing order.
    pub(super) dims: Vec<usize>,
    pub(super) kind: Kind,
    /// For each cell, the group of the shards that hold it.
    pub(super) groups: Vec<u32>,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// For each of `dims` its cuts. Cells are in row-major order of the parts.
    Grid(Vec<Vec<Cut>>),
    /// For each cell its interval in each of `dims`.
    Boxes(Vec<Vec<Interval>>),
}

impl Cells {
    /// The cells of a division. The dimensions are those of explicit rectangles, which have no others.
    pub(super) fn new(
        layout: &Layout,
        division: &Division,
        dims: Vec<usize>,
        groups: &mut Groups,
    ) -> Self {
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
