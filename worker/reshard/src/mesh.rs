//! A mesh of shards.

use crate::Error;

/// Most dimensions that a mesh may have.
const MAX_DIMS: usize = 16;

/// Most coordinates of a mesh.
const MAX_SIZE: usize = 1 << 24;

/// Shards in a grid: the mesh of DTensor without the dimensions that replicate shards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mesh {
    /// Its size in each dimension.
    pub shape: Vec<u32>,
    /// The shard at each coordinate, in row-major order. A shard may be at several coordinates if they differ in
    /// dimensions that replicate each tensor that the mesh divides.
    pub shards: Vec<u32>,
}

impl Mesh {
    /// One dimension with all shards in order.
    pub fn line(shards: u32) -> Self {
        Self {
            shape: vec![shards],
            shards: (0..shards).collect(),
        }
    }

    /// Checks it, as mesh `index` of a layout with so many shards.
    pub(crate) fn check(&self, index: usize, shards: u32) -> Result<(), Error> {
        let size = (self.shape.iter()).try_fold(1_u64, |size, &len| size.checked_mul(len.into()));
        let named = self.shards.len();
        if size != Some(named as u64) || named == 0 || named > MAX_SIZE {
            return Err(Error::MeshSize { mesh: index, named });
        }
        if self.shape.len() > MAX_DIMS {
            return Err(Error::MeshDims { mesh: index });
        }
        match self.shards.iter().find(|&&shard| shard >= shards) {
            Some(&shard) => Err(Error::MeshShard {
                mesh: index,
                shard,
                shards,
            }),
            None => Ok(()),
        }
    }

    /// The coordinate with this row-major index in a dimension.
    pub(crate) fn coordinate(&self, index: u32, dim: usize) -> u32 {
        let inner: u32 = self.shape[dim + 1..].iter().product();
        index / inner % self.shape[dim]
    }

    /// Each shard with the row-major index of its first coordinate, by shard.
    pub(crate) fn by_shard(&self) -> Vec<(u32, u32)> {
        let mut all: Vec<(u32, u32)> = self.shards.iter().copied().zip(0..).collect();
        all.sort_unstable();
        all.dedup_by_key(|&mut (shard, _)| shard);
        all
    }

    /// Dimensions in which the coordinates of one shard differ, with the first such shard.
    pub(crate) fn repeated(&self) -> Vec<(u32, usize)> {
        let mut all: Vec<(u32, u32)> = self.shards.iter().copied().zip(0..).collect();
        all.sort_unstable();
        (0..self.shape.len())
            .filter_map(|dim| {
                let differ = |pair: &&[(u32, u32)]| {
                    let [a, b] = [pair[0], pair[1]];
                    a.0 == b.0 && self.coordinate(a.1, dim) != self.coordinate(b.1, dim)
                };
                let pair = all.windows(2).find(differ)?;
                Some((pair[0].0, dim))
            })
            .collect()
    }
}
