//! The commits that were ever sealed, and what the started rounds made void.

use std::collections::BTreeMap;

use elasticrun_protocol::{CommitId, Round};

use crate::world::memory::State;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct History {
    contents: BTreeMap<CommitId, State>,
    /// Started rounds in order, with their bases.
    bases: Vec<(Round, Option<CommitId>)>,
    /// Commits beyond the start of a round.
    steps: usize,
}

impl History {
    /// A commit is sealed. The same id may be sealed by many, with the same content.
    pub(crate) fn sealed(&mut self, id: CommitId, state: State) -> Result<(), String> {
        let new = !self.contents.contains_key(&id) && id.count > 0;
        self.steps += usize::from(new);
        let known = self.contents.entry(id).or_insert_with(|| state.clone());
        if *known == state {
            Ok(())
        } else {
            Err(format!("commit {id:?} was {known:?} and is now {state:?}"))
        }
    }

    pub(crate) fn started(&mut self, round: Round, base: Option<CommitId>) {
        self.bases.push((round, base));
    }

    /// How many commits were sealed beyond the start of a round.
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

    /// Whether anything was ever sealed.
    pub(crate) fn has_commits(&self) -> bool {
        !self.contents.is_empty()
    }

    /// Whether anything beyond the first state was ever sealed.
    pub(crate) fn has_training(&self) -> bool {
        self.contents.values().any(|state| state.step > 0)
    }

    /// Whether no later round started from before it: the definition, word for word.
    pub(crate) fn is_valid(&self, commit: CommitId) -> bool {
        (self.bases.iter()).all(|(round, base)| *round <= commit.round || Some(commit) <= *base)
    }
}
