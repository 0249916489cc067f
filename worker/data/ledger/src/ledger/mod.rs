//! The ledger: the position of a job in its data, as of a commit.

mod bytes;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, iter};

use super::{
    EpochLayout, FormerMember, Member, Plan, ReadOrder, Share, Shuffle, Split, Stripes, repartition,
};
pub(crate) use bytes::WITHOUT_FILES;
use elasticrun_core::mutant::{Mutant, planted};

/// Identifies the data set of a ledger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatasetId {
    /// Rows of an epoch.
    pub rows: u64,
    /// Row groups.
    pub groups: u32,
    /// A hash of the files and their row groups, which the caller computes.
    pub digest: u64,
}

/// Why a ledger rejects a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LedgerError {
    /// The ledger has no worker of that rank.
    #[error("rank {0} has no share of the data")]
    Unknown(usize),
    /// The share contains rows that the worker did not have: they are processed, or belong to another worker.
    #[error("rank {0} claims rows that are not its own")]
    Foreign(usize),
    /// A step processed fewer rows than announced, so this worker would finish the epoch later than the others.
    #[error("rank {rank} has processed {taken} rows where a step has {step}")]
    Short {
        /// The rank of the worker.
        rank: usize,
        /// Rows of this step.
        taken: u64,
        /// Rows that a step must have at least.
        step: u64,
    },
}

/// A worker, with the same identity in each of its rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// The process: any number but 0 that is unique in the job.
    pub id: u64,
    /// Its host: any number that is unique to the host.
    pub host: u64,
    /// The zone of its host.
    pub zone: u64,
}

impl Owner {
    /// The owner of rows that no worker has yet.
    pub const UNASSIGNED: Owner = Owner {
        id: 0,
        host: u64::MAX,
        zone: u64::MAX,
    };
}

/// What is left of an epoch, by worker. A part of the state of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ledger {
    identity: DatasetId,
    /// The seed of the order; `None` if rows come in the order of the data set.
    seed: Option<u64>,
    epoch: u64,
    left: Remaining,
}

/// What is left of an epoch.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Remaining {
    /// The share of each worker, by rank of the round in which the commit was made.
    Shares {
        owners: Vec<Owner>,
        shares: Vec<Share>,
    },
    /// All positions from `next` on.
    Stripes { stripes: u32, next: u64 },
}

/// A checkpoint of another order, from the middle of an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "it is in {stored}, {done} of {rows} rows into an epoch, and {wanted} can only begin with one: set what it was, or take a \
     checkpoint from the end of an epoch"
)]
pub struct MidEpoch {
    /// The order of the checkpoint.
    pub stored: ReadOrder,
    /// The order that is configured.
    pub wanted: ReadOrder,
    /// Rows that are processed.
    pub done: u64,
    /// Rows of the epoch.
    pub rows: u64,
}

impl Ledger {
    /// The start of epoch 0 in order "local", before any worker has a share.
    pub fn new(identity: DatasetId, seed: Option<u64>) -> Self {
        let mut ledger = Self {
            identity,
            seed,
            epoch: 0,
            left: Remaining::Shares {
                owners: Vec::new(),
                shares: Vec::new(),
            },
        };
        ledger.begin(0);
        ledger
    }

    /// The start of epoch 0 in order "deterministic".
    pub fn in_stripes(identity: DatasetId, seed: Option<u64>, stripes: u32) -> Self {
        Self {
            identity,
            seed,
            epoch: 0,
            left: Remaining::Stripes { stripes, next: 0 },
        }
    }

    /// Converts to another order, at the start or the end of an epoch.
    ///
    /// # Errors
    /// In the middle of an epoch.
    pub fn in_order(mut self, wanted: ReadOrder) -> Result<Self, MidEpoch> {
        let stored = match self.left {
            Remaining::Shares { .. } => ReadOrder::Local(Split::Rows),
            Remaining::Stripes { stripes, .. } => ReadOrder::Deterministic(stripes),
        };
        let same = match (stored, wanted) {
            (ReadOrder::Local(_), ReadOrder::Local(_)) => true,
            (stored, wanted) => stored == wanted,
        };
        if same {
            return Ok(self);
        }
        let (rows, left) = (self.identity.rows, self.left());
        if left > 0 && left < rows {
            let done = rows - left;
            return Err(MidEpoch {
                stored,
                wanted,
                done,
                rows,
            });
        }
        self.left = match wanted {
            ReadOrder::Local(_) => Remaining::Shares {
                owners: vec![Owner::UNASSIGNED],
                shares: vec![iter::once(rows - left..rows).collect()],
            },
            ReadOrder::Deterministic(stripes) => Remaining::Stripes {
                stripes,
                next: rows - left,
            },
        };
        Ok(self)
    }

    /// The data set.
    pub fn identity(&self) -> DatasetId {
        self.identity
    }

    /// Takes over the identity that the data set has in this release.
    pub(crate) fn set_identity(&mut self, identity: DatasetId) {
        self.identity = identity;
    }

    /// The seed of the order, if rows are shuffled.
    pub fn seed(&self) -> Option<u64> {
        self.seed
    }

    /// The epoch, from 0.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The key of the order of this epoch.
    pub fn shuffle(&self) -> Option<Shuffle> {
        let epoch = self.epoch;
        self.seed.map(|seed| Shuffle { seed, epoch })
    }

    /// The workers, by rank of the round in which the commit was made; none in order "deterministic".
    pub fn owners(&self) -> &[Owner] {
        match &self.left {
            Remaining::Shares { owners, .. } => owners,
            Remaining::Stripes { .. } => &[],
        }
    }

    /// Their shares; none in order "deterministic".
    pub fn shares(&self) -> &[Share] {
        match &self.left {
            Remaining::Shares { shares, .. } => shares,
            Remaining::Stripes { .. } => &[],
        }
    }

    /// In order "deterministic": the stripes, and the first unprocessed position.
    pub fn stripes(&self) -> Option<(Stripes, u64)> {
        match self.left {
            Remaining::Shares { .. } => None,
            Remaining::Stripes { stripes, next } => {
                Some((Stripes::new(self.identity.rows, stripes), next))
            }
        }
    }

    /// Rows of this epoch that are left.
    pub fn left(&self) -> u64 {
        match &self.left {
            Remaining::Shares { shares, .. } => shares.iter().map(Share::rows).sum(),
            Remaining::Stripes { next, .. } => self.identity.rows - next,
        }
    }

    /// Goes to the start of an epoch: all rows are left, and no worker has any.
    pub fn begin(&mut self, epoch: u64) {
        self.epoch = epoch;
        match &mut self.left {
            Remaining::Shares { owners, shares } => {
                *owners = vec![Owner::UNASSIGNED];
                *shares = vec![iter::once(0..self.identity.rows).collect()];
            }
            Remaining::Stripes { next, .. } => *next = 0,
        }
    }

    /// Divides the remaining rows among the workers of a new round, given by rank with their weights; see
    /// [`repartition()`]. Does nothing in order "deterministic".
    ///
    /// # Panics
    /// If all weights are 0, or if two workers are the same.
    pub fn share_out(
        &mut self,
        layout: &EpochLayout,
        workers: &[(Owner, u32)],
        split: Split,
    ) -> Plan {
        let Remaining::Shares { owners, shares } = &mut self.left else {
            return Plan {
                shares: Vec::new(),
                moved: 0,
            };
        };
        let ranks: BTreeMap<u64, usize> = (owners.iter().enumerate())
            .map(|(rank, owner)| (owner.id, rank))
            .collect();
        let former: Vec<FormerMember<'_>> = (shares.iter().zip(&*owners))
            .map(|(share, &Owner { host, zone, .. })| FormerMember { share, host, zone })
            .collect();
        let members: Vec<Member> = (workers.iter())
            .map(|(owner, weight)| Member {
                former: ranks.get(&owner.id).copied(),
                weight: *weight,
                host: owner.host,
                zone: owner.zone,
            })
            .collect();
        let plan = repartition(layout, &former, &members, split);
        *owners = workers.iter().map(|(owner, _)| *owner).collect();
        shares.clone_from(&plan.shares);
        plan
    }

    /// Records what a worker has left at a commit.
    ///
    /// # Errors
    /// If it reports rows that it did not have before: invariant D2.
    pub fn record(&mut self, rank: usize, share: Share) -> Result<(), LedgerError> {
        let Remaining::Shares { shares, .. } = &mut self.left else {
            return Err(LedgerError::Unknown(rank));
        };
        let before = shares.get_mut(rank).ok_or(LedgerError::Unknown(rank))?;
        if !share.is_subset_of(before) {
            return Err(LedgerError::Foreign(rank));
        }
        *before = share;
        Ok(())
    }

    /// Records the position of all workers in the stripes at a commit.
    ///
    /// # Errors
    /// If the position is before the recorded one or after the end. In order "local", [`LedgerError::Unknown`].
    pub fn record_stripes(&mut self, now: u64) -> Result<(), LedgerError> {
        let rows = self.identity.rows;
        match &mut self.left {
            Remaining::Stripes { next, .. } if (*next..=rows).contains(&now) => {
                *next = now;
                Ok(())
            }
            Remaining::Stripes { .. } => Err(LedgerError::Foreign(0)),
            Remaining::Shares { .. } => Err(LedgerError::Unknown(0)),
        }
    }

    /// Plants a fault into the shares, in builds with mutants.
    pub(super) fn plant_fault(&mut self) {
        let Remaining::Shares { shares, .. } = &mut self.left else {
            return;
        };
        match &mut shares[..] {
            [first, .., last] if planted(Mutant::RangeTwice) => {
                let range = first.ranges().first().cloned();
                last.append(range.into_iter().collect());
            }
            [.., last] if planted(Mutant::RangeLost) => {
                let len = last
                    .ranges()
                    .first()
                    .map_or(0, |range| range.end - range.start);
                *last = last.without_first(len);
            }
            _ => {}
        }
    }
}
