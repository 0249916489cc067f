//! All sealed commits, and which of them started rounds have made void.

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_protocol::{CommitId, CommitKey, Round};

use crate::{
    completeness,
    world::memory::{Commit, State},
};

/// The commits and the started rounds of a run.
#[derive(Debug, Default)]
pub(crate) struct History {
    contents: BTreeMap<CommitId, State>,
    /// All shards that were ever sealed of each commit.
    shards: BTreeMap<CommitId, BTreeSet<CommitKey>>,
    /// How many copies of each commit were sealed.
    copies: BTreeMap<CommitId, usize>,
    /// Started rounds in order, with their bases.
    bases: Vec<(Round, Option<CommitId>)>,
    /// Started rounds of which no trace was left when a later one started.
    forgotten: BTreeSet<Round>,
    /// Number of commits beyond the start of a round.
    steps: usize,
}

impl History {
    /// Records a sealed commit. Several workers may seal the same id, with the same content.
    pub(crate) fn sealed(&mut self, commit: &Commit) -> Result<(), String> {
        let (id, state) = (commit.id, &commit.state);
        self.shards.entry(id).or_default().insert(commit.key());
        *self.copies.entry(id).or_default() += 1;
        let new = !self.contents.contains_key(&id) && id.count > 0;
        self.steps += usize::from(new);
        let known = self.contents.entry(id).or_insert_with(|| state.clone());
        if known == state {
            Ok(())
        } else {
            Err(format!("commit {id:?} was {known:?} and is now {state:?}"))
        }
    }

    pub(crate) fn started(&mut self, round: Round, base: Option<CommitId>) {
        self.bases.push((round, base));
    }

    /// A round starts, and its driver can know of these earlier ones only. The records of the others are lost, and so are the
    /// agents of all their members. They have made nothing void: what was there before them is the newest that is left.
    pub(crate) fn forget_unknown(&mut self, is_known: impl Fn(Round) -> bool) {
        let rounds = self.bases.iter().map(|(round, _)| *round);
        self.forgotten
            .extend(rounds.filter(|round| !is_known(*round)));
    }

    /// Number of commits beyond the start of a round.
    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    pub(crate) fn latest(&self) -> Option<Round> {
        self.bases.last().map(|(round, _)| *round)
    }

    pub(crate) fn rounds(&self) -> usize {
        self.bases.len()
    }

    pub(crate) fn state(&self, id: CommitId) -> Option<State> {
        self.contents.get(&id).cloned()
    }

    /// Whether all shards of a commit were sealed, whatever is left of them.
    pub(crate) fn was_complete(&self, id: CommitId) -> bool {
        let shards = self.shards.get(&id).into_iter().flatten();
        completeness::newest(shards.copied()).is_some()
    }

    /// The number of members that have sealed a commit.
    pub(crate) fn copies(&self, id: CommitId) -> usize {
        self.copies.get(&id).copied().unwrap_or_default()
    }

    /// Whether any commit was ever sealed.
    pub(crate) fn has_commits(&self) -> bool {
        !self.contents.is_empty()
    }

    /// Whether any commit beyond the first state was ever complete in one of these rounds and is not void.
    pub(crate) fn has_training(&self, counts: impl Fn(Round) -> bool) -> bool {
        let trained = |(id, state): (&CommitId, &State)| {
            state.step > 0 && counts(id.round) && self.is_valid(*id) && self.was_complete(*id)
        };
        self.contents.iter().any(trained)
    }

    /// Whether no later round started from before this commit, as the design defines it. Rounds that are forgotten do not
    /// count.
    pub(crate) fn is_valid(&self, commit: CommitId) -> bool {
        let counts = |round: &Round| !self.forgotten.contains(round);
        (self.bases.iter())
            .filter(|(round, _)| *round > commit.round && counts(round))
            .all(|(_, base)| Some(commit) <= *base)
    }
}
