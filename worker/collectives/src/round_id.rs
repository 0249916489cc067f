//! The number of a round.

use std::fmt;

/// A started round of one driver. Ordered by epoch, then round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoundId {
    /// The driver's epoch.
    pub epoch: u64,
    /// The round.
    pub round: u64,
}

impl fmt::Display for RoundId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.round)
    }
}
