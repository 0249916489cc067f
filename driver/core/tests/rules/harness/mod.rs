//! A job in virtual time, with hosts that obey commands at once unless a test changes that.

mod made;
mod obeying;
mod taking_over;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use elasticrun_core::{
    AgentConnected, Command, Decision, Departure, Event, Job, Refusal, Rejected, Request, Settings,
    Time, journal::Record, results::Outcome,
};
use elasticrun_hosts::Snapshot;
use elasticrun_protocol::{
    AgentCommand, AgentReport, CommitId, CommitKey, DriverEpoch, FromAgent, Generation, HostId,
    LocalRank, Process, Round, Shard,
    control::{Adoption, Exit, Keeper, Start, StoredCommit, Task, Waiting},
};

pub(crate) use made::{commit, draining, gone, host, layout_of, pending, process, range, seconds};

/// A worker as its agent sees it.
#[derive(Clone, Debug, Default)]
struct Worker {
    /// The round that the worker left, once it is back at `run()`.
    left: Option<Round>,
    joined: bool,
    round: Option<Round>,
    commit: Option<CommitId>,
    empty: bool,
}

#[derive(Debug, Default)]
struct Host {
    instance: Option<u64>,
    workers: BTreeMap<Process, Worker>,
    /// Commits of dead processes.
    kept: BTreeMap<Process, CommitId>,
    /// The part of the state that a commit of a process is, in a job whose state is divided.
    shards: BTreeMap<(Process, CommitId), Shard>,
    /// The commits before the newest ones, of such a job.
    older: BTreeMap<Process, CommitId>,
    plan: Option<(Round, Vec<Process>)>,
    /// The last process of each slot.
    starts: BTreeMap<LocalRank, Generation>,
    /// The reports of its agent, which no driver acknowledges.
    reports: Vec<FromAgent>,
    /// The number of the last command about the durable store. Agents ignore those that are not greater.
    searched: u64,
}

impl Host {
    fn key(&self, process: Process, commit: CommitId) -> CommitKey {
        let shard = self.shards.get(&(process, commit)).copied();
        let shard = shard.unwrap_or_default();
        CommitKey { commit, shard }
    }

    /// Records a commit of the shard of a member, in the buffer of the one before the last.
    fn seals(
        &mut self,
        process: Process,
        before: Option<CommitId>,
        commit: CommitId,
        shard: Shard,
    ) {
        if let Some(before) = before {
            self.older.insert(process, before);
        }
        self.shards.insert((process, commit), shard);
    }

    /// The next commit of a member is one of the same shard.
    fn seals_next(&mut self, process: Process, before: Option<CommitId>, commit: CommitId) {
        let last = before.and_then(|before| self.shards.get(&(process, before)));
        if let Some(shard) = last.copied() {
            self.seals(process, before, commit, shard);
        }
    }

    /// The commit before the newest one, with its part of the state.
    fn older(&self, process: Process) -> Option<CommitKey> {
        let commit = *self.older.get(&process)?;
        Some(self.key(process, commit))
    }
}

/// The job, its hosts, and a record of its commands.
pub(crate) struct Harness {
    pub(crate) job: Job,
    pub(crate) now: Time,
    hosts: BTreeMap<HostId, Host>,
    instances: u64,
    /// Agents keep their workers when their connection ends, and return with them.
    pub(crate) returns: bool,
    /// Counts the reports of all agents.
    reports: u64,
    /// Commands that are not carried out yet.
    todo: Vec<Command>,
    /// Events are received and not settled.
    gathers: bool,
    /// Hosts that do nothing by themselves.
    pub(crate) passive: BTreeSet<HostId>,
    /// Workers of a divided state seal no first commit at the start of a round.
    pub(crate) late_to_seal: bool,
    /// Workers do not join by themselves.
    pub(crate) slow: bool,
    /// Hosts whose agents cannot be launched.
    pub(crate) unreachable: BTreeSet<HostId>,
    /// Hosts whose agents do not support probes.
    pub(crate) older: BTreeSet<String>,
    /// Paths from one host to another that are cut.
    pub(crate) cut: BTreeSet<(String, String)>,
    /// Hosts whose agents answer no probe, and do not read the store.
    pub(crate) mute: BTreeSet<String>,
    /// Whole commits in the durable store, and those that cannot be loaded.
    pub(crate) store: Vec<StoredCommit>,
    pub(crate) damaged: BTreeSet<CommitId>,
    /// Errors of each search.
    pub(crate) store_errors: Vec<String>,
    pub(crate) notes: Vec<Decision>,
    /// The round whose store was opened last.
    opened: Option<Round>,
    /// Departures that the job reported to the sources.
    pub(crate) departures: Vec<(HostId, Departure)>,
    /// Answers to requests of operators.
    pub(crate) answers: Vec<Result<(), Refusal>>,
    pub(crate) rejected: Vec<Rejected>,
    pub(crate) outcome: Option<Outcome>,
    /// The driver has nothing more to do.
    pub(crate) exited: bool,
    /// Start commands of the round that started last.
    pub(crate) starts: Vec<(HostId, Start)>,
    pub(crate) sent: Vec<(HostId, AgentCommand)>,
    /// Connections that the job closed.
    pub(crate) disconnected: Vec<(HostId, u64)>,
    pub(crate) admitted: Vec<(HostId, u64)>,
    /// Launches that the job commanded.
    pub(crate) launched: Vec<HostId>,
    /// Launches that the job ended, and whether only those that have led to no agent.
    pub(crate) ended_launches: Vec<(HostId, bool)>,
    /// Connections that the job closed together with their agents.
    pub(crate) refused: Vec<(HostId, u64)>,
    /// Connections that were refused because of their name.
    pub(crate) namesakes: Vec<(HostId, u64)>,
    /// The driver of the job.
    epoch: DriverEpoch,
    /// The journal, and what each call of the job has added to it.
    journal: Vec<BTreeMap<String, Record>>,
    /// Connections whose workers the job takes over.
    pub(crate) adopted: Vec<HostId>,
    /// The host whose agent comes back with workers.
    returning: Option<HostId>,
    /// Agents that were sent back to begin anew.
    pub(crate) sent_back: Vec<(HostId, u64)>,
}

impl Harness {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            job: Job::new(settings, "run", DriverEpoch(1), 1),
            now: Time::ZERO,
            hosts: BTreeMap::new(),
            instances: 0,
            returns: false,
            reports: 0,
            todo: Vec::new(),
            gathers: false,
            passive: BTreeSet::new(),
            late_to_seal: false,
            slow: false,
            unreachable: BTreeSet::new(),
            older: BTreeSet::new(),
            cut: BTreeSet::new(),
            mute: BTreeSet::new(),
            store: Vec::new(),
            damaged: BTreeSet::new(),
            store_errors: Vec::new(),
            notes: Vec::new(),
            opened: None,
            departures: Vec::new(),
            answers: Vec::new(),
            rejected: Vec::new(),
            outcome: None,
            exited: false,
            starts: Vec::new(),
            sent: Vec::new(),
            disconnected: Vec::new(),
            admitted: Vec::new(),
            launched: Vec::new(),
            ended_launches: Vec::new(),
            refused: Vec::new(),
            namesakes: Vec::new(),
            epoch: DriverEpoch(1),
            journal: vec![BTreeMap::new()],
            adopted: Vec::new(),
            returning: None,
            sent_back: Vec::new(),
        }
    }

    /// Discovery reports this list.
    pub(crate) fn list(&mut self, list: &[elasticrun_hosts::Host]) {
        self.list_of(0, list);
    }

    /// One of several sources reports this list.
    pub(crate) fn list_of(&mut self, source: usize, list: &[elasticrun_hosts::Host]) {
        let snapshot = Snapshot::new(list.to_vec());
        self.event(Event::SourceAnswered { source, snapshot });
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.job.receive(self.now, event, &mut self.todo);
        if !self.gathers {
            self.job.settle(self.now, &mut self.todo);
            self.obey();
        }
    }

    /// The driver receives these events together and settles them once.
    pub(crate) fn together(&mut self, events: impl FnOnce(&mut Self)) {
        self.gathers = true;
        events(self);
        self.gathers = false;
        self.job.settle(self.now, &mut self.todo);
        self.obey();
    }

    /// An operator asks to drain a host.
    pub(crate) fn asks_to_drain(&mut self, host: &str) {
        let (host, within) = (HostId::new(host), None);
        let request = Request::Drain { host, within };
        self.event(Event::Requested { id: 7, request });
    }

    pub(crate) fn report(&mut self, host: &str, report: AgentReport) {
        let host = HostId::new(host);
        let instance = self.hosts[&host].instance.unwrap_or(0);
        let FromAgent {
            epoch,
            number,
            report,
        } = self.keeps_report(&host, self.epoch, report);
        self.event(Event::Reported {
            host,
            instance,
            epoch,
            number,
            report,
        });
    }

    /// The agent of a host numbers a report, and keeps it.
    fn keeps_report(
        &mut self,
        host: &HostId,
        epoch: DriverEpoch,
        report: AgentReport,
    ) -> FromAgent {
        self.reports += 1;
        let report = FromAgent {
            epoch,
            number: self.reports,
            report,
        };
        let host = self.hosts.get_mut(host).expect("it has an agent");
        host.reports.push(report.clone());
        report
    }

    /// The job as text, without the numbers of the reports that are applied.
    pub(crate) fn state(&self) -> String {
        let text = format!("{:?}", self.job);
        let mut parts = text.split("applied: ");
        let first = parts.next().unwrap_or_default().to_owned();
        let digits = |part: &str| {
            part.trim_start_matches(|c: char| c.is_ascii_digit())
                .to_owned()
        };
        std::iter::once(first).chain(parts.map(digits)).collect()
    }

    /// Advances time, deadline by deadline.
    pub(crate) fn pass(&mut self, wait: Duration) {
        let end = self.now + wait;
        while let Some(due) = self.job.next_deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            let before = self.job.next_deadline();
            self.job.tick(self.now, &mut self.todo);
            self.obey();
            assert!(
                self.job.next_deadline() != before || self.outcome.is_some(),
                "the clock stands still at {:?}",
                self.now
            );
        }
        self.now = end;
    }

    /// Every worker of the round that trains commits.
    pub(crate) fn commit(&mut self) {
        let trains = |(id, host): (&HostId, &Host)| {
            let round = host
                .workers
                .values()
                .filter_map(|worker| worker.round)
                .max()?;
            Some((id.clone(), round))
        };
        let all: Vec<_> = self.hosts.iter().filter_map(trains).collect();
        for (host, round) in all {
            self.commit_round(&host, round);
        }
    }

    /// The workers of one host make one commit more than the others.
    pub(crate) fn commit_on(&mut self, name: &str) {
        let round = self.round();
        self.commit_round(&HostId::new(name), round);
    }

    /// Commits of the workers of this host hold no bytes.
    pub(crate) fn keep_states_on(&mut self, name: &str) {
        let host = self.hosts.get_mut(&HostId::new(name)).expect("it is there");
        host.workers
            .values_mut()
            .for_each(|worker| worker.empty = true);
    }

    /// The agent of a host has a whole replica of a commit, and no other one.
    pub(crate) fn keeps(&mut self, name: &str, commit: CommitId) {
        self.drops(name);
        let process = made::process(u32::MAX, 1);
        let host = self.hosts.get_mut(&HostId::new(name)).expect("it is there");
        host.kept.insert(process, commit);
    }

    /// The agent of a host gives up all commits but those of its workers.
    pub(crate) fn drops(&mut self, name: &str) {
        let host = self.hosts.get_mut(&HostId::new(name)).expect("it is there");
        host.kept.clear();
    }

    /// The agent of a host reports a whole replica of a commit.
    pub(crate) fn replicates(&mut self, name: &str, commit: CommitId) {
        self.keeps(name, commit);
        let took = Duration::ZERO;
        let report = AgentReport::Replicated {
            commit,
            bytes: 8,
            took,
        };
        self.report(name, report);
    }

    /// Removes all commits.
    pub(crate) fn forget_commits(&mut self) {
        let names: Vec<_> = self.hosts.keys().map(HostId::to_string).collect();
        for name in names {
            self.forget_commits_on(&name);
        }
    }

    /// Removes the commits of this host.
    pub(crate) fn forget_commits_on(&mut self, name: &str) {
        let workers = self
            .hosts
            .get_mut(&HostId::new(name))
            .map(|host| &mut host.workers);
        for worker in workers.into_iter().flat_map(|workers| workers.values_mut()) {
            worker.commit = None;
        }
    }

    /// A worker ends. Its agent reports the failure, if it is one, and then the exit.
    pub(crate) fn ends(&mut self, host: &str, slot: u32, exit: Exit) {
        let id = HostId::new(host);
        let process = self.current(host, slot);
        if !exit.is_success() {
            self.report(
                host,
                AgentReport::WorkerLost {
                    process,
                    silent: false,
                },
            );
        }
        let state = self.hosts.get_mut(&id).expect("the test names a host");
        if let Some(worker) = state.workers.remove(&process)
            && let Some(commit) = worker.commit
        {
            state.kept.insert(process, commit);
        }
        let tail = Vec::new();
        self.report(
            host,
            AgentReport::Exited {
                process,
                exit,
                tail,
                stopped: false,
            },
        );
    }

    pub(crate) fn kill(&mut self, host: &str, slot: u32) {
        self.ends(host, slot, Exit::Signal(9));
    }

    /// A worker returns from `run()`.
    pub(crate) fn finishes(&mut self, host: &str, slot: u32) {
        let process = self.current(host, slot);
        let round = self.round();
        self.report(
            host,
            AgentReport::Finished {
                round,
                workers: vec![process],
            },
        );
    }

    /// All members finish and end with code 0.
    pub(crate) fn finish_all(&mut self) {
        let members = self.members();
        for (host, slot) in &members {
            self.finishes(host, *slot);
        }
        for (host, slot) in &members {
            self.ends(host, *slot, Exit::Code(0));
        }
    }

    /// A host is out of reach: its agent ends its workers and keeps their commits.
    pub(crate) fn out_of_reach(&mut self, name: &str) {
        let id = HostId::new(name);
        let host = self.hosts.get_mut(&id).expect("the test names a host");
        for (process, worker) in std::mem::take(&mut host.workers) {
            host.kept
                .extend(worker.commit.map(|commit| (process, commit)));
        }
        host.plan = None;
        let instance = host.instance.take().unwrap_or(0);
        let why = "it is silent".to_owned();
        self.event(Event::AgentLost {
            host: id,
            instance,
            why,
        });
    }

    /// The connection of an agent ends. The agent and its workers live on.
    pub(crate) fn breaks_off(&mut self, name: &str) {
        let instance = self.hosts[name].instance.unwrap_or(0);
        self.event(Event::AgentLost {
            host: name.into(),
            instance,
            why: "it is out of reach".to_owned(),
        });
    }

    /// Advances time while the agents of these hosts send heartbeats.
    pub(crate) fn pass_with(&mut self, hosts: &[&str], wait: Duration) {
        let end = self.now + wait;
        while self.now < end {
            self.pass(end.since(self.now).min(seconds(1)));
            for host in hosts {
                self.beats(host);
            }
        }
    }

    /// An agent sends a heartbeat.
    pub(crate) fn beats(&mut self, host: &str) {
        self.beats_with(host, None);
    }

    /// As [`Self::beats`]. The newest commit in the memory of the host is this one.
    pub(crate) fn beats_with(&mut self, host: &str, held: Option<CommitId>) {
        let (commits, count) = (0, 0);
        let beat = AgentReport::Heartbeat {
            commits,
            count,
            held,
            sealed: None,
        };
        self.report(host, beat);
    }

    /// A heartbeat of a host whose members have all sealed their newest commits.
    pub(crate) fn seals_on(&mut self, name: &str) {
        let host = &self.hosts[&HostId::new(name)];
        let members = host
            .workers
            .values()
            .filter(|worker| worker.round.is_some());
        let sealed = members.filter_map(|worker| worker.commit).min();
        let beat = AgentReport::Heartbeat {
            commits: 0,
            count: 0,
            held: None,
            sealed,
        };
        self.report(name, beat);
    }

    /// An agent ends after the job, and its connection with it.
    pub(crate) fn ends_agent(&mut self, name: &str) {
        self.breaks_off(name);
    }

    /// An agent connects anew, with what it has kept.
    pub(crate) fn returns(&mut self, name: &str, adoption: Adoption) {
        let agent = AgentConnected {
            adoption: Some(Box::new(adoption)),
            ..self.agent(name)
        };
        self.agent_connects(agent);
    }

    /// The connection of an agent is lost, and with it its workers and memory.
    pub(crate) fn lose(&mut self, host: &str) {
        let id = HostId::new(host);
        let instance = self
            .hosts
            .remove(&id)
            .and_then(|host| host.instance)
            .unwrap_or(0);
        let why = "it is gone".to_owned();
        self.event(Event::AgentLost {
            host: id,
            instance,
            why,
        });
    }

    /// The newest process of a slot.
    pub(crate) fn current(&self, host: &str, slot: u32) -> Process {
        let workers = &self.hosts[host].workers;
        let found = workers.keys().rfind(|process| process.local_rank.0 == slot);
        *found.unwrap_or_else(|| panic!("nothing runs on {host}:{slot}"))
    }

    /// How often a domain was blacklisted.
    pub(crate) fn blacklisted(&self) -> usize {
        let listed = |note: &&Decision| matches!(note, Decision::Blacklisted { .. });
        self.notes.iter().filter(listed).count()
    }

    pub(crate) fn runs(&self, host: &str) -> usize {
        self.hosts.get(host).map_or(0, |host| host.workers.len())
    }

    /// Members of the round that started last, by rank.
    pub(crate) fn members(&self) -> Vec<(String, u32)> {
        (self.starts.iter())
            .flat_map(|(host, start)| start.members.iter().map(move |member| (host, member)))
            .map(|(host, member)| (host.to_string(), member.process.local_rank.0))
            .collect()
    }

    pub(crate) fn size(&self) -> u32 {
        self.starts.first().map_or(0, |(_, start)| start.size)
    }

    pub(crate) fn round(&self) -> Round {
        self.starts
            .first()
            .map_or(Round(0), |(_, start)| start.round)
    }

    pub(crate) fn base(&self) -> Option<CommitId> {
        self.starts.first().and_then(|(_, start)| start.base)
    }

    /// The process that rank 0 of the round gets its base from.
    pub(crate) fn keeper(&self) -> Option<&Keeper> {
        self.starts.first()?.1.keeper.as_ref()
    }

    /// Number of rounds that have started.
    pub(crate) fn started(&self) -> u32 {
        self.job.rounds_started()
    }

    /// The process of a slot joins, also on a passive host.
    pub(crate) fn joins(&mut self, host: &str, slot: u32) {
        let process = self.current(host, slot);
        let id = HostId::new(host);
        let worker = self
            .hosts
            .get_mut(&id)
            .and_then(|host| host.workers.get_mut(&process));
        let worker = worker.expect("it was found above");
        worker.joined = true;
        let left = worker.left;
        let workers = vec![Waiting {
            process,
            left,
            data_port: 1,
        }];
        self.report(host, AgentReport::Waiting { workers });
        self.answer(&id);
    }

    /// Whether the process of a slot is not yet at `run()`.
    pub(crate) fn is_starting(&self, host: &str, slot: u32) -> bool {
        let workers = self
            .hosts
            .get(host)
            .into_iter()
            .flat_map(|host| &host.workers);
        let mut found = workers.filter(|(process, _)| process.local_rank.0 == slot);
        found.any(|(_, worker)| !worker.joined && worker.round.is_none())
    }

    /// The process of a slot joins, if it is still starting.
    pub(crate) fn joins_if_it_starts(&mut self, host: &str, slot: u32) {
        if self.is_starting(host, slot) {
            self.joins(host, slot);
        }
    }

    /// The agent of a host connects.
    pub(crate) fn connects(&mut self, name: &str) {
        self.connects_again(name, false);
    }

    /// The agent of a host connects. With `keeps`, it was connected before and keeps its workers and commits.
    pub(crate) fn connects_again(&mut self, name: &str, keeps: bool) {
        let agent = AgentConnected {
            keeps,
            ..self.agent(name)
        };
        self.agent_connects(agent);
    }

    /// The agent of a task connects.
    pub(crate) fn task_connects(&mut self, task: &Task) {
        let agent = AgentConnected {
            task: Some(task.clone()),
            ..self.agent(task.host().as_str())
        };
        self.agent_connects(agent);
    }

    /// An agent with this random number connects.
    pub(crate) fn process_connects(&mut self, name: &str, number: u64) {
        let agent = AgentConnected {
            agent: Some(number),
            ..self.agent(name)
        };
        self.agent_connects(agent);
    }

    /// A connection with this number arrives, which is not the newest of its host.
    pub(crate) fn arrives_late(&mut self, name: &str, instance: u64) {
        let agent = AgentConnected {
            instance,
            ..self.agent(name)
        };
        self.event(Event::AgentConnected(agent));
    }

    fn agent_connects(&mut self, agent: AgentConnected) {
        self.instances += 1;
        let host = self.hosts.entry(agent.host.clone()).or_default();
        host.instance = Some(agent.instance);
        self.event(Event::AgentConnected(agent));
    }

    fn agent(&self, name: &str) -> AgentConnected {
        AgentConnected {
            host: HostId::new(name),
            instance: self.instances + 1,
            address: [10, 0, 0, 1].into(),
            memory_port: 1,
            free_port: 2,
            slots: 1,
            detected_slots: None,
            self_registered: self.job.settings().self_registration,
            keeps: false,
            probes: !self.older.contains(name),
            durable: true,
            replicas: !self.older.contains(name),
            cuts: !self.older.contains(name),
            servers: !self.older.contains(name),
            task: None,
            agent: Some(1),
            returns: self.returns,
            adoption: None,
        }
    }
}
