//! A job in virtual time with hosts that do at once what they are told, unless a test says otherwise.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use elasticrun_core::{
    AgentConnected, Command, Event, Job, Note, Rejected, Settings, Time,
    hosts::{HostRecord, HostState},
    results::Outcome,
};
use elasticrun_protocol::{
    Boundary, CommitId, DriverEpoch, Generation, HostId, LocalRank, Order, Process, Report, Round,
    control::{Exit, Held, Keeper, Kept, Start, StopReason, Waiting},
};

/// A worker as its agent would see it.
#[derive(Clone, Debug, Default)]
struct Worker {
    /// It is at `run()`, after this round.
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
    plan: Option<(Round, Vec<Process>)>,
}

/// See the module.
pub(crate) struct Play {
    pub(crate) job: Job,
    pub(crate) now: Time,
    hosts: BTreeMap<HostId, Host>,
    instances: u64,
    /// Commands that were not done yet.
    todo: Vec<Command>,
    /// Hosts that do nothing by themselves.
    pub(crate) passive: BTreeSet<HostId>,
    /// Workers do not join by themselves.
    pub(crate) slow: bool,
    /// Hosts whose agents cannot be launched.
    pub(crate) unreachable: BTreeSet<HostId>,
    pub(crate) notes: Vec<Note>,
    pub(crate) rejected: Vec<Rejected>,
    pub(crate) outcome: Option<Outcome>,
    /// Orders of the last started round.
    pub(crate) starts: Vec<(HostId, Start)>,
    pub(crate) orders: Vec<(HostId, Order)>,
}

pub(crate) fn process(slot: u32, generation: u32) -> Process {
    Process {
        local_rank: LocalRank(slot),
        generation: Generation(generation),
    }
}

pub(crate) fn host(name: &str, slots: u32) -> HostRecord {
    HostRecord::ready(name, slots)
}

pub(crate) fn draining(name: &str, slots: u32) -> HostRecord {
    HostRecord {
        state: HostState::Draining,
        ..host(name, slots)
    }
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Play {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            job: Job::new(settings, "run", DriverEpoch(1), 1),
            now: Time::ZERO,
            hosts: BTreeMap::new(),
            instances: 0,
            todo: Vec::new(),
            passive: BTreeSet::new(),
            slow: false,
            unreachable: BTreeSet::new(),
            notes: Vec::new(),
            rejected: Vec::new(),
            outcome: None,
            starts: Vec::new(),
            orders: Vec::new(),
        }
    }

    /// A list of discovery comes.
    pub(crate) fn list(&mut self, list: &[HostRecord]) {
        self.event(Event::Discovered(list.to_vec()));
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.job.step(self.now, event, &mut self.todo);
        self.obey();
    }

    pub(crate) fn report(&mut self, host: &str, report: Report) {
        let host = HostId::new(host);
        let instance = self.hosts[&host].instance.unwrap_or(0);
        self.event(Event::Reported {
            host,
            instance,
            report,
        });
    }

    /// Time passes, deadline by deadline.
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
        for worker in self
            .hosts
            .values_mut()
            .flat_map(|host| host.workers.values_mut())
        {
            if let Some(round) = worker.round {
                let count = worker
                    .commit
                    .filter(|c| c.round == round)
                    .map_or(0, |c| c.count)
                    + 1;
                worker.commit = Some(commit(round.0, count));
            }
        }
    }

    /// Workers of one host seal one commit more than the others.
    pub(crate) fn commit_on(&mut self, name: &str) {
        let round = self.round();
        self.commit_round(&HostId::new(name), round);
    }

    /// What the workers of this host commit holds no bytes.
    pub(crate) fn keep_states_on(&mut self, name: &str) {
        let host = self.hosts.get_mut(&HostId::new(name)).expect("it is there");
        host.workers
            .values_mut()
            .for_each(|worker| worker.empty = true);
    }

    /// Nobody has sealed anything yet.
    pub(crate) fn forget_commits(&mut self) {
        let names: Vec<_> = self.hosts.keys().map(HostId::to_string).collect();
        for name in names {
            self.forget_commits_on(&name);
        }
    }

    /// Nobody has sealed anything yet on this host.
    pub(crate) fn forget_commits_on(&mut self, name: &str) {
        let workers = self
            .hosts
            .get_mut(&HostId::new(name))
            .map(|host| &mut host.workers);
        for worker in workers.into_iter().flat_map(|workers| workers.values_mut()) {
            worker.commit = None;
        }
    }

    /// A worker ends; its agent sees both, the death and then the exit.
    pub(crate) fn ends(&mut self, host: &str, slot: u32, exit: Exit) {
        let id = HostId::new(host);
        let process = self.current(host, slot);
        if !exit.is_success() {
            self.report(
                host,
                Report::Lost {
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
            Report::Exited {
                process,
                exit,
                tail,
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
            Report::Finished {
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

    /// The process of a slot.
    pub(crate) fn current(&self, host: &str, slot: u32) -> Process {
        let workers = &self.hosts[host].workers;
        let found = workers.keys().rfind(|process| process.local_rank.0 == slot);
        *found.unwrap_or_else(|| panic!("nothing runs on {host}:{slot}"))
    }

    pub(crate) fn runs(&self, host: &str) -> usize {
        self.hosts.get(host).map_or(0, |host| host.workers.len())
    }

    /// Members of the last started round by rank.
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

    /// From whom rank 0 of the round gets its base.
    pub(crate) fn keeper(&self) -> Option<&Keeper> {
        self.starts.first()?.1.keeper.as_ref()
    }

    /// Rounds that have started.
    pub(crate) fn started(&self) -> u32 {
        self.job.rounds_started()
    }

    /// A process that a passive host was told to start joins.
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
        self.report(host, Report::Waiting { workers });
        self.answer(&id);
    }

    /// The agent of a host connects.
    pub(crate) fn connects(&mut self, name: &str) {
        self.instances += 1;
        let id = HostId::new(name);
        self.hosts.entry(id.clone()).or_default().instance = Some(self.instances);
        self.event(Event::AgentConnected(AgentConnected {
            host: id,
            instance: self.instances,
            address: [10, 0, 0, 1].into(),
            memory_port: 1,
            free_port: 2,
            slots: 1,
            itself: self.job.settings().self_registration,
        }));
    }

    fn obey(&mut self) {
        for command in std::mem::take(&mut self.todo) {
            match command {
                Command::Launch { host } if self.unreachable.contains(&host) => {
                    let why = "no way there".to_owned();
                    self.event(Event::LaunchFailed { host, why });
                }
                Command::Launch { host } if !self.passive.contains(&host) => {
                    let name = host.to_string();
                    self.connects(&name);
                }
                Command::Launch { .. } | Command::Disconnect { .. } => {}
                Command::Send { host, order } => {
                    self.orders.push((host.clone(), order.clone()));
                    self.does(&host, order);
                }
                Command::Reject { why, .. } => self.rejected.push(why),
                Command::Note(note) => self.notes.push(note),
                Command::End(outcome) => {
                    assert_eq!(self.outcome, None, "R10: one outcome");
                    self.outcome = Some(outcome);
                }
            }
        }
    }

    fn does(&mut self, id: &HostId, order: Order) {
        let Some(host) = self.hosts.get_mut(id) else {
            return;
        };
        let name = id.to_string();
        match order {
            Order::Spawn(spawn) => {
                let slot = spawn.process.local_rank;
                let others = host.workers.keys().filter(|other| other.local_rank == slot);
                assert_eq!(others.count(), 0, "R4: one process a slot");
                host.workers.insert(spawn.process, Worker::default());
                if !self.slow && !self.passive.contains(id) {
                    self.joins(&name, slot.0);
                }
            }
            Order::Plan { round, members } => {
                host.plan = Some((round, members));
                self.answer(id);
            }
            Order::Start(start) => {
                host.plan = None;
                let (round, base) = (start.round, start.base);
                for member in &start.members {
                    let commit = base.unwrap_or(self::commit(round.0, 0));
                    let worker = Worker {
                        left: None,
                        joined: false,
                        round: Some(round),
                        commit: Some(commit),
                        empty: false,
                    };
                    host.workers.insert(member.process, worker);
                }
                if self
                    .starts
                    .first()
                    .is_none_or(|(_, last)| last.round != round)
                {
                    self.starts.clear();
                }
                self.starts.push((id.clone(), *start));
            }
            Order::Hold { round } if !self.passive.contains(id) => {
                let highest = Boundary(4);
                self.report(&name, Report::Counted { round, highest });
            }
            Order::Leave { round, .. } if !self.passive.contains(id) => {
                let planned = self.hosts[id].plan.clone();
                self.commit_round(id, round);
                let left = self.come_back(id, round);
                let unplanned: Vec<_> = (left.into_iter())
                    .filter(|p| {
                        planned
                            .as_ref()
                            .is_none_or(|(_, members)| !members.contains(p))
                    })
                    .map(|process| Waiting {
                        process,
                        left: Some(round),
                        data_port: 1,
                    })
                    .collect();
                // The agent folds: the plan that follows at once comes first.
                if !unplanned.is_empty() {
                    let workers = unplanned;
                    self.report(&name, Report::Waiting { workers });
                }
                self.answer(id);
            }
            Order::Abort { round } => {
                if host
                    .plan
                    .as_ref()
                    .is_some_and(|(planned, _)| *planned == round)
                {
                    host.plan = None;
                }
                if !self.passive.contains(id) {
                    self.come_back(id, round);
                    self.answer(id);
                }
            }
            Order::Stop { process, why }
                if !self.passive.contains(id) && self.hosts[id].workers.contains_key(&process) =>
            {
                let exit = if why == StopReason::Removed {
                    Exit::Code(0)
                } else {
                    Exit::Signal(15)
                };
                let state = self.hosts.get_mut(id).expect("it was found above");
                if let Some(worker) = state.workers.remove(&process)
                    && let Some(commit) = worker.commit
                {
                    state.kept.insert(process, commit);
                }
                let tail = Vec::new();
                self.report(
                    &name,
                    Report::Exited {
                        process,
                        exit,
                        tail,
                    },
                );
            }
            _ => {}
        }
    }

    fn commit_round(&mut self, id: &HostId, round: Round) {
        let Some(host) = self.hosts.get_mut(id) else {
            return;
        };
        for worker in host
            .workers
            .values_mut()
            .filter(|worker| worker.round == Some(round))
        {
            let count = worker
                .commit
                .filter(|c| c.round == round)
                .map_or(0, |c| c.count)
                + 1;
            worker.commit = Some(commit(round.0, count));
        }
    }

    /// Workers of a round come back to `run()`.
    fn come_back(&mut self, id: &HostId, round: Round) -> Vec<Process> {
        let mut back = Vec::new();
        let Some(host) = self.hosts.get_mut(id) else {
            return back;
        };
        for (process, worker) in &mut host.workers {
            if worker.round == Some(round) {
                (worker.round, worker.left, worker.joined) = (None, Some(round), true);
                back.push(*process);
            }
        }
        back
    }

    /// A member of an aborted round comes back although its host is passive.
    pub(crate) fn comes_back(&mut self, name: &str) {
        let round = self.round();
        let id = HostId::new(name);
        self.come_back(&id, round);
        self.answer(&id);
    }

    /// Answers a plan once all members are there.
    fn answer(&mut self, id: &HostId) {
        let Some(host) = self.hosts.get_mut(id) else {
            return;
        };
        let Some((round, members)) = host.plan.clone() else {
            return;
        };
        let there = |p: &Process| host.workers.get(p).is_some_and(|worker| worker.joined);
        if !members.iter().all(there) {
            return;
        }
        host.plan = None;
        let held = |process: &Process| Held {
            process: *process,
            commit: host.workers[process].commit,
            empty: host.workers[process].empty,
            data_port: 1,
        };
        let living = (host.workers.iter())
            .filter(|(process, _)| !members.contains(process))
            .filter_map(|(process, worker)| Some((*process, worker.commit?)));
        let dead = host
            .kept
            .iter()
            .map(|(process, commit)| (*process, *commit));
        let report = Report::Ready {
            round,
            members: members.iter().map(held).collect(),
            kept: (living.chain(dead))
                .map(|(process, commit)| Kept {
                    process,
                    commits: vec![commit],
                })
                .collect(),
            free_port: 2,
        };
        let name = id.to_string();
        self.report(&name, report);
    }
}

pub(crate) fn commit(round: u64, count: u64) -> CommitId {
    CommitId {
        epoch: DriverEpoch(1),
        round: Round(round),
        count,
    }
}
