//! Why something is no layout.

/// Why a layout is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It has no shard, or more than [`MAX_SHARDS`](crate::MAX_SHARDS).
    #[error("a layout has 1 to {max} shards and this one {shards}", max = crate::MAX_SHARDS)]
    Shards {
        /// The shards that were asked for.
        shards: u32,
    },
    /// The shape of a mesh does not agree with its list of shards.
    #[error("the shape of mesh {mesh} does not fit the {named} shards that it names")]
    MeshSize {
        /// Index of the mesh.
        mesh: usize,
        /// Length of its list.
        named: usize,
    },
    /// A mesh has too many dimensions.
    #[error("mesh {mesh} has more than 16 dimensions")]
    MeshDims {
        /// Index of the mesh.
        mesh: usize,
    },
    /// A mesh names a shard that the layout does not have.
    #[error("mesh {mesh} names shard {shard} of {shards}")]
    MeshShard {
        /// Index of the mesh.
        mesh: usize,
        /// The shard.
        shard: u32,
        /// Shards of the layout.
        shards: u32,
    },
    /// There are more meshes or tensors than an index can say.
    #[error("there are too many meshes or tensors")]
    TooMany,
    /// Two tensors have the same name.
    #[error("two tensors are named {tensor:?}")]
    Name {
        /// The name.
        tensor: String,
    },
    /// A name is too long.
    #[error("the name of a tensor has {bytes} bytes and may have 4096")]
    LongName {
        /// Its length.
        bytes: usize,
    },
    /// A dtype has no size, or an unusual name.
    #[error("tensor {tensor:?}: its dtype needs a plain name and a size")]
    Dtype {
        /// The tensor.
        tensor: String,
    },
    /// A tensor has too many dimensions.
    #[error("tensor {tensor:?} has {dims} dimensions and may have 64")]
    TooManyDims {
        /// The tensor.
        tensor: String,
        /// Its dimensions.
        dims: usize,
    },
    /// The bytes of a tensor, or of all tensors up to it, cannot be counted.
    #[error("tensor {tensor:?}: the state is too large to be counted in bytes")]
    TooLarge {
        /// The tensor.
        tensor: String,
    },
    /// A tensor is divided by a mesh that the layout does not have.
    #[error("tensor {tensor:?}: the layout has no mesh {mesh}")]
    NoMesh {
        /// The tensor.
        tensor: String,
        /// Index of the mesh.
        mesh: usize,
    },
    /// A tensor has another number of axes than its mesh has dimensions.
    #[error("tensor {tensor:?} has {axes} axes, and its mesh {dims} dimensions")]
    Axes {
        /// The tensor.
        tensor: String,
        /// Its axes.
        axes: usize,
        /// Dimensions of the mesh.
        dims: usize,
    },
    /// An axis cuts a dimension that the tensor does not have.
    #[error("tensor {tensor:?}: dimension {dim} of {dims} is cut")]
    Dim {
        /// The tensor.
        tensor: String,
        /// The dimension, counted from 0.
        dim: usize,
        /// Dimensions of the tensor.
        dims: usize,
    },
    /// The split factor of a strided axis is 0, or it gives too many pieces.
    #[error("tensor {tensor:?}: a split factor of {factor} is out of range")]
    Factor {
        /// The tensor.
        tensor: String,
        /// The split factor.
        factor: u32,
    },
    /// A mesh names a shard twice, and a tensor gives it two parts.
    #[error(
        "tensor {tensor:?}: its mesh has shard {shard} twice, in a dimension that does not replicate the tensor"
    )]
    Repeated {
        /// The tensor.
        tensor: String,
        /// The shard.
        shard: u32,
    },
    /// Rectangles belong to a shard that the layout does not have, or a shard is listed twice.
    #[error("tensor {tensor:?}: shard {shard} is listed twice or does not exist")]
    Owner {
        /// The tensor.
        tensor: String,
        /// The shard.
        shard: u32,
    },
    /// A rectangle leaves the shape of its tensor, or has another number of dimensions.
    #[error("tensor {tensor:?}: a rectangle of shard {shard} leaves its shape")]
    Outside {
        /// The tensor.
        tensor: String,
        /// The shard.
        shard: u32,
    },
    /// Rectangles overlap or leave holes.
    #[error("tensor {tensor:?}: its rectangles overlap or leave holes")]
    Cover {
        /// The tensor.
        tensor: String,
    },
    /// There are too many rectangles.
    #[error("tensor {tensor:?} has too many rectangles")]
    TooManyRects {
        /// The tensor.
        tensor: String,
    },
    /// Bytes are not those of a layout.
    #[error("not a layout of shards: {0}")]
    Malformed(&'static str),
}
