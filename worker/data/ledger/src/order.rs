//! In which order the rows of an epoch are read, and by whom.

use std::fmt::{self, Display, Formatter};

use super::Split;

/// All workers of a job have the same one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Each worker has a share of the line, and reads it in an order of its own. A change of the workers moves as few rows
    /// as can be.
    Local(Split),
    /// So many [`Stripes`](super::Stripes), not 0: the rows of a step depend on its number alone.
    Deterministic(u32),
}

impl Default for Order {
    fn default() -> Self {
        Self::Local(Split::default())
    }
}

impl From<Split> for Order {
    fn from(split: Split) -> Self {
        Self::Local(split)
    }
}

/// As a user sets it.
impl Display for Order {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(_) => f.write_str("order \"local\""),
            Self::Deterministic(stripes) => {
                write!(f, "order \"deterministic\" with {stripes} stripes")
            }
        }
    }
}
