//! Which hosts are known to hold the state, for [`super::replication`]. Answers to plans, heartbeats and reports of replicas
//! say so.
//!
//! Of a divided state, heartbeats say when all members have sealed the first commit of their round: no member begins a
//! further one before. From then on no shard of the base is needed, wherever it is.

use std::collections::BTreeMap;

use elasticrun_protocol::{CommitId, HostId};

use super::{Job, Out};
use crate::{
    Command, Decision, ReplicaGroupSize, Time,
    mutant::{Mutant, planted},
    rounds::ReadyHost,
};

impl Job {
    /// Whether a host is known to hold the base of the round that trains, or a newer commit.
    pub(super) fn is_safe_on(&self, host: &HostId) -> bool {
        let held = self.replication.held.get(host);
        held.is_some_and(|held| {
            Some(*held) >= self.lineage.newest() && self.lineage.is_valid(*held)
        })
    }

    /// As [`Self::is_safe_on`], for a member. Without a base nothing can be lost, and agents of earlier releases do not
    /// say what they hold.
    pub(super) fn is_safe_on_member(&self, host: &HostId) -> bool {
        let is_unknown = !self.replication.able.contains(host);
        let nothing_to_lose = self.lineage.newest().is_none();
        let is_safe = nothing_to_lose || is_unknown || self.is_safe_on(host);
        is_safe || planted(Mutant::NewcomerHolds)
    }

    /// Records what a heartbeat says of a host: the newest commit in its memory, and the newest one of a divided state that all
    /// members of the round there have sealed. A heartbeat has no consequence itself: what follows does so as of a deadline.
    pub(super) fn beat_holds(
        &mut self,
        now: Time,
        host: &HostId,
        held: Option<CommitId>,
        sealed: Option<CommitId>,
    ) {
        let is_held = self.holds(host, held);
        let is_sealed = sealed.is_some_and(|commit| self.rounds.sealed(host, commit));
        let names_cut = sealed.is_some_and(|commit| self.replication.cuts.sealed(now, commit));
        if is_held || is_sealed || names_cut {
            self.replication.changed_by_beat(now);
        }
    }

    /// Whether the state is divided among the members of a round.
    pub(super) fn is_divided(&self) -> bool {
        self.settings.replica_group_size != ReplicaGroupSize::One
    }

    /// Records the newest commit in the memory of a host. Returns whether the state is safe on this host from now on.
    pub(super) fn holds(&mut self, host: &HostId, commit: Option<CommitId>) -> bool {
        let Some(commit) = commit.filter(|_| self.settings.replicas > 0) else {
            return false;
        };
        let before = self.is_safe_on(host);
        self.replication.held.insert(host.clone(), commit);
        let is_new = !before && self.is_safe_on(host);
        if is_new {
            self.replication.changed();
        }
        is_new
    }

    /// Records what hosts held when they answered the plan of the round that starts.
    pub(super) fn answered_with(&mut self, ready: &BTreeMap<HostId, ReadyHost>) {
        for (host, answer) in ready {
            let commits = answer.keys().map(|key| key.commit);
            let newest = commits.filter(|id| self.lineage.is_valid(*id)).max();
            self.holds(host, newest);
        }
    }

    /// Handles the report that a replica is complete.
    pub(super) fn replicated(&mut self, host: &HostId, decision: Decision, out: &mut Out) {
        if !planted(Mutant::ReplicaNotAsked) {
            self.fleet.set_memory(host);
        }
        if let Decision::Replicated { commit, .. } = &decision {
            self.holds(host, Some(*commit));
            self.cut_copied(host, *commit);
        }
        out.push(Command::Announce(decision));
    }
}
