//! The SDK's own thread: this process's sign of life, and the ear for its agent.
//!
//! It runs until the process ends. It never waits for the training thread but for an instant, so signs of
//! life do not depend on what the user's code does.

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

use super::{Inbox, attach::Welcome, inbox::Started};
use crate::Error;

/// See the module.
#[derive(Debug)]
pub(super) struct Listener {
    stream: UnixStream,
    inbox: Arc<Inbox>,
    frames: FrameBuffer,
    fds: VecDeque<OwnedFd>,
    beats: Option<Beats>,
}

#[derive(Debug)]
struct Beats {
    page: WorkerPage,
    /// The end of this thread is the end of the process to its agent.
    _alive: LivenessLock,
    interval: Duration,
    next: Instant,
}

impl Beats {
    /// Beats if it is time, and says how long the next one has.
    fn due(&mut self) -> Duration {
        let now = Instant::now();
        if self.next <= now {
            self.page.beat();
            self.next = now + self.interval;
        }
        self.next - now
    }
}

/// Why the agent cannot be heard any more.
enum Deaf {
    /// It was said to the inbox.
    Said,
    Lost(String),
}

impl From<io::Error> for Deaf {
    fn from(error: io::Error) -> Self {
        Self::Lost(error.to_string())
    }
}

impl Listener {
    pub(super) fn new(stream: UnixStream, inbox: Arc<Inbox>) -> Self {
        Self {
            stream,
            inbox,
            frames: FrameBuffer::default(),
            fds: VecDeque::new(),
            beats: None,
        }
    }

    /// Runs until the process ends.
    pub(super) fn run(mut self) {
        // What it hears is urgent, and a thread must run to die: its end is how the agent learns of a kill.
        if let Err(error) = sched::set_time_slice(sched::SHORTEST_SLICE) {
            tracing::debug!(%error, "no short time slices here");
        }
        match self.listen() {
            Deaf::Said => {}
            Deaf::Lost(why) => self.inbox.end(Ended::AgentLost(why)),
        }
        // Beats are for nobody now, but this thread must not end before the process does.
        while self.beats.is_some() {
            std::thread::park();
        }
    }

    fn listen(&mut self) -> Deaf {
        loop {
            let heard = self.wait().and_then(|()| self.read());
            if let Err(deaf) = heard {
                return deaf;
            }
        }
    }

    /// Sleeps until the agent speaks or it is time to beat.
    fn wait(&mut self) -> Result<(), Deaf> {
        loop {
            let timeout = match &mut self.beats {
                // Rounded up, so that less than a millisecond does not spin.
                Some(beats) => PollTimeout::try_from(beats.due() + Duration::from_millis(1))
                    .unwrap_or(PollTimeout::MAX),
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

    fn read(&mut self) -> Result<(), Deaf> {
        let mut bytes = [0; 16 << 10];
        let mut came = Vec::new();
        let count = fds::recv(&self.stream, &mut bytes, &mut came)?;
        self.fds.extend(came);
        if count == 0 {
            return Err(Deaf::Lost("it closed the connection".to_owned()));
        }
        self.frames.extend(&bytes[..count]);
        while let Some(message) = self.frames.next_message().map_err(strange)? {
            self.hear(message)?;
        }
        Ok(())
    }

    fn hear(&mut self, message: ToWorker) -> Result<(), Deaf> {
        match message {
            ToWorker::Attached {
                data_key,
                listen,
                heartbeat_interval,
                connect_timeout,
            } => {
                let page = self.begin(heartbeat_interval)?;
                let welcome = Welcome {
                    page: page.clone(),
                    commits: self.two()?,
                    data_key,
                    listen,
                    connect_timeout,
                };
                self.inbox.welcome(Ok(welcome), Some(page));
            }
            ToWorker::Refused { why } => {
                self.inbox.welcome(Err(Error::Refused { why }), None);
                return Err(Deaf::Said);
            }
            ToWorker::Start {
                start,
                member,
                local_index,
                region,
                keeper,
            } => {
                let region = if region { Some(self.one()?) } else { None };
                let keeper = if keeper { Some(self.two()?) } else { None };
                self.inbox.started(Started {
                    start,
                    member,
                    local_index,
                    region,
                    keeper,
                });
            }
            // Said over the connections that the store opens.
            ToWorker::StoreOpened | ToWorker::CallKey { .. } => {}
            ToWorker::Abort { round } => self.inbox.abort(round),
            ToWorker::Stop { why } => self.inbox.end(Ended::Stopped(why)),
        }
        Ok(())
    }

    /// From here on this thread is the process's sign of life.
    fn begin(&mut self, interval: Duration) -> Result<WorkerPage, Deaf> {
        let page = WorkerPage::open(&self.one()?).map_err(strange)?;
        let alive = LivenessLock::hold(&page)?;
        page.beat();
        self.beats = Some(Beats {
            page: page.clone(),
            _alive: alive,
            interval,
            next: Instant::now() + interval,
        });
        Ok(page)
    }

    fn one(&mut self) -> Result<OwnedFd, Deaf> {
        let missing = || Deaf::Lost("a descriptor did not come with its message".to_owned());
        self.fds.pop_front().ok_or_else(missing)
    }

    fn two(&mut self) -> Result<CommitFds, Deaf> {
        Ok([self.one()?, self.one()?])
    }
}

fn strange(error: impl std::fmt::Display) -> Deaf {
    Deaf::Lost(error.to_string())
}
