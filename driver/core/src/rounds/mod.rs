//! Rounds: plan, ready, start, hold, abort, and which of them comes next.
//!
//! ```text
//!            plan                 all ready
//!   Idle ------------> Forming ------------> Training
//!    ^  ^                |                   |     |
//!    |  '---- abort -----'                   |     | hold, counted, leave at K
//!    '---------------- abort ----------------'     v
//!            (a failure)                        Forming (the round it leaves still runs to K)
//! ```
//! Numbers only grow; a round that never started keeps its number. Invariants: R1 (ranks), R3 (nothing
//! of an older round changes anything), R11 (one round trains at a time), R12 (the base).

mod cause;
mod phase;

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_protocol::{Boundary, HostId, Process, Round};

pub use self::{
    cause::Cause,
    phase::{Aborted, Forming, Hold, Leg, Phase, ReadyHost, Training},
};
use crate::{
    mutant::{Mutant, planted},
    time::Time,
};

/// See the module.
#[derive(Clone, Debug)]
pub struct Rounds {
    /// Now.
    pub phase: Phase,
    last: Round,
    /// When the first cause of the next round was seen.
    disturbed: Option<(Time, Cause)>,
}

impl Default for Rounds {
    fn default() -> Self {
        Self {
            phase: Phase::Idle,
            last: Round(0),
            disturbed: None,
        }
    }
}

impl Rounds {
    /// The round that was planned last.
    pub fn last(&self) -> Round {
        self.last
    }

    /// Something made a new round necessary. The first cause since the last start counts.
    pub fn disturb(&mut self, now: Time, cause: Cause) {
        self.disturbed.get_or_insert((now, cause));
    }

    /// When the first cause was seen, and which it is.
    pub fn disturbance(&self) -> Option<&(Time, Cause)> {
        self.disturbed.as_ref()
    }

    /// Plans the next round. `ask` are the hosts that must answer.
    pub fn plan(
        &mut self,
        members: BTreeMap<HostId, Vec<Process>>,
        ask: BTreeSet<HostId>,
        deadline: Time,
        cause: Cause,
    ) -> &Forming {
        let leaving = match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Training(training) => Some(training),
            _ => None,
        };
        self.last = self.last.next();
        let forming = Forming {
            round: self.last,
            size: members.values().map(|m| m.len() as u32).sum(),
            members,
            ready: BTreeMap::new(),
            missing: ask,
            leaving,
            deadline,
            cause,
        };
        self.phase = Phase::Forming(forming);
        match &self.phase {
            Phase::Forming(forming) => forming,
            _ => unreachable!("it was set in the line above"),
        }
    }

    /// A host answered a plan. Gives whether all have now, or nothing if the answer is stale or repeated.
    pub fn ready(&mut self, host: &HostId, round: Round, answer: ReadyHost) -> Option<bool> {
        let Phase::Forming(forming) = &mut self.phase else {
            return None;
        };
        let asked: BTreeSet<_> = (forming.members.get(host).into_iter().flatten()).collect();
        let answered: BTreeSet<_> = answer.members.iter().map(|held| &held.process).collect();
        let honest = asked == answered && answered.len() == answer.members.len();
        if forming.round != round || !honest || !forming.missing.remove(host) {
            return None;
        }
        forming.ready.insert(host.clone(), answer);
        Some(forming.missing.is_empty())
    }

    /// Takes an answer that was given already for that of another host: a planted mistake.
    pub(crate) fn miscount(&mut self, round: Round) -> Option<bool> {
        let Phase::Forming(forming) = &mut self.phase else {
            return None;
        };
        if forming.round != round {
            return None;
        }
        forming.missing.pop_first();
        Some(forming.missing.is_empty())
    }

    /// The planned round starts; so many members hold its base. Gives it, and when its first cause was seen.
    pub fn start(&mut self, holders: u32) -> Option<(Forming, Time)> {
        let Phase::Forming(forming) = std::mem::replace(&mut self.phase, Phase::Idle) else {
            return None;
        };
        self.phase = Phase::Training(Training {
            round: forming.round,
            members: forming.members.clone(),
            size: forming.size,
            holders,
            hold: None,
        });
        let since = self.disturbed.take().map_or(Time::ZERO, |(since, _)| since);
        Some((forming, since))
    }

    /// Asks all members to leave the round that trains at a common boundary. Gives it and its hosts.
    pub fn hold(&mut self, deadline: Time, cause: Cause) -> Option<(Round, Vec<HostId>)> {
        let Phase::Training(training) = &mut self.phase else {
            return None;
        };
        if training.hold.is_some() {
            return None;
        }
        let missing: BTreeSet<_> = training.members.keys().cloned().collect();
        let hosts = missing.iter().cloned().collect();
        training.hold = Some(Hold {
            missing,
            highest: Boundary(0),
            deadline,
            cause,
        });
        Some((training.round, hosts))
    }

    /// A host has counted. Gives the common boundary once all have, or nothing if the count is stale.
    pub fn counted(
        &mut self,
        host: &HostId,
        round: Round,
        highest: Boundary,
    ) -> Option<Option<Boundary>> {
        let Phase::Training(training) = &mut self.phase else {
            return None;
        };
        let hold = training.hold.as_mut().filter(|_| training.round == round)?;
        if !hold.missing.remove(host) {
            return None;
        }
        if planted(Mutant::BoundaryOfLast) {
            hold.highest = Boundary(0);
        }
        hold.highest = hold.highest.max(highest);
        Some(hold.missing.is_empty().then(|| hold.highest.next()))
    }

    /// Takes a hold back. Gives the round and its hosts.
    pub fn withdraw(&mut self) -> Option<(Round, Vec<HostId>)> {
        let Phase::Training(training) = &mut self.phase else {
            return None;
        };
        training.hold.take()?;
        Some((training.round, training.members.keys().cloned().collect()))
    }

    /// Gives up what is planned; the round that was to be left goes on. Gives the planned one and its hosts,
    /// asked ones included, and the one that goes on and its hosts.
    pub fn unplan(&mut self) -> Option<(Leg, Option<Leg>)> {
        let Phase::Forming(_) = &self.phase else {
            return None;
        };
        let Phase::Forming(forming) = std::mem::replace(&mut self.phase, Phase::Idle) else {
            return None;
        };
        let answered = forming.ready.into_keys();
        let planned = Leg {
            round: forming.round,
            hosts: forming.missing.into_iter().chain(answered).collect(),
        };
        let left = forming.leaving.map(|mut training| {
            training.hold = None;
            let leg = Leg {
                round: training.round,
                hosts: training.members.keys().cloned().collect(),
            };
            self.phase = Phase::Training(training);
            leg
        });
        Some((planned, left))
    }

    /// Gives up what is planned while the round before is left at a common boundary, to plan anew: that one is left all
    /// the same. Gives the planned one and its hosts.
    pub fn unplan_left(&mut self) -> Option<Leg> {
        match &self.phase {
            Phase::Forming(forming) if forming.leaving.is_some() => {
                self.unplan().map(|(planned, _)| planned)
            }
            _ => None,
        }
    }

    /// A host that was asked and has no member is gone: what it answered counts no more.
    pub fn forget_answer(&mut self, host: &HostId) {
        if let Phase::Forming(forming) = &mut self.phase {
            forming.ready.remove(host);
        }
    }

    /// Ends what is planned or trains. Gives the rounds to abort with the hosts of each.
    pub fn abort(&mut self) -> Vec<Aborted> {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Idle => Vec::new(),
            Phase::Training(training) => vec![Aborted {
                round: training.round,
                started: true,
            }],
            Phase::Forming(forming) => {
                let planned = Aborted {
                    round: forming.round,
                    started: false,
                };
                let left = forming.leaving.map(|training| Aborted {
                    round: training.round,
                    started: true,
                });
                left.into_iter().chain([planned]).collect()
            }
        }
    }
}
