//! Relapses: whether the program itself fails, wherever it runs.
//!
//! A failure takes out a host or a slot, and the other workers continue from the last commit. If the script is at
//! fault, they fail in the same place. So this machine looks at rounds in a row that left no commit and were short. It
//! collects the failure domains whose members ended by themselves with an exit code.
//!
//! The program is at fault if two of these rounds had such failures, and if only such domains would begin the next round.
//!
//! Signals are not collected: what kills a healthy process (a user, a lack of memory) comes from outside.

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_protocol::{HostId, LocalRank, Process, Round, control::Exit};

use serde::{Deserialize, Serialize};

use crate::{
    blacklist::Domain,
    mutant::{Mutant, planted},
};

/// Failures by exit code in rounds without a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Relapses {
    /// Members that failed and whose exit is still unknown, with their round.
    #[serde(skip)]
    dying: BTreeMap<(HostId, Process), Round>,
    domains: BTreeSet<Domain>,
    /// Rounds with such failures.
    rounds: BTreeSet<Round>,
}

impl Relapses {
    /// Records that a member of a round failed by itself.
    pub fn failed(&mut self, host: &HostId, process: Process, round: Round) {
        self.dying.insert((host.clone(), process), round);
    }

    /// Records how a process ended; `domain` is what its failure takes out.
    pub fn exited(&mut self, host: &HostId, process: Process, exit: &Exit, domain: Domain) {
        let Some(round) = self.dying.remove(&(host.clone(), process)) else {
            return;
        };
        let by_itself = match exit {
            Exit::Code(code) => *code != 0,
            _ => planted(Mutant::RelapseBySignal),
        };
        if by_itself {
            self.domains.insert(domain);
            self.rounds.insert(round);
        }
    }

    /// Whether the program is at fault, so that a round of these slots would fail as well.
    pub fn include<'a>(&self, mut slots: impl Iterator<Item = (&'a HostId, LocalRank)>) -> bool {
        let rounds = 2 - usize::from(planted(Mutant::RelapseAtOnce));
        let failed = |(host, slot): (&HostId, LocalRank)| {
            let whole = Domain::Host(host.clone());
            self.domains.contains(&whole)
                || self.domains.contains(&Domain::Slot(host.clone(), slot))
        };
        self.rounds.len() >= rounds && slots.all(failed) && !planted(Mutant::RelapsesForgotten)
    }
}
