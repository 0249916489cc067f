//! The death of the driver, and a later one that continues with the journal.

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_core::{
    AgentConnected, Job, Time,
    journal::{MemberEntry, Record, Saved},
    registry::State,
    rounds::Phase,
};
use elasticrun_protocol::{
    AgentReport, CommitId, DriverEpoch, HostId, LocalRank, Process, Round,
    control::{AdoptedPhase, AdoptedRound, AdoptedWorker, Adoption, Kept},
};

use super::{Harness, Host, Worker};

impl Harness {
    /// Adds the changes of the job to its journal.
    pub(super) fn record(&mut self) {
        let mut journal = self.journal.last().cloned().unwrap_or_default();
        let changes = self.job.journal();
        if changes.is_empty() {
            return;
        }
        for change in changes {
            match change.record {
                Some(record) => journal.insert(change.key, record),
                None => journal.remove(&change.key),
            };
        }
        self.journal.push(journal);
    }

    /// The journal, which loses its last `lost` writes.
    fn saved(&mut self, lost: usize) -> Saved {
        let kept = self.journal.len().saturating_sub(lost).max(1);
        self.journal.truncate(kept);
        let records: BTreeMap<String, Record> = self.journal[kept - 1].clone();
        records.into_values().collect()
    }

    /// The state of a member of the last round, as the journal says.
    pub(crate) fn recorded_state(&self, name: &str, slot: u32) -> Option<State> {
        let records = self.journal.last()?.values();
        let mut members = records.filter_map(|record| match record {
            Record::Members(entry) if entry.host == HostId::new(name) => Some(&entry.members),
            _ => None,
        });
        let member = |member: &&MemberEntry| member.process.local_rank == LocalRank(slot);
        members
            .next()?
            .iter()
            .find(member)
            .map(|member| member.state)
    }

    /// The newest rounds that were planned and started, as the journal says.
    pub(crate) fn recorded_rounds(&self) -> Option<(Round, Option<Round>)> {
        let mut records = self.journal.last()?.values();
        records.find_map(|record| match record {
            Record::Progress(progress) => Some((progress.planned, progress.round)),
            _ => None,
        })
    }

    /// The journal loses all writes since the start of this round.
    pub(crate) fn loses_record_of(&mut self, round: Round) {
        while self.recorded_rounds().and_then(|(_, started)| started) == Some(round) {
            self.journal.pop();
        }
    }

    /// The driver is killed, and another one resumes the run. The journal lacks its last `lost` writes. Agents come back by
    /// [`Harness::comes_back_with_workers`].
    pub(crate) fn driver_dies(&mut self, lost: usize) {
        let saved = self.saved(lost);
        self.epoch = DriverEpoch(self.epoch.0 + 1);
        let settings = self.job.settings().clone();
        self.job = Job::resume(settings, "run", self.epoch, 1, saved);
        self.now = Time::ZERO;
        self.todo.clear();
        for host in self.hosts.values_mut() {
            (host.instance, host.plan) = (None, None);
        }
        self.sent.clear();
        self.notes.clear();
        self.launched.clear();
    }

    /// The agent of a host comes back with what it has kept.
    pub(crate) fn comes_back_with_workers(&mut self, name: &str) {
        self.comes_back_and_says(name, Vec::new());
    }

    /// The agent of a host comes back with what it has kept, and with reports that no driver has received.
    pub(crate) fn comes_back_and_says(&mut self, name: &str, reports: Vec<AgentReport>) {
        for report in reports {
            self.keeps_report(&HostId::new(name), self.former_epoch(), report);
        }
        self.comes_back_as(name, self.adoption(name));
    }

    /// The agent of a host has a report that this driver does not receive.
    pub(crate) fn says_to_nobody(&mut self, name: &str, report: AgentReport) {
        self.keeps_report(&HostId::new(name), self.epoch, report);
    }

    /// The agent of a host comes back with this state.
    pub(crate) fn comes_back_as(&mut self, name: &str, adoption: Adoption) {
        let agent = AgentConnected {
            adoption: Some(Box::new(adoption)),
            ..self.agent(name)
        };
        self.returning = Some(HostId::new(name));
        self.agent_connects(agent);
        if self.sent_back.pop().is_some() {
            self.begins_anew(name);
        }
    }

    /// An agent that is not adopted ends its workers, and connects anew with their commits.
    pub(crate) fn begins_anew(&mut self, name: &str) {
        let host = self.hosts.get_mut(&HostId::new(name)).expect("it lives");
        for (process, worker) in std::mem::take(&mut host.workers) {
            host.kept
                .extend(worker.commit.map(|commit| (process, commit)));
        }
        let agent = AgentConnected {
            keeps: true,
            ..self.agent(name)
        };
        self.agent_connects(agent);
    }

    /// The job admits an agent. An agent that comes back with workers ends them unless they are taken over.
    pub(super) fn admits(&mut self, host: &HostId, adopted: bool) {
        if adopted {
            self.adopted.push(host.clone());
        }
        if self.returning.take().as_ref() == Some(host)
            && !adopted
            && let Some(state) = self.hosts.get_mut(host)
        {
            state.workers.clear();
        }
    }

    /// A process is gone, and its agent has not reported it to a driver that lives. Gives the process.
    pub(crate) fn forgets(&mut self, name: &str, slot: u32) -> Process {
        let process = self.current(name, slot);
        let host = self.hosts.get_mut(&HostId::new(name)).expect("it is there");
        if let Some(worker) = host.workers.remove(&process) {
            host.kept
                .extend(worker.commit.map(|commit| (process, commit)));
        }
        process
    }

    /// All workers have left their round.
    pub(crate) fn lose_members(&mut self) {
        for worker in (self.hosts.values_mut()).flat_map(|host| host.workers.values_mut()) {
            if let Some(round) = worker.round.take() {
                (worker.left, worker.joined) = (Some(round), true);
            }
        }
    }

    /// A host is gone with its agent, while no driver lives.
    pub(crate) fn lose_silently(&mut self, name: &str) {
        self.hosts.remove(&HostId::new(name));
    }

    /// Whether the agent of a host is connected.
    pub(crate) fn is_connected(&self, name: &str) -> bool {
        self.hosts
            .get(name)
            .is_some_and(|host| host.instance.is_some())
    }

    /// Whether the agent of a host lives.
    pub(crate) fn has_agent(&self, name: &str) -> bool {
        self.hosts.contains_key(name)
    }

    /// Whether a slot has a process.
    pub(crate) fn has_worker(&self, name: &str, slot: u32) -> bool {
        let workers = self
            .hosts
            .get(name)
            .into_iter()
            .flat_map(|host| host.workers.keys());
        workers
            .into_iter()
            .any(|process| process.local_rank.0 == slot)
    }

    /// The driver before this one.
    pub(crate) fn former_epoch(&self) -> DriverEpoch {
        DriverEpoch(self.epoch.0 - 1)
    }

    /// The newest commit of any living agent but those of some hosts.
    pub(crate) fn newest_commit(&self, but: &BTreeSet<&'static str>) -> Option<CommitId> {
        let of_host = |host: &Host| {
            let living = host.workers.values().filter_map(|worker| worker.commit);
            living.chain(host.kept.values().copied()).max()
        };
        let hosts = self
            .hosts
            .iter()
            .filter(|(name, _)| !but.contains(name.as_str()));
        hosts.filter_map(|(_, host)| of_host(host)).max()
    }

    /// Whether a round trains.
    pub(crate) fn trains(&self) -> bool {
        self.job.rounds().training().is_some()
    }

    /// Checks that each member of the round that trains is in it, and that no other process trains.
    #[track_caller]
    pub(crate) fn assert_members_train(&self) {
        let Phase::Training(training) = &self.job.rounds().phase else {
            return;
        };
        for (name, members) in &training.members {
            for process in members {
                let worker = self
                    .hosts
                    .get(name)
                    .and_then(|host| host.workers.get(process));
                let succeeded = worker.is_none() && self.outcome.is_some();
                let round = worker.and_then(|worker| worker.round);
                assert!(
                    succeeded || round == Some(training.round),
                    "T1: {name} {process:?} is in {round:?}"
                );
            }
        }
        let connected = self.hosts.values().filter(|host| host.instance.is_some());
        for worker in connected.flat_map(|host| host.workers.values()) {
            assert!(
                worker.round.is_none_or(|round| round == training.round),
                "R11"
            );
        }
    }

    /// What the agent of a host has kept.
    pub(crate) fn adoption(&self, name: &str) -> Adoption {
        let host = &self.hosts[name];
        let rounds: BTreeSet<Round> = host.workers.values().filter_map(|w| w.round).collect();
        let started = (self.starts.iter())
            .find(|(id, start)| *id == HostId::new(name) && rounds.contains(&start.round));
        Adoption {
            run_id: "run".into(),
            epoch: DriverEpoch(self.epoch.0 - 1),
            workers: (host.workers.iter())
                .map(|(process, worker)| AdoptedWorker {
                    process: *process,
                    phase: phase(worker),
                    attached: worker.joined || worker.round.is_some(),
                    left: worker.left,
                    data_port: 1,
                    commit: worker.commit,
                    empty: worker.empty,
                    stopping: false,
                })
                .collect(),
            starts: (host.starts.iter())
                .map(|(slot, generation)| Process {
                    local_rank: *slot,
                    generation: *generation,
                })
                .collect(),
            seen: self.round(),
            released: self.round(),
            round: started.map(|(_, start)| AdoptedRound {
                epoch: start.epoch,
                round: start.round,
                size: start.size,
                base: start.base,
                members: start.members.clone(),
            }),
            kept: kept(host),
            cut: None,
            servers: Vec::new(),
            reports: host.reports.clone(),
            ..Adoption::default()
        }
    }
}

fn phase(worker: &Worker) -> AdoptedPhase {
    match (worker.round, worker.joined) {
        (Some(round), _) => AdoptedPhase::Training { round },
        (None, true) => AdoptedPhase::Joined,
        (None, false) => AdoptedPhase::Starting,
    }
}

/// The commits of all processes, dead and living.
fn kept(host: &Host) -> Vec<Kept> {
    let living =
        (host.workers.iter()).filter_map(|(process, worker)| Some((*process, worker.commit?)));
    let dead = host
        .kept
        .iter()
        .map(|(process, commit)| (*process, *commit));
    (living.chain(dead))
        .map(|(process, commit)| Kept::new(process, &[host.key(process, commit)]))
        .collect()
}
