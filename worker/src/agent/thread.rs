//! The SDK's own thread: sends heartbeats and reads the agent's messages.
//!
//! It runs until the process ends. It waits for the training thread only for short critical
//! sections, so heartbeats do not depend on user code.

use std::{
    collections::VecDeque,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::Arc,
    time::{Duration, Instant},
};

use elasticrun_core::worker::Ended;
use elasticrun_protocol::{ToWorker, frame::FrameBuffer};
use elasticrun_shm::{commit::CommitFds, fds, liveness::LivenessLock, page::WorkerPage, sched};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

use super::{Inbox, inbox::StartedRound, welcome::Welcome};
use crate::Error;

/// The buffers of a keeper that come with a start. One of them has the base.
const KEEPER_BUFFERS: u8 = 2;

/// Reads the messages of the agent and sends heartbeats.
#[derive(Debug)]
pub(super) struct AgentThread {
    stream: UnixStream,
    inbox: Arc<Inbox>,
    frames: FrameBuffer,
    fds: VecDeque<OwnedFd>,
    heartbeat: Option<HeartbeatTimer>,
}

#[derive(Debug)]
struct HeartbeatTimer {
    page: WorkerPage,
    /// The agent takes the end of this thread for the end of the process.
    _alive: LivenessLock,
    interval: Duration,
    next: Instant,
}

impl HeartbeatTimer {
    /// Sends a heartbeat if it is due. Returns the time until the next one.
    fn due(&mut self) -> Duration {
        let now = Instant::now();
        if self.next <= now {
            self.page.beat();
            self.next = now + self.interval;
        }
        self.next - now
    }
}

/// Why no more messages of the agent will come.
enum Disconnect {
    /// The inbox knows the reason already.
    Reported,
    Lost(String),
}

impl From<io::Error> for Disconnect {
    fn from(error: io::Error) -> Self {
        Self::Lost(error.to_string())
    }
}

impl AgentThread {
    pub(super) fn new(stream: UnixStream, inbox: Arc<Inbox>) -> Self {
        Self {
            stream,
            inbox,
            frames: FrameBuffer::default(),
            fds: VecDeque::new(),
            heartbeat: None,
        }
    }

    /// Runs until the process ends.
    pub(super) fn run(mut self) {
        // Aborts are urgent. A thread must also run to die, and its end is how the agent detects a
        // kill.
        if let Err(error) = sched::set_time_slice(sched::SHORTEST_SLICE) {
            tracing::debug!(%error, "no short time slices here");
        }
        match self.listen() {
            Disconnect::Reported => {}
            Disconnect::Lost(why) => self.inbox.end(Ended::AgentLost(why)),
        }
        // Heartbeats have no receiver now, but this thread must not end before the process does.
        while self.heartbeat.is_some() {
            std::thread::park();
        }
    }

    fn listen(&mut self) -> Disconnect {
        loop {
            let result = self.wait().and_then(|()| self.read());
            if let Err(disconnect) = result {
                return disconnect;
            }
        }
    }

    /// Sleeps until a message arrives. Sends heartbeats meanwhile.
    fn wait(&mut self) -> Result<(), Disconnect> {
        loop {
            let timeout = match &mut self.heartbeat {
                // Rounded up, so that less than a millisecond does not spin.
                Some(heartbeat) => {
                    PollTimeout::try_from(heartbeat.due() + Duration::from_millis(1))
                        .unwrap_or(PollTimeout::MAX)
                }
                None => PollTimeout::NONE,
            };
            let mut sockets = [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)];
            match poll(&mut sockets, timeout) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
    }

    fn read(&mut self) -> Result<(), Disconnect> {
        let mut bytes = [0; 16 << 10];
        let mut received = Vec::new();
        let count = fds::recv(&self.stream, &mut bytes, &mut received)?;
        self.fds.extend(received);
        if count == 0 {
            return Err(Disconnect::Lost("it closed the connection".to_owned()));
        }
        self.frames.extend(&bytes[..count]);
        while let Some(message) = self.frames.next_message().map_err(invalid)? {
            self.handle(message)?;
        }
        Ok(())
    }

    fn handle(&mut self, message: ToWorker) -> Result<(), Disconnect> {
        match message {
            ToWorker::Attached {
                data_key,
                listen,
                heartbeat_interval,
                connect_timeout,
                encrypt_data,
                buffers,
                commit_memory,
                identity,
            } => {
                let page = self.start_heartbeat(heartbeat_interval)?;
                let welcome = Welcome {
                    page: page.clone(),
                    commits: self.take_commit_fds(buffers)?,
                    data_key,
                    listen,
                    connect_timeout,
                    encrypt_data,
                    commit_memory,
                    identity,
                };
                self.inbox.welcome(Ok(welcome), Some(page));
            }
            ToWorker::Refused { why } => {
                self.inbox.welcome(Err(Error::Refused { why }), None);
                return Err(Disconnect::Reported);
            }
            ToWorker::Start {
                start,
                member,
                local_index,
                region,
                keeper,
            } => {
                let region = if region { Some(self.take_fd()?) } else { None };
                let keeper = if keeper {
                    Some(self.take_commit_fds(KEEPER_BUFFERS)?)
                } else {
                    None
                };
                self.inbox.started(StartedRound {
                    start,
                    member,
                    local_index,
                    region,
                    keeper,
                });
            }
            // Sent only over the connections of the store and of the call key.
            ToWorker::StoreOpened
            | ToWorker::StoreReady { .. }
            | ToWorker::Shards { .. }
            | ToWorker::CallIdentity { .. } => {}
            ToWorker::Abort { round } => self.inbox.abort(round),
            ToWorker::Stop { why } => self.inbox.end(Ended::Stopped(why)),
        }
        Ok(())
    }

    /// From here on, this thread represents the process: the agent watches its heartbeats and its
    /// end.
    fn start_heartbeat(&mut self, interval: Duration) -> Result<WorkerPage, Disconnect> {
        let page = WorkerPage::open(&self.take_fd()?).map_err(invalid)?;
        let alive = LivenessLock::hold(&page)?;
        page.beat();
        self.heartbeat = Some(HeartbeatTimer {
            page: page.clone(),
            _alive: alive,
            interval,
            next: Instant::now() + interval,
        });
        Ok(page)
    }

    fn take_fd(&mut self) -> Result<OwnedFd, Disconnect> {
        let missing = || Disconnect::Lost("a descriptor did not come with its message".to_owned());
        self.fds.pop_front().ok_or_else(missing)
    }

    fn take_commit_fds(&mut self, buffers: u8) -> Result<CommitFds, Disconnect> {
        (0..buffers).map(|_| self.take_fd()).collect()
    }
}

fn invalid(error: impl std::fmt::Display) -> Disconnect {
    Disconnect::Lost(error.to_string())
}
