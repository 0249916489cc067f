//! Completeness: which commits are whole, put together from the shards that hosts hold.
//!
//! A state that is divided among workers has one copy of each of its shards in each commit. A commit is complete if
//! reachable memory holds all shards of one layout. A state that all workers hold alike has one shard, so any copy is
//! complete.
//!
//! - A commit is identified by its id and its layout. Before the first step an optimizer has no state, so the same round
//!   has commits of two layouts. Shards of one never complete the other.
//! - A shard whose index is outside of its layout does not count. Reports of agents are remote input.
//!
//! Cost: O(copies log commits), and memory for the shards of the commits that are held.

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_protocol::{CommitId, CommitKey, Shard, control::BaseShards};

use crate::mutant::{Mutant, planted};

/// The commit from which a round begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Base {
    /// The commit.
    pub id: CommitId,
    /// The layout of its shards; 0 for a state that is not divided.
    layout: u64,
    /// The number of its shards.
    of: u32,
}

impl Base {
    /// The layout of a divided state. `None` if any copy of the commit is whole.
    pub fn shards(&self) -> Option<BaseShards> {
        let Self { layout, of, .. } = *self;
        let whole = Shard::default();
        ((layout, of) != (whole.layout, whole.of)).then_some(BaseShards { layout, of })
    }

    /// Whether a copy is a part of this commit, or all of it.
    pub fn has(&self, key: &CommitKey) -> bool {
        *self == Self::from(key)
    }
}

impl From<&CommitKey> for Base {
    fn from(key: &CommitKey) -> Self {
        Self {
            id: key.commit,
            layout: key.shard.layout,
            of: key.shard.of,
        }
    }
}

/// A commit of which shards are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incomplete {
    /// The commit.
    pub id: CommitId,
    /// The number of its shards.
    pub of: u32,
    /// The number of those that are missing.
    pub missing: u32,
    /// The first of them.
    pub first: Vec<u32>,
}

/// The number of missing shards that are named.
const NAMED: usize = 8;

/// The shards of all commits that are held.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    shards: BTreeMap<Base, BTreeSet<u32>>,
}

impl Holdings {
    /// The commit that a copy is a part of.
    fn base_of(&self, key: &CommitKey) -> Base {
        let base = Base::from(key);
        let is_same = |other: &&Base| (other.id, other.of) == (base.id, base.of);
        let other = self.shards.keys().find(is_same);
        (other.filter(|_| planted(Mutant::LayoutIgnored))).map_or(base, |other| *other)
    }

    /// The newest commit that is held, complete or not.
    pub fn newest(&self) -> Option<CommitId> {
        self.shards.last_key_value().map(|(base, _)| base.id)
    }

    /// The newest commit of which all shards are held (R12).
    pub fn newest_complete(&self) -> Option<Base> {
        let any = planted(Mutant::IncompleteBase);
        let is_complete =
            |(base, shards): &(&Base, &BTreeSet<u32>)| shards.len() as u32 == base.of || any;
        let complete = self.shards.iter().rev().find(is_complete);
        complete.map(|(base, _)| *base)
    }

    /// The newest commit that is newer than the newest complete one.
    pub fn newest_incomplete(&self) -> Option<Incomplete> {
        let complete = self.newest_complete().map(|base| base.id);
        let (base, shards) = self.shards.last_key_value()?;
        let is_missing = |index: &u32| !shards.contains(index);
        (Some(base.id) > complete).then(|| Incomplete {
            id: base.id,
            of: base.of,
            missing: base.of - shards.len() as u32,
            first: (0..base.of).filter(is_missing).take(NAMED).collect(),
        })
    }
}

impl FromIterator<CommitKey> for Holdings {
    fn from_iter<T: IntoIterator<Item = CommitKey>>(keys: T) -> Self {
        let mut holdings = Self::default();
        for key in keys {
            let Shard { index, of, .. } = key.shard;
            if index < of {
                let base = holdings.base_of(&key);
                holdings.shards.entry(base).or_default().insert(index);
            }
        }
        holdings
    }
}

#[cfg(test)]
mod tests {
    use elasticrun_protocol::{DriverEpoch, Round};
    use proptest::prelude::*;

    use super::*;

    fn key(count: u64, layout: u64, index: u32, of: u32) -> CommitKey {
        let commit = CommitId {
            epoch: DriverEpoch(1),
            round: Round(1),
            count,
        };
        let shard = Shard { layout, index, of };
        CommitKey { commit, shard }
    }

    fn holdings(keys: &[CommitKey]) -> Holdings {
        keys.iter().copied().collect()
    }

    #[test]
    fn one_copy_of_an_undivided_state_is_whole() {
        let commit = key(3, 0, 0, 1);
        let base = holdings(&[key(2, 0, 0, 1), commit]).newest_complete();
        assert_eq!(base, Some(Base::from(&commit)));
        assert_eq!(base.and_then(|base| base.shards()), None);
    }

    #[test]
    fn a_commit_that_lacks_a_shard_is_no_base() {
        let older = [key(1, 7, 0, 2), key(1, 7, 1, 2)];
        let newer = [key(2, 7, 1, 2), key(2, 7, 1, 2)];
        let holdings = holdings(&[older, newer].concat());
        let base = holdings.newest_complete().expect("the older one is whole");
        assert_eq!(base.id.count, 1);
        assert_eq!(base.shards(), Some(BaseShards { layout: 7, of: 2 }));
        let incomplete = holdings.newest_incomplete().expect("it is newer");
        assert_eq!((incomplete.id.count, incomplete.of), (2, 2));
        assert_eq!((incomplete.missing, incomplete.first), (1, vec![0]));
    }

    #[test]
    fn shards_of_two_layouts_complete_neither() {
        let holdings = holdings(&[key(1, 7, 0, 2), key(1, 8, 1, 2)]);
        assert_eq!(holdings.newest_complete(), None);
    }

    #[test]
    fn an_index_outside_of_its_layout_counts_for_nothing() {
        let holdings = holdings(&[key(1, 7, 0, 2), key(1, 7, 2, 2), key(2, 7, 0, 0)]);
        assert_eq!(holdings.newest_complete(), None);
        assert_eq!(holdings.newest().map(|id| id.count), Some(1));
    }

    #[test]
    fn many_missing_shards_are_counted_and_the_first_are_named() {
        let incomplete = holdings(&[key(1, 7, 0, u32::MAX)]).newest_incomplete();
        let incomplete = incomplete.expect("nearly all are missing");
        assert_eq!(incomplete.missing, u32::MAX - 1);
        assert_eq!(incomplete.first, (1..9).collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(
            copies in prop::collection::vec((0u64..4, 1u64..3, 0u32..3, 1u32..4), 0..24),
        ) {
            let keys: Vec<_> = copies.iter().map(|(c, l, i, of)| key(*c, *l, *i, *of)).collect();
            let whole = |probe: &CommitKey| (0..probe.shard.of).all(|index| {
                let shard = Shard { index, ..probe.shard };
                keys.contains(&CommitKey { shard, ..*probe })
            });
            let defined = keys.iter().filter(|key| whole(key)).map(|key| key.commit).max();
            let found = holdings(&keys).newest_complete().map(|base| base.id);
            prop_assert_eq!(found, defined);
        }
    }
}
