//! Replicas: commits of another host that this agent keeps, so that they survive the loss of that host.
//!
//! The driver names the process to follow, which is rank 0 of the round that trains, and the commit from which the round
//! began. A copy begins one interval after the previous one has ended, or as long after it as it took, if that is longer.
//! So copies take at most half of the time. After a failure, and for a host that will go away, the wait is shorter. One copy
//! is made at a time. If another process is to be followed, the copy that goes on is given up: its source may be lost. A replica is kept like the memory of a dead
//! process, so the rest of a recovery is as after any loss of workers.
//!
//! # Invariants
//! - A replica is given up only for a newer complete one of the same round, or if it is older than the base of a round
//!   and enough other hosts hold that base, as the driver says.
//! - A host that becomes a member keeps the newest older commit until its own workers have a newer one. So its memory is
//!   never without a commit while they fetch the base.
//! - From the answer to a plan to the next command of the driver no replica is given up. So what the agent has answered
//!   with can be fetched. A copy that ends meanwhile is kept beside it.
//! - A copy of a void commit is dropped: the source may not know yet that its newest commit is void. A copy that goes on
//!   while the next round starts is kept if its commit leads to the base of that round.
//!
//! Not promised: that the newest commit is copied before its host is lost. A host that was out of reach as a round made
//! commits void may keep one of these instead of an older valid one.

use std::time::Duration;

use elasticrun_protocol::{
    AgentReport, CommitId, CommitKey, Process, Round,
    control::{Keeper, ReplicaSource},
};

use super::{Command, Copied, Machine, Memory, event::Wanted, stored::NO_SLOT};
use crate::{
    Time,
    mutant::{Mutant, planted},
};

/// The number of failures in a row that is reported. One or two are usual when the source is lost.
const REPORTED_FAILURE: u32 = 3;

/// The replicas of an agent.
#[derive(Clone, Debug, Default)]
pub(super) struct Replicas {
    /// The newest command about replicas. An older one is a repeat (R3).
    number: u64,
    following: Option<Following>,
    /// When the next copy is due, unless one is pending.
    due: Time,
    pending: Option<Pending>,
    /// A copy must begin that has not begun: a host will go away.
    is_urgent: bool,
    /// Failures since the last success.
    failures: u32,
    /// The dead process whose commit is kept until this host has one of the round that it trains in.
    pub(super) fallback: Option<Process>,
}

/// A copy that goes on.
#[derive(Clone, Debug)]
struct Pending {
    /// The process that never lived and gets the commit.
    process: Process,
    keeper: Keeper,
    begun: Time,
}

/// What is copied.
#[derive(Clone, Debug)]
pub(super) struct Following {
    pub(super) round: Round,
    /// The last round that was planned when the command was sent.
    pub(super) planned: Round,
    pub(super) base: Option<CommitId>,
    /// None if no further copy is needed.
    pub(super) source: Option<ReplicaSource>,
}

impl Following {
    /// Whether a commit is of the round that is followed, or leads to its base. An older one of the round of the base does, so
    /// it is not void. Of others that is unknown.
    fn has(&self, commit: CommitId) -> bool {
        let void = planted(Mutant::VoidReplica);
        let leads_to = |base: CommitId| commit.round == base.round && commit <= base;
        commit.round >= self.round || self.base.is_some_and(leads_to) || void
    }
}

impl Machine {
    /// Follows another process from now on, or none.
    pub(super) fn replicate(
        &mut self,
        now: Time,
        number: u64,
        following: Following,
        memory: &dyn Memory,
        out: &mut Vec<Command>,
    ) {
        let Some(setup) = &self.setup.replication else {
            return;
        };
        if number <= self.replicas.number {
            return;
        }
        self.replicas.number = number;
        let Following { base, source, .. } = &following;
        self.replicas.is_urgent = source.as_ref().is_some_and(|source| source.at_once);
        let keeper = source.as_ref().map(|source| &source.keeper);
        let is_other =
            |pending: &mut Pending| keeper.is_some_and(|keeper| *keeper != pending.keeper);
        if let Some(Pending { process, .. }) = self.replicas.pending.take_if(is_other) {
            out.push(Command::Forget { process });
        }
        let waits = match self.replicas.is_urgent {
            true => Duration::ZERO,
            false => setup.interval,
        };
        let due = now + waits;
        self.replicas.due = match self.followed_source() {
            Some(_) => self.replicas.due.min(due),
            None => due,
        };
        if source.is_none() {
            let base = *base;
            self.drop_replicas(memory, out, |newest| newest < base);
        }
        self.replicas.following = Some(following);
        self.drop_surplus(memory, out);
    }

    /// Frees the replicas that were kept beside others from an answer to this command, if one is of what is followed. The
    /// newest such one stays.
    fn drop_surplus(&mut self, memory: &dyn Memory, out: &mut Vec<Command>) {
        let replicas = self
            .kept
            .iter()
            .filter(|process| process.local_rank == NO_SLOT);
        let newest = replicas.filter_map(|process| memory.newest(*process));
        let stays = newest.filter(|commit| self.follows(*commit)).max();
        if stays.is_some() && self.may_replace() {
            self.drop_replicas(memory, out, |newest| newest != stays);
        }
    }

    fn followed_source(&self) -> Option<&ReplicaSource> {
        self.replicas.following.as_ref()?.source.as_ref()
    }

    /// Whether no plan was answered since the last command, so that replicas may be given up for newer ones.
    fn may_replace(&self) -> bool {
        let followed = |following: &Following| following.planned >= self.seen;
        self.replicas.following.as_ref().is_some_and(followed) || planted(Mutant::ReplicaInPlan)
    }

    /// When [`Machine::copy_replica`] is due.
    pub(super) fn replica_deadline(&self) -> Option<Time> {
        let may_begin = self.replicas.pending.is_none() && self.may_replace() && !self.ending;
        (may_begin && self.followed_source().is_some()).then_some(self.replicas.due)
    }

    /// Begins the copy that is due.
    pub(super) fn copy_replica(&mut self, now: Time, memory: &dyn Memory, out: &mut Vec<Command>) {
        if self.replica_deadline().is_none_or(|due| due > now) {
            return;
        }
        let Some(source) = self.followed_source().cloned() else {
            return;
        };
        let newer_than = self.newest_replicated(memory);
        let process = self.unborn();
        self.replicas.is_urgent = false;
        self.replicas.pending = Some(Pending {
            process,
            keeper: source.keeper.clone(),
            begun: now,
        });
        // A copy is made beside the last one, as a worker commits beside its last commit.
        let share = |limit: u64| limit / u64::from(source.holders.max(1)) / 2;
        out.push(Command::Replicate {
            process,
            keeper: source.keeper,
            wanted: Wanted::Newer(newer_than),
            limit: self.setup.commit_memory.map(share),
        });
    }

    /// The newest commit of what is followed in the memory of a dead process, or of one that never lived.
    fn newest_replicated(&self, memory: &dyn Memory) -> Option<CommitId> {
        let commits = (self.kept.iter()).flat_map(|process| memory.commits(*process));
        let commits = commits.map(|key| key.commit);
        commits.filter(|commit| self.follows(*commit)).max()
    }

    fn follows(&self, commit: CommitId) -> bool {
        let following = self.replicas.following.as_ref();
        following.is_some_and(|following| following.has(commit))
    }

    /// Handles the end of a copy.
    pub(super) fn copied(
        &mut self,
        now: Time,
        process: Process,
        copied: Copied,
        memory: &dyn Memory,
        out: &mut Vec<Command>,
    ) {
        let is_this = |pending: &mut Pending| pending.process == process;
        let Some(Pending { begun, .. }) = self.replicas.pending.take_if(is_this) else {
            return out.push(Command::Forget { process });
        };
        let interval = self
            .setup
            .replication
            .map_or(Duration::MAX, |setup| setup.interval);
        let wait = match &copied {
            _ if self.replicas.is_urgent => Duration::ZERO,
            Copied::Failed { .. } => interval,
            _ => interval.max(now.since(begun)),
        };
        self.replicas.due = now + wait;
        match copied {
            Copied::Whole {
                commit,
                bytes,
                took,
            } => {
                self.replicas.failures = 0;
                let newer = Some(commit) > self.newest_replicated(memory);
                if !newer || !self.follows(commit) {
                    return out.push(Command::Forget { process });
                }
                if self.may_replace() {
                    self.drop_replicas(memory, out, |_| true);
                }
                self.kept.insert(process);
                let report = AgentReport::Replicated {
                    commit,
                    bytes,
                    took,
                };
                self.report_replica(report, out);
            }
            Copied::NothingNewer => {
                self.replicas.failures = 0;
                out.push(Command::Forget { process });
            }
            Copied::Failed { why } => {
                out.push(Command::Forget { process });
                self.replicas.failures = self.replicas.failures.saturating_add(1);
                if self.replicas.failures == REPORTED_FAILURE {
                    let commit = None;
                    self.report_replica(AgentReport::ReplicaFailed { why, commit }, out);
                }
            }
        }
    }

    /// The newest commit in the memory of this host, for the driver.
    pub(super) fn held_in_memory(&self, memory: &dyn Memory) -> Option<CommitId> {
        self.setup.replication?;
        let processes = self.workers.keys().chain(&self.kept);
        let newest = processes.filter_map(|process| memory.newest(*process));
        newest.max()
    }

    /// The dead process with the newest older commit, if a round begins from a base that this host does not hold.
    pub(super) fn fallback(&self, base: Option<CommitId>, memory: &dyn Memory) -> Option<Process> {
        let base = base.filter(|_| self.setup.replication.is_some())?;
        let holds = |process: &Process| {
            memory
                .commits(*process)
                .iter()
                .any(|key| key.commit == base)
        };
        let has_base = self.workers.keys().chain(&self.kept).any(holds);
        if has_base || planted(Mutant::ReplicaGivenUp) {
            return None;
        }
        let started = (self.started.as_ref()).map(|started| (started.round, started.base));
        let following = (self.replicas.following.as_ref()).map(|to| (to.round, to.base));
        let known = started.max(following);
        // A void commit is of no use. An older round may have begun from this one.
        let is_valid = |commit: CommitId| {
            let of_known = |(round, from)| commit.round >= round || Some(commit) == from;
            commit.round == base.round || known.is_none_or(of_known)
        };
        let older = (self.kept.iter()).filter_map(|process| {
            let newest = memory.newest(*process)?;
            (newest < base).then(|| ((is_valid(newest), newest), *process))
        });
        older.max().map(|(_, process)| process)
    }

    /// Frees the older commit that was kept at a start, once this host has one of that round, or its base.
    pub(super) fn drop_fallback(&mut self, memory: &dyn Memory, out: &mut Vec<Command>) {
        let (Some(fallback), Some(started)) = (self.replicas.fallback, &self.started) else {
            return;
        };
        // It may be part of the answer to a plan.
        if self.seen > started.round {
            return;
        }
        let (round, base) = (started.round, started.base);
        let is_newer = |key: &CommitKey| key.commit.round >= round || Some(key.commit) == base;
        let others = self.workers.keys().chain(&self.kept);
        let mut others = others.filter(|process| **process != fallback);
        if others.any(|process| memory.commits(*process).iter().any(is_newer)) {
            self.replicas.fallback = None;
            if !self.has_cut(fallback, memory) && self.kept.remove(&fallback) {
                out.push(Command::Forget { process: fallback });
            }
        }
    }

    /// Gives up the memory of processes that never lived, if their newest commit is such a one.
    fn drop_replicas(
        &mut self,
        memory: &dyn Memory,
        out: &mut Vec<Command>,
        is_dropped: impl Fn(Option<CommitId>) -> bool,
    ) {
        let dropped = |process: &Process| {
            process.local_rank == NO_SLOT && is_dropped(memory.newest(*process))
        };
        let dropped: Vec<_> = self.kept.extract_if(.., |p| dropped(p)).collect();
        out.extend(
            dropped
                .into_iter()
                .map(|process| Command::Forget { process }),
        );
    }

    fn report_replica(&self, report: AgentReport, out: &mut Vec<Command>) {
        // A driver of an earlier release does not know the report.
        if self.setup.replication.is_some() {
            out.push(Command::AgentReport(report));
        }
    }
}
