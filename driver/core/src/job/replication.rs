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

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use elasticrun_protocol::{
    AgentCommand, CommitId, DriverEpoch, HostId, Process, Rank, Round,
    control::{Keeper, ReplicaSource},
};

use super::{Job, Out, cuts::Cuts};
use crate::{
    AgentConnected, Command, Decision, Time,
    fleet::Agent,
    mutant::{Mutant, planted},
    rounds::Phase,
    time::earliest,
};

/// How long too few hosts may keep commits until the job says so: agents must be launched, and lost hosts may come back.
const SHORT_PATIENCE: Duration = Duration::from_secs(60);

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
    pub(super) able: BTreeSet<HostId>,
    /// The newest commit that each host is known to hold.
    pub(super) held: BTreeMap<HostId, CommitId>,
    /// What hosts follow, as long as their agents live. None if that is unknown: the agent has returned.
    orders: BTreeMap<HostId, Option<Order>>,
    /// Of a state that is divided among workers.
    pub(super) cuts: Cuts,
    /// The number of the last command.
    pub(super) last: u64,
    /// Since when fewer hosts were found than are needed.
    short_since: Option<Time>,
    /// This was announced.
    is_short_told: bool,
    /// The hosts must be chosen again.
    pub(super) is_dirty: bool,
    /// When they are chosen again although nothing else happens.
    pub(super) due: Option<Time>,
}

impl Replication {
    pub(super) fn new(epoch: DriverEpoch) -> Self {
        Self {
            able: BTreeSet::new(),
            held: BTreeMap::new(),
            orders: BTreeMap::new(),
            cuts: Cuts::new(),
            // Agents ignore numbers that do not grow, and they may have served an earlier driver.
            last: epoch.0 << 32,
            short_since: None,
            is_short_told: false,
            is_dirty: false,
            due: None,
        }
    }

    /// Members, hosts or slots have changed.
    pub(super) fn changed(&mut self) {
        self.is_dirty = true;
    }

    /// The agent of a host has connected, perhaps once more. What it was told before may be lost. If it has kept something,
    /// it may follow a process.
    pub(super) fn connected(&mut self, host: &HostId, is_able: bool, has_kept: bool) {
        self.forget(host);
        self.cuts.connected(host);
        if is_able {
            self.able.insert(host.clone());
        }
        if is_able && has_kept {
            self.orders.insert(host.clone(), None);
            self.is_dirty = true;
        }
        self.is_dirty |= self.short_since.is_some();
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
        if self.due.take_if(|due| *due <= now).is_some() {
            self.is_dirty = true;
        }
    }

    /// Records how many hosts were found. Gives what is announced.
    pub(super) fn found(&mut self, now: Time, hosts: u32, needed: u32) -> Option<Decision> {
        if hosts >= needed {
            (self.short_since, self.due) = (None, None);
            let was_told = std::mem::take(&mut self.is_short_told);
            return was_told.then_some(Decision::ReplicasComplete { needed });
        }
        let since = *self.short_since.get_or_insert(now);
        let tells = !self.is_short_told && now.since(since) >= SHORT_PATIENCE;
        self.is_short_told |= tells;
        self.due = (!self.is_short_told).then_some(since + SHORT_PATIENCE);
        tells.then_some(Decision::ReplicasLacking { hosts, needed })
    }

    /// The round that a host follows. What it has copied of it may not be reported yet.
    pub(super) fn followed_by(&self, host: &HostId) -> Option<Round> {
        let order = self.orders.get(host).and_then(Option::as_ref);
        let round = order.and_then(|order| order.source.as_ref().map(|_| order.round));
        round.max(self.cuts.followed_by(host))
    }

    /// The agent of a host is gone.
    pub(super) fn lost(&mut self, host: &HostId) {
        self.cuts.lost(host);
        self.is_dirty |= self.able.contains(host);
        self.forget(host);
    }

    fn forget(&mut self, host: &HostId) {
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
    /// Whether an agent can keep replicas of the state of this job.
    pub(super) fn keeps_replicas(&self, agent: &AgentConnected) -> bool {
        agent.replicas && (agent.cuts || !self.is_divided())
    }

    /// Hosts that may have a replica that they have not reported yet. They are asked for it with a plan.
    pub(super) fn replica_hosts(&self) -> impl Iterator<Item = &HostId> {
        let hosts = self.replication.orders.keys();
        hosts.filter(|host| self.is_up(host) && !planted(Mutant::ReplicaNotAsked))
    }

    /// Chooses the hosts that keep replicas, and tells those that have something else to do from now on.
    pub(super) fn replicate(&mut self, now: Time, out: &mut Out) {
        let is_wanted = self.settings.replicas > 0 || self.is_divided();
        let is_used = is_wanted && self.settings.elastic && !self.groups.leads();
        if !is_used || self.is_ending() || planted(Mutant::NeverReplicated) {
            return;
        }
        // A round that forms is chosen for when it starts.
        if !matches!(self.rounds.phase, Phase::Training(_))
            || !std::mem::take(&mut self.replication.is_dirty)
        {
            return;
        }
        if self.is_divided() {
            return self.follow_cuts(now, out);
        }
        let Some(wanted) = self.wanted_replicas() else {
            // Rank 0 may come back.
            self.replication.is_dirty = true;
            return;
        };
        let needed = self.settings.replicas + 1;
        let found = needed - wanted.lacking as u32;
        let told = self.replication.found(now, found, needed);
        out.extend(told.map(Command::Announce));
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
            let known = self.replication.orders.get(&host).and_then(Option::as_ref);
            if may_stop && known != Some(&order) {
                self.send_replicate(&host, &order, out);
                self.replication.orders.insert(host, Some(order));
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
        let follows = |host: &HostId| self.replication.followed_by(host).is_some();
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

    /// Launches agents on so many further hosts, as far as launches may begin. Those that are being launched count. The
    /// hosts are chosen again once a launch makes room: it succeeds, fails or most likely hangs.
    pub(super) fn launch_for_replicas(&mut self, now: Time, lacking: usize, out: &mut Out) {
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
        let (missing, room) = (lacking.saturating_sub(coming), self.launch_room(now));
        let hosts = order.iter().filter(is_absent);
        let hosts: Vec<_> = hosts.take(missing.min(room)).cloned().collect();
        if !hosts.is_empty() {
            self.launch(now, hosts, out);
        }
        if missing > room {
            let next = self.next_launch_room(now);
            self.replication.due = earliest([self.replication.due, next]);
        }
    }
}
