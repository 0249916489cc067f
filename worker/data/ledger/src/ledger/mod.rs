//! The position of a job in its data, as of a commit.

mod bytes;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, iter};

use super::{Former, Line, Member, Order, Plan, Share, Shuffle, Split, Stripes, repartition};
use elasticrun_core::mutant::{Mutant, planted};

/// Which data set a ledger is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Rows of an epoch.
    pub rows: u64,
    /// Row groups.
    pub groups: u32,
    /// A hash of what the data set consists of: its files, their sizes, the rows of their row groups.
    pub digest: u64,
}

/// Why a ledger does not take a share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// No worker of that rank is in it.
    #[error("rank {0} has no share of the data")]
    Unknown(usize),
    /// It holds rows that the worker did not have: they are processed, or another worker's.
    #[error("rank {0} claims rows that are not its own")]
    Foreign(usize),
    /// A step took fewer rows than the worker has told the others: it would not be done when they are.
    #[error("rank {rank} has processed {taken} rows where a step has {step}")]
    Short {
        /// Who.
        rank: usize,
        /// Rows of this step.
        taken: u64,
        /// Rows that a step should have, at least.
        step: u64,
    },
}

/// A worker as a ledger knows it: as the same one in every round that it is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Which process it is: any number but 0 that no other process of the job has.
    pub id: u64,
    /// Its host: any number that hosts do not share.
    pub host: u64,
    /// The zone of its host.
    pub zone: u64,
}

impl Owner {
    /// The owner of rows that nobody has yet.
    pub const NOBODY: Owner = Owner {
        id: 0,
        host: u64::MAX,
        zone: u64::MAX,
    };
}

/// What is left of an epoch, worker by worker: part of the state of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ledger {
    identity: Identity,
    /// The seed of the order; `None` if rows come in the order of the data set.
    seed: Option<u64>,
    epoch: u64,
    left: Left,
}

/// What is left of an epoch.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Left {
    /// By rank of the round in which the commit was made, each with its share.
    Shares {
        owners: Vec<Owner>,
        shares: Vec<Share>,
    },
    /// All positions from this one on.
    Stripes { stripes: u32, at: u64 },
}

/// A checkpoint of another order, from the midst of an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "it is in {stored}, {done} of {rows} rows into an epoch, and {wanted} can only begin with one: set what it was, or take a \
     checkpoint from the end of an epoch"
)]
pub struct Midst {
    /// The order of the checkpoint.
    pub stored: Order,
    /// The order that is wanted.
    pub wanted: Order,
    /// Rows that are processed.
    pub done: u64,
    /// Rows of the epoch.
    pub rows: u64,
}

impl Ledger {
    /// The start of epoch 0 in order "local", before anybody has a share.
    pub fn new(identity: Identity, seed: Option<u64>) -> Self {
        let mut ledger = Self {
            identity,
            seed,
            epoch: 0,
            left: Left::Shares {
                owners: Vec::new(),
                shares: Vec::new(),
            },
        };
        ledger.begin(0);
        ledger
    }

    /// The start of epoch 0 in order "deterministic".
    pub fn in_stripes(identity: Identity, seed: Option<u64>, stripes: u32) -> Self {
        Self {
            identity,
            seed,
            epoch: 0,
            left: Left::Stripes { stripes, at: 0 },
        }
    }

    /// The same position in another order, at the start or the end of an epoch.
    ///
    /// # Errors
    /// If it is in the midst of one.
    pub fn in_order(mut self, wanted: Order) -> Result<Self, Midst> {
        let stored = match self.left {
            Left::Shares { .. } => Order::Local(Split::Rows),
            Left::Stripes { stripes, .. } => Order::Deterministic(stripes),
        };
        let same = match (stored, wanted) {
            (Order::Local(_), Order::Local(_)) => true,
            (stored, wanted) => stored == wanted,
        };
        if same {
            return Ok(self);
        }
        let (rows, left) = (self.identity.rows, self.left());
        if left > 0 && left < rows {
            let done = rows - left;
            return Err(Midst {
                stored,
                wanted,
                done,
                rows,
            });
        }
        self.left = match wanted {
            Order::Local(_) => Left::Shares {
                owners: vec![Owner::NOBODY],
                shares: vec![iter::once(rows - left..rows).collect()],
            },
            Order::Deterministic(stripes) => Left::Stripes {
                stripes,
                at: rows - left,
            },
        };
        Ok(self)
    }

    /// The data set.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The seed of the order, if rows are shuffled.
    pub fn seed(&self) -> Option<u64> {
        self.seed
    }

    /// The epoch, from 0.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// What makes the order of this epoch.
    pub fn shuffle(&self) -> Option<Shuffle> {
        let epoch = self.epoch;
        self.seed.map(|seed| Shuffle { seed, epoch })
    }

    /// The workers, by rank of the round in which the commit was made; none in order "deterministic".
    pub fn owners(&self) -> &[Owner] {
        match &self.left {
            Left::Shares { owners, .. } => owners,
            Left::Stripes { .. } => &[],
        }
    }

    /// Their shares; none in order "deterministic".
    pub fn shares(&self) -> &[Share] {
        match &self.left {
            Left::Shares { shares, .. } => shares,
            Left::Stripes { .. } => &[],
        }
    }

    /// In order "deterministic", the stripes and the position from which on all rows are left.
    pub fn stripes(&self) -> Option<(Stripes, u64)> {
        match self.left {
            Left::Shares { .. } => None,
            Left::Stripes { stripes, at } => Some((Stripes::new(self.identity.rows, stripes), at)),
        }
    }

    /// Rows of this epoch that are left.
    pub fn left(&self) -> u64 {
        match &self.left {
            Left::Shares { shares, .. } => shares.iter().map(Share::rows).sum(),
            Left::Stripes { at, .. } => self.identity.rows - at,
        }
    }

    /// Goes to the start of an epoch: all rows are left, and nobody has any.
    pub fn begin(&mut self, epoch: u64) {
        self.epoch = epoch;
        match &mut self.left {
            Left::Shares { owners, shares } => {
                *owners = vec![Owner::NOBODY];
                *shares = vec![iter::once(0..self.identity.rows).collect()];
            }
            Left::Stripes { at, .. } => *at = 0,
        }
    }

    /// Hands what is left to the workers of a new round, by rank and each with its weight, see [`repartition()`].
    /// In order "deterministic" nothing is handed out.
    ///
    /// # Panics
    /// If no worker has a weight, or if two are the same.
    pub fn share_out(&mut self, line: &Line, workers: &[(Owner, u32)], split: Split) -> Plan {
        let Left::Shares { owners, shares } = &mut self.left else {
            return Plan {
                shares: Vec::new(),
                moved: 0,
            };
        };
        let ranks: BTreeMap<u64, usize> = (owners.iter().enumerate())
            .map(|(rank, owner)| (owner.id, rank))
            .collect();
        let former: Vec<Former<'_>> = (shares.iter().zip(&*owners))
            .map(|(share, &Owner { host, zone, .. })| Former { share, host, zone })
            .collect();
        let members: Vec<Member> = (workers.iter())
            .map(|(owner, weight)| Member {
                former: ranks.get(&owner.id).copied(),
                weight: *weight,
                host: owner.host,
                zone: owner.zone,
            })
            .collect();
        let plan = repartition(line, &former, &members, split);
        *owners = workers.iter().map(|(owner, _)| *owner).collect();
        shares.clone_from(&plan.shares);
        plan
    }

    /// Notes what a worker has left at a commit.
    ///
    /// # Errors
    /// If it has rows that it did not have before: invariant D2.
    pub fn record(&mut self, rank: usize, share: Share) -> Result<(), Refused> {
        let Left::Shares { shares, .. } = &mut self.left else {
            return Err(Refused::Unknown(rank));
        };
        let before = shares.get_mut(rank).ok_or(Refused::Unknown(rank))?;
        if !share.is_part_of(before) {
            return Err(Refused::Foreign(rank));
        }
        *before = share;
        Ok(())
    }

    /// Notes how far all workers are in the stripes at a commit.
    ///
    /// # Errors
    /// If that is behind where they were, or beyond the end; [`Refused::Unknown`] in order "local".
    pub fn record_stripes(&mut self, now: u64) -> Result<(), Refused> {
        let rows = self.identity.rows;
        match &mut self.left {
            Left::Stripes { at, .. } if (*at..=rows).contains(&now) => {
                *at = now;
                Ok(())
            }
            Left::Stripes { .. } => Err(Refused::Foreign(0)),
            Left::Shares { .. } => Err(Refused::Unknown(0)),
        }
    }

    /// Plants a mistake into what was handed out.
    pub(super) fn spoil(&mut self) {
        let Left::Shares { shares, .. } = &mut self.left else {
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
                *last = last.behind(len);
            }
            _ => {}
        }
    }
}
