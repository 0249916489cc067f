//! Relapses: whether it is the program that fails, wherever it runs.
//!
//! A failure takes out a host or a slot, and the others go on from the last commit. If the script is at fault, they fail in
//! the same place. So rounds in a row that left no commit, and did not last, collect the domains whose members ended by
//! themselves with an exit code. If that has happened in two of these rounds, and none but such domains would begin the next
//! one, it is the program.
//!
//! A signal is not collected: what ends a healthy process (a person, memory that runs out) comes from outside.

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_protocol::{HostId, LocalRank, Process, Round, control::Exit};

use crate::{
    blacklist::Domain,
    mutant::{Mutant, planted},
};

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Relapses {
    /// Members that failed, in which round, and nobody has said yet how.
    dying: BTreeMap<(HostId, Process), Round>,
    domains: BTreeSet<Domain>,
    /// Rounds in which they failed.
    rounds: BTreeSet<Round>,
}

impl Relapses {
    /// A member of a round failed by itself.
    pub fn failed(&mut self, host: &HostId, process: Process, round: Round) {
        self.dying.insert((host.clone(), process), round);
    }

    /// How a process ended; `domain` is what its failure takes out.
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

    /// Whether it is the program, and a round of these slots would fail as well.
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
