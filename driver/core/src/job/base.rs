//! The base of a round: the newest complete commit that reachable memory holds, and who keeps it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use elasticrun_protocol::{
    CommitKey, HostId, Process,
    control::{Held, Keeper, Kept, ShardHolder},
};

use super::{Job, Out};
use crate::{
    Command, Decision,
    assignment::Candidate,
    completeness::{Base, Holdings},
    mutant::{Mutant, planted},
    rounds::{Forming, ReadyHost},
};

impl ReadyHost {
    /// All commits that the host holds, with the part of the state that each copy is.
    pub(super) fn keys(&self) -> impl Iterator<Item = CommitKey> {
        self.copies().map(|(_, key)| key)
    }

    /// All commits that the host holds, each with the process that keeps it.
    pub(super) fn copies(&self) -> impl Iterator<Item = (Process, CommitKey)> {
        let of_member = |held: &Held| {
            let (process, shard) = (held.process, held.shard);
            held.commit
                .map(|commit| (process, CommitKey { commit, shard }))
        };
        let of_kept = |kept: &Kept| {
            let process = kept.process;
            let keys: Vec<_> = kept.keys().collect();
            keys.into_iter().map(move |key| (process, key))
        };
        let members = self.members.iter().filter_map(of_member);
        members.chain(self.kept.iter().flat_map(of_kept))
    }
}

impl Job {
    /// The commits of the history that any asked host holds. The newest complete one is the base (R12).
    pub(super) fn held_commits(&self, forming: &Forming) -> Holdings {
        let all = planted(Mutant::VoidCommit);
        let members_only = planted(Mutant::MembersOnly);
        let of_members = |answer: &ReadyHost| ReadyHost {
            kept: Vec::new(),
            ..answer.clone()
        };
        let answers = forming.ready.values();
        let is_valid = |key: &CommitKey| all || self.lineage.is_valid(key.commit);
        match members_only {
            true => (answers.map(of_members))
                .flat_map(|answer| answer.keys().collect::<Vec<_>>())
                .filter(is_valid)
                .collect(),
            false => answers.flat_map(ReadyHost::keys).filter(is_valid).collect(),
        }
    }

    /// The process from which rank 0 gets the base, unless rank 0 holds it. A divided base has no single keeper. A process on the same host is preferred,
    /// and then a living one: the memory of a dead process is only kept until the start.
    pub(super) fn keeper_of(
        &self,
        forming: &Forming,
        base: Option<Base>,
        rank_0: &Candidate,
    ) -> Option<Keeper> {
        let base = base.filter(|_| !planted(Mutant::KeeperUnnamed))?;
        if base.shards().is_some() {
            return None;
        }
        let base = base.id;
        let all = forming.ready.iter().flat_map(|(host, answer)| {
            let holds = move |held: &&Held| held.commit == Some(base);
            let keeps = move |kept: &&Kept| kept.commits.contains(&base);
            let living = answer.members.iter().filter(holds).map(|held| held.process);
            let dead = answer.kept.iter().filter(keeps).map(|kept| kept.process);
            (living.map(move |process| (host, false, process)))
                .chain(dead.map(move |process| (host, true, process)))
        });
        let (host, _, process) = all.min_by_key(|(host, dead, process)| {
            let apart = **host != rank_0.host;
            (apart, *process != rank_0.process, *dead)
        })?;
        if (host, process) == (&rank_0.host, rank_0.process) {
            return None;
        }
        self.keeper(host, process)
    }

    fn keeper(&self, host: &HostId, process: Process) -> Option<Keeper> {
        Some(Keeper {
            host: host.clone(),
            process,
            address: self.memory_address(host)?,
        })
    }

    /// The address at which other hosts read commits of this one.
    pub(super) fn memory_address(&self, host: &HostId) -> Option<SocketAddr> {
        let up = self.fleet.host(host).and_then(|state| state.up())?;
        Some(SocketAddr::new(up.address, up.memory_port))
    }

    /// The shards of a divided base that no host with a member holds, each with a process that keeps it. Hosts with a member
    /// tell each other what they hold.
    pub(super) fn holders_without_members(
        &self,
        forming: &Forming,
        base: Option<Base>,
    ) -> Vec<ShardHolder> {
        let Some(base) = base.filter(|base| base.shards().is_some()) else {
            return Vec::new();
        };
        let mut held = BTreeSet::new();
        let mut elsewhere = BTreeMap::new();
        for (host, answer) in &forming.ready {
            let has_member = forming.members.contains_key(host);
            for (process, key) in answer.copies().filter(|(_, key)| base.has(key)) {
                match has_member {
                    true => drop(held.insert(key.shard.index)),
                    false => drop(elsewhere.insert(key.shard.index, (host, process))),
                }
            }
        }
        elsewhere.retain(|shard, _| !held.contains(shard));
        let holder = |(shard, (host, process)): (u32, (&HostId, Process))| {
            let keeper = self.keeper(host, process)?;
            Some(ShardHolder { shard, keeper })
        };
        elsewhere.into_iter().filter_map(holder).collect()
    }

    /// Whether a commit existed that no reachable process holds. It did if a round began from a commit. Otherwise it
    /// did not if no memory was lost, or if a member of the last round is present and holds nothing. No step is done
    /// before all members have sealed the start.
    pub(super) fn has_lost_state(&self, forming: &Forming) -> bool {
        let imagined = planted(Mutant::LossImagined);
        // A divided state of which a shard is gone for good.
        let is_incomplete = || {
            let newest = self.held_commits(forming).newest();
            let has_steps = newest.is_some_and(|newest| newest.count > 0);
            has_steps && !planted(Mutant::BeginsAnewIncomplete)
        };
        self.lineage.has_base()
            || is_incomplete()
            || !self.memory_lost.is_empty() && (imagined || !self.has_old_worker(forming))
    }

    fn has_old_worker(&self, forming: &Forming) -> bool {
        (forming.members.iter()).any(|(host, members)| {
            members
                .iter()
                .any(|p| self.registry.rank(host, *p).is_some())
        })
    }

    /// Announces the commit that would be the base if no host were lost. A commit during which a worker failed is no loss:
    /// its step is repeated, as that of a state that is not divided.
    pub(super) fn announce_lost_shards(&self, held: &Holdings, out: &mut Out) {
        let base = held.newest_complete();
        let has_lost = base.is_none() || self.going_back.has_lost();
        if let Some(incomplete) = held.newest_incomplete().filter(|_| has_lost) {
            out.push(Command::Announce(Decision::CommitIncomplete {
                commit: incomplete.id,
                shards: incomplete.of,
                missing: incomplete.missing,
                first: incomplete.first,
                base: base.map(|base| base.id),
            }));
        }
    }
}
