//! A tensor of a sharded state, and how it is divided.

use crate::{
    Error, Mesh,
    cover::covers_once,
    interval::{Cut, Interval},
};

/// Most dimensions that a tensor may have, as in torch.
pub(crate) const MAX_DIMS: usize = 64;

/// Most bytes of a tensor's name.
const MAX_NAME: usize = 4096;

/// Most bytes of the name of a dtype.
const MAX_DTYPE: usize = 32;

/// Most intervals into which [`Axis::Strided`] may cut one dimension of a local tensor.
const MAX_PIECES: u64 = 1 << 16;

/// A tensor by its fully qualified name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tensor {
    /// The name, which no other tensor of the layout has: at most 4096 bytes.
    pub name: String,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Lengths of its dimensions, as if it were on one worker. No dimension: a scalar.
    pub shape: Vec<u64>,
    /// Which shard holds what.
    pub division: Division,
}

/// The type of an element, by the name that it has in torch and NumPy: `float32`, `bfloat16`, `complex64`, `float8_e4m3fn`.
/// Names are compared and never interpreted.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Dtype {
    /// The name: 1 to 32 letters, digits, `_`, `.` and `-`.
    pub name: String,
    /// Bytes of an element, at least 1.
    pub itemsize: u8,
}

impl Dtype {
    /// A type with this name and bytes per element.
    pub fn new(name: impl Into<String>, itemsize: u8) -> Self {
        let name = name.into();
        Self { name, itemsize }
    }

    fn is_valid(&self) -> bool {
        let in_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        self.itemsize > 0
            && (1..=MAX_DTYPE).contains(&self.name.len())
            && self.name.bytes().all(in_name)
    }
}

/// How a tensor is divided among the shards of a layout.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Division {
    /// Each shard holds all of it.
    Whole,
    /// A mesh cuts it. A shard outside of the mesh holds nothing.
    Mesh {
        /// Index of the mesh in the layout.
        mesh: u16,
        /// What each dimension of the mesh does, in order. Cuts of the same dimension of the tensor follow each other.
        axes: Vec<Axis>,
    },
    /// Rectangles for each shard that holds some. Together they have each element once. The local tensor of a shard has
    /// its rectangles one after the other, each in row-major order.
    Explicit(Vec<(u32, Vec<Rect>)>),
}

/// What one dimension of a mesh does to a tensor: a placement of DTensor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Axis {
    /// All coordinates hold the same.
    Replicate,
    /// A dimension is cut into chunks, one for each coordinate, as by `torch.chunk`.
    Shard {
        /// The dimension of the tensor.
        dim: u8,
    },
    /// A dimension is cut into `factor` chunks, and each of them into one for each coordinate: torch's `_StridedShard`.
    Strided {
        /// The dimension of the tensor.
        dim: u8,
        /// Its `split_factor`, at least 1.
        factor: u32,
    },
}

impl Axis {
    /// The dimension that a mesh with `parts` coordinates cuts, and how.
    pub(crate) fn cut(self, parts: u32) -> Option<(usize, Cut)> {
        let (dim, factor) = match self {
            Axis::Replicate => return None,
            Axis::Shard { dim } => (dim, 1),
            Axis::Strided { dim, factor } => (dim, factor),
        };
        Some((dim.into(), Cut { parts, factor }))
    }
}

/// A hyper-rectangle: an interval for each dimension.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rect {
    /// Its first element in each dimension.
    pub offset: Vec<u64>,
    /// Its length in each dimension.
    pub len: Vec<u64>,
}

impl Rect {
    /// Whether it has no element.
    pub(crate) fn is_empty(&self) -> bool {
        self.len.contains(&0)
    }

    /// Its interval in a dimension.
    pub(crate) fn interval(&self, dim: usize) -> Interval {
        let (offset, len) = (self.offset[dim], self.len[dim]);
        Interval { offset, len }
    }
}

impl Tensor {
    /// Number of its elements, if they can be counted.
    fn checked_elements(&self) -> Option<u64> {
        if self.shape.contains(&0) {
            return Some(0);
        }
        (self.shape.iter()).try_fold(1_u64, |product, &len| product.checked_mul(len))
    }

    /// Bytes of all elements. The tensor is one of a layout.
    pub(crate) fn bytes(&self) -> u64 {
        self.checked_elements().unwrap_or(0) * u64::from(self.dtype.itemsize)
    }

    /// Checks it, as a tensor of a layout with these shards and meshes. `repeated` has [`Mesh::repeated`] of each mesh.
    /// Gives the bytes of the whole tensor.
    pub(crate) fn check(
        &self,
        shards: u32,
        meshes: &[Mesh],
        repeated: &[Vec<(u32, usize)>],
    ) -> Result<u64, Error> {
        let tensor = || self.name.clone();
        if self.name.len() > MAX_NAME {
            let bytes = self.name.len();
            return Err(Error::LongName { bytes });
        }
        if !self.dtype.is_valid() {
            return Err(Error::Dtype { tensor: tensor() });
        }
        if self.shape.len() > MAX_DIMS {
            let dims = self.shape.len();
            return Err(Error::TooManyDims {
                tensor: tensor(),
                dims,
            });
        }
        let bytes = (self.checked_elements())
            .and_then(|elements| elements.checked_mul(self.dtype.itemsize.into()))
            // A dimension alone is an index as well, also where another one is 0.
            .filter(|bytes| self.shape.iter().chain([bytes]).all(|&len| len < 1 << 62))
            .ok_or_else(|| Error::TooLarge { tensor: tensor() })?;
        match &self.division {
            Division::Whole => {}
            Division::Mesh { mesh, axes } => {
                let index = usize::from(*mesh);
                let mesh = (meshes.get(index)).ok_or_else(|| Error::NoMesh {
                    tensor: tensor(),
                    mesh: index,
                })?;
                self.check_axes(mesh, axes)?;
                let cuts = |&(_, dim): &(u32, usize)| axes[dim] != Axis::Replicate;
                if let Some(&(shard, _)) = repeated[index].iter().find(|pair| cuts(pair)) {
                    return Err(Error::Repeated {
                        tensor: tensor(),
                        shard,
                    });
                }
            }
            Division::Explicit(parts) => self.check_rects(shards, parts)?,
        }
        Ok(bytes)
    }

    fn check_axes(&self, mesh: &Mesh, axes: &[Axis]) -> Result<(), Error> {
        let tensor = || self.name.clone();
        if axes.len() != mesh.shape.len() {
            return Err(Error::Axes {
                tensor: tensor(),
                axes: axes.len(),
                dims: mesh.shape.len(),
            });
        }
        let mut pieces = vec![1; self.shape.len()];
        for (axis, &parts) in axes.iter().zip(&mesh.shape) {
            let Some((dim, cut)) = axis.cut(parts) else {
                continue;
            };
            let dims = self.shape.len();
            if dim >= dims {
                return Err(Error::Dim {
                    tensor: tensor(),
                    dim,
                    dims,
                });
            }
            pieces[dim] += u64::from(cut.factor).min(self.shape[dim]);
            if cut.factor == 0 || pieces[dim] > MAX_PIECES {
                let factor = cut.factor;
                return Err(Error::Factor {
                    tensor: tensor(),
                    factor,
                });
            }
        }
        Ok(())
    }

    fn check_rects(&self, shards: u32, parts: &[(u32, Vec<Rect>)]) -> Result<(), Error> {
        let tensor = || self.name.clone();
        for (nth, &(shard, ref rects)) in parts.iter().enumerate() {
            if shard >= shards || parts[..nth].last().is_some_and(|last| last.0 >= shard) {
                return Err(Error::Owner {
                    tensor: tensor(),
                    shard,
                });
            }
            let is_inside = |rect: &Rect| {
                let dims = self.shape.len();
                rect.offset.len() == dims
                    && rect.len.len() == dims
                    && (0..dims).all(|dim| {
                        let end = rect.offset[dim].checked_add(rect.len[dim]);
                        end.is_some_and(|end| end <= self.shape[dim])
                    })
            };
            if !rects.iter().all(is_inside) {
                return Err(Error::Outside {
                    tensor: tensor(),
                    shard,
                });
            }
        }
        let rects: Vec<&Rect> = parts.iter().flat_map(|(_, rects)| rects).collect();
        match covers_once(&self.shape, &rects) {
            Some(true) => Ok(()),
            Some(false) => Err(Error::Cover { tensor: tensor() }),
            None => Err(Error::TooManyRects { tensor: tensor() }),
        }
    }

    /// Sorts the shards of explicit rectangles, and drops what holds nothing.
    pub(crate) fn normalize(&mut self) {
        if let Division::Explicit(parts) = &mut self.division {
            for (_, rects) in parts.iter_mut() {
                rects.retain(|rect| !rect.is_empty());
            }
            parts.retain(|(_, rects)| !rects.is_empty());
            parts.sort_by_key(|&(shard, _)| shard);
        }
    }
}
