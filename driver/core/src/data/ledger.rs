//! The position of a job in its data, as of a commit.

use std::{collections::BTreeMap, iter};

use super::{
    Former, Line, Malformed, Member, Plan, Share, Shuffle, Split,
    encoding::{disjoint, put, take, take_word},
    repartition,
};

/// The version of the bytes of a ledger.
const VERSION: u64 = 1;

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
    /// By rank of the round in which the commit was made, each with its share.
    owners: Vec<Owner>,
    shares: Vec<Share>,
}

impl Ledger {
    /// The start of epoch 0, before anybody has a share.
    pub fn new(identity: Identity, seed: Option<u64>) -> Self {
        let mut ledger = Self {
            identity,
            seed,
            epoch: 0,
            owners: Vec::new(),
            shares: Vec::new(),
        };
        ledger.begin(0);
        ledger
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

    /// The workers, by rank of the round in which the commit was made.
    pub fn owners(&self) -> &[Owner] {
        &self.owners
    }

    /// Their shares.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// Rows of this epoch that are left.
    pub fn left(&self) -> u64 {
        self.shares.iter().map(Share::rows).sum()
    }

    /// Goes to the start of an epoch: all rows are left, and nobody has any.
    pub fn begin(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.owners = vec![Owner::NOBODY];
        self.shares = vec![iter::once(0..self.identity.rows).collect()];
    }

    /// Hands what is left to the workers of a new round, by rank and each with its weight, see [`repartition()`].
    ///
    /// # Panics
    /// If no worker has a weight, or if two are the same.
    pub fn share_out(&mut self, line: &Line, workers: &[(Owner, u32)], split: Split) -> Plan {
        let ranks: BTreeMap<u64, usize> = (self.owners.iter().enumerate())
            .map(|(rank, owner)| (owner.id, rank))
            .collect();
        let former: Vec<Former<'_>> = (self.shares.iter().zip(&self.owners))
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
        self.owners = workers.iter().map(|(owner, _)| *owner).collect();
        self.shares.clone_from(&plan.shares);
        plan
    }

    /// Notes what a worker has left at a commit.
    ///
    /// # Errors
    /// If it has rows that it did not have before: invariant D2.
    pub fn record(&mut self, rank: usize, share: Share) -> Result<(), Refused> {
        let before = self.shares.get_mut(rank).ok_or(Refused::Unknown(rank))?;
        if !share.is_part_of(before) {
            return Err(Refused::Foreign(rank));
        }
        *before = share;
        Ok(())
    }

    /// The ledger as bytes. They are the same in all workers that agree.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let Identity {
            rows,
            groups,
            digest,
        } = self.identity;
        put(&mut out, VERSION);
        put(&mut out, rows);
        put(&mut out, groups.into());
        put(&mut out, digest);
        put(&mut out, self.seed.is_some().into());
        put(&mut out, self.seed.unwrap_or(0));
        put(&mut out, self.epoch);
        put(&mut out, self.shares.len() as u64);
        for (owner, share) in self.owners.iter().zip(&self.shares) {
            for number in [owner.id, owner.host, owner.zone] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            share.encode(&mut out);
        }
        out
    }

    /// Reads what [`Ledger::encode`] has written.
    ///
    /// # Errors
    /// If the bytes are not a ledger's: invariant D1 is checked.
    pub fn decode(mut from: &[u8]) -> Result<Self, Malformed> {
        let from = &mut from;
        if take(from)? != VERSION {
            return Err(Malformed("it is of another version of elasticrun"));
        }
        let identity = Identity {
            rows: take(from)?,
            groups: u32::try_from(take(from)?).map_err(|_| Malformed("too many row groups"))?,
            digest: take(from)?,
        };
        let shuffled = take(from)? == 1;
        let seed = take(from)?;
        let epoch = take(from)?;
        let count = take(from)?;
        let (mut owners, mut shares) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let [id, host, zone] = [take_word(from)?, take_word(from)?, take_word(from)?];
            owners.push(Owner { id, host, zone });
            shares.push(Share::decode(from)?);
        }
        let all = || shares.iter().flat_map(Share::ranges).cloned();
        if all().any(|range| range.end > identity.rows) {
            return Err(Malformed("a row is beyond the end of the epoch"));
        }
        disjoint(all())?;
        if !from.is_empty() {
            return Err(Malformed("something follows it"));
        }
        Ok(Self {
            identity,
            seed: shuffled.then_some(seed),
            epoch,
            owners,
            shares,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> (Ledger, Line) {
        let groups = [40, 60];
        let identity = Identity {
            rows: 100,
            groups: 2,
            digest: 7,
        };
        let ledger = Ledger::new(identity, Some(3));
        let line = Line::new(&groups, ledger.shuffle());
        (ledger, line)
    }

    fn workers(ids: impl IntoIterator<Item = u64>) -> Vec<(Owner, u32)> {
        let (host, zone) = (0, 0);
        let owner = |id| (Owner { id, host, zone }, 1);
        ids.into_iter().map(owner).collect()
    }

    fn rows(ledger: &Ledger) -> Vec<u64> {
        ledger.shares().iter().map(Share::rows).collect()
    }

    #[test]
    fn an_epoch_begins_with_even_shares() {
        let (mut ledger, line) = ledger();
        let plan = ledger.share_out(&line, &workers(1..4), Split::Rows);
        assert_eq!(plan.moved, 100);
        assert_eq!((rows(&ledger), ledger.left()), (vec![34, 33, 33], 100));
    }

    #[test]
    fn a_worker_is_known_by_its_id_whatever_its_rank() {
        let (mut ledger, line) = ledger();
        ledger.share_out(&line, &workers(1..4), Split::Rows);
        let before = ledger.shares().to_vec();
        let plan = ledger.share_out(&line, &workers([3, 2, 1]), Split::Rows);
        assert_eq!((plan.moved, &plan.shares[2]), (0, &before[0]));
        let plan = ledger.share_out(&line, &workers([4, 2]), Split::Rows);
        assert_eq!((plan.moved, rows(&ledger)), (67, vec![50, 50]));
    }

    #[test]
    fn only_what_a_worker_had_may_be_left() {
        let (mut ledger, line) = ledger();
        ledger.share_out(&line, &workers(1..3), Split::Rows);
        let share = |range| iter::once(range).collect::<Share>();
        assert_eq!(ledger.record(0, share(10..50)), Ok(()));
        assert_eq!(ledger.record(0, share(9..50)), Err(Refused::Foreign(0)));
        assert_eq!(ledger.record(1, share(40..60)), Err(Refused::Foreign(1)));
        assert_eq!(ledger.record(2, Share::EMPTY), Err(Refused::Unknown(2)));
        assert_eq!(ledger.left(), 90);
    }

    #[test]
    fn a_ledger_comes_back() {
        let (mut ledger, line) = ledger();
        ledger.begin(5);
        ledger.share_out(&line, &workers(1..4), Split::Rows);
        let bytes = ledger.encode();
        assert_eq!(Ledger::decode(&bytes), Ok(ledger));
        for len in 0..bytes.len() {
            assert!(Ledger::decode(&bytes[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn a_row_of_two_workers_is_no_ledger() {
        let (mut ledger, _) = ledger();
        ledger.owners = vec![Owner::NOBODY; 2];
        ledger.shares = vec![iter::once(0..10).collect(), iter::once(9..20).collect()];
        assert_eq!(
            Ledger::decode(&ledger.encode()),
            Err(Malformed("a row is in it twice"))
        );
        ledger.shares = vec![iter::once(90..101).collect()];
        assert!(Ledger::decode(&ledger.encode()).is_err());
    }
}
