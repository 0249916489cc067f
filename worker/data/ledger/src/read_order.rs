//! The order in which workers read the rows of an epoch.

use std::fmt::{self, Display, Formatter};

use super::Split;

/// The order of an epoch, the same in all workers of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadOrder {
    /// Each worker reads its share of the epoch layout in an order of its own. A change of the workers moves as few
    /// rows as possible.
    Local(Split),
    /// With this number of [`Stripes`](super::Stripes), at least 1. The rows of a step depend only on its number.
    Deterministic(u32),
}

impl Default for ReadOrder {
    fn default() -> Self {
        Self::Local(Split::default())
    }
}

impl From<Split> for ReadOrder {
    fn from(split: Split) -> Self {
        Self::Local(split)
    }
}

/// The options as the user sets them.
impl Display for ReadOrder {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(_) => f.write_str("order \"local\""),
            Self::Deterministic(stripes) => {
                write!(f, "order \"deterministic\" with {stripes} stripes")
            }
        }
    }
}
