//! Why there is no plan.

use crate::Tensor;

/// Why there is no plan.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A tensor has another shape than in the commit.
    #[error(
        "tensor {tensor:?} has shape {new:?}, and {old:?} in the commit: do all rounds build the same model?"
    )]
    Shape {
        /// The tensor.
        tensor: String,
        /// Its shape in the commit.
        old: Vec<u64>,
        /// Its shape in the new round.
        new: Vec<u64>,
    },
    /// A tensor has another dtype than in the commit.
    #[error(
        "tensor {tensor:?} has dtype {new}, and {old} in the commit: do all rounds build the same model?"
    )]
    Dtype {
        /// The tensor.
        tensor: String,
        /// Its dtype in the commit.
        old: String,
        /// Its dtype in the new round.
        new: String,
    },
    /// No holder has a shard that a member needs.
    #[error("no holder has shard {shard} of the commit")]
    Lacking {
        /// The shard of the old layout, or the lowest of several that hold the same.
        shard: u32,
    },
    /// A member has a shard that the new layout does not have.
    #[error("rank {rank} has shard {shard} of {shards}")]
    Seat {
        /// Its rank.
        rank: u32,
        /// Its shard.
        shard: u32,
        /// Shards of the layout.
        shards: u32,
    },
    /// A holder has a shard that the old layout does not have.
    #[error("a holder has shard {shard} of {shards}")]
    Holder {
        /// Its shard.
        shard: u32,
        /// Shards of the layout.
        shards: u32,
    },
}

impl PlanError {
    pub(super) fn shape(old: &Tensor, new: &Tensor) -> Self {
        Self::Shape {
            tensor: new.name.clone(),
            old: old.shape.clone(),
            new: new.shape.clone(),
        }
    }

    pub(super) fn dtype(old: &Tensor, new: &Tensor) -> Self {
        let text = |tensor: &Tensor| {
            let dtype = &tensor.dtype;
            format!("{} of {} bytes", dtype.name, dtype.itemsize)
        };
        Self::Dtype {
            tensor: new.name.clone(),
            old: text(old),
            new: text(new),
        }
    }
}
