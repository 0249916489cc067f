//! Replication: which hosts without a member keep commits, so that the state survives the loss of other hosts.
//!
//! Each member of a round keeps its commits in the memory of its host. If the members are on more than
//! [`Settings::replicas`](crate::Settings::replicas) machines, as many may be lost. Otherwise the job lets the agents of further
//! hosts follow rank 0 ([`AgentCommand::Replicate`]). It chooses hosts on other machines: those that keep a replica already,
//! then those with a usable slot, then by arrival. A draining host counts as lost.
//!
//! A machine counts once it holds the base of the round or a newer commit: members that fetch the base hold nothing yet.
//! Answers to plans, heartbeats and reports of replicas say what a host holds. Until enough machines count, hosts that
//! follow go on, and no host is told that its replica is not needed. No agent is launched meanwhile: the members will
//! hold the base.
//!
//! Agents run only where slots are wanted. If too few run, the job launches agents on further hosts with a usable slot.
//! They start no process.
//!
//! A host with a replica answers plans like any host with memory, so the base of a round is the newest commit of all
//! (R12). A replica of a void commit is void, since its id is.
//!
//! Not promised: that enough hosts exist, or that the newest commit is copied before its host is lost.
//!
//! Cost: O(hosts + workers) at the start of a round and when the capacity changes; O(hosts) when an agent connects while
//! hosts are lacking.

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_protocol::{
    AgentCommand, CommitId, DriverEpoch, HostId, Process, Rank, Round,
    control::{Keeper, ReplicaSource},
};

use super::{Job, Out};
use crate::{
    Command, Decision, Time,
    fleet::Agent,
    mutant::{Mutant, planted},
    rounds::{Phase, ReadyHost},
};

/// What an agent was told to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Order {
    round: Round,
    planned: Round,
    base: Option<CommitId>,
    /// None for a host that is not needed any more.
    source: Option<ReplicaSource>,
}

/// The hosts that keep replicas.
#[derive(Clone, Debug)]
pub(super) struct Replication {
    /// Hosts whose agents can keep replicas.
    able: BTreeSet<HostId>,
    /// The newest commit that each host is known to hold.
    held: BTreeMap<HostId, CommitId>,
    /// The hosts that were ever told, as long as their agents live.
    orders: BTreeMap<HostId, Order>,
    /// The number of the last command.
    last: u64,
    /// Fewer hosts were found than are needed.
    is_short: bool,
    /// The hosts must be chosen again.
    is_dirty: bool,
    /// When they are chosen again although nothing else happens.
    due: Option<Time>,
}

impl Replication {
    pub(super) fn new(epoch: DriverEpoch) -> Self {
        Self {
            able: BTreeSet::new(),
            held: BTreeMap::new(),
            orders: BTreeMap::new(),
            // Agents ignore numbers that do not grow, and they may have served an earlier driver.
            last: epoch.0 << 32,
            is_short: false,
            is_dirty: false,
            due: None,
        }
    }

    /// Members, hosts or slots have changed.
    pub(super) fn changed(&mut self) {
        self.is_dirty = true;
    }

    /// The agent of a host has connected, perhaps once more. What it was told before may be lost.
    pub(super) fn connected(&mut self, host: &HostId, is_able: bool) {
        self.lost(host);
        if is_able {
            self.able.insert(host.clone());
        }
        self.is_dirty |= self.is_short;
    }

    /// As [`Self::changed`]. A heartbeat has no consequence itself, so this one follows as of a deadline.
    pub(super) fn changed_by_beat(&mut self, now: Time) {
        self.due = Some(now);
    }

    /// When hosts are chosen again although nothing else happens.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.due
    }

    /// The deadline has passed.
    pub(super) fn end_wait(&mut self, now: Time) {
        self.due = self.due.filter(|due| *due > now);
    }

    /// The agent of a host is gone.
    pub(super) fn lost(&mut self, host: &HostId) {
        self.able.remove(host);
        self.is_dirty |= self.held.remove(host).is_some();
        self.is_dirty |= self.orders.remove(host).is_some();
    }
}

/// Where commits are kept, and where else they must be.
struct Wanted {
    round: Round,
    source: ReplicaSource,
    hosts: Vec<HostId>,
    /// The number of hosts that are lacking.
    lacking: usize,
    /// So many machines hold the base or a newer commit that further replicas are of no use.
    is_safe: bool,
}

/// Machines, while hosts are chosen.
#[derive(Default)]
struct Machines<'a> {
    /// Those of members and chosen hosts.
    all: BTreeSet<&'a str>,
    /// Those of them that hold the base or a newer commit.
    safe: BTreeSet<&'a str>,
}

impl Job {
    /// Hosts that may have a replica that they have not reported yet. They are asked for it with a plan.
    pub(super) fn replica_hosts(&self) -> impl Iterator<Item = &HostId> {
        let hosts = self.replication.orders.keys();
        hosts.filter(|host| self.is_up(host) && !planted(Mutant::ReplicaNotAsked))
    }

    /// Chooses the hosts that keep replicas, and tells those that have something else to do from now on.
    pub(super) fn replicate(&mut self, now: Time, out: &mut Out) {
        let is_used = self.settings.replicas > 0 && self.settings.elastic && !self.groups.leads();
        if !is_used || self.is_ending() || planted(Mutant::NeverReplicated) {
            return;
        }
        // A round that forms is chosen for when it starts.
        if !matches!(self.rounds.phase, Phase::Training(_))
            || !std::mem::take(&mut self.replication.is_dirty)
        {
            return;
        }
        let Some(wanted) = self.wanted_replicas() else {
            // Rank 0 may come back.
            self.replication.is_dirty = true;
            return;
        };
        self.replication.is_short = wanted.lacking > 0;
        let (planned, base) = (self.rounds.last(), self.lineage.newest());
        let former = self.replication.orders.keys().cloned();
        let hosts: BTreeSet<_> = former.chain(wanted.hosts.iter().cloned()).collect();
        for host in hosts {
            let follows = wanted.hosts.contains(&host);
            let order = Order {
                round: wanted.round,
                planned,
                base,
                source: follows.then(|| wanted.source.clone()),
            };
            let may_stop = follows || wanted.is_safe;
            if may_stop && self.replication.orders.get(&host) != Some(&order) {
                self.send_replicate(&host, &order, out);
                self.replication.orders.insert(host, order);
            }
        }
        self.launch_for_replicas(now, wanted.lacking, out);
    }

    fn send_replicate(&mut self, host: &HostId, order: &Order, out: &mut Out) {
        self.replication.last += 1;
        let command = AgentCommand::Replicate {
            number: self.replication.last,
            round: order.round,
            planned: order.planned,
            base: order.base,
            source: order.source.clone(),
        };
        self.send(host, command, out);
    }

    /// The hosts that must keep replicas. None while rank 0 is out of reach.
    fn wanted_replicas(&self) -> Option<Wanted> {
        let Phase::Training(training) = &self.rounds.phase else {
            return None;
        };
        let (host, process) = self.rank_0(&training.members)?;
        let up = self.fleet.host(host)?.up()?;
        let stays = |host: &HostId| self.is_up(host) && !self.hosts.is_draining(host);
        let mut machines = Machines::default();
        for host in training.members.keys().filter(|host| stays(host)) {
            let machine = self.placement.machine(host);
            machines.all.insert(machine);
            if self.is_safe_on_member(host) {
                machines.safe.insert(machine);
            }
        }
        let needed = self.settings.replicas as usize + 1;
        let mut able: Vec<_> = (self.replication.able.iter())
            .filter(|host| stays(host) && self.hosts.contains(host))
            .filter(|host| !training.members.contains_key(*host))
            .collect();
        let follows = |host: &HostId| {
            let order = self.replication.orders.get(host);
            order.is_some_and(|order| order.source.is_some())
        };
        if machines.safe.len() < needed {
            able.sort_by_key(|host| {
                (
                    !self.is_safe_on(host),
                    !follows(host),
                    !self.capacity.has(host),
                    self.hosts.arrival(host),
                )
            });
        }
        let mut hosts = Vec::new();
        for host in able {
            let machine = self.placement.machine(host);
            let stays = follows(host) && machines.safe.len() < needed;
            let is_wanted = machines.all.len() < needed || stays;
            if is_wanted && machines.all.insert(machine) {
                hosts.push(host.clone());
                if self.is_safe_on(host) {
                    machines.safe.insert(machine);
                }
            }
        }
        let source = ReplicaSource {
            keeper: Keeper {
                host: host.clone(),
                process,
                address: (up.address, up.memory_port).into(),
            },
            holders: training.size + hosts.len() as u32,
            at_once: (training.members.keys()).any(|host| self.hosts.is_draining(host)),
        };
        Some(Wanted {
            round: training.round,
            source,
            hosts,
            lacking: needed - machines.all.len().min(needed),
            is_safe: machines.safe.len() >= needed,
        })
    }

    /// Whether a host is known to hold the base of the round that trains, or a newer commit.
    fn is_safe_on(&self, host: &HostId) -> bool {
        let held = self.replication.held.get(host);
        held.is_some_and(|held| {
            Some(*held) >= self.lineage.newest() && self.lineage.is_valid(*held)
        })
    }

    /// As [`Self::is_safe_on`], for a member. Without a base nothing can be lost, and agents of earlier releases do not
    /// say what they hold.
    fn is_safe_on_member(&self, host: &HostId) -> bool {
        let is_unknown = !self.replication.able.contains(host);
        let nothing_to_lose = self.lineage.newest().is_none();
        nothing_to_lose || is_unknown || self.is_safe_on(host) || planted(Mutant::NewcomerHolds)
    }

    /// Records the newest commit in the memory of a host. Returns whether the state is safe on this host from now on.
    pub(super) fn holds(&mut self, host: &HostId, commit: Option<CommitId>) -> bool {
        let Some(commit) = commit.filter(|_| self.settings.replicas > 0) else {
            return false;
        };
        let before = self.is_safe_on(host);
        self.replication.held.insert(host.clone(), commit);
        let is_new = !before && self.is_safe_on(host);
        self.replication.is_dirty |= is_new;
        is_new
    }

    /// Records what hosts held when they answered the plan of the round that starts.
    pub(super) fn answered_with(&mut self, ready: &BTreeMap<HostId, ReadyHost>) {
        for (host, answer) in ready {
            let held = answer.members.iter().filter_map(|held| held.commit);
            let kept = answer.kept.iter().flat_map(|kept| &kept.commits).copied();
            let valid = held
                .chain(kept)
                .filter(|commit| self.lineage.is_valid(*commit));
            let newest = valid.max();
            self.holds(host, newest);
        }
    }

    fn rank_0<'a>(
        &self,
        members: &'a BTreeMap<HostId, Vec<Process>>,
    ) -> Option<(&'a HostId, Process)> {
        let mut all = members
            .iter()
            .flat_map(|(host, all)| all.iter().map(move |process| (host, *process)));
        all.find(|(host, process)| {
            let rank = self.registry.rank(host, *process);
            rank.is_some_and(|(rank, _)| rank == Rank(0))
        })
    }

    /// Launches agents on so many further hosts. Those that are being launched count.
    fn launch_for_replicas(&mut self, now: Time, lacking: usize, out: &mut Out) {
        if lacking == 0 || self.settings.self_registration {
            return;
        }
        let agent = |host: &HostId| self.fleet.host(host).map(|state| &state.agent);
        let is_launching = |host: &&HostId| matches!(agent(host), Some(Agent::Launching { .. }));
        let is_absent = |host: &&HostId| {
            matches!(agent(host), None | Some(Agent::Absent))
                && !self.hosts.is_draining(host)
                && !self.may_come_back_with_workers(host)
        };
        let order = self.capacity.order();
        let coming = order.iter().filter(is_launching).count();
        let hosts = order.iter().filter(is_absent);
        let hosts = hosts.take(lacking.saturating_sub(coming)).cloned();
        let hosts: Vec<_> = hosts.collect();
        if !hosts.is_empty() {
            self.launch(now, hosts, out);
        }
    }

    /// Handles the report that a replica is complete.
    pub(super) fn replicated(&mut self, host: &HostId, decision: Decision, out: &mut Out) {
        if !planted(Mutant::ReplicaNotAsked) {
            self.fleet.set_memory(host);
        }
        if let Decision::Replicated { commit, .. } = &decision {
            self.holds(host, Some(*commit));
        }
        out.push(Command::Announce(decision));
    }
}
