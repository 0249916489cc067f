//! An agent that a test plays, and workers that execute commands of the test.
//!
//! A worker is another process of this test binary. It trains by reading commands from its stdin
//! and prints the result of each. See [`scripted_worker`] for the commands.

#![allow(dead_code, reason = "not every suite uses all of it")]

mod scripted_worker;

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use elasticrun_collectives::create_region;
use elasticrun_protocol::{
    CommitId, DriverEpoch, FromWorker, Generation, HostId, LocalRank, Process, Rank, Round,
    ToWorker,
    auth::Bytes32,
    control::{Keeper, Member, Place, Start},
    frame::{self, FrameBuffer},
    local::WorkerIdentity,
    opening::MAX_VERSION,
    store::{Answer, FromClient, Refused, Request, Value},
    topology::neighbours,
};
use elasticrun_shm::{commit::CommitMemory, fds, page::AgentPage};
use elasticrun_tls::{Authority, Role};
use serde::{Serialize, de::DeserializeOwned};

#[allow(unused_imports, reason = "not every suite uses all of it")]
pub(crate) use scripted_worker::careless;
pub(crate) use scripted_worker::scripted_worker;

pub(crate) const EPOCH: DriverEpoch = DriverEpoch(1);

/// The key of the data plane of the job.
pub(crate) const KEY: Bytes32 = Bytes32([5; 32]);

/// Frequent enough for a test, and rare enough to leave the worker time to train.
pub(crate) const BEAT: Duration = Duration::from_millis(20);

pub(crate) fn id(round: u64, count: u64) -> CommitId {
    CommitId {
        epoch: EPOCH,
        round: Round(round),
        count,
    }
}

/// The agent's socket.
pub(crate) struct Agent {
    path: PathBuf,
    listener: UnixListener,
}

impl Agent {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("elasticrun-worker-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("a socket");
        Self { path, listener }
    }

    /// A worker process whose attach request is not answered yet.
    pub(crate) fn spawn_unattached(&self, slot: u32) -> WorkerProcess {
        self.spawn_unattached_as(slot, "a_worker")
    }

    /// The same. The process runs the ignored test of this name.
    fn spawn_unattached_as(&self, slot: u32, name: &str) -> WorkerProcess {
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", name, "--nocapture", "--quiet", "--ignored"])
            .env("ELASTICRUN_AGENT_SOCKET", &self.path)
            .env("ELASTICRUN_LOCAL_RANK", slot.to_string())
            .env("ELASTICRUN_GENERATION", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this binary starts");
        let (stream, _) = self.listener.accept().expect("the worker dials");
        let stdin = child.stdin.take().expect("a pipe");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut process = WorkerProcess {
            process: Process {
                local_rank: LocalRank(slot),
                generation: Generation(1),
            },
            child,
            stdin,
            lines,
            stream,
            frames: FrameBuffer::default(),
        };
        let attach = process.receive();
        let pid = process.child.id();
        let expected = FromWorker::Attach {
            local_rank: LocalRank(slot),
            generation: Generation(1),
            pid,
            buffers: 4,
        };
        assert_eq!(attach, expected);
        process
    }

    /// Accepts the store connection that a worker opens.
    pub(crate) fn requests(&self, process: Process) -> StoreRequests {
        let version = MAX_VERSION;
        self.requests_as(process, ToWorker::StoreReady { version })
    }

    /// The same, as an agent that gives this answer.
    pub(crate) fn requests_as(&self, process: Process, answer: ToWorker) -> StoreRequests {
        let (stream, _) = self.listener.accept().expect("the worker dials");
        let mut requests = StoreRequests {
            stream,
            frames: FrameBuffer::default(),
        };
        let open = FromWorker::OpenStore {
            local_rank: process.local_rank,
            generation: process.generation,
            version: MAX_VERSION,
        };
        assert_eq!(requests.receive::<FromWorker>(), open);
        requests.send(&answer);
        requests
    }

    /// A worker that is attached and at `run()`.
    pub(crate) fn worker(&self, slot: u32) -> Worker {
        self.worker_as(slot, "a_worker")
    }

    /// The same. The process runs the ignored test of this name.
    pub(crate) fn worker_as(&self, slot: u32, name: &str) -> Worker {
        self.worker_with(slot, name, Offer::default())
    }

    /// The same, with what an agent may offer.
    pub(crate) fn worker_with(&self, slot: u32, name: &str, offer: Offer) -> Worker {
        let mut worker = Worker {
            page: AgentPage::create().expect("a page"),
            commits: CommitMemory::create().expect("memory"),
            connection: self.spawn_unattached_as(slot, name),
            data_port: 0,
        };
        let mut descriptors = vec![worker.page.as_fd()];
        descriptors.extend(worker.commits.fds(offer.buffers.into()));
        let attached = ToWorker::Attached {
            data_key: KEY,
            listen: "127.0.0.1".into(),
            heartbeat_interval: BEAT,
            connect_timeout: Duration::from_secs(10),
            encrypt_data: offer.encrypt_data,
            buffers: offer.buffers,
            commit_memory: offer.commit_memory,
            identity: Some(identity()),
        };
        worker.connection.send(&attached, &descriptors);
        assert_eq!(worker.join(), (None, true, None));
        worker
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A worker process and its connection to the agent.
pub(crate) struct WorkerProcess {
    pub(crate) process: Process,
    pub(crate) child: Child,
    stdin: ChildStdin,
    lines: BufReader<ChildStdout>,
    stream: UnixStream,
    frames: FrameBuffer,
}

impl WorkerProcess {
    pub(crate) fn send(&self, message: &ToWorker, descriptors: &[BorrowedFd<'_>]) {
        let bytes = frame::to_frame(message).expect("a small message");
        fds::send_all(&self.stream, &bytes, descriptors).expect("the worker lives");
    }

    pub(crate) fn receive(&mut self) -> FromWorker {
        loop {
            if let Some(message) = self.frames.next_message().expect("a message") {
                return message;
            }
            let mut bytes = [0; 4096];
            let count =
                fds::recv(&self.stream, &mut bytes, &mut Vec::new()).expect("the worker lives");
            assert!(count > 0, "the worker hung up");
            self.frames.extend(&bytes[..count]);
        }
    }

    /// Sends a command to the worker.
    pub(crate) fn send_command(&mut self, call: &str) {
        writeln!(self.stdin, "{call}").expect("the worker reads");
    }

    /// The next line that the worker prints.
    pub(crate) fn next_line(&mut self) -> String {
        let mut line = String::new();
        // The harness of this test binary prints, too.
        while !line.starts_with("> ") {
            line.clear();
            let count = self.lines.read_line(&mut line).expect("the worker writes");
            assert!(count > 0, "the worker ended without a word");
        }
        line["> ".len()..].trim_end().to_owned()
    }

    /// Sends a command to the worker and returns its result.
    pub(crate) fn run(&mut self, call: &str) -> String {
        self.send_command(call);
        self.next_line()
    }

    pub(crate) fn end(&mut self) -> ExitStatus {
        self.child.wait().expect("our child")
    }

    /// Ends the connection, as an agent that is gone.
    pub(crate) fn disconnect(&mut self) {
        self.stream
            .shutdown(std::net::Shutdown::Both)
            .expect("an open socket");
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // Fails only for a process that is reaped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A worker's connection for store requests.
pub(crate) struct StoreRequests {
    stream: UnixStream,
    frames: FrameBuffer,
}

impl StoreRequests {
    pub(crate) fn send(&self, message: &impl Serialize) {
        let bytes = frame::to_frame(message).expect("a small message");
        fds::send_all(&self.stream, &bytes, &[]).expect("the worker lives");
    }

    pub(crate) fn receive<M: DeserializeOwned>(&mut self) -> M {
        loop {
            if let Some(message) = self.frames.next_message().expect("a message") {
                return message;
            }
            let mut bytes = [0; 4096];
            let count = fds::recv(&self.stream, &mut bytes, &mut Vec::new()).expect("a socket");
            assert!(count > 0, "the worker hung up");
            self.frames.extend(&bytes[..count]);
        }
    }

    /// The next request.
    pub(crate) fn next_request(&mut self) -> Request {
        match self.receive() {
            FromClient::Ask(request) => request,
            other => panic!("expected a request, got {other:?}"),
        }
    }

    pub(crate) fn answer(&self, number: u64, result: Result<Value, Refused>) {
        self.send(&Answer { number, result });
    }
}

/// What an agent may offer to a worker. The default is what an agent of the first release offers.
pub(crate) struct Offer {
    pub(crate) encrypt_data: bool,
    pub(crate) buffers: u8,
    pub(crate) commit_memory: Option<u64>,
}

impl Default for Offer {
    fn default() -> Self {
        Self {
            encrypt_data: false,
            buffers: 2,
            commit_memory: None,
        }
    }
}

/// A worker and the resources that its agent keeps for it.
pub(crate) struct Worker {
    pub(crate) connection: WorkerProcess,
    pub(crate) page: AgentPage,
    pub(crate) commits: CommitMemory,
    data_port: u16,
}

impl std::ops::Deref for Worker {
    type Target = WorkerProcess;

    fn deref(&self) -> &WorkerProcess {
        &self.connection
    }
}

impl std::ops::DerefMut for Worker {
    fn deref_mut(&mut self) -> &mut WorkerProcess {
        &mut self.connection
    }
}

impl Worker {
    /// The worker's message at `run()`: the round it left, whether it was told to, and its newest
    /// commit.
    pub(crate) fn join(&mut self) -> (Option<Round>, bool, Option<CommitId>) {
        match self.connection.receive() {
            FromWorker::Join {
                left,
                told,
                data_port,
                commit,
                ..
            } => {
                self.data_port = data_port;
                assert_eq!(commit, self.newest());
                (left, told, commit)
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn newest(&self) -> Option<CommitId> {
        let reader = self.commits.reader().expect("its memory");
        reader.newest().expect("its commits").map(|info| info.id)
    }

    /// The value that the worker committed.
    pub(crate) fn committed(&self, id: CommitId) -> u64 {
        let reader = self.commits.reader().expect("its memory");
        let commit = reader.read(id).expect("the commit");
        u64::from_le_bytes(commit.bytes().try_into().expect("eight bytes"))
    }

    pub(crate) fn abort(&self, round: u64) {
        self.send(
            &ToWorker::Abort {
                round: Round(round),
            },
            &[],
        );
    }
}

/// The location of the base when no member has it.
#[derive(Default)]
pub(crate) struct BaseLocation<'a> {
    pub(crate) same_host: Option<&'a CommitMemory>,
    pub(crate) other_host: Option<SocketAddr>,
}

/// Starts a round of these workers, all on one host.
pub(crate) fn start(workers: &mut [&mut Worker], round: u64, base: Option<CommitId>) {
    start_from(workers, round, base, BaseLocation::default());
}

pub(crate) fn start_from(
    workers: &mut [&mut Worker],
    round: u64,
    base: Option<CommitId>,
    location: BaseLocation<'_>,
) {
    let members = members(workers);
    let region =
        (members.len() > 1).then(|| create_region(members.len() as u32).expect("a region"));
    let keeper = |(host, address)| Keeper {
        host: HostId::new(host),
        process: workers[0].process,
        address,
    };
    // A keeper of this host is reached by its descriptors.
    let same_host = (location.same_host).map(|_| ("here", SocketAddr::from(([127, 0, 0, 1], 1))));
    let other_host = location.other_host.map(|address| ("elsewhere", address));
    let start = Start {
        base,
        keeper: same_host.or(other_host).map(keeper),
        members: members.clone(),
        host_index: 0,
        host_count: 1,
        ..round_of(round, members.len())
    };
    let keeper = location.same_host.map(|memory| {
        memory
            .read_only_pair(base.expect("a base"))
            .expect("descriptors")
    });
    for (worker, (member, local_index)) in workers.iter_mut().zip(members.into_iter().zip(0..)) {
        let keeper = keeper.as_ref().filter(|_| local_index == 0);
        let descriptors: Vec<&OwnedFd> =
            region.iter().chain(keeper.into_iter().flatten()).collect();
        let descriptors: Vec<_> = descriptors.into_iter().map(AsFd::as_fd).collect();
        let message = ToWorker::Start {
            start: Box::new(start.clone()),
            member,
            local_index,
            region: region.is_some(),
            keeper: keeper.is_some(),
        };
        worker.send(&message, &descriptors);
    }
}

/// Starts a round of these workers, each on a host of its own.
pub(crate) fn start_on_separate_hosts(
    workers: &mut [&mut Worker],
    round: u64,
    base: Option<CommitId>,
) {
    let members = members(workers);
    let size = members.len() as u32;
    let ports: Vec<u16> = workers.iter().map(|worker| worker.data_port).collect();
    for (worker, (member, host)) in workers.iter_mut().zip(members.into_iter().zip(0..)) {
        let peers: BTreeMap<u32, SocketAddr> = neighbours(host, size)
            .into_iter()
            .map(|peer| (peer, ([127, 0, 0, 1], ports[peer as usize]).into()))
            .collect();
        let start = Start {
            base,
            members: vec![member],
            host_index: host,
            host_count: size,
            peers,
            ..round_of(round, size as usize)
        };
        let message = ToWorker::Start {
            start: Box::new(start),
            member,
            local_index: 0,
            region: false,
            keeper: false,
        };
        worker.send(&message, &[]);
    }
}

fn members(workers: &[&mut Worker]) -> Vec<Member> {
    let size = workers.len() as u32;
    let member = |(worker, rank): (&&mut Worker, u32)| Member {
        process: worker.process,
        place: Place {
            rank: Rank(rank),
            size,
            local_size: size,
            cross_rank: 0,
            cross_size: 1,
            local_rank: None,
        },
        seat: None,
    };
    workers.iter().zip(0..).map(member).collect()
}

fn round_of(round: u64, size: usize) -> Start {
    Start {
        epoch: EPOCH,
        round: Round(round),
        base: None,
        base_shards: None,
        memory: None,
        holders: Vec::new(),
        replica_group_size: None,
        order: Vec::new(),
        keeper: None,
        size: size as u32,
        members: Vec::new(),
        host_index: 0,
        host_count: 1,
        peers: BTreeMap::new(),
        coordinator: ([127, 0, 0, 1], 29_500).into(),
        prefix: format!("run/{EPOCH}/{round}"),
    }
}

/// Waits for a condition in shared memory, which sends no notification.
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::yield_now();
    }
}

/// The authority of the job of all workers.
pub(crate) fn authority() -> &'static Authority {
    static AUTHORITY: LazyLock<Authority> =
        LazyLock::new(|| Authority::new("run").expect("randomness"));
    &AUTHORITY
}

fn identity() -> WorkerIdentity {
    let identity = authority().issue(Role::Worker, "localhost");
    let frame = frame::to_frame(&identity.expect("randomness")).expect("it is small");
    // Behind the length.
    WorkerIdentity(String::from_utf8(frame[4..].to_vec()).expect("JSON is text"))
}
