//! Going back: a round that would begin from an older commit than unreachable hosts may hold.
//!
//! The driver may lose the hosts of the round that started last. Then the newest reachable commit may be one of an
//! earlier round, or there may be none. If the hosts are only cut off, a returning agent still holds the commits of its
//! workers. So may a host without a member that keeps a replica of them, or a shard of a divided state.
//!
//! So the job waits for them: once for each started round, and for a tenth of the elastic timeout at most. If a host
//! returns, the round is planned anew and finds its commit (R12). Otherwise the job continues from the older commit.
//! Both the wait and the older commit are announced.
//!
//! It also waits for any host with commits before it ends since no state is left.
//!
//! The job does not wait if a member of that round answers, or a dead member whose memory is kept: no other member can
//! be more than a step ahead. Not promised: that a lost host holds anything newer.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use elasticrun_protocol::{CommitId, DriverEpoch, HostId, Process, Round};

use super::{Job, Out};
use crate::{
    Command, Decision, Time,
    fleet::Host,
    mutant::{Mutant, planted},
    rounds::{Forming, Phase},
};

/// What is known of the commits of the round that started last.
#[derive(Clone, Debug, Default)]
pub(super) struct GoingBack {
    /// `None` before the first round.
    round: Option<Round>,
    members: BTreeMap<HostId, Vec<Process>>,
    /// Hosts with its commits whose memory is or was unreachable, and whether each was draining.
    lost: BTreeMap<HostId, bool>,
    /// When the wait for these hosts ends.
    until: Option<Time>,
    /// Hosts have come or gone since the last decision to wait.
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

    /// Records that the memory of a host is unreachable, and whether it may have a replica of such a commit, or a part.
    pub(super) fn lost(&mut self, host: &HostId, draining: bool, has_replica: bool) {
        if self.members.contains_key(host) || has_replica {
            self.lost.insert(host.clone(), draining);
        }
    }

    /// Whether hosts with commits of the round that started last are or were unreachable.
    pub(super) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    fn has(&self, host: &HostId, process: Process) -> bool {
        let members = self.members.get(host);
        members.is_some_and(|members| members.contains(&process))
    }

    /// Whether the job waits for hosts. Meanwhile other workers may use the processor.
    pub(super) fn waits(&self) -> bool {
        self.until.is_some()
    }

    /// When the wait ends.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.until
    }
}

impl Job {
    /// The round that started last, if a round from `base` has nothing of it and lost hosts may have.
    pub(super) fn goes_back(&self, forming: &Forming, base: Option<CommitId>) -> Option<Round> {
        let newer = self.going_back.round?;
        let older = base.is_none_or(|base| base.round < newer);
        (older && self.is_last_unseen(forming)).then_some(newer)
    }

    /// Whether hosts with commits of the round that started last are lost, and nothing but replicas is left of its commits: it may have made
    /// newer ones than any host that answers holds.
    pub(super) fn is_last_unseen(&self, forming: &Forming) -> bool {
        self.going_back.has_lost() && !self.is_heard(forming)
    }

    /// Whether a member of the round that started last has answered, or the memory of a dead one. Of a divided state it shows
    /// nothing if its newest commit lacks shards, or if the base of its round does: a lost host may have them.
    fn is_heard(&self, forming: &Forming) -> bool {
        let held = self.held_commits(forming);
        let complete = held.newest_complete().map(|base| base.id);
        let is_divided = self.is_divided() && !planted(Mutant::BaseGivenUp);
        let lacks_base = is_divided && complete < self.lineage.newest();
        !lacks_base
            && held.newest_incomplete().is_none()
            && (forming.ready.iter()).any(|(host, answer)| {
                let held = answer.members.iter().map(|held| held.process);
                let kept = answer.kept.iter().map(|kept| kept.process);
                held.chain(kept)
                    .any(|process| self.going_back.has(host, process))
            })
    }

    /// Whether the start from `base` is delayed by the wait for hosts that may hold a commit of `newer`.
    pub(super) fn awaits_newer(
        &mut self,
        now: Time,
        base: Option<CommitId>,
        newer: Round,
        out: &mut Out,
    ) -> bool {
        let lost = self.going_back.lost.iter();
        let lost = lost.filter(|(_, draining)| !**draining);
        // Copies of shards may complete the base of the last round on hosts that were lost before it.
        let has_copies = base.is_none() && self.is_divided() && self.settings.replicas > 0;
        let earlier = self.memory_lost.iter().filter(|_| has_copies);
        let hosts: BTreeSet<_> = lost.map(|(host, _)| host).chain(earlier).cloned().collect();
        self.awaits(now, base, newer, hosts, out)
    }

    /// Whether the end of a job without a state is delayed by the wait for hosts that have had one. A later driver may know neither these
    /// hosts nor which round made it: it waits for any host, and takes the round before `round`.
    pub(super) fn awaits_a_state(&mut self, now: Time, round: Round, out: &mut Out) -> bool {
        let newer = (self.going_back.round).unwrap_or(Round(round.0.saturating_sub(1)));
        let mut hosts = self.memory_lost.clone();
        if self.epoch > DriverEpoch(1) {
            hosts.extend(self.hosts.in_order().into_iter().cloned());
        }
        self.awaits(now, None, newer, hosts, out)
    }

    fn awaits(
        &mut self,
        now: Time,
        base: Option<CommitId>,
        newer: Round,
        hosts: BTreeSet<HostId>,
        out: &mut Out,
    ) -> bool {
        let hosts: Vec<_> = (hosts.into_iter())
            .filter(|host| self.may_come_back(host))
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

    /// Whether a host is back with its memory and was not asked for this plan.
    pub(super) fn has_come_back(&self) -> bool {
        let Phase::Forming(forming) = &self.rounds.phase else {
            return false;
        };
        let keeps = |state: &Host| state.up().is_some() && state.has_memory;
        (self.fleet.hosts()).any(|(host, state)| keeps(state) && !forming.ready.contains_key(host))
    }

    /// Whether a host may have a replica of a commit of the round that started last: it holds one, or follows that round.
    pub(super) fn may_have_replica(&self, host: &HostId) -> bool {
        let is_last = |round| self.going_back.round == Some(round);
        let held = self.replication.held.get(host);
        // The start of a round repeats its base.
        let holds = held.is_some_and(|held| is_last(held.round) && held.count > 0);
        holds || self.replication.followed_by(host).is_some_and(is_last)
    }

    /// Whether a lost host may return: it is not connected, is still known, and is not draining.
    fn may_come_back(&self, host: &HostId) -> bool {
        let up = self
            .fleet
            .host(host)
            .is_some_and(|state| state.up().is_some());
        let known = self.settings.self_registration || self.hosts.contains(host);
        !up && known && !self.hosts.is_draining(host)
    }

    /// Decides the wait again if hosts have come or gone. Returns whether it did, so that the caller plans again.
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
