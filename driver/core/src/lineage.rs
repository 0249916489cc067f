//! Lineage: which commits are still part of the job's history.
//!
//! Commits newer than the base of the next started round are void for good. A worker that was being stopped may have
//! sealed one more commit after its round was left, and that commit must not become the base of a later round. So a
//! commit is valid only if no later round started from an older commit.

use elasticrun_protocol::{CommitId, Round};

use crate::mutant::{Mutant, planted};

/// The bases of the started rounds that still void any commit.
#[derive(Clone, Debug, Default)]
pub struct Lineage {
    /// `(round, base)`, both ascending. A base voids newer commits of older rounds.
    bases: Vec<(Round, Option<CommitId>)>,
    /// A base was added since the bases were saved last.
    changed: bool,
}

/// The number of bases in a record. Older commits than the oldest of them are not kept by any agent.
const SAVED: usize = 32;

impl Lineage {
    /// Records that a round has started from `base`.
    pub fn started(&mut self, round: Round, base: Option<CommitId>) {
        // A smaller base voids everything that larger earlier bases void.
        while self
            .bases
            .last()
            .is_some_and(|(_, earlier)| *earlier >= base)
        {
            self.bases.pop();
        }
        if planted(Mutant::VoidForgotten) {
            self.bases.clear();
        }
        self.bases.push((round, base));
        self.changed = true;
    }

    /// Takes the newest bases, if one was added since the last call.
    pub(crate) fn take_changed(&mut self) -> Option<Vec<(Round, Option<CommitId>)>> {
        let older = self.bases.len().saturating_sub(SAVED);
        std::mem::take(&mut self.changed).then(|| self.bases[older..].to_vec())
    }

    /// Continues with the bases of an earlier driver.
    pub(crate) fn restore(bases: Vec<(Round, Option<CommitId>)>) -> Self {
        let mut lineage = Self::default();
        for (round, base) in bases {
            lineage.started(round, base);
        }
        lineage.changed = false;
        lineage
    }

    /// The round that started last.
    pub(crate) fn newest_round(&self) -> Option<Round> {
        self.bases.last().map(|(round, _)| *round)
    }

    /// The base of the round that started last.
    pub(crate) fn newest(&self) -> Option<CommitId> {
        self.bases.last().and_then(|(_, base)| *base)
    }

    /// Whether any round has started from a commit. Then no later round can start without one.
    pub fn has_base(&self) -> bool {
        self.bases.iter().any(|(_, base)| base.is_some())
    }

    /// Whether `commit` is part of the history.
    pub fn is_valid(&self, commit: CommitId) -> bool {
        let later = self
            .bases
            .partition_point(|(round, _)| *round <= commit.round);
        // Bases ascend, so the first later one is the smallest.
        self.bases
            .get(later)
            .is_none_or(|(_, base)| Some(commit) <= *base)
    }
}

#[cfg(test)]
mod tests {
    use elasticrun_protocol::DriverEpoch;
    use proptest::prelude::*;

    use super::*;

    fn commit(round: u64, count: u64) -> CommitId {
        CommitId {
            epoch: DriverEpoch(1),
            round: Round(round),
            count,
        }
    }

    #[test]
    fn what_is_newer_than_the_next_base_is_void() {
        let mut lineage = Lineage::default();
        lineage.started(Round(1), None);
        lineage.started(Round(2), Some(commit(1, 9)));
        assert!(lineage.is_valid(commit(1, 9)));
        assert!(
            !lineage.is_valid(commit(1, 10)),
            "sealed while its worker was being stopped"
        );
        assert!(lineage.is_valid(commit(2, 1)));
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(
            bases in prop::collection::vec((0u64..6, 0u64..4), 1..8),
            probe in (0u64..9, 0u64..5),
        ) {
            let mut lineage = Lineage::default();
            let mut all = Vec::new();
            for (i, (round, count)) in bases.into_iter().enumerate() {
                let number = Round(i as u64 + 1);
                let base = (round < number.0 && round > 0).then(|| commit(round, count));
                lineage.started(number, base);
                all.push((number, base));
            }
            let probe = commit(probe.0, probe.1);
            let defined = all.iter().all(|(round, base)| *round <= probe.round || Some(probe) <= *base);
            prop_assert_eq!(lineage.is_valid(probe), defined);
        }
    }
}
