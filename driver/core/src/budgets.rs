//! Budgets: how often a job may begin again. Every started round after the first one counts, whatever its cause.

use std::collections::BTreeSet;

use elasticrun_protocol::Round;

use crate::{
    mutant::{Mutant, planted},
    settings::Settings,
};

/// Counters of resets and restarts.
#[derive(Clone, Debug)]
pub struct Budgets {
    reset_limit: Option<u32>,
    max_restarts: u32,
    started: u32,
    restarts: u32,
    /// Rounds among those started that only agents have named: an earlier driver has lost their records.
    unrecorded: BTreeSet<Round>,
}

impl Budgets {
    /// Unused budgets.
    pub fn new(settings: &Settings) -> Self {
        Self {
            reset_limit: settings.reset_limit,
            max_restarts: settings.max_restarts,
            started: 0,
            restarts: 0,
            unrecorded: BTreeSet::new(),
        }
    }

    /// Continues with the counts of an earlier driver, among them `unrecorded` and the rounds before it.
    pub(crate) fn restore(&mut self, started: u32, restarts: u32, unrecorded: Option<Round>) {
        (self.started, self.restarts) = (started, restarts);
        self.unrecorded = unrecorded.into_iter().collect();
    }

    /// Whether one more round may start.
    pub fn allows_round(&self) -> bool {
        let more = u32::from(planted(Mutant::ResetMore));
        let less = u32::from(planted(Mutant::ResetLess));
        (self.reset_limit).is_none_or(|limit| self.started + less <= limit + more)
    }

    /// A round has started.
    pub fn round_started(&mut self) {
        self.started += 1;
    }

    /// A round has started under an earlier driver, which has lost the record of it. It counts once, however many agents name
    /// it.
    pub(crate) fn saw_round(&mut self, round: Round) {
        self.started += u32::from(self.unrecorded.insert(round));
    }

    /// The starts so far were no rounds: the next round is the first.
    pub fn forget_rounds(&mut self) {
        self.started = 0;
        self.unrecorded.clear();
    }

    /// Rounds that have started.
    pub fn started(&self) -> u32 {
        self.started
    }

    /// Uses one restart. Gives how many are used, or `None` if none is left.
    pub fn restart(&mut self) -> Option<u32> {
        let more = u32::from(planted(Mutant::RestartMore));
        let less = u32::from(planted(Mutant::RestartLess));
        (self.restarts + less < self.max_restarts + more).then(|| {
            if planted(Mutant::ResetsForgotten) {
                self.started = 0;
            }
            self.restarts += 1;
            self.restarts
        })
    }

    /// The newest started round that only agents have named, to this driver or to an earlier one.
    pub(crate) fn unrecorded(&self) -> Option<Round> {
        self.unrecorded.last().copied()
    }

    /// Restarts used.
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Restarts allowed.
    pub fn max_restarts(&self) -> u32 {
        self.max_restarts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_one_allows_two_rounds() {
        let mut budgets = Budgets::new(&Settings {
            reset_limit: Some(1),
            ..Settings::standard(1)
        });
        for _ in 0..2 {
            assert!(budgets.allows_round());
            budgets.round_started();
        }
        assert!(!budgets.allows_round());
    }

    #[test]
    fn a_round_that_several_agents_name_counts_once() {
        let mut budgets = Budgets::new(&Settings::standard(1));
        budgets.restore(2, 0, None);
        for round in [8, 7, 8] {
            budgets.saw_round(Round(round));
        }
        assert_eq!(budgets.started(), 4);
    }
}
