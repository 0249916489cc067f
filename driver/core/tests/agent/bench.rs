//! The agent's machine in virtual time, with a stand-in for shared memory that a test fills.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use elasticrun_core::{
    Time,
    agent::{Command, Event, Machine, Memory, Signal},
};
use elasticrun_protocol::{
    AgentCommand, AgentReport, Boundary, CommitId, CommitKey, DriverEpoch, FromWorker, Generation,
    HostId, LocalRank, Process, Rank, Round, Shard, ToAgent,
    control::{BaseShards, Durable, Exit, Keeper, Member, Place, Replication, Setup, Spawn, Start},
};

#[derive(Default)]
pub(crate) struct Fake {
    pub(crate) counts: BTreeMap<Process, u64>,
    pub(crate) commits: BTreeMap<Process, Vec<CommitId>>,
    /// The part of the state that the commits of a process are, if not the whole state.
    pub(crate) shards: BTreeMap<Process, Shard>,
    pub(crate) beats: BTreeMap<Process, u64>,
    /// Processes whose heartbeat count grows with each read.
    pub(crate) alive: BTreeSet<Process>,
    /// Processes that wait for a processor.
    pub(crate) starved: BTreeSet<Process>,
    /// Processes that began an orderly exit outside of a round.
    pub(crate) outside: BTreeSet<Process>,
    looks: Cell<u64>,
    pub(crate) calls: Vec<String>,
    pub(crate) leases: BTreeMap<Process, Time>,
    /// The commits that a worker keeps beside its newest one.
    pub(crate) named: BTreeMap<Process, [Option<CommitId>; 2]>,
}

impl Memory for Fake {
    fn hold(&mut self, process: Process, round: Round) -> Boundary {
        self.calls.push(format!("hold {process:?} {round:?}"));
        Boundary(self.counts.get(&process).copied().unwrap_or(0))
    }

    fn leave_at(&mut self, process: Process, round: Round, at: Boundary) {
        self.calls
            .push(format!("leave {process:?} {round:?} {at:?}"));
    }

    fn withdraw(&mut self, process: Process, round: Round) {
        self.calls.push(format!("withdraw {process:?} {round:?}"));
    }

    fn set_at_risk(&mut self, process: Process) {
        self.calls.push(format!("at risk {process:?}"));
    }

    fn set_lease(&mut self, process: Process, until: Time) {
        self.leases.insert(process, until);
    }

    fn keep_commits(&mut self, process: Process, commits: [Option<CommitId>; 2]) {
        self.named.insert(process, commits);
    }

    fn commits(&self, process: Process) -> Vec<CommitKey> {
        let shard = self.shards.get(&process).copied().unwrap_or_default();
        let commits = self.commits.get(&process).into_iter().flatten();
        commits
            .map(|commit| CommitKey {
                commit: *commit,
                shard,
            })
            .collect()
    }

    fn beats(&self, process: Process) -> u64 {
        self.looks.set(self.looks.get() + 1);
        match self.alive.contains(&process) {
            true => self.looks.get(),
            false => self.beats.get(&process).copied().unwrap_or(0),
        }
    }

    fn is_starved(&self, process: Process) -> bool {
        self.starved.contains(&process)
    }

    fn commit_count(&self, _: Process) -> u64 {
        0
    }

    fn exited_outside(&self, process: Process) -> bool {
        self.outside.contains(&process)
    }
}

pub(crate) const EPOCH: DriverEpoch = DriverEpoch(3);

pub(crate) struct Bench {
    pub(crate) machine: Machine,
    pub(crate) memory: Fake,
    pub(crate) now: Time,
    /// The lease that the driver sends with each answer to a heartbeat.
    pub(crate) lease: Option<Duration>,
    /// The layout of the base of the next start.
    pub(crate) base_shards: Option<BaseShards>,
}

pub(crate) fn process(slot: u32, generation: u32) -> Process {
    Process {
        local_rank: LocalRank(slot),
        generation: Generation(generation),
    }
}

pub(crate) fn commit(round: u64, count: u64) -> CommitId {
    CommitId {
        epoch: EPOCH,
        round: Round(round),
        count,
    }
}

pub(crate) fn place(rank: u32) -> Place {
    Place {
        rank: Rank(rank),
        size: 2,
        local_size: 2,
        cross_rank: 0,
        cross_size: 1,
        local_rank: None,
    }
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn setup(drain_timeout: Duration) -> Setup {
    Setup {
        run_id: "run".into(),
        command: Vec::new(),
        env: BTreeMap::new(),
        directory: None,
        heartbeat_interval: seconds(1),
        heartbeat_timeout: seconds(5),
        orphan_timeout: seconds(10),
        keep_timeout: Duration::ZERO,
        abort_timeout: seconds(20),
        grace: seconds(2),
        drain_timeout,
        notice_file: None,
        signal_notice: None,
        instance: 1,
        groups: true,
        encrypt_data: false,
        commit_memory: None,
        adopted: false,
        durable: None,
        replication: None,
        preload: None,
        parameter_servers: None,
    }
}

impl Bench {
    /// Heartbeats each second and lost after 5 s. Timeouts: orphan 10 s, abort 20 s, grace 2 s, keep and drain 0
    /// s.
    pub(crate) fn new() -> Self {
        Self::draining_within(Duration::ZERO)
    }

    /// Two attached workers in round 1 that send heartbeats, with this keep timeout.
    pub(crate) fn keeping(keep_timeout: Duration) -> Self {
        let mut bench = Self::new();
        let setup = Setup {
            keep_timeout,
            ..setup(Duration::ZERO)
        };
        bench.machine = Machine::new(Time::ZERO, EPOCH, setup, 7);
        for slot in 0..2 {
            bench.command(spawn(slot, 1));
            let process = process(slot, 1);
            bench.event(Event::Attached { process });
            bench.memory.alive.insert(process);
            bench.joins(slot, None, true);
        }
        bench.flush();
        bench.plan(1, &[0, 1]);
        bench.start(1, &[0, 1], None);
        bench
    }

    /// Two workers at `run()`. The job has a durable store, with this interval.
    pub(crate) fn durable(interval: Duration) -> Self {
        let durable = Durable {
            place: "/d".into(),
            interval,
        };
        let setup = Setup {
            durable: Some(durable),
            ..setup(Duration::ZERO)
        };
        let mut bench = Self::new();
        bench.machine = Machine::new(Time::ZERO, EPOCH, setup, 7);
        for slot in 0..2 {
            bench.command(spawn(slot, 1));
            bench.joins(slot, None, true);
        }
        bench.flush();
        bench
    }

    /// An agent without workers that copies commits of other hosts, with this interval and this memory for commits.
    pub(crate) fn replicating(interval: Duration, commit_memory: Option<u64>) -> Self {
        let replication = Replication {
            interval,
            bandwidth: None,
        };
        let setup = Setup {
            replication: Some(replication),
            commit_memory,
            ..setup(Duration::ZERO)
        };
        let mut bench = Self::new();
        bench.machine = Machine::new(Time::ZERO, EPOCH, setup, 7);
        bench
    }

    /// Advances time while the driver acknowledges all heartbeats, earlier ones included.
    pub(crate) fn answered_by(&mut self, wait: Duration) -> Vec<Command> {
        let (acked_count, lease) = (u64::MAX, self.lease);
        let mut out = self.command(AgentCommand::Heartbeat {
            acked_count,
            lease,
            applied: 0,
            standbys: Vec::new(),
            job_code: None,
        });
        out.extend(self.pass(wait, true));
        out
    }

    /// As [`Self::new`], with this drain timeout.
    pub(crate) fn draining_within(drain_timeout: Duration) -> Self {
        let setup = setup(drain_timeout);
        Self {
            machine: Machine::new(Time::ZERO, EPOCH, setup, 7),
            memory: Fake::default(),
            now: Time::ZERO,
            lease: None,
            base_shards: None,
        }
    }

    /// Two workers that are at `run()`.
    pub(crate) fn with_two() -> Self {
        let mut bench = Self::new();
        for slot in 0..2 {
            bench.command(spawn(slot, 1));
            bench.joins(slot, None, true);
        }
        bench.flush();
        bench
    }

    /// Two workers in round 1.
    pub(crate) fn training() -> Self {
        let mut bench = Self::with_two();
        bench.plan(1, &[0, 1]);
        bench.start(1, &[0, 1], None);
        bench
    }

    pub(crate) fn event(&mut self, event: Event) -> Vec<Command> {
        let mut out = Vec::new();
        self.machine
            .step(self.now, event, &mut self.memory, &mut out);
        out
    }

    pub(crate) fn command(&mut self, command: AgentCommand) -> Vec<Command> {
        self.event(Event::FromDriver(ToAgent {
            epoch: EPOCH,
            command,
        }))
    }

    pub(crate) fn joins(&mut self, slot: u32, left: Option<u64>, told: bool) -> Vec<Command> {
        self.joins_and_says(slot, left, told, Vec::new())
    }

    /// A worker comes back from a round in which it could not reach these hosts.
    pub(crate) fn joins_without(
        &mut self,
        slot: u32,
        left: u64,
        told: bool,
        unreachable: Vec<u32>,
    ) -> Vec<Command> {
        self.joins_and_says(slot, Some(left), told, unreachable)
    }

    fn joins_and_says(
        &mut self,
        slot: u32,
        left: Option<u64>,
        told: bool,
        unreachable: Vec<u32>,
    ) -> Vec<Command> {
        let process = process(slot, 1);
        let commit = self.memory.newest(process);
        let message = FromWorker::Join {
            left: left.map(Round),
            told,
            data_port: 9,
            commit,
            empty: false,
            unreachable,
        };
        self.event(Event::FromWorker { process, message })
    }

    pub(crate) fn flush(&mut self) -> Vec<Command> {
        let mut out = Vec::new();
        self.machine.flush(&mut out);
        out
    }

    pub(crate) fn plan(&mut self, round: u64, slots: &[u32]) -> Vec<Command> {
        let members = slots.iter().map(|slot| process(*slot, 1)).collect();
        self.command(AgentCommand::Plan {
            round: Round(round),
            members,
        })
    }

    pub(crate) fn start(
        &mut self,
        round: u64,
        slots: &[u32],
        base: Option<CommitId>,
    ) -> Vec<Command> {
        self.start_from(round, slots, base, None)
    }

    /// As [`Self::start`], without a base. The first worker has this rank.
    pub(crate) fn start_at(&mut self, round: u64, slots: &[u32], rank: u32) -> Vec<Command> {
        self.start_with(round, slots, (None, None), rank)
    }

    /// As [`Self::start`]. The worker with rank 0 gets the base from the memory of this process.
    pub(crate) fn start_from(
        &mut self,
        round: u64,
        slots: &[u32],
        base: Option<CommitId>,
        keeper: Option<Process>,
    ) -> Vec<Command> {
        self.start_with(round, slots, (base, keeper), 0)
    }

    fn start_with(
        &mut self,
        round: u64,
        slots: &[u32],
        (base, keeper): (Option<CommitId>, Option<Process>),
        first: u32,
    ) -> Vec<Command> {
        let start = Start {
            keeper: keeper.map(|process| Keeper {
                host: HostId::new("a"),
                process,
                address: ([127, 0, 0, 1], 1).into(),
            }),
            ..self.start_command(round, slots, base, first)
        };
        self.command(AgentCommand::Start(Box::new(start)))
    }

    /// The start of a round with workers of these slots. The first worker has this rank.
    pub(crate) fn start_command(
        &self,
        round: u64,
        slots: &[u32],
        base: Option<CommitId>,
        first: u32,
    ) -> Start {
        let members = (slots.iter().zip(first..)).map(|(slot, rank)| Member {
            process: process(*slot, 1),
            place: place(rank),
            seat: None,
        });
        Start {
            epoch: EPOCH,
            round: Round(round),
            base,
            base_shards: self.base_shards,
            memory: None,
            holders: Vec::new(),
            replica_group_size: None,
            order: Vec::new(),
            keeper: None,
            size: slots.len() as u32,
            members: members.collect(),
            host_index: 0,
            host_count: 1,
            peers: BTreeMap::new(),
            coordinator: ([127, 0, 0, 1], 1).into(),
            prefix: String::new(),
        }
    }

    /// Advances time, deadline by deadline. With `answered`, the driver acknowledges each heartbeat.
    pub(crate) fn pass(&mut self, wait: Duration, answered: bool) -> Vec<Command> {
        let (end, mut all) = (self.now + wait, Vec::new());
        while let Some(due) = self.machine.next_deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            let mut out = Vec::new();
            self.machine.tick(self.now, &mut self.memory, &mut out);
            assert!(
                self.machine
                    .next_deadline()
                    .is_none_or(|next| next > self.now),
                "the clock stands still"
            );
            for command in out {
                match command {
                    Command::AgentReport(AgentReport::Heartbeat { count, .. }) if answered => {
                        let lease = self.lease;
                        self.command(AgentCommand::Heartbeat {
                            acked_count: count,
                            lease,
                            applied: 0,
                            standbys: Vec::new(),
                            job_code: None,
                        });
                    }
                    Command::AgentReport(AgentReport::Heartbeat { .. }) => {}
                    other => all.push(other),
                }
            }
        }
        self.now = end;
        all
    }
}

pub(crate) fn spawn(slot: u32, generation: u32) -> AgentCommand {
    AgentCommand::Spawn(Spawn {
        process: process(slot, generation),
        place: place(slot),
        coordinator: ([127, 0, 0, 1], 1).into(),
        restarts: None,
    })
}

pub(crate) fn exited(slot: u32, exit: Exit) -> Event {
    Event::Exited {
        process: process(slot, 1),
        exit,
        tail: Vec::new(),
    }
}

pub(crate) fn signal(slot: u32, signal: Signal) -> Command {
    Command::Signal {
        process: process(slot, 1),
        signal,
    }
}
