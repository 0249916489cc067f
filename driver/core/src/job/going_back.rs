//! Going back: a round that would begin from an older commit than hosts out of reach may hold.
//!
//! If the driver loses the hosts of the round that started last, the newest commit in reach may be one of an earlier
//! round, or there may be none. The hosts may only be cut off: an agent that comes back keeps what its workers have
//! committed. So the job waits for them, once for each started round and for a tenth of the elastic timeout at most. If one
//! comes back, the round is planned anew and finds its commit (R12). Otherwise the job goes on from the older commit.
//! The operator is told both.
//!
//! Nobody waits if a member of that round answers, also one that is dead and whose memory is kept: no other can be more
//! than a step ahead of it. Not promised: that a lost host holds anything newer.

use std::{collections::BTreeMap, time::Duration};

use elasticrun_protocol::{CommitId, HostId, Process, Round};

use super::{Job, Out};
use crate::{
    Command, Decision, Time,
    fleet::Host,
    mutant::{Mutant, planted},
    rounds::{Forming, Phase},
};

/// What is known of commits of the round that started last, since it did.
#[derive(Clone, Debug, Default)]
pub(super) struct GoingBack {
    /// None before the first round.
    round: Option<Round>,
    members: BTreeMap<HostId, Vec<Process>>,
    /// Hosts of it whose memory is out of reach, or was; and whether they were to go away.
    lost: BTreeMap<HostId, bool>,
    /// They are waited for until then.
    until: Option<Time>,
    /// Hosts have come or gone since that was judged.
    pub(super) changed: bool,
}

impl GoingBack {
    /// A round has started.
    pub(super) fn started(round: Round, members: BTreeMap<HostId, Vec<Process>>) -> Self {
        Self {
            round: Some(round),
            members,
            ..Self::default()
        }
    }

    /// The memory of a host is out of reach.
    pub(super) fn lost(&mut self, host: &HostId, draining: bool) {
        if self.members.contains_key(host) {
            self.lost.insert(host.clone(), draining);
        }
    }

    fn has(&self, host: &HostId, process: Process) -> bool {
        let members = self.members.get(host);
        members.is_some_and(|members| members.contains(&process))
    }

    /// Hosts are waited for: others may have the processor.
    pub(super) fn waits(&self) -> bool {
        self.until.is_some()
    }

    /// Until when.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.until
    }
}

impl Job {
    /// The round that started last, if a round from `base` has nothing of it and lost hosts may.
    pub(super) fn goes_back(&self, forming: &Forming, base: Option<CommitId>) -> Option<Round> {
        let newer = self.going_back.round?;
        let older = base.is_none_or(|base| base.round < newer);
        (older && !self.going_back.lost.is_empty() && !self.is_heard(forming)).then_some(newer)
    }

    /// A member of the round that started last has answered, or what is kept of one.
    fn is_heard(&self, forming: &Forming) -> bool {
        (forming.ready.iter()).any(|(host, answer)| {
            let held = answer.members.iter().map(|held| held.process);
            let kept = answer.kept.iter().map(|kept| kept.process);
            held.chain(kept)
                .any(|process| self.going_back.has(host, process))
        })
    }

    /// Whether the round from `base` does not start yet, since it waits for hosts that may hold a commit of `newer`.
    pub(super) fn awaits_newer(
        &mut self,
        now: Time,
        base: Option<CommitId>,
        newer: Round,
        out: &mut Out,
    ) -> bool {
        let hosts: Vec<_> = (self.going_back.lost.iter())
            .filter(|(host, draining)| !**draining && self.may_come_back(host))
            .map(|(host, _)| host.clone())
            .collect();
        if hosts.is_empty() || planted(Mutant::NewerNotAwaited) {
            return false;
        }
        let wait = self.patience_for_newer();
        let until = *self.going_back.until.get_or_insert_with(|| {
            out.push(Command::Announce(Decision::AwaitingNewer {
                base,
                newer,
                hosts,
                wait,
            }));
            now + wait
        });
        now < until
    }

    /// The longest wait for newer commits.
    fn patience_for_newer(&self) -> Duration {
        match self.elastic_timeout() / 10 {
            wait if planted(Mutant::NewerAwaitedLong) => wait * 1000,
            wait => wait,
        }
    }

    /// A host is back with what it keeps, and this plan has not asked it.
    pub(super) fn has_come_back(&self) -> bool {
        let Phase::Forming(forming) = &self.rounds.phase else {
            return false;
        };
        let keeps = |state: &Host| state.up().is_some() && state.has_memory;
        (self.fleet.hosts()).any(|(host, state)| keeps(state) && !forming.ready.contains_key(host))
    }

    /// The host is lost, and nothing says that it will not be back.
    fn may_come_back(&self, host: &HostId) -> bool {
        let up = self
            .fleet
            .host(host)
            .is_some_and(|state| state.up().is_some());
        let known = self.settings.self_registration || self.hosts.contains(host);
        !up && known && !self.hosts.is_draining(host)
    }

    /// Judges the wait anew if hosts have come or gone. Gives whether it did, and what follows is to be looked at again.
    pub(super) fn look_for_newer(&mut self, now: Time, out: &mut Out) -> bool {
        let answered =
            matches!(&self.rounds.phase, Phase::Forming(forming) if forming.missing.is_empty());
        let changed = std::mem::take(&mut self.going_back.changed);
        if !changed || !answered || !self.going_back.waits() {
            return false;
        }
        self.start_round(now, out);
        self.results.outcome().is_none()
    }
}
