//! A worker for the tests of this crate: does what its arguments say, one after the other.
//!
//! - `attach`: gets its page and memories, holds its sign of life, beats
//! - `join`: says that it is at `run()`
//! - `start`: waits for a round, prints what it was told, trains
//! - `commit=N`: commits N bytes
//! - `keeper`: prints the newest commit of the keeper whose memory came with the start
//! - `boundary`: passes boundaries until it leaves or the round is aborted; prints which
//! - `abort`: waits for the agent to say that the round is over, prints it
//! - `finish`: says that it returned from `run()`
//! - `rounds`: joins, starts and is aborted, for ever
//! - `ballast=N`: makes N megabytes resident
//! - `stop`: waits until it is told to stop
//! - `quiet`: stops beating
//! - `open`: opens a connection for requests to the store, prints whether it may
//! - `ask=KEY`: asks for the value of a key; `answer`: prints the next answer
//! - `print=TEXT`, `exit=N`, `_exit=N`, `hang`, `child`: a child in a session of its own that lives on

use std::{
    env,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Command, exit},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use elasticrun_protocol::{
    CommitId, FromWorker, Generation, LocalRank, ToWorker,
    control::Start,
    frame::{self, FrameBuffer},
    store::{Answer, FromClient, Namespace, Op, Request},
};
use elasticrun_shm::{
    alive::{self, Alive},
    commit::{CommitFds, CommitReader, CommitWriter},
    fds,
    page::{AtBoundary, InRound, Phase, WorkerPage},
};
use serde::{Serialize, de::DeserializeOwned};

struct Worker {
    socket: UnixStream,
    frames: FrameBuffer,
    fds: Vec<OwnedFd>,
    page: WorkerPage,
    writer: CommitWriter,
    beats: Arc<AtomicBool>,
    start: Option<(Box<Start>, InRound)>,
    commits: u64,
    keeper: Option<CommitFds>,
}

fn number<T: std::str::FromStr>(name: &str) -> T {
    let text = env::var(name).unwrap_or_default();
    text.parse()
        .unwrap_or_else(|_| panic!("{name} is {text:?}"))
}

impl Worker {
    fn attach() -> Self {
        let path = env::var("ELASTICRUN_AGENT_SOCKET").expect("an agent");
        let socket = UnixStream::connect(path).expect("the agent listens");
        let mut worker = Connection {
            socket,
            frames: FrameBuffer::default(),
            fds: Vec::new(),
        };
        worker.say(&FromWorker::Attach {
            local_rank: LocalRank(number("ELASTICRUN_LOCAL_RANK")),
            generation: Generation(number("ELASTICRUN_GENERATION")),
            pid: std::process::id(),
        });
        let ToWorker::Attached {
            heartbeat_interval, ..
        } = worker.hear()
        else {
            panic!("refused");
        };
        let mut fds = std::mem::take(&mut worker.fds);
        let b = fds.pop().expect("three descriptors");
        let a = fds.pop().expect("three descriptors");
        let page = WorkerPage::open(&fds[0]).expect("a page");
        alive::announce_exit(&page);
        let beats = Arc::new(AtomicBool::new(true));
        let (held, wait) = std::sync::mpsc::channel();
        thread::spawn({
            let (page, beats) = (page.clone(), Arc::clone(&beats));
            move || {
                let _alive = Alive::hold(&page).expect("a robust futex");
                held.send(()).expect("it waits");
                loop {
                    if beats.load(Ordering::SeqCst) {
                        page.beat();
                    }
                    thread::sleep(heartbeat_interval / 2);
                }
            }
        });
        wait.recv().expect("held");
        Self {
            socket: worker.socket,
            frames: worker.frames,
            fds: Vec::new(),
            page,
            writer: CommitWriter::open([a, b]).expect("commit memory"),
            beats,
            start: None,
            commits: 0,
            keeper: None,
        }
    }

    fn say(&self, message: &FromWorker) {
        say(&self.socket, message);
    }

    fn hear(&mut self) -> ToWorker {
        hear(&self.socket, &mut self.frames, &mut self.fds)
    }

    fn join(&mut self) {
        self.page.set_phase(Phase::Waiting);
        let left = self.start.take().map(|(start, _)| start.round);
        self.say(&FromWorker::Join {
            left,
            told: true,
            data_port: 9,
            commit: self.writer.newest().expect("sound").map(|info| info.id),
            empty: false,
            unreachable: Vec::new(),
        });
    }

    fn start(&mut self) {
        let ToWorker::Start {
            start,
            member,
            local_index,
            region,
            keeper,
        } = self.hear()
        else {
            panic!("expected a start");
        };
        let mut fds = std::mem::take(&mut self.fds);
        assert_eq!(fds.len(), usize::from(region) + 2 * usize::from(keeper));
        let len = if region {
            elasticrun_shm::memfd::len(&fds[0]).expect("a region")
        } else {
            0
        };
        if keeper {
            let b = fds.pop().expect("it came");
            self.keeper = Some([fds.pop().expect("it came"), b]);
        }
        println!(
            "start round={} rank={} size={} local_index={local_index} region={} keeper={keeper}",
            start.round,
            member.place.rank,
            start.size,
            len > 0
        );
        let round = self.page.enter(start.round);
        self.start = Some((start, round));
    }

    fn commit(&mut self, len: usize) {
        let (start, _) = self.start.as_ref().expect("a round");
        self.commits += 1;
        let id = CommitId {
            epoch: start.epoch,
            round: start.round,
            count: self.commits,
        };
        let mut commit = self.writer.begin(id, 0).expect("memory");
        commit.append(len).expect("memory").fill(b'c');
        commit.seal(None);
        self.page.count_commit();
        println!("committed {id}");
    }

    fn abort(&mut self) {
        let ToWorker::Abort { round } = self.hear() else {
            panic!("expected an abort");
        };
        println!("abort {round}");
    }

    fn boundary(&mut self) {
        let (_, round) = self.start.as_mut().expect("a round");
        let how = loop {
            match round.boundary() {
                AtBoundary::Continue => thread::sleep(Duration::from_millis(1)),
                AtBoundary::Leave => break "leave",
                AtBoundary::Aborted => break "aborted",
            }
        };
        println!("{how}");
    }
}

/// The connection for requests.
struct Requests {
    socket: UnixStream,
    frames: FrameBuffer,
    asked: u64,
}

impl Requests {
    fn open() -> Self {
        let path = env::var("ELASTICRUN_AGENT_SOCKET").expect("an agent");
        let mut requests = Self {
            socket: UnixStream::connect(path).expect("the agent listens"),
            frames: FrameBuffer::default(),
            asked: 0,
        };
        let open = FromWorker::OpenStore {
            local_rank: LocalRank(number("ELASTICRUN_LOCAL_RANK")),
            generation: Generation(number("ELASTICRUN_GENERATION")),
        };
        say(&requests.socket, &open);
        match hear(&requests.socket, &mut requests.frames, &mut Vec::new()) {
            ToWorker::StoreOpened => println!("opened"),
            other => println!("{other:?}"),
        }
        requests
    }

    fn ask(&mut self, key: &str) {
        self.asked += 1;
        let request = FromClient::Ask(Request {
            number: self.asked,
            namespace: Namespace::Job,
            timeout: Duration::from_secs(60),
            op: Op::Get { key: key.into() },
        });
        say(&self.socket, &request);
    }

    fn answer(&mut self) {
        let answer: Answer = hear(&self.socket, &mut self.frames, &mut Vec::new());
        match answer.result {
            Ok(value) => println!("answer {} {value:?}", answer.number),
            Err(refused) => println!("answer {} {refused}", answer.number),
        }
    }
}

struct Connection {
    socket: UnixStream,
    frames: FrameBuffer,
    fds: Vec<OwnedFd>,
}

impl Connection {
    fn say(&self, message: &FromWorker) {
        say(&self.socket, message);
    }

    fn hear(&mut self) -> ToWorker {
        hear(&self.socket, &mut self.frames, &mut self.fds)
    }
}

fn say(socket: &UnixStream, message: &impl Serialize) {
    let frame = frame::to_frame(message).expect("small");
    fds::send_all(socket, &frame, &[]).expect("the agent lives");
}

fn hear<M: DeserializeOwned>(
    socket: &UnixStream,
    frames: &mut FrameBuffer,
    got: &mut Vec<OwnedFd>,
) -> M {
    loop {
        if let Some(message) = frames.next_message().expect("frames") {
            return message;
        }
        let mut bytes = [0; 4096];
        let count = fds::recv(socket, &mut bytes, got).expect("the agent lives");
        if count == 0 {
            exit(97);
        }
        frames.extend(&bytes[..count]);
    }
}

fn hang() -> ! {
    loop {
        thread::park();
    }
}

#[expect(
    clippy::zombie_processes,
    reason = "a child that is left alone is what is tested"
)]
fn main() {
    let mut worker = None;
    let mut requests = None;
    for word in env::args().skip(1) {
        let (name, value) = word.split_once('=').unwrap_or((&word, ""));
        let attached = |worker: Option<Worker>| worker.expect("attach first");
        match name {
            "attach" => worker = Some(Worker::attach()),
            "print" => println!("{value}"),
            "open" => requests = Some(Requests::open()),
            "ask" => requests.as_mut().expect("open first").ask(value),
            "answer" => requests.as_mut().expect("open first").answer(),
            "ballast" => {
                let megabytes: usize = value.parse().expect("a number");
                std::mem::forget(vec![1_u8; megabytes << 20]);
            }
            "exit" => exit(value.parse().expect("a code")),
            // SAFETY: ends the process without running any handler.
            "_exit" => unsafe { libc::_exit(value.parse().expect("a code")) },
            "hang" => hang(),
            "child" => {
                let mut sleep = Command::new("sleep");
                // SAFETY: one system call.
                unsafe {
                    sleep.pre_exec(|| match libc::setsid() {
                        -1 => Err(std::io::Error::last_os_error()),
                        _ => Ok(()),
                    });
                }
                let child = sleep.arg("1000").spawn().expect("sleep");
                println!("child {}", child.id());
            }
            _ => {
                let mut own = attached(worker.take());
                match name {
                    "join" => own.join(),
                    "start" => own.start(),
                    "commit" => own.commit(value.parse().expect("a number")),
                    "boundary" => own.boundary(),
                    "rounds" => loop {
                        own.join();
                        own.start();
                        own.abort();
                    },
                    "quiet" => own.beats.store(false, Ordering::SeqCst),
                    "keeper" => {
                        let fds = own.keeper.take().expect("a keeper");
                        let reader = CommitReader::open(fds).expect("commit memory");
                        let newest = reader.newest().expect("sound").expect("a commit");
                        println!("keeper {} {}", newest.id, newest.len);
                    }
                    "finish" => {
                        let round = own.start.as_ref().expect("a round").0.round;
                        own.say(&FromWorker::Finished { round });
                        own.page.set_phase(Phase::Finished);
                    }
                    "abort" => own.abort(),
                    "stop" => {
                        let ToWorker::Stop { why } = own.hear() else {
                            panic!("expected a stop");
                        };
                        println!("stop {why:?}");
                    }
                    other => panic!("no word {other}"),
                }
                worker = Some(own);
            }
        }
    }
}
