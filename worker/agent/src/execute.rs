//! What the machine commands, each by its executor. None of them waits.

use std::sync::Arc;

use elasticrun_collectives::{RegionMap, abort_region, create_region};
use elasticrun_core::agent::{Command, End, Event};
use elasticrun_protocol::{
    Process, Report, Round, ToWorker,
    auth::{Bytes32, Secret},
    control::{Exit, Spawn, Start},
};
use elasticrun_shm::{death::DeathWatch, pidfd::Pidfd};
use tokio::time::Instant;

use crate::{
    agent::{Agent, Death},
    local::{Knock, SharedFd},
    process::{Hosted, Life, Started, Surroundings, ToStart, variables},
};

/// What the members of a round on this host share, mapped to abort it.
#[derive(Debug)]
pub(crate) struct Region {
    round: Round,
    map: RegionMap,
}

/// The secret that workers of a job know each other by.
pub(crate) fn data_secret(secret: &Secret) -> Secret {
    secret.derive("data plane")
}

impl Agent {
    /// Does all, in order.
    pub(crate) fn execute(&mut self, commands: &mut Vec<Command>) {
        for command in commands.drain(..) {
            match command {
                Command::Report(report) => self.report(report),
                Command::Abort { round, members } => self.abort(round, &members),
                Command::Start(start) => self.start(*start),
                Command::Spawn(spawn) => self.spawn(spawn),
                Command::Signal { process, signal } => {
                    if let Some(hosted) = self.processes.get_mut(&process) {
                        hosted.signal(signal);
                    }
                }
                Command::TellStop { process, why } => {
                    self.tell(process, &ToWorker::Stop { why }, Vec::new());
                }
                Command::Forget { process } => self.memories.forget(process),
                Command::Probe {
                    number,
                    hosts,
                    within,
                } => {
                    let secret = data_secret(&self.secret);
                    self.prober.probe(number, hosts, within, secret);
                }
                Command::Exit { why, stuck } => self.exit(why, &stuck),
            }
        }
    }

    fn report(&mut self, report: Report) {
        let offers_port = matches!(report, Report::Ready { .. } | Report::FreePort { .. });
        if let Some(link) = &mut self.link
            && let Err(error) = link.send(report)
        {
            tracing::warn!(%error, "the driver cannot be told");
            self.link = None;
            self.store.driver_lost();
            self.own.push_back(Event::DriverLost);
        }
        if offers_port {
            match self.ports.next() {
                Ok(port) => self.machine.set_free_port(port),
                Err(error) => tracing::warn!(%error, "no free port is found for a coordinator"),
            }
        }
    }

    fn tell(&mut self, process: Process, message: &ToWorker, fds: Vec<SharedFd>) {
        if let Some(hosted) = self.processes.get_mut(&process) {
            hosted.tell(message, fds);
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

    /// Wakes the members wherever they wait: in a collective, at a boundary, at their agent's socket.
    fn abort(&mut self, round: Round, members: &[Process]) {
        if let Some(region) = &self.region
            && region.round == round
        {
            abort_region(&region.map);
        }
        for process in members {
            if let Some(memory) = self.memories.get(*process) {
                memory.page.abort(round);
            }
        }
        for process in members {
            self.tell(*process, &ToWorker::Abort { round }, Vec::new());
        }
    }

    fn start(&mut self, start: Start) {
        let round = start.round;
        let region = match self.make_region(&start) {
            Ok(region) => region,
            Err(error) => {
                tracing::error!(%round, %error, "no shared memory for the round");
                let why = format!(
                    "no memory that its workers share can be made ({error}); check the memory limit and open files of this host"
                );
                self.own.push_back(Event::CannotBegin { round, why });
                return;
            }
        };
        let keeper = self.keeper_for_rank_0(&start);
        for (local_index, member) in (0..).zip(&start.members) {
            if let Some(hosted) = self.processes.get(&member.process) {
                hosted.rank.set(member.place.rank);
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
            self.tell(member.process, &message, fds);
        }
    }

    fn make_region(
        &mut self,
        start: &Start,
    ) -> Result<Option<SharedFd>, elasticrun_collectives::Error> {
        self.discard.later(self.region.take());
        let members = start.members.len() as u32;
        if members < 2 {
            return Ok(None);
        }
        let fd = create_region(members)?;
        self.region = Some(Region {
            round: start.round,
            map: RegionMap::map(&fd, members)?,
        });
        Ok(Some(Arc::new(fd)))
    }

    /// The memories of a dead process of this host that keeps the base, for the worker that fetches it.
    fn keeper_for_rank_0(&self, start: &Start) -> Option<[SharedFd; 2]> {
        let keeper = start.keeper.as_ref()?;
        if keeper.host != self.host {
            return None;
        }
        match self.memories.read_only(keeper.process)? {
            Ok(fds) => Some(fds.map(Arc::new)),
            Err(error) => {
                tracing::error!(process = %keeper.process, %error, "kept commits cannot be handed out");
                None
            }
        }
    }

    fn spawn(&mut self, spawn: Spawn) {
        let process = spawn.process;
        if let Err(error) = self.memories.create(process) {
            self.own.push_back(Event::Exited {
                process,
                exit: Exit::NotStarted(error.to_string()),
                tail: Vec::new(),
            });
            return;
        }
        let hosted = Hosted::starting();
        // Until its first round, and for ever without the SDK, it prints as the rank of its environment.
        hosted.rank.set(spawn.place.rank);
        self.processes.insert(process, hosted);
        let around = Surroundings {
            host: &self.host,
            setup: &self.setup,
            socket: &self.dir.socket(),
            error_file: &self.dir.error_file(process),
        };
        self.starter.start(ToStart {
            process,
            command: self.setup.command.clone(),
            variables: variables(&around, &spawn, |name| std::env::var_os(name).is_some()),
            directory: self.setup.directory.clone(),
        });
    }

    /// A process runs, or does not.
    pub(crate) fn started(&mut self, process: Process, result: Result<Started, String>) {
        let Some(hosted) = self.processes.get_mut(&process) else {
            return;
        };
        let started = result.and_then(|started| {
            let signal = hosted
                .started(started.pid, started.pidfd)
                .map_err(|error| format!("cannot watch it: {error}"))?;
            let rank = hosted.rank.clone();
            self.output
                .read(process, rank, started.stdout, started.stderr);
            Ok((started.pid, signal))
        });
        match started {
            Ok((pid, signal)) => {
                tracing::debug!(%process, pid, "a worker is started");
                if let Some(signal) = signal {
                    hosted.signal(signal);
                }
                if let Some(knock) = hosted.early.take() {
                    self.knocked(knock);
                }
            }
            Err(why) => {
                self.processes.remove(&process);
                self.own.push_back(Event::Exited {
                    process,
                    exit: Exit::NotStarted(why),
                    tail: Vec::new(),
                });
            }
        }
    }

    /// Lets a worker in, or says why not.
    pub(crate) fn knocked(&mut self, mut knock: Box<Knock>) {
        let process = knock.process;
        let Some(hosted) = self.processes.get_mut(&process) else {
            return refuse(&mut knock, "the agent has started no such process");
        };
        match &hosted.life {
            Life::Starting(_) => {
                hosted.early = Some(knock);
                return;
            }
            Life::Running { pid, .. } if !is_descendant(knock.pid, *pid) => {
                return refuse(
                    &mut knock,
                    "it is not of the process that the agent started",
                );
            }
            Life::Running { .. } if knock.for_store => return self.open_store(knock),
            Life::Running { .. } if hosted.is_attached() => {
                return refuse(&mut knock, "another process has attached as this worker");
            }
            Life::Running { .. } => {}
            Life::Ended(_) => return refuse(&mut knock, "its process has ended"),
        }
        let Some(memory) = self.memories.get(process) else {
            return refuse(&mut knock, "its memory is gone");
        };
        let deaths = self.deaths.sender.clone();
        let watch = DeathWatch::start(&memory.page, move |how| {
            // Fails only at the agent's own end.
            let _ = deaths.send(Death {
                process,
                how,
                at: Instant::now(),
            });
        });
        let fds = memory.descriptors();
        let (watch, fds) = match (watch, fds) {
            (Ok(watch), Ok(fds)) => (watch, fds),
            (Err(error), _) | (_, Err(error)) => {
                tracing::error!(%process, %error, "a worker cannot be attached");
                return refuse(&mut knock, "the agent has no room for it");
            }
        };
        let Knock {
            mut connection,
            pid,
            ..
        } = *knock;
        connection.trust();
        let attached = pid.and_then(|pid| Pidfd::open(pid).ok());
        hosted.attach(connection, pid, attached, watch);
        hosted.tell(
            &ToWorker::Attached {
                data_key: Bytes32(*data_secret(&self.secret).expose()),
                listen: self.listen.to_string(),
                heartbeat_interval: self.setup.heartbeat_interval,
                connect_timeout: self.setup.heartbeat_timeout,
            },
            fds,
        );
        self.own.push_back(Event::Attached { process });
    }
}

impl Agent {
    /// Only the process that attached: what it forked would read its answers.
    fn open_store(&self, mut knock: Box<Knock>) {
        let process = knock.process;
        let hosted = self.processes.get(&process);
        if !hosted.is_some_and(|hosted| hosted.has_attached(knock.pid)) {
            return refuse(&mut knock, "it has not attached as this worker");
        }
        match knock.connection.into_std() {
            Ok(stream) => self.store.open(process, stream),
            Err(error) => tracing::warn!(%process, %error, "a worker's requests cannot be read"),
        }
    }
}

fn refuse(knock: &mut Knock, why: &str) {
    tracing::warn!(process = %knock.process, pid = knock.pid, why, "a process is refused at the workers' socket");
    let _ = knock
        .connection
        .send(&ToWorker::Refused { why: why.into() }, Vec::new());
}

/// Whether a process is `leader` or comes from it. One that we cannot see is believed: its user is ours.
fn is_descendant(process: Option<u32>, leader: u32) -> bool {
    let Some(mut process) = process else {
        return true;
    };
    while process != leader {
        match parent(process) {
            Some(up) if up > 1 => process = up,
            _ => return false,
        }
    }
    true
}

fn parent(process: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // After the name, which may hold anything: state, then parent.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}
