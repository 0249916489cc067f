//! An agent that a test plays, and workers that do what the test says.
//!
//! A worker is this test binary again: it trains by reading calls from its stdin and prints what came of
//! each. See [`puppet`] for the calls.

#![allow(dead_code, reason = "not every suite uses all of it")]

mod puppet;

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
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use elasticrun_collectives::create_region;
use elasticrun_protocol::{
    CommitId, DriverEpoch, FromWorker, Generation, HostId, LocalRank, Process, Rank, Round,
    ToWorker,
    auth::Bytes32,
    control::{Keeper, Member, Place, Start},
    frame::{self, FrameBuffer},
    store::{Answer, FromClient, Refused, Request, Value},
    topology::neighbours,
};
use elasticrun_shm::{commit::CommitMemory, fds, page::AgentPage};
use serde::{Serialize, de::DeserializeOwned};

#[allow(unused_imports, reason = "not every suite uses all of it")]
pub(crate) use puppet::careless;
pub(crate) use puppet::puppet;

pub(crate) const EPOCH: DriverEpoch = DriverEpoch(1);

/// The key of the data plane of the job.
pub(crate) const KEY: Bytes32 = Bytes32([5; 32]);

/// Often enough for a test, and seldom enough to be a thread's work and not its life.
pub(crate) const BEAT: Duration = Duration::from_millis(20);

pub(crate) fn id(round: u64, count: u64) -> CommitId {
    CommitId {
        epoch: EPOCH,
        round: Round(round),
        count,
    }
}

/// The agent's door.
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

    /// A worker process that has not been let in yet.
    pub(crate) fn knock(&self, slot: u32) -> Guest {
        self.knock_as(slot, "a_worker")
    }

    /// The same, and the ignored test of this name is what it does.
    fn knock_as(&self, slot: u32, name: &str) -> Guest {
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
        let mut guest = Guest {
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
        let attach = guest.hear();
        let pid = guest.child.id();
        let expected = FromWorker::Attach {
            local_rank: LocalRank(slot),
            generation: Generation(1),
            pid,
        };
        assert_eq!(attach, expected);
        guest
    }

    /// The connection for requests of a worker, which opens it now.
    pub(crate) fn requests(&self, of: Process) -> Requests {
        let (stream, _) = self.listener.accept().expect("the worker dials");
        let mut requests = Requests {
            stream,
            frames: FrameBuffer::default(),
        };
        let open = FromWorker::OpenStore {
            local_rank: of.local_rank,
            generation: of.generation,
        };
        assert_eq!(requests.hear::<FromWorker>(), open);
        requests.tell(&ToWorker::StoreOpened);
        requests
    }

    /// A worker that has been let in and is at `run()`.
    pub(crate) fn worker(&self, slot: u32) -> Worker {
        self.worker_as(slot, "a_worker")
    }

    /// The same, and the ignored test of this name is what it does.
    pub(crate) fn worker_as(&self, slot: u32, name: &str) -> Worker {
        let mut worker = Worker {
            page: AgentPage::create().expect("a page"),
            commits: CommitMemory::create().expect("memory"),
            guest: self.knock_as(slot, name),
            data_port: 0,
        };
        let [a, b] = worker.commits.fds();
        let page = worker.page.as_fd();
        let attached = ToWorker::Attached {
            data_key: KEY,
            listen: "127.0.0.1".into(),
            heartbeat_interval: BEAT,
            connect_timeout: Duration::from_secs(10),
        };
        worker.guest.tell(&attached, &[page, a, b]);
        assert_eq!(worker.join(), (None, true, None));
        worker
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A process at the door.
pub(crate) struct Guest {
    pub(crate) process: Process,
    pub(crate) child: Child,
    stdin: ChildStdin,
    lines: BufReader<ChildStdout>,
    stream: UnixStream,
    frames: FrameBuffer,
}

impl Guest {
    pub(crate) fn tell(&self, message: &ToWorker, descriptors: &[BorrowedFd<'_>]) {
        let bytes = frame::to_frame(message).expect("a small message");
        fds::send_all(&self.stream, &bytes, descriptors).expect("the worker lives");
    }

    pub(crate) fn hear(&mut self) -> FromWorker {
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

    /// Has the worker make a call.
    pub(crate) fn call(&mut self, call: &str) {
        writeln!(self.stdin, "{call}").expect("the worker reads");
    }

    /// What the worker prints next.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        // The harness of this test binary prints, too.
        while !line.starts_with("> ") {
            line.clear();
            let count = self.lines.read_line(&mut line).expect("the worker writes");
            assert!(count > 0, "the worker ended without a word");
        }
        line["> ".len()..].trim_end().to_owned()
    }

    /// Has the worker make a call and gives what came of it.
    pub(crate) fn ask(&mut self, call: &str) -> String {
        self.call(call);
        self.line()
    }

    pub(crate) fn end(&mut self) -> ExitStatus {
        self.child.wait().expect("our child")
    }

    /// The agent is gone.
    pub(crate) fn hang_up(&mut self) {
        self.stream
            .shutdown(std::net::Shutdown::Both)
            .expect("an open socket");
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Fails only for one that is reaped already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A worker's connection for requests to the store.
pub(crate) struct Requests {
    stream: UnixStream,
    frames: FrameBuffer,
}

impl Requests {
    pub(crate) fn tell(&self, message: &impl Serialize) {
        let bytes = frame::to_frame(message).expect("a small message");
        fds::send_all(&self.stream, &bytes, &[]).expect("the worker lives");
    }

    pub(crate) fn hear<M: DeserializeOwned>(&mut self) -> M {
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
    pub(crate) fn asked(&mut self) -> Request {
        match self.hear() {
            FromClient::Ask(request) => request,
            other => panic!("expected a request, got {other:?}"),
        }
    }

    pub(crate) fn answer(&self, number: u64, result: Result<Value, Refused>) {
        self.tell(&Answer { number, result });
    }
}

/// A worker and what its agent keeps for it.
pub(crate) struct Worker {
    pub(crate) guest: Guest,
    pub(crate) page: AgentPage,
    pub(crate) commits: CommitMemory,
    data_port: u16,
}

impl std::ops::Deref for Worker {
    type Target = Guest;

    fn deref(&self) -> &Guest {
        &self.guest
    }
}

impl std::ops::DerefMut for Worker {
    fn deref_mut(&mut self) -> &mut Guest {
        &mut self.guest
    }
}

impl Worker {
    /// What it says at `run()`: the round it left, whether it was told to, what it holds.
    pub(crate) fn join(&mut self) -> (Option<Round>, bool, Option<CommitId>) {
        match self.guest.hear() {
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

    /// The value that it committed.
    pub(crate) fn committed(&self, id: CommitId) -> u64 {
        let reader = self.commits.reader().expect("its memory");
        let commit = reader.read(id).expect("the commit");
        u64::from_le_bytes(commit.bytes().try_into().expect("eight bytes"))
    }

    pub(crate) fn abort(&self, round: u64) {
        self.tell(
            &ToWorker::Abort {
                round: Round(round),
            },
            &[],
        );
    }
}

/// Where the base is when no member has it.
#[derive(Default)]
pub(crate) struct Kept<'a> {
    pub(crate) here: Option<&'a CommitMemory>,
    pub(crate) there: Option<SocketAddr>,
}

/// Starts a round of these workers, all on one host.
pub(crate) fn start(workers: &mut [&mut Worker], round: u64, base: Option<CommitId>) {
    start_from(workers, round, base, Kept::default());
}

pub(crate) fn start_from(
    workers: &mut [&mut Worker],
    round: u64,
    base: Option<CommitId>,
    kept: Kept<'_>,
) {
    let members = members(workers);
    let region =
        (members.len() > 1).then(|| create_region(members.len() as u32).expect("a region"));
    let keeper = |(host, address)| Keeper {
        host: HostId::new(host),
        process: workers[0].process,
        address,
    };
    // That of this host is reached by its descriptors.
    let here = (kept.here).map(|_| ("here", SocketAddr::from(([127, 0, 0, 1], 1))));
    let there = kept.there.map(|address| ("elsewhere", address));
    let start = Start {
        base,
        keeper: here.or(there).map(keeper),
        members: members.clone(),
        host_index: 0,
        host_count: 1,
        ..round_of(round, members.len())
    };
    let keeper = kept
        .here
        .map(|memory| memory.read_only().expect("descriptors"));
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
        worker.tell(&message, &descriptors);
    }
}

/// Starts a round of these workers, each on a host of its own.
pub(crate) fn start_apart(workers: &mut [&mut Worker], round: u64, base: Option<CommitId>) {
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
        worker.tell(&message, &[]);
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
    };
    workers.iter().zip(0..).map(member).collect()
}

fn round_of(round: u64, size: usize) -> Start {
    Start {
        epoch: EPOCH,
        round: Round(round),
        base: None,
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

/// Waits for something in shared memory of which nobody tells.
pub(crate) fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::yield_now();
    }
}
