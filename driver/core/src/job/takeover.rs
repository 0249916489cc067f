//! The take-over of a run by a later driver: which agents come back, and whether the round that trained goes on.
//!
//! ```text
//!  resumed                        all members are back            agents that are not back are given up
//!     |---------- undecided ---------------|--------- decided -----------------------|
//!     no plan, no launch, no process       the round goes on, or the next one forms
//! ```
//! - T1 and T3 say whether the round goes on, and what may train unseen: [`deciding`].
//! - T2 No agent counts as lost before the take-over ends. Until then nothing is launched or started on its host (R4).
//!
//! Not promised: that a hold or a plan of the former driver goes on. Agents have withdrawn the hold.

mod deciding;

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_protocol::{
    AgentReport, DriverEpoch, HostId, Process, Round,
    control::{AdoptedPhase, AdoptedRound, AdoptedWorker, Adoption},
};

use super::{Job, Out, going_back::GoingBack};
use crate::{
    AgentConnected, Time,
    journal::{Applied, Progress, SlotsEntry},
    mutant::{Mutant, planted},
};

/// The take-over of a run.
#[derive(Clone, Debug)]
pub(super) struct TakeOver {
    /// Hosts whose agents served the former driver and are not back.
    absent: BTreeSet<HostId>,
    /// The agent of such a host is gone: another one has connected in its place.
    is_replaced: bool,
    /// The journal names no agent, or no driver has recorded how far the job has come. Its last records may be lost, so agents
    /// may come back all the same.
    is_blind: bool,
    /// When the agents that are not back are given up.
    until: Time,
    /// The newest started round that the records count.
    recorded: Option<Round>,
    /// The newest planned round of the records.
    planned: Round,
    /// The newest round that a driver may have planned before this one. Those without records have numbers of their own.
    possible: Round,
    /// Rounds led when the records were written: `planned` is the number of a round, and not of a group.
    led: bool,
    /// The round that agents report as the newest started one.
    round: Option<Reported>,
    /// Members of that round that held its base when it started.
    holders: u32,
    /// What former drivers have applied of the reports of agents.
    applied: BTreeMap<HostId, Applied>,
    /// Hosts with an agent, where no earlier one was lost with commits.
    intact: BTreeSet<HostId>,
    /// Processes that former drivers have asked to stop, or whose failure they have counted.
    stopping: BTreeSet<(HostId, Process)>,
    /// The job has decided whether that round goes on.
    decided: bool,
    /// Failures that agents have reported meanwhile, in the order of their arrival. What they mean depends on the workers of
    /// all hosts.
    pub(super) failures: Vec<(HostId, AgentReport)>,
}

/// A started round, as the agents of its members report it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reported {
    round: Round,
    epoch: DriverEpoch,
    size: u32,
}

impl TakeOver {
    /// A take-over that begins with these records, and waits for the agents of these hosts. `has_progress`: a driver has
    /// recorded how far the job has come.
    pub(super) fn new<'a>(
        until: Time,
        recorded: Option<Round>,
        progress: Progress,
        possible: Round,
        absent: BTreeSet<HostId>,
        slots: impl Iterator<Item = &'a SlotsEntry> + Clone,
        has_progress: bool,
    ) -> Self {
        let applied = slots.clone();
        let applied = applied.filter_map(|entry| Some((entry.host.clone(), entry.applied?)));
        let intact = slots.clone().filter(|entry| entry.agent && !entry.lost);
        Self {
            applied: applied.collect(),
            intact: intact.map(|entry| entry.host.clone()).collect(),
            stopping: slots.flat_map(SlotsEntry::stopping_processes).collect(),
            is_blind: absent.is_empty() || !has_progress,
            absent,
            is_replaced: false,
            until,
            recorded,
            planned: progress.planned,
            possible,
            led: progress.rounds_lead,
            round: None,
            holders: 0,
            decided: false,
            failures: Vec::new(),
        }
    }
}

impl TakeOver {
    /// Whether the end of a process is no failure, or one that former drivers have counted.
    pub(super) fn was_stopping(&self, host: &HostId, process: Process) -> bool {
        self.stopping.contains(&(host.clone(), process))
    }

    /// Hosts whose agents served the former driver and are not back.
    pub(super) fn absent(&self) -> impl Iterator<Item = &HostId> {
        self.absent.iter()
    }
}

impl Job {
    /// Whether it is undecided whether the round of the former driver goes on.
    pub(super) fn is_taking_over(&self) -> bool {
        self.takeover
            .as_ref()
            .is_some_and(|takeover| !takeover.decided)
    }

    /// Whether the agent of a host may still come back with its workers.
    pub(super) fn may_come_back_with_workers(&self, host: &HostId) -> bool {
        let absent = |takeover: &TakeOver| takeover.absent.contains(host);
        self.takeover.as_ref().is_some_and(absent) && !planted(Mutant::StartsBeforeAdoption)
    }

    /// When the agents that are not back are given up.
    pub(super) fn next_takeover_deadline(&self) -> Option<Time> {
        self.takeover.as_ref().map(|takeover| takeover.until)
    }

    /// Whether this job goes on with the workers of an agent, and does not do so yet.
    pub(super) fn takes_back(&self, agent: &AgentConnected) -> bool {
        self.takeover.is_some()
            && !self.is_up(&agent.host)
            && agent.adoption.as_ref().is_some_and(|adoption| {
                let of_former = adoption.run_id == self.run_id && adoption.epoch < self.epoch;
                of_former && !self.is_ours(agent, adoption)
            })
    }

    /// Handles an agent that has connected: its host is no longer waited for. `same`: it is the one that served the former
    /// driver.
    pub(super) fn came_back(&mut self, host: &HostId, same: bool) {
        if let Some(takeover) = &mut self.takeover {
            let was_absent = takeover.absent.remove(host);
            takeover.is_replaced |= was_absent && !same;
        }
    }

    /// Goes on with the workers of an agent.
    pub(super) fn adopt(
        &mut self,
        now: Time,
        agent: &AgentConnected,
        adoption: &Adoption,
        out: &mut Out,
    ) {
        let host = &agent.host;
        // Only workers with the SDK attach and commit.
        let attached = adoption.workers.iter().any(|worker| worker.attached);
        if (attached || !adoption.kept.is_empty()) && self.groups.give_way() {
            // The journal may only know of groups.
            self.hand_over(now);
        }
        self.rounds.skip_to(adoption.seen.max(adoption.released));
        if let Some(round) = &adoption.round {
            // Of a divided base each member may need all shards. Heartbeats say when none does.
            let has_base = |worker: &AdoptedWorker| {
                round.base.is_none() || !round.is_divided() && worker.commit == round.base
            };
            let holds = |worker: &&AdoptedWorker| {
                worker.phase == (AdoptedPhase::Training { round: round.round }) && has_base(worker)
            };
            let holders = adoption.workers.iter().filter(holds).count() as u32;
            self.learn_round(host, round, holders);
        }
        self.replication.cuts.learn(adoption.cut);
        self.servers.learn(now, host, &adoption.servers);
        self.fleet.raise_starts(host, &adoption.starts);
        if !self.hosts.contains(host) && !self.sources.have_all_answered() {
            // Its record may be lost. The list decides whether it stays.
            let slots = adoption
                .starts
                .iter()
                .map(|process| process.local_rank.0 + 1);
            self.hosts.add(host, slots.max().unwrap_or(0));
            self.capacity_dirty = true;
        }
        if adoption.round.is_some() || !adoption.kept.is_empty() {
            self.count_rounds_of(adoption);
            self.fleet.set_memory(host);
            self.memory_lost.remove(host);
        }
        if self.kept_its_memory(agent) {
            // Nothing was committed there, or its commits are void.
            self.memory_lost.remove(host);
        }
        let applied = self.applied_before(agent).max(adoption.acknowledged);
        let reports = adoption.reports.iter();
        let reports: Vec<_> = reports
            .filter(|report| report.number > applied || planted(Mutant::ReportsRepeated))
            .collect();
        let newest = reports
            .last()
            .map_or(0, |report| report.number)
            .max(applied);
        self.fleet.set_applied(host, newest);
        self.adopt_processes(now, host, adoption, &reports, out);
        if !self.is_taking_over() {
            self.end_former(host, out);
            self.stop_late_outsiders(out);
            // Its slots may be out, or gone. Then its workers are stopped.
            self.capacity_dirty = true;
        }
    }

    /// Counts the started rounds that the records lack and of which an agent keeps commits. Their members may have left them
    /// since, and report no round.
    fn count_rounds_of(&mut self, adoption: &Adoption) {
        let recorded = self
            .takeover
            .as_ref()
            .and_then(|takeover| takeover.recorded);
        let commits = adoption.kept.iter().flat_map(|kept| &kept.commits);
        for commit in commits.filter(|commit| commit.epoch > DriverEpoch(0)) {
            self.registry.saw_commit(commit.round);
            if Some(commit.round) > recorded {
                self.budgets.saw_round(commit.round);
            }
        }
    }

    /// Whether this is the agent of the records, and no other one was lost on its host before.
    fn kept_its_memory(&self, agent: &AgentConnected) -> bool {
        let same = |takeover: &TakeOver| {
            let recorded = takeover.applied.get(&agent.host);
            recorded.is_some_and(|recorded| agent.agent == Some(recorded.agent))
                && takeover.intact.contains(&agent.host)
        };
        self.takeover.as_ref().is_some_and(same)
    }

    /// The number of the newest report of an agent that a former driver has applied. The records have its effects.
    fn applied_before(&self, agent: &AgentConnected) -> u64 {
        let takeover = self.takeover.as_ref();
        let applied = takeover.and_then(|takeover| takeover.applied.get(&agent.host));
        applied
            .filter(|applied| agent.agent == Some(applied.agent))
            .map_or(0, |applied| applied.number)
    }

    /// Records a started round that an agent reports, which the journal may lack. `holders` of its members on the host held
    /// its base.
    fn learn_round(&mut self, host: &HostId, started: &AdoptedRound, holders: u32) {
        let AdoptedRound {
            epoch, round, size, ..
        } = *started;
        self.rounds.skip_to(round);
        let known = self.registry.round();
        let Some(takeover) = self.takeover.as_mut().filter(|_| known <= Some(round)) else {
            return;
        };
        if takeover.round.is_none_or(|reported| reported.round < round) {
            takeover.round = Some(Reported { round, epoch, size });
            takeover.holders = 0;
        }
        takeover.holders += holders;
        let members: Vec<_> = (started.members.iter())
            .map(|member| (host.clone(), member.process, member.place.rank))
            .collect();
        if known == Some(round) {
            self.registry.add(members);
        } else {
            // The records may count a round whose members they do not name any more.
            if takeover.recorded < Some(round) {
                self.budgets.saw_round(round);
            }
            self.registry.round_started(round, members);
            let former = self.lineage.newest();
            if started.base > former && started.base.is_some_and(|base| base.count > 0) {
                // The round before it has left a commit, so its failures were none of the program.
                self.relapses = Default::default();
            }
            self.lineage.started(round, started.base);
            self.blacklist.round_started();
        }
        self.learn_seats(host, started, known != Some(round));
        self.registry.expect(size);
        self.going_back = GoingBack::started(round, self.registry.processes());
    }
}
