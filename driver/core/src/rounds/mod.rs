//! Rounds: plan, ready, start, hold, abort, and the order of these phases.
//!
//! ```text
//!            plan                 all ready
//!   Idle ------------> Forming ------------> Training
//!    ^  ^                |                   |     |
//!    |  '---- abort -----'                   |     | hold, counted, leave at K
//!    '---------------- abort ----------------'     v
//!            (a failure)                        Forming (the round it leaves still runs to K)
//! ```
//! Numbers only grow; a round that never started keeps its number. Invariants: R1 (ranks), R3 (no message of an older
//! round changes anything), R11 (one round trains at a time), R12 (the base).

mod cause;
mod phase;

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_protocol::{Boundary, CommitId, HostId, Process, Round};

pub use self::{
    cause::Cause,
    phase::{Aborted, Forming, Hold, Leg, Phase, ReadyHost, Training},
};
use crate::{
    mutant::{Mutant, planted},
    time::Time,
};

/// The rounds of a job.
#[derive(Clone, Debug)]
pub struct Rounds {
    /// The current phase.
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
    /// The number of the last planned round.
    pub fn last(&self) -> Round {
        self.last
    }

    /// Leaves the numbers up to this one unused: earlier drivers may have planned them.
    pub fn skip_to(&mut self, round: Round) {
        self.last = self.last.max(round);
    }

    /// Continues with a round that an earlier driver started.
    pub fn adopt(&mut self, training: Training) {
        self.skip_to(training.round);
        self.phase = Phase::Training(training);
    }

    /// The round that trains.
    pub fn training(&self) -> Option<Round> {
        match &self.phase {
            Phase::Training(training) => Some(training.round),
            _ => None,
        }
    }

    /// Records a cause for a new round. The first cause since the last start counts.
    pub fn disturb(&mut self, now: Time, cause: Cause) {
        self.disturbed.get_or_insert((now, cause));
    }

    /// The first cause of the next round, and when it was seen.
    pub fn disturbance(&self) -> Option<&(Time, Cause)> {
        self.disturbed.as_ref()
    }

    /// Plans the next round. `ask` contains the hosts that must answer.
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

    /// Records the answer of a host to a plan. Returns whether all have answered, or `None` if the answer is stale,
    /// repeated or for other members.
    pub fn ready(&mut self, host: &HostId, round: Round, answer: ReadyHost) -> Option<bool> {
        let Phase::Forming(forming) = &mut self.phase else {
            return None;
        };
        let mut asked: Vec<_> = (forming.members.get(host).into_iter().flatten()).collect();
        let mut answered: Vec<_> = answer.members.iter().map(|held| &held.process).collect();
        asked.sort_unstable();
        answered.sort_unstable();
        if forming.round != round || asked != answered || !forming.missing.remove(host) {
            return None;
        }
        forming.ready.insert(host.clone(), answer);
        Some(forming.missing.is_empty())
    }

    /// A planted mistake: counts a repeated answer as that of another host.
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

    /// Starts the planned round. `holders` members hold its base, which is divided among workers or not. Gives the round, and when its first cause was seen.
    pub fn start(&mut self, holders: u32, is_divided: bool) -> Option<(Forming, Time)> {
        let Phase::Forming(forming) = std::mem::replace(&mut self.phase, Phase::Idle) else {
            return None;
        };
        self.phase = Phase::Training(Training {
            round: forming.round,
            members: forming.members.clone(),
            size: forming.size,
            holders,
            unsealed: match is_divided {
                true => forming.members.keys().cloned().collect(),
                false => BTreeSet::new(),
            },
            hold: None,
        });
        let since = self.disturbed.take().map_or(Time::ZERO, |(since, _)| since);
        Some((forming, since))
    }

    /// Records that all members of a host have sealed a commit of a divided state. Returns whether all members of the round now
    /// have, so that none needs the base any more.
    pub fn sealed(&mut self, host: &HostId, commit: CommitId) -> bool {
        let Phase::Training(training) = &mut self.phase else {
            return false;
        };
        let is_last = commit.round == training.round
            && training.unsealed.remove(host)
            && training.unsealed.is_empty();
        let is_news = is_last && training.holders < training.size;
        if is_news {
            training.holders = training.size;
        }
        is_news
    }

    /// Holds the round that trains: its members will leave at a common boundary. Gives the round and its hosts.
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

    /// Records the count of a host. Gives the common boundary once all hosts have counted, or `None` if the count is stale.
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

    /// Withdraws a hold. Gives the round and its hosts.
    pub fn withdraw(&mut self) -> Option<(Round, Vec<HostId>)> {
        let Phase::Training(training) = &mut self.phase else {
            return None;
        };
        training.hold.take()?;
        Some((training.round, training.members.keys().cloned().collect()))
    }

    /// Drops the planned round; the round that was to be left continues. Gives the planned round with all hosts that
    /// were asked, and the round that continues with its hosts.
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

    /// Drops a planned round, to plan anew, while the previous round is being left at a common boundary; that round is
    /// still left there. Gives the planned round with its hosts.
    pub fn unplan_left(&mut self) -> Option<Leg> {
        match &self.phase {
            Phase::Forming(forming) if forming.leaving.is_some() => {
                self.unplan().map(|(planned, _)| planned)
            }
            _ => None,
        }
    }

    /// Drops the answer of a host that is gone and has no member in the planned round.
    pub fn forget_answer(&mut self, host: &HostId) {
        if let Phase::Forming(forming) = &mut self.phase {
            forming.ready.remove(host);
        }
    }

    /// Ends the planned round and the one that trains. Gives the rounds that are aborted.
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
