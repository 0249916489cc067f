//! Replication of a state that is divided among workers: the *cut*, a commit of which other hosts copy the shards.
//!
//! Of a divided state a copy is of use only beside copies of all other shards of the same commit. So the driver names one
//! commit at a time, as one that workers will seal in a moment, and no host copies another one:
//!
//! ```text
//!   name the next cut ----> all hosts with members hold it ----> hosts copy shards ----> all copies are complete
//!         ^    ^                   | one has passed it                 | a copy fails           | the cut is kept,
//!         |    '---- further ahead '-----------------------------------'                        | and the one before
//!         '------------------------------------------------------------------------------------- is not
//! ```
//!
//! - Workers keep their shards of the cut until the driver names another one, however long its copies take. So a slow host
//!   makes cuts rare, and cannot end in a job whose hosts hold shards of different commits.
//! - A cut that is named too late for some worker is given up, and the next one is named twice as far ahead. The distance
//!   depends on how fast the job commits, as heartbeats say.
//! - The complete cut is kept by all until the next one is complete, beyond the end of its round too. Its shards are in the
//!   memory of their workers and on K other machines. So the loss of any K machines leaves all of them.
//! - Which hosts copy what: [`crate::shard_keepers`].
//!
//! A driver that takes the job over learns the complete cut from the agents. It names no cut before all members are back.
//!
//! Without copies (K = 0) the job looks once who holds the shards of the first commit, and warns if the loss of a machine would end it.
//!
//! Not promised: that a commit after the complete cut survives the loss of a host; and that a second loss finds a complete cut
//! before that of the next round is complete.

mod schedule;

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_protocol::{
    AgentCommand, CommitId, CommitKey, HostId, Round,
    control::{Cut, CutShard, Keeper, ShardCopy},
};

pub(super) use self::schedule::Cuts;
use self::schedule::Next;
use super::{Job, Out};
use crate::{
    Command, Decision, Time,
    completeness::Holdings,
    mutant::{Mutant, planted},
    rounds::Phase,
    shard_keepers::{Holder, Machine, Plan},
    time::earliest,
};

/// The number of cuts in a row that cannot be copied until the job says so.
const TOLD_FAILURES: u32 = 5;

impl Job {
    /// A round of this driver has started. Its first commit is the first cut.
    pub(super) fn cut_from(&mut self, now: Time, round: Round) {
        let first = CommitId {
            epoch: self.epoch,
            round,
            count: 0,
        };
        self.follow_round(round);
        let is_wanted = self.settings.replicas > 0 || !self.replication.cuts.is_looked_at;
        if is_wanted && self.is_divided() {
            self.replication.cuts.next = Some(Next::new(first, now));
        }
    }

    /// Records which round trains.
    fn follow_round(&mut self, round: Round) {
        let is_valid = |cut: &CommitId| self.lineage.is_valid(*cut);
        let cuts = &mut self.replication.cuts;
        if cuts.round != Some(round) {
            cuts.round = Some(round);
            cuts.keep = cuts.keep.filter(is_valid);
            (cuts.next, cuts.newest, cuts.due) = (None, None, None);
            (cuts.factor, cuts.failures, cuts.pace) = (1, 0, 0);
            cuts.counted = None;
            cuts.is_settled = false;
        }
    }

    /// Brings the cut of the round that trains a step further, and tells agents that have something else to do from now on.
    pub(super) fn follow_cuts(&mut self, now: Time, out: &mut Out) {
        let Phase::Training(training) = &self.rounds.phase else {
            return;
        };
        let round = training.round;
        if (self.takeover.iter()).any(|takeover| takeover.absent().next().is_some()) {
            // They may know a newer complete cut.
            self.replication.is_dirty = true;
            return;
        }
        self.follow_round(round);
        if !self.cuts_are_possible(now, out) {
            return;
        }
        if self.replication.cuts.next.is_none() {
            self.name_cut(now);
        }
        if self.are_all_held() {
            self.plan_copies(out);
        }
        let is_copied = |next: &Next| next.copies.is_some() && next.missing.is_empty();
        if self.replication.cuts.next.as_ref().is_some_and(is_copied) {
            self.cut_complete(now, out);
        }
        if self.replication.cuts.next.is_none() {
            // Given up, or complete.
            self.name_cut(now);
        }
        self.tell_cut(out);
        let deadline = self.replication.cuts.deadline();
        self.replication.due = earliest([self.replication.due, deadline]);
    }

    /// Whether the agents of all members can keep a cut, and there is another machine for copies.
    fn cuts_are_possible(&mut self, now: Time, out: &mut Out) -> bool {
        let Phase::Training(training) = &self.rounds.phase else {
            return false;
        };
        let able = &self.replication.able;
        let are_able = training.members.keys().all(|host| able.contains(host));
        let machines: BTreeSet<_> = (training.members.keys())
            .chain(able.iter().filter(|host| self.hosts.contains(host)))
            .filter(|host| self.stays(host))
            .map(|host| self.placement.machine(host))
            .collect();
        let needed = self.settings.replicas as usize + 1;
        if self.settings.replicas == 0 {
            // Only whether the loss of a machine would end the job.
            return are_able && machines.len() > 1;
        }
        let (found, lacking) = (
            machines.len().min(needed),
            needed.saturating_sub(machines.len()),
        );
        let of_members = if are_able { found } else { 1 };
        let told = self
            .replication
            .found(now, of_members as u32, needed as u32);
        out.extend(told.map(Command::Announce));
        self.launch_for_replicas(now, lacking, out);
        are_able && found > 1
    }

    fn stays(&self, host: &HostId) -> bool {
        self.is_up(host) && !self.hosts.is_draining(host)
    }

    fn name_cut(&mut self, now: Time) {
        let cuts = &mut self.replication.cuts;
        let is_early = cuts.due.is_some_and(|due| now < due);
        if is_early
            || cuts.is_settled
            || self.settings.replicas == 0
            || self.rounds.training() != cuts.round
        {
            return;
        }
        if let Some(commit) = cuts.ahead(now) {
            cuts.next = Some(Next::new(commit, now));
            cuts.due = None;
        }
    }

    /// Whether all hosts with members have passed the next cut, and it is not decided who copies what.
    fn are_all_held(&self) -> bool {
        let (Phase::Training(training), Some(next)) =
            (&self.rounds.phase, &self.replication.cuts.next)
        else {
            return false;
        };
        let mut members = training.members.keys();
        next.copies.is_none() && members.all(|host| next.held.contains_key(host))
    }

    /// Decides who copies what of the next cut, or gives it up.
    fn plan_copies(&mut self, out: &mut Out) {
        let Some(next) = &self.replication.cuts.next else {
            return;
        };
        let commit = next.id;
        let shards = next.held.values().flatten();
        let keys = shards.map(|held| CommitKey {
            commit,
            shard: held.shard,
        });
        let is_whole = keys.collect::<Holdings>().newest_complete().is_some();
        if !is_whole {
            let passed = next.held.iter().find(|(_, held)| held.is_empty());
            let host = passed.or(next.held.first_key_value());
            let host = host.map(|(host, _)| host.clone());
            self.replication.cuts.give_up();
            if self.replication.cuts.failures == TOLD_FAILURES
                && let Some(host) = host
            {
                let why = "its workers write over each commit before it can be copied; raise --commit-memory";
                let why = why.into();
                out.push(Command::Announce(Decision::ReplicaFailed { host, why }));
            }
            return;
        }
        let (copies, lacking) = self.copies_of(&next.held);
        if self.settings.replicas == 0 {
            let hosts = next.held.len() as u32;
            let is_unprotected = !copies.is_empty();
            let cuts = &mut self.replication.cuts;
            (cuts.next, cuts.is_settled, cuts.is_looked_at) = (None, true, true);
            let told = Decision::ShardsUnprotected { hosts };
            out.extend(is_unprotected.then_some(Command::Announce(told)));
            return;
        }
        for host in copies.keys() {
            // It is asked for what it has, whatever becomes of it.
            self.fleet.set_memory(host);
        }
        let cuts = &mut self.replication.cuts;
        if let Some(next) = &mut cuts.next {
            next.missing = copies.keys().cloned().collect();
            next.lacking = lacking;
            next.copies = Some(copies);
        }
    }

    /// The shards that each host copies, and the number of machines that are lacking for others.
    fn copies_of(
        &self,
        held: &BTreeMap<HostId, Vec<CutShard>>,
    ) -> (BTreeMap<HostId, Vec<ShardCopy>>, usize) {
        let at = |host| Machine {
            host,
            name: self.placement.machine(host),
        };
        let holders = held.iter().flat_map(|(host, shards)| {
            shards.iter().map(move |held| Holder {
                at: at(host),
                stays: self.stays(host),
                process: held.process,
                shard: held.shard,
            })
        });
        let skipped = |holder: &Holder<'_>| {
            planted(Mutant::HostNotFollowed) && Some(holder.at.host) == held.keys().next()
        };
        let holders: Vec<_> = holders.filter(|holder| !skipped(holder)).collect();
        let able = self.replication.able.iter().filter(|host| self.stays(host));
        let (members, mut others): (Vec<_>, Vec<_>) = able
            .filter(|host| self.hosts.contains(host))
            .partition(|host| held.contains_key(*host));
        others.sort_by_key(|host| self.hosts.arrival(host));
        let members: Vec<_> = members.into_iter().map(at).collect();
        let others: Vec<_> = others.into_iter().map(at).collect();
        let replicas = self.settings.replicas.max(1) as usize;
        let plan = Plan::new(&holders, &members, &others, replicas);
        let copy = |holder: &Holder<'_>| {
            let address = self.memory_address(holder.at.host)?;
            Some(ShardCopy {
                shard: holder.shard,
                keeper: Keeper {
                    host: holder.at.host.clone(),
                    process: holder.process,
                    address,
                },
            })
        };
        let copies = plan.copies.into_iter().map(|(host, holders)| {
            let copies = holders.iter().filter_map(copy).collect();
            (host.clone(), copies)
        });
        (copies.collect(), plan.lacking)
    }

    /// All copies of the next cut are complete.
    fn cut_complete(&mut self, now: Time, out: &mut Out) {
        let interval = self.settings.replica_interval;
        let cuts = &mut self.replication.cuts;
        let Some(next) = cuts.next.take() else {
            return;
        };
        (cuts.factor, cuts.failures) = (1, 0);
        (cuts.keep, cuts.is_safe) = (Some(next.id), next.lacking == 0);
        cuts.due = Some((next.named + interval).max(now));
        if next.copies.is_some_and(|copies| copies.is_empty()) && cuts.is_safe {
            // Each commit is on enough machines by itself.
            (cuts.keep, cuts.is_settled) = (None, true);
        } else {
            out.push(Command::Announce(Decision::CutComplete { commit: next.id }));
        }
    }

    /// Tells each agent what it keeps, if that has changed.
    fn tell_cut(&mut self, out: &mut Out) {
        let Phase::Training(training) = &self.rounds.phase else {
            return;
        };
        let cuts = &self.replication.cuts;
        let (keep, next) = (cuts.keep, cuts.next.as_ref());
        let is_of_round = keep.is_some_and(|keep| keep.round == training.round);
        let base = self.lineage.newest().filter(|_| !is_of_round);
        let copies = next.and_then(|next| next.copies.as_ref());
        let order = |host: &HostId| Cut {
            number: 0,
            planned: self.rounds.last(),
            base,
            keep,
            next: next.map(|next| next.id),
            copies: copies
                .and_then(|copies| copies.get(host))
                .cloned()
                .unwrap_or_default(),
        };
        // Others may have copies of older cuts.
        let hosts = self.replication.able.iter();
        let orders: Vec<_> = hosts
            .filter(|host| self.is_up(host))
            .map(|host| (host.clone(), order(host)))
            .filter(|(host, order)| cuts.orders.get(host) != Some(order))
            .collect();
        for (host, order) in orders {
            self.replication.last += 1;
            let number = self.replication.last;
            let cut = Cut {
                number,
                ..order.clone()
            };
            self.send(&host, AgentCommand::Cut(cut), out);
            self.replication.cuts.orders.insert(host, order);
        }
    }

    /// Handles the report that the members of a host have passed the next cut.
    pub(super) fn cut_held(
        &mut self,
        now: Time,
        host: &HostId,
        commit: CommitId,
        held: Vec<CutShard>,
    ) {
        self.replication.cuts.sealed(now, commit);
        let next = self.replication.cuts.next.as_mut();
        if let Some(next) = next.filter(|next| next.id == commit && next.copies.is_none()) {
            next.held.insert(host.clone(), held);
            self.replication.changed();
        }
    }

    /// Records that a host has all copies that it was asked for.
    pub(super) fn cut_copied(&mut self, host: &HostId, commit: CommitId) {
        let next = self.replication.cuts.next.as_mut();
        if let Some(next) = next.filter(|next| next.id == commit && next.copies.is_some()) {
            next.missing.remove(host);
            self.replication.changed();
        }
    }

    /// Records that a host cannot copy the next cut.
    pub(super) fn cut_failed(&mut self, host: &HostId, commit: CommitId) {
        let next = self.replication.cuts.next.as_ref();
        let is_this = |next: &Next| next.id == commit && next.missing.contains(host);
        if next.is_some_and(is_this) {
            self.replication.cuts.give_up();
            self.replication.changed();
        }
    }

    /// The newest commit of a divided state of which all copies are complete, and whether its shards are on as many machines as
    /// they must be.
    pub fn complete_cut(&self) -> Option<(CommitId, bool)> {
        let cuts = &self.replication.cuts;
        cuts.keep.map(|keep| (keep, cuts.is_safe))
    }
}
