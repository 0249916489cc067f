//! A driver for tests, and agents and workers as real processes.

#![allow(dead_code, reason = "each test file uses a part")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::{
    collections::{BTreeMap, VecDeque},
    env, fs,
    io::Write,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    thread::{self, JoinHandle},
    time::Duration,
};

use elasticrun_agent::Launch;
use elasticrun_protocol::{
    AgentCommand, AgentReport, CommitId, DriverEpoch, FromAgent, Generation, HostId, LocalRank,
    Process, Rank, Round, ToAgent,
    auth::Secret,
    control::{
        Keeper, Member, Output, OutputOf, OutputTaken, Place, Register, Restarts, Setup, Spawn,
        Start,
    },
    frame::{self, FrameBuffer},
    opening::Purpose,
};
use elasticrun_tls::{
    Authority, ClientConfig, Credentials, Identity, Role, ServerConfig,
    opening::{self, Accepted},
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

/// Enough for the slowest machine; reached only when something does not come.
pub(crate) const SOON: Duration = Duration::from_secs(30);

pub(crate) const EPOCH: DriverEpoch = DriverEpoch(1);

fn example(name: &str) -> PathBuf {
    let test = env::current_exe().expect("this test");
    let target = test.parent().and_then(|deps| deps.parent()).expect("deps");
    let path = target.join("examples").join(name);
    assert!(path.exists(), "build the examples: {}", path.display());
    path
}

/// The command line of a worker that executes these words.
pub(crate) fn worker(words: &[&str]) -> Vec<String> {
    let program = example("worker").display().to_string();
    let words = words.iter().map(|word| (*word).to_owned());
    [program].into_iter().chain(words).collect()
}

pub(crate) fn shell(script: &str) -> Vec<String> {
    ["sh", "-c", script].map(str::to_owned).into()
}

pub(crate) fn process(slot: u32, start: u32) -> Process {
    Process {
        local_rank: LocalRank(slot),
        generation: Generation(start),
    }
}

/// A connection of an agent that is open.
pub(crate) struct Peer {
    stream: Box<dyn Stream>,
    frames: FrameBuffer,
}

/// A stream with TLS or without.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Peer {
    /// Connects to the port of an agent for commits.
    pub(crate) async fn dial(
        port: u16,
        identity: &Identity,
        purpose: Purpose,
    ) -> Result<Self, opening::Error> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let config = ClientConfig::new(identity, Role::Agent).unwrap();
        let connection = opening::dial(stream, &config, purpose, SOON).await?;
        Ok(Self {
            stream: Box::new(connection.stream),
            frames: connection.frames,
        })
    }

    /// Reads bytes without frames.
    pub(crate) async fn raw(&mut self, count: usize) -> Vec<u8> {
        let buffer = self.frames.buffer();
        while buffer.len() < count {
            let read = self.stream.read_buf(buffer);
            assert!(timeout(SOON, read).await.expect("bytes in time").unwrap() > 0);
        }
        buffer.split_to(count).to_vec()
    }

    /// The next message; none at the end of the stream.
    pub(crate) async fn read<T: DeserializeOwned>(&mut self) -> Option<T> {
        loop {
            if let Some(message) = self.frames.next_message().unwrap() {
                return Some(message);
            }
            let read = self.stream.read_buf(self.frames.buffer());
            if timeout(SOON, read)
                .await
                .expect("a message in time")
                .unwrap_or(0)
                == 0
            {
                return None;
            }
        }
    }

    pub(crate) async fn write(&mut self, message: &impl Serialize) {
        let frame = frame::to_frame(message).unwrap();
        self.stream.write_all(&frame).await.unwrap();
        self.stream.flush().await.unwrap();
    }
}

/// A driver of one run with one agent.
pub(crate) struct Driver {
    pub(crate) listener: TcpListener,
    pub(crate) secret: Secret,
    pub(crate) authority: Authority,
    tls: ServerConfig,
    pub(crate) run_id: String,
    pub(crate) setup: Setup,
}

impl Driver {
    pub(crate) async fn new(command: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let run_id = format!("test-{}", &Secret::random().unwrap().to_hex()[..12]);
        let authority = Authority::new(&run_id).unwrap();
        let identity = authority.issue(Role::Driver, "driver").unwrap();
        Self {
            listener,
            secret: Secret::random().unwrap(),
            tls: ServerConfig::new(&identity, &[Role::Agent]).unwrap(),
            authority,
            setup: Setup {
                run_id: run_id.clone(),
                command,
                env: BTreeMap::from([("GIVEN".into(), "by the driver".into())]),
                directory: None,
                heartbeat_interval: Duration::from_millis(200),
                heartbeat_timeout: Duration::from_secs(20),
                orphan_timeout: Duration::from_millis(500),
                keep_timeout: Duration::ZERO,
                abort_timeout: Duration::from_secs(20),
                grace: Duration::from_secs(20),
                drain_timeout: Duration::ZERO,
                notice_file: None,
                signal_notice: None,
                instance: 1,
                groups: false,
                encrypt_data: false,
                commit_memory: None,
                adopted: false,
                durable: None,
                replication: None,
                preload: None,
                parameter_servers: None,
            },
            run_id,
        }
    }

    pub(crate) fn address(&self) -> String {
        self.listener.local_addr().unwrap().to_string()
    }

    pub(crate) fn launch(&self) -> Launch {
        Launch {
            driver: vec![self.address()],
            credentials: Credentials::issue(&self.authority, &self.secret, "localhost").unwrap(),
            host: HostId::new("localhost"),
            slots: 2,
            run_id: Some(self.run_id.clone()),
            network_interface: None,
            network_interfaces: Vec::new(),
            local_only: true,
            log_level: None,
        }
    }

    /// Accepts the next connection of an agent.
    pub(crate) async fn accept(&self) -> Result<(Purpose, Peer), opening::Error> {
        let (stream, _) = timeout(SOON, self.listener.accept())
            .await
            .unwrap()
            .unwrap();
        stream.set_nodelay(true).unwrap();
        let serves = [Purpose::Control, Purpose::Output, Purpose::Store];
        match opening::accept(stream, &self.tls, &serves, SOON).await? {
            Accepted::Opened(connection) => Ok((
                connection.opened.purpose,
                Peer {
                    stream: Box::new(connection.stream),
                    frames: connection.frames,
                },
            )),
            Accepted::Enrolling(_) => panic!("no enrolment is served"),
        }
    }

    /// The identity of a worker of the job on another host.
    pub(crate) fn worker(&self) -> Identity {
        self.authority.issue(Role::Worker, "another").unwrap()
    }

    /// Starts an agent and accepts its connections.
    pub(crate) async fn with_agent(&self) -> (Agent, Control, Lines) {
        let agent = Agent::start(&self.launch(), &[]);
        let (control, lines) = self.welcome().await;
        (agent, control, lines)
    }

    pub(crate) async fn welcome(&self) -> (Control, Lines) {
        let control = self.register().await;
        let (purpose, mut peer) = self.accept().await.unwrap();
        assert_eq!(purpose, Purpose::Output);
        let of: OutputOf = peer.read().await.unwrap();
        assert_eq!(of.host, control.register.host);
        (control, Lines { peer })
    }

    /// Accepts an agent that returns with its workers, and does not adopt them.
    pub(crate) async fn adopt_nothing(&self) {
        let control = self.register().await;
        assert!(control.register.adoption.is_some());
    }

    pub(crate) async fn register(&self) -> Control {
        // Other connections of an agent may be opened again meanwhile.
        let mut peer = loop {
            let (purpose, peer) = self.accept().await.unwrap();
            if purpose == Purpose::Control {
                break peer;
            }
        };
        let register: Register = peer.read().await.unwrap();
        let mut control = Control {
            peer,
            register,
            reports: 0,
            last_beat: 0,
            seen: VecDeque::new(),
        };
        control
            .command(AgentCommand::Setup(Box::new(self.setup.clone())))
            .await;
        control
    }
}

/// A control connection.
pub(crate) struct Control {
    peer: Peer,
    pub(crate) register: Register,
    reports: u64,
    /// The number of the last beat.
    last_beat: u64,
    /// Reports that came while a beat was awaited.
    pub(crate) seen: VecDeque<AgentReport>,
}

impl Control {
    pub(crate) async fn command(&mut self, command: AgentCommand) {
        self.peer
            .write(&ToAgent {
                epoch: EPOCH,
                command,
            })
            .await;
    }

    /// The next report that is no beat; none at the end of the stream.
    pub(crate) async fn report(&mut self) -> Option<AgentReport> {
        if let Some(report) = self.seen.pop_front() {
            return Some(report);
        }
        loop {
            let FromAgent {
                epoch,
                number,
                report,
            } = self.peer.read().await?;
            assert_eq!(epoch, EPOCH);
            self.reports += 1;
            assert_eq!(number, self.reports);
            if !matches!(report, AgentReport::Heartbeat { .. }) {
                return Some(report);
            }
        }
    }

    /// Acknowledges the last beat.
    pub(crate) async fn answer_beat(&mut self) {
        let (acked_count, lease) = (self.last_beat, None);
        self.command(AgentCommand::Heartbeat {
            acked_count,
            lease,
            applied: 0,
            standbys: Vec::new(),
            job_code: None,
        })
        .await;
    }

    pub(crate) async fn beat(&mut self) {
        loop {
            let report: FromAgent = self.peer.read().await.expect("the agent lives");
            self.reports += 1;
            match report.report {
                AgentReport::Heartbeat { count, .. } => {
                    self.last_beat = count;
                    return;
                }
                other => self.seen.push_back(other),
            }
        }
    }

    pub(crate) async fn spawn(&mut self, slot: u32, start: u32) {
        self.spawn_of(slot, start, 1).await;
    }

    pub(crate) async fn spawn_of(&mut self, slot: u32, start: u32, size: u32) {
        self.command(AgentCommand::Spawn(Spawn {
            process: process(slot, start),
            place: place(slot, size),
            coordinator: "127.0.0.1:29500".parse().unwrap(),
            restarts: None,
        }))
        .await;
    }

    /// Starts a process as a member of a group of one.
    pub(crate) async fn spawn_in_group(&mut self, start: u32) {
        let restarts = Restarts {
            used: start - 1,
            allowed: 100,
        };
        self.command(AgentCommand::Spawn(Spawn {
            process: process(0, start),
            place: place(0, 1),
            coordinator: "127.0.0.1:29500".parse().unwrap(),
            restarts: Some(restarts),
        }))
        .await;
    }

    /// Plans and starts a round of these processes, ranked in this order. They must wait already.
    pub(crate) async fn start(
        &mut self,
        round: u64,
        members: &[Process],
        base: Option<CommitId>,
        keeper: Option<Process>,
    ) -> AgentReport {
        self.start_with(round, members, (base, keeper), |_| ())
            .await
    }

    /// As [`Self::start`], with a change of the command.
    pub(crate) async fn start_with(
        &mut self,
        round: u64,
        members: &[Process],
        (base, keeper): (Option<CommitId>, Option<Process>),
        change: impl FnOnce(&mut Start),
    ) -> AgentReport {
        let round = Round(round);
        let members = members.to_vec();
        self.command(AgentCommand::Plan {
            round,
            members: members.clone(),
        })
        .await;
        let ready = self.report().await.unwrap();
        let size = members.len() as u32;
        let members = (0..).zip(&members).map(|(rank, process)| Member {
            process: *process,
            place: place(rank, size),
            seat: None,
        });
        let keeper = keeper.map(|process| Keeper {
            host: self.register.host.clone(),
            process,
            address: ([127, 0, 0, 1], self.register.memory_port).into(),
        });
        let mut start = Start {
            epoch: EPOCH,
            round,
            base,
            base_shards: None,
            memory: None,
            holders: Vec::new(),
            replica_group_size: None,
            order: Vec::new(),
            keeper,
            size,
            members: members.collect(),
            host_index: 0,
            host_count: 1,
            peers: BTreeMap::new(),
            coordinator: "127.0.0.1:29500".parse().unwrap(),
            prefix: "p".into(),
        };
        change(&mut start);
        self.command(AgentCommand::Start(Box::new(start))).await;
        ready
    }

    /// Waits until `count` processes have reported that they wait at `run()`.
    pub(crate) async fn all_wait(&mut self, count: usize) {
        let mut seen = 0;
        while seen < count {
            match self.report().await.unwrap() {
                AgentReport::Waiting { workers } => seen += workers.len(),
                other => panic!("expected Waiting, got {other:?}"),
            }
        }
    }
}

fn place(rank: u32, size: u32) -> Place {
    Place {
        rank: Rank(rank),
        size,
        local_size: size,
        cross_rank: 0,
        cross_size: 1,
        local_rank: None,
    }
}

/// A connection for output.
pub(crate) struct Lines {
    peer: Peer,
}

impl Lines {
    pub(crate) async fn next(&mut self) -> Option<Output> {
        let output: Output = self.peer.read().await?;
        let number = output.number;
        let taken = frame::to_frame(&OutputTaken { number }).unwrap();
        // An agent at its end may have given the connection up.
        let _ = self.peer.stream.write_all(&taken).await;
        Some(output)
    }

    /// The bytes of both streams up to the end of the connection, and the number of those that were dropped.
    pub(crate) async fn rest(&mut self) -> (Vec<u8>, u64) {
        let (mut all, mut dropped) = (Vec::new(), 0);
        while let Some(output) = self.next().await {
            all.extend_from_slice(output.as_bytes());
            dropped += output.dropped;
        }
        (all, dropped)
    }

    /// Reads until a text has come, and returns all text so far.
    pub(crate) async fn until(&mut self, text: &str) -> String {
        let mut all = String::new();
        while !all.contains(text) {
            let output = self.next().await;
            all += &output
                .unwrap_or_else(|| panic!("no {text:?} in {all:?}"))
                .text;
        }
        all
    }
}

/// An agent process, killed when the test ends.
pub(crate) struct Agent {
    pub(crate) child: Child,
    /// Reads its stderr from the start, so that the agent never blocks on it.
    log: Option<JoinHandle<String>>,
}

impl Agent {
    pub(crate) fn start(launch: &Launch, env: &[(&str, &str)]) -> Self {
        let mut child = Command::new(example("agent"))
            .env_remove("NCCL_SOCKET_IFNAME")
            .env_remove("GLOO_SOCKET_IFNAME")
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // Fails if the agent has ended already, which its status shows.
        let _ = stdin.write_all(launch.to_line().as_bytes());
        let stderr = child.stderr.take().unwrap();
        let log = thread::spawn(move || std::io::read_to_string(stderr).unwrap());
        Self {
            child,
            log: Some(log),
        }
    }

    /// Waits for its end, and returns its status and its stderr.
    pub(crate) async fn end(mut self) -> (ExitStatus, String) {
        let log = self.log.take().unwrap();
        let log = tokio::task::spawn_blocking(move || log.join().unwrap());
        let log = timeout(SOON, log).await.expect("the agent ends").unwrap();
        (self.child.wait().unwrap(), log)
    }

    pub(crate) fn signal(&self, signal: i32) {
        kill(self.child.id(), signal);
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn kill(pid: u32, signal: i32) {
    // SAFETY: integers only.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
}

/// The ids of processes whose environment names this run: its workers and their children.
pub(crate) fn processes_of_run(run_id: &str) -> Vec<u32> {
    let mark = format!("ELASTICRUN_RUN_ID={run_id}");
    let all = fs::read_dir("/proc").unwrap();
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ
                .split(|byte| *byte == 0)
                .any(|pair| pair == mark.as_bytes())
        })
        .collect()
}

/// Polls until a condition holds.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + SOON;
    while !is_so() {
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
