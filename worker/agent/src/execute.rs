//! Executes the commands of the machine. No executor blocks.

use std::sync::Arc;

use elasticrun_core::agent::{Command, Copied, End, Event, Wanted};
use elasticrun_protocol::{
    AgentReport, CommitId, FromAgent, Process, Round, ToWorker,
    auth::{Bytes32, Secret},
    control::{BaseShards, Exit, Keeper, Spawn, Start, StoredCommit},
    local::DESCRIPTORS_OF_SHARD,
};
use elasticrun_shm::{fds::MAX_FDS, liveness_watch::LivenessWatch, pidfd::Pidfd};
use tokio::time::Instant;

use crate::{
    agent::{Agent, LivenessEvent},
    local::{AttachRequest, Purpose, SharedFd},
    numa::Bound,
    process::{
        Directives, NodeAddresses, ProcessState, SpawnContext, Started, ToStart, WorkerProcess,
        server_variables, variables,
    },
    region::Region,
    replica::ReplicaCopy,
    spans,
    store::WorkerOpening,
};

/// The buffers for commits of a worker whose commits are not replicated.
const BUFFERS_WITHOUT_REPLICAS: u8 = 3;

/// The secret by which the workers of a job authenticate each other.
fn data_secret(secret: &Secret) -> Secret {
    secret.derive("data plane")
}

impl Agent {
    /// Executes all commands in order.
    pub(crate) fn execute(&mut self, commands: &mut Vec<Command>) {
        for command in commands.drain(..) {
            match command {
                Command::AgentReport(report) => {
                    let report = self.machine.number(report);
                    self.report(&report);
                }
                Command::Repeat(report) => self.report(&report),
                Command::Abort { round, members } => self.abort(round, &members),
                Command::Start(start) => self.start(*start),
                Command::Spawn(spawn) => self.spawn(spawn),
                Command::StartServer { process } => self.start_server(process),
                Command::Signal { process, signal } => {
                    if let Some(worker) = self.processes.get_mut(&process) {
                        worker.signal(signal);
                    }
                }
                Command::TellStop { process, why } => {
                    self.send_to(process, &ToWorker::Stop { why }, Vec::new());
                }
                Command::Forget { process } => {
                    self.replicator.cancel(process);
                    self.memories.forget(process);
                }
                Command::EndPassing { round } => self.passing_on.end(round),
                Command::Probe {
                    number,
                    hosts,
                    within,
                } => {
                    self.prober.probe(number, hosts, within, self.keys.clone());
                }
                Command::WriteDurable { process, size } => {
                    if let Some(durable) = &self.durable {
                        durable.writer.write(process, size);
                    }
                }
                Command::FindDurable { number, from } => {
                    if let Some(durable) = &self.durable {
                        durable.reader.find(number, from);
                    }
                }
                Command::LoadDurable {
                    number,
                    process,
                    stored,
                    id,
                } => self.load_durable(number, process, (stored, id)),
                Command::Replicate {
                    process,
                    keeper,
                    wanted,
                    limit,
                } => self.replicate(process, (keeper, wanted), limit),
                Command::Exit { why, stuck } => self.exit(why, &stuck),
            }
        }
    }

    /// Loads a commit into the memory of a process that never lived.
    fn load_durable(&mut self, number: u64, process: Process, commit: (StoredCommit, CommitId)) {
        let Some(durable) = &self.durable else { return };
        let created = self.memories.create(process);
        match (created, self.memories.get(process)) {
            (Ok(()), Some(memory)) => {
                let commits = Arc::clone(&memory.commits);
                durable.reader.load(number, process, commit, commits);
            }
            (Ok(()), None) => {}
            (Err(error), _) => self.pending_events.push_back(Event::DurableLoaded {
                number,
                process,
                refused: Some(error.to_string()),
            }),
        }
    }

    /// Copies a commit of another host into the memory of a process that never lived.
    fn replicate(
        &mut self,
        process: Process,
        (keeper, wanted): (Keeper, Wanted),
        limit: Option<u64>,
    ) {
        if let Err(error) = self.memories.create(process) {
            let why = error.to_string();
            let copied = Copied::Failed { why };
            return self
                .pending_events
                .push_back(Event::Copied { process, copied });
        }
        let bandwidth = self.setup.replication.and_then(|setup| setup.bandwidth);
        if let Some(memory) = self.memories.get(process) {
            let memory = Arc::clone(&memory.commits);
            let copy = ReplicaCopy {
                process,
                keeper,
                wanted,
                limit,
                memory,
            };
            self.replicator.copy(copy, bandwidth);
        }
    }

    fn report(&mut self, report: &FromAgent) {
        let offers_port = matches!(
            report.report,
            AgentReport::Ready { .. } | AgentReport::FreePort { .. }
        );
        if let Some(link) = &mut self.link
            && let Err(error) = link.send(report)
        {
            tracing::warn!(%error, "the driver cannot be told");
            self.link = None;
            self.pending_events.push_back(Event::DriverLost);
            self.dial_if_useful();
        }
        if offers_port {
            match self.ports.next() {
                Ok(port) => self.machine.set_free_port(port),
                Err(error) => tracing::warn!(%error, "no free port is found for a coordinator"),
            }
        }
    }

    fn send_to(&mut self, process: Process, message: &ToWorker, fds: Vec<SharedFd>) {
        if let Some(worker) = self.processes.get_mut(&process) {
            worker.send(message, fds);
        }
    }

    fn exit(&mut self, why: End, stuck: &[Process]) {
        if !stuck.is_empty() {
            let count = stuck.len();
            tracing::error!(
                count,
                "killed workers do not end (state D?); leaving them behind"
            );
        }
        self.end = Some(why);
        self.done = true;
    }

    /// Wakes the members in collectives, at boundaries and at their agent's socket.
    fn abort(&mut self, round: Round, members: &[Process]) {
        self.passing_on.end(round);
        if let Some(region) = &self.region {
            region.abort(round);
        }
        for process in members {
            if let Some(memory) = self.memories.get(*process) {
                memory.page.abort(round);
            }
        }
        for process in members {
            self.send_to(*process, &ToWorker::Abort { round }, Vec::new());
        }
    }

    fn start(&mut self, start: Start) {
        let round = start.round;
        self.passing_on.begin(&start);
        self.span = self.spans.round(round);
        let _in_round = self.span.clone().entered();
        let region = match self.make_region(&start) {
            Ok(region) => region,
            Err(error) => {
                tracing::error!(%error, "no shared memory for the round");
                let why = format!(
                    "no memory that its workers share can be made ({error}); check the memory limit and open files of this host"
                );
                self.pending_events
                    .push_back(Event::CannotBegin { round, why });
                return;
            }
        };
        let keeper = self.keeper_for_rank_0(&start);
        for (local_index, member) in (0..).zip(&start.members) {
            if let Some(worker) = self.processes.get(&member.process) {
                worker.rank.set(member.place.rank);
            }
            let keeper = keeper.as_ref().filter(|_| member.place.rank.0 == 0);
            let fds = region.iter().chain(keeper.into_iter().flatten());
            let fds = fds.map(Arc::clone).collect();
            let message = ToWorker::Start {
                start: Box::new(start.clone()),
                member: *member,
                local_index,
                region: region.is_some(),
                keeper: keeper.is_some(),
            };
            self.send_to(member.process, &message, fds);
        }
    }

    fn make_region(
        &mut self,
        start: &Start,
    ) -> Result<Option<SharedFd>, elasticrun_collectives::Error> {
        self.deferred_free.push(self.region.take());
        let members = start.members.len() as u32;
        if members < 2 {
            return Ok(None);
        }
        let (region, fd) = Region::create(start.round, members)?;
        self.region = Some(region);
        Ok(Some(Arc::new(fd)))
    }

    /// The commit memory of the dead process that keeps the base, if it is of this host. Rank 0 fetches the base.
    fn keeper_for_rank_0(&self, start: &Start) -> Option<Vec<SharedFd>> {
        let keeper = start.keeper.as_ref()?;
        if keeper.host != self.host {
            return None;
        }
        match self.memories.read_only(keeper.process, start.base?)? {
            Ok(fds) => Some(fds.into_iter().map(Arc::new).collect()),
            Err(error) => {
                spans::worker(keeper.process)
                    .in_scope(|| tracing::error!(%error, "kept commits cannot be handed out"));
                None
            }
        }
    }

    fn spawn(&mut self, spawn: Spawn) {
        let process = spawn.process;
        let ctx = SpawnContext {
            host: &self.host,
            setup: &self.setup,
            interface: self.interface.as_ref(),
            socket: &self.dir.socket(),
            error_file: &self.dir.error_file(process),
            node: self.node_addresses(),
        };
        let mut variables = variables(&ctx, &spawn, |name| std::env::var_os(name).is_some());
        let local_rank = spawn.place.local_rank(process);
        let directives = Directives::take(&mut variables, local_rank);
        let memory = directives.and_then(|directives| {
            let made = self.memories.create(process);
            made.map_err(|error| error.to_string())?;
            Ok(directives)
        });
        let directives = match memory {
            Ok(directives) => directives,
            Err(why) => {
                self.pending_events.push_back(Event::Exited {
                    process,
                    exit: Exit::NotStarted(why),
                    tail: Vec::new(),
                });
                return;
            }
        };
        let worker = WorkerProcess::starting(process);
        // Output carries the rank of the environment until the first round. Without the SDK it does so for ever.
        worker.rank.set(spawn.place.rank);
        self.processes.insert(process, worker);
        self.starter.start(ToStart {
            process,
            command: self.setup.command.clone(),
            variables,
            directory: self.setup.directory.clone(),
            // Only groups are restarted.
            standbys: spawn.restarts.map_or(0, |_| spawn.place.local_size),
            own_device: directives.own_device,
            bound: directives.numa_binding.map(|mode| Bound {
                mode,
                visible_devices: directives.visible_devices,
                local_rank: local_rank.0,
                local_size: spawn.place.local_size,
            }),
        });
    }

    fn node_addresses(&self) -> NodeAddresses {
        NodeAddresses {
            host: self.address,
            driver: self.driver.ip(),
        }
    }

    /// Starts a parameter server: the user's command with the role of a server.
    fn start_server(&mut self, process: Process) {
        self.processes
            .insert(process, WorkerProcess::starting(process));
        let socket = self.dir.socket();
        self.starter.start(ToStart {
            process,
            command: self.setup.command.clone(),
            variables: server_variables(&self.setup, &self.host, self.node_addresses(), &socket),
            directory: self.setup.directory.clone(),
            standbys: 0,
            own_device: false,
            bound: None,
        });
    }

    /// Handles the result of a process start.
    pub(crate) fn on_started(&mut self, process: Process, result: Result<Started, String>) {
        let Some(worker) = self.processes.get_mut(&process) else {
            return;
        };
        let started = result.and_then(|started| {
            let signal = worker
                .set_running(started.pid, started.pidfd)
                .map_err(|error| format!("cannot watch it: {error}"))?;
            let rank = worker.rank.clone();
            self.output
                .read(process, rank, started.stdout, started.stderr);
            Ok((started.pid, signal))
        });
        match started {
            Ok((pid, signal)) => {
                spans::worker(process).in_scope(|| tracing::debug!(pid, "a worker is started"));
                if let Some(signal) = signal {
                    worker.signal(signal);
                }
                if let Some(request) = worker.early_attach.take() {
                    self.on_attach(request);
                }
            }
            Err(why) => {
                self.processes.remove(&process);
                self.pending_events.push_back(Event::Exited {
                    process,
                    exit: Exit::NotStarted(why),
                    tail: Vec::new(),
                });
            }
        }
    }

    /// Attaches a worker, or refuses the request with a reason.
    pub(crate) fn on_attach(&mut self, mut request: Box<AttachRequest>) {
        let process = request.process;
        let Some(worker) = self.processes.get_mut(&process) else {
            return refuse(&mut request, "the agent has started no such process");
        };
        match &worker.state {
            ProcessState::Starting(_) => {
                worker.early_attach = Some(request);
                return;
            }
            ProcessState::Running { pid, .. } if !is_descendant(request.pid, *pid) => {
                return refuse(
                    &mut request,
                    "it is not of the process that the agent started",
                );
            }
            ProcessState::Running { .. } => {}
            ProcessState::Ended(_) => return refuse(&mut request, "its process has ended"),
        }
        let buffers = match request.purpose {
            Purpose::Store { version } => return self.open_store(request, version),
            Purpose::Shards { commit, shards } => {
                return self.send_shards(request, commit, shards);
            }
            Purpose::Attach { .. } if worker.is_attached() => {
                return refuse(&mut request, "another process has attached as this worker");
            }
            Purpose::Attach { buffers } => buffers,
        };
        let Some(memory) = self.memories.get(process) else {
            return refuse(&mut request, "its memory is gone");
        };
        let liveness = self.liveness.sender.clone();
        let watch = LivenessWatch::start(&memory.page, move |how| {
            // Fails only at the agent's own end.
            let _ = liveness.send(LivenessEvent {
                process,
                how,
                seen_at: Instant::now(),
            });
        });
        // Only shards that are copied to other hosts are kept beside newer commits.
        let most = match self.setup.replication {
            Some(_) => u8::MAX,
            None => BUFFERS_WITHOUT_REPLICAS,
        };
        let fds = memory.descriptors(buffers.min(most));
        let (watch, fds) = match (watch, fds) {
            (Ok(watch), Ok(fds)) => (watch, fds),
            (Err(error), _) | (_, Err(error)) => {
                spans::worker(process)
                    .in_scope(|| tracing::error!(%error, "a worker cannot be attached"));
                return refuse(&mut request, "the agent has no room for it");
            }
        };
        let AttachRequest {
            mut connection,
            pid,
            ..
        } = *request;
        connection.trust();
        // All but the page.
        let buffers = fds.len() as u8 - 1;
        // The job continues in its processes from now on.
        self.starter.end_standby();
        let attached = pid.and_then(|pid| Pidfd::open(pid).ok());
        worker.attach(connection, pid, attached, watch);
        worker.send(
            &ToWorker::Attached {
                data_key: Bytes32(*data_secret(&self.keys.secret).expose()),
                listen: self.listen.to_string(),
                heartbeat_interval: self.setup.heartbeat_interval,
                connect_timeout: self.setup.heartbeat_timeout,
                encrypt_data: self.setup.encrypt_data,
                buffers,
                commit_memory: self.setup.commit_memory,
                identity: Some(self.keys.worker.clone()),
            },
            fds,
        );
        self.pending_events.push_back(Event::Attached { process });
    }
}

impl Agent {
    /// Opens a connection for store requests.
    fn open_store(&self, mut request: Box<AttachRequest>, version: u16) {
        let process = request.process;
        if !self.has_attached(&request) {
            return refuse(&mut request, NOT_ATTACHED);
        }
        match request.connection.into_std() {
            Ok(stream) => self.store.open(WorkerOpening {
                process,
                stream,
                version,
            }),
            Err(error) => spans::worker(process)
                .in_scope(|| tracing::warn!(%error, "a worker's requests cannot be read")),
        }
    }
}

impl Agent {
    fn has_attached(&self, request: &AttachRequest) -> bool {
        let worker = self.processes.get(&request.process);
        worker.is_some_and(|worker| worker.is_attached_as(request.pid))
    }

    /// Sends the copies that this host holds of a commit that is divided among workers, dead and living: for each shard
    /// the buffers of one process.
    fn send_shards(&self, request: Box<AttachRequest>, commit: CommitId, layout: BaseShards) {
        let mut request = request;
        if !self.has_attached(&request) {
            return refuse(&mut request, NOT_ATTACHED);
        }
        let held = self.memories.shards(commit, layout);
        let mut left = held.chunks(MAX_FDS / DESCRIPTORS_OF_SHARD).peekable();
        loop {
            let part = left.next().unwrap_or_default();
            let message = ToWorker::Shards {
                shards: part.iter().map(|held| held.index).collect(),
                processes: part.iter().map(|held| held.process).collect(),
                more: left.peek().is_some(),
            };
            let fds = part.iter().flat_map(|held| held.fds.iter().map(Arc::clone));
            if let Err(error) = request.connection.send(&message, fds.collect()) {
                return spans::worker(request.process)
                    .in_scope(|| tracing::warn!(%error, "a worker cannot be sent shards"));
            }
            if left.peek().is_none() {
                return;
            }
        }
    }
}

/// Why a further connection is refused. Only the attached process may have one: its children would read its answers.
const NOT_ATTACHED: &str = "it has not attached as this worker";

fn refuse(request: &mut AttachRequest, why: &str) {
    spans::worker(request.process).in_scope(|| {
        tracing::warn!(
            pid = request.pid,
            why,
            "a process is refused at the workers' socket"
        )
    });
    let _ = request
        .connection
        .send(&ToWorker::Refused { why: why.into() }, Vec::new());
}

/// Whether a process is `leader` or a descendant of it. A process in another pid namespace is accepted, since its
/// user id is ours.
fn is_descendant(process: Option<u32>, leader: u32) -> bool {
    let Some(mut process) = process else {
        return true;
    };
    while process != leader {
        match parent(process) {
            Some(parent) if parent > 1 => process = parent,
            _ => return false,
        }
    }
    true
}

fn parent(process: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The fields after the name are state and parent. The name may contain any character.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}
