//! How a state is divided into shards.

use std::collections::BTreeMap;

use xxhash_rust::xxh3::xxh3_64;

use crate::{
    Block, Division, Error, Mesh, Rects, Tensor, encoding,
    interval::{Interval, whole},
};

/// Most shards that a layout may have.
pub const MAX_SHARDS: u32 = 1 << 20;

/// Most bytes of a state, without copies.
const MAX_BYTES: u64 = 1 << 62;

/// How a state is divided into shards: a rule for each tensor. All workers that describe the same division have the same
/// layout, and so the same bytes and hash, in whatever order they list tensors and meshes.
///
/// Tensors are in the order of their names. Meshes are in the order in which tensors use them first.
#[derive(Clone, Debug)]
pub struct Layout {
    shards: u32,
    meshes: Vec<Mesh>,
    tensors: Vec<Tensor>,
    /// [`Mesh::by_shard`] of each mesh.
    coordinates: Vec<Vec<(u32, u32)>>,
    encoded: Vec<u8>,
    hash: u64,
}

impl PartialEq for Layout {
    fn eq(&self, other: &Self) -> bool {
        self.encoded == other.encoded
    }
}

impl Eq for Layout {}

impl Layout {
    /// A layout of so many shards. The list has the index in the layout of each of the given tensors.
    ///
    /// # Errors
    /// If the parts do not fit together. The error names the tensor.
    pub fn new(
        shards: u32,
        meshes: Vec<Mesh>,
        tensors: Vec<Tensor>,
    ) -> Result<(Self, Vec<u32>), Error> {
        if shards == 0 || shards > MAX_SHARDS {
            return Err(Error::Shards { shards });
        }
        for (index, mesh) in meshes.iter().enumerate() {
            mesh.check(index, shards)?;
        }
        let count = u32::try_from(tensors.len()).map_err(|_| Error::TooMany)?;
        let mut sorted: Vec<(Tensor, u32)> = tensors.into_iter().zip(0..count).collect();
        sorted.sort_by(|a, b| a.0.name.cmp(&b.0.name));
        let mut index = vec![0; sorted.len()];
        for (nth, &(_, given)) in (0..count).zip(&sorted) {
            index[given as usize] = nth;
        }
        let mut tensors: Vec<Tensor> = sorted.into_iter().map(|(tensor, _)| tensor).collect();
        if let Some(pair) = tensors.windows(2).find(|pair| pair[0].name == pair[1].name) {
            let tensor = pair[0].name.clone();
            return Err(Error::Name { tensor });
        }

        let repeated: Vec<_> = meshes.iter().map(Mesh::repeated).collect();
        let mut bytes = 0;
        for tensor in &mut tensors {
            tensor.normalize();
            bytes += tensor.check(shards, &meshes, &repeated)?;
            if bytes >= MAX_BYTES {
                let tensor = tensor.name.clone();
                return Err(Error::TooLarge { tensor });
            }
        }
        let meshes = in_order_of_use(&meshes, &mut tensors)?;
        let encoded = encoding::encode(shards, &meshes, &tensors);
        let layout = Self {
            shards,
            coordinates: meshes.iter().map(Mesh::by_shard).collect(),
            hash: xxh3_64(&encoded).max(1),
            meshes,
            tensors,
            encoded,
        };
        Ok((layout, index))
    }

    /// Reads the output of [`Layout::as_bytes`].
    ///
    /// # Errors
    /// If the bytes are of another version, or not exactly what this layout has as bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let (shards, meshes, tensors) = encoding::decode(bytes)?;
        let (layout, _) = Self::new(shards, meshes, tensors)?;
        if layout.encoded != bytes {
            return Err(Error::Malformed("it is not in its usual form"));
        }
        Ok(layout)
    }

    /// The layout as bytes: about its names, and a few bytes for each tensor.
    pub fn as_bytes(&self) -> &[u8] {
        &self.encoded
    }

    /// A hash of [`Layout::as_bytes`]. It is never 0, which stands for a state that is not divided.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Number of shards.
    pub fn shards(&self) -> u32 {
        self.shards
    }

    /// The meshes that tensors name.
    pub fn meshes(&self) -> &[Mesh] {
        &self.meshes
    }

    /// The tensors, in the order of their names.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Index of the tensor with this name.
    pub fn find(&self, name: &str) -> Option<u32> {
        let found = self
            .tensors
            .binary_search_by(|tensor| tensor.name.as_str().cmp(name));
        found.ok().map(|index| index as u32)
    }

    /// What a shard holds of a tensor.
    ///
    /// # Panics
    /// If there is no such tensor or shard.
    pub fn rects(&self, tensor: u32, shard: u32) -> Rects {
        assert!(shard < self.shards, "shard {shard} of {}", self.shards);
        let tensor = &self.tensors[tensor as usize];
        let all = || tensor.shape.iter().map(|&len| whole(len));
        Rects(match &tensor.division {
            Division::Whole => vec![Block(all().collect())],
            Division::Mesh { mesh, axes } => {
                let Some(index) = self.coordinate(*mesh, shard) else {
                    return Rects(Vec::new());
                };
                let mesh = &self.meshes[usize::from(*mesh)];
                let mut dims: Vec<Vec<Interval>> = all().collect();
                for (nth, (axis, &parts)) in axes.iter().zip(&mesh.shape).enumerate() {
                    if let Some((dim, cut)) = axis.cut(parts) {
                        dims[dim] = cut.apply(&dims[dim], mesh.coordinate(index, nth));
                    }
                }
                vec![Block(dims)]
            }
            Division::Explicit(parts) => {
                let found = parts.binary_search_by_key(&shard, |&(shard, _)| shard);
                let rects = found.map_or(&[][..], |index| &parts[index].1);
                let block = |rect| Block::from_rect(rect);
                rects.iter().map(block).collect()
            }
        })
    }

    /// Bytes that a shard holds of a tensor: the length of its local tensor.
    ///
    /// # Panics
    /// If there is no such tensor or shard.
    pub fn local_bytes(&self, tensor: u32, shard: u32) -> u64 {
        assert!(shard < self.shards, "shard {shard} of {}", self.shards);
        let tensor = &self.tensors[tensor as usize];
        let itemsize = u64::from(tensor.dtype.itemsize);
        match &tensor.division {
            Division::Whole => tensor.bytes(),
            Division::Mesh { mesh, axes } => {
                let Some(index) = self.coordinate(*mesh, shard) else {
                    return 0;
                };
                let mesh = &self.meshes[usize::from(*mesh)];
                let mut shape = tensor.shape.clone();
                for (nth, (axis, &parts)) in axes.iter().zip(&mesh.shape).enumerate() {
                    if let Some((dim, cut)) = axis.cut(parts) {
                        shape[dim] = cut.len(shape[dim], mesh.coordinate(index, nth));
                    }
                }
                product(&shape) * itemsize
            }
            Division::Explicit(parts) => {
                let found = parts.binary_search_by_key(&shard, |&(shard, _)| shard);
                let rects = found.map_or(&[][..], |index| &parts[index].1);
                rects.iter().map(|rect| product(&rect.len)).sum::<u64>() * itemsize
            }
        }
    }

    /// Bytes that a shard holds of all tensors, without the space between them.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn bytes(&self, shard: u32) -> u64 {
        (0..self.tensors.len() as u32)
            .map(|tensor| self.local_bytes(tensor, shard))
            .sum()
    }

    /// The row-major index of a shard in a mesh.
    fn coordinate(&self, mesh: u16, shard: u32) -> Option<u32> {
        let coordinates = &self.coordinates[usize::from(mesh)];
        let found = coordinates.binary_search_by_key(&shard, |&(shard, _)| shard);
        found.ok().map(|index| coordinates[index].1)
    }
}

/// The product of lengths, any of which may be 0. The product of the others may then be too large to count.
pub(crate) fn product(shape: &[u64]) -> u64 {
    if shape.contains(&0) {
        return 0;
    }
    shape.iter().product()
}

/// The meshes that tensors use, each once, in the order of their first use. Tensors then name them by their index.
fn in_order_of_use(meshes: &[Mesh], tensors: &mut [Tensor]) -> Result<Vec<Mesh>, Error> {
    let mut used: Vec<Mesh> = Vec::new();
    // By what they are, and by the index that the caller gave.
    let mut same: BTreeMap<(&[u32], &[u32]), u16> = BTreeMap::new();
    let mut renamed: Vec<Option<u16>> = vec![None; meshes.len()];
    for tensor in tensors {
        let Division::Mesh { mesh: index, .. } = &mut tensor.division else {
            continue;
        };
        let given = usize::from(*index);
        *index = match renamed[given] {
            Some(index) => index,
            None => {
                let mesh = &meshes[given];
                let next = u16::try_from(used.len()).map_err(|_| Error::TooMany)?;
                let index = *same.entry((&mesh.shape, &mesh.shards)).or_insert(next);
                if index == next {
                    used.push(mesh.clone());
                }
                *renamed[given].insert(index)
            }
        };
    }
    Ok(used)
}
