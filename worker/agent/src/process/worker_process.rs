//! The agent's handle of one worker process.

use std::{
    io,
    os::{
        fd::{AsFd, AsRawFd, RawFd},
        unix::process::ExitStatusExt,
    },
    process::ExitStatus,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Poll},
};

use elasticrun_core::agent::Signal;
use elasticrun_protocol::{FromWorker, Process, Rank, ToWorker, control::Exit};
use elasticrun_shm::{liveness_watch::LivenessWatch, pidfd::Pidfd};
use tokio::io::{Interest, unix::AsyncFd};

use crate::{
    local::{AttachRequest, Connection, SharedFd},
    spans,
};

/// The rank that labels the output of a process; none until it is set. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct SharedRank(Arc<AtomicU32>);

const NO_RANK: u32 = u32::MAX;

impl Default for SharedRank {
    fn default() -> Self {
        Self(Arc::new(AtomicU32::new(NO_RANK)))
    }
}

impl SharedRank {
    pub(crate) fn set(&self, rank: Rank) {
        self.0.store(rank.0, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Option<Rank> {
        let rank = self.0.load(Ordering::Relaxed);
        (rank != NO_RANK).then_some(Rank(rank))
    }
}

/// The state of a process between its start and its end.
#[derive(Debug)]
pub(crate) enum ProcessState {
    /// The starter starts the process. A signal that comes now is sent once the process runs.
    Starting(Option<Signal>),
    /// The process runs.
    Running {
        /// The process id of the leader of its session and group.
        pid: u32,
        /// Readable when the leader has ended.
        pidfd: AsyncFd<LeaderPidfd>,
    },
    /// The leader is reaped; the last lines are being read.
    Ended(Exit),
}

/// The pidfd of a leader, as tokio needs it.
#[derive(Debug)]
pub(crate) struct LeaderPidfd(Pidfd);

impl AsRawFd for LeaderPidfd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// One worker process of this host.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    process: Process,
    pub(crate) state: ProcessState,
    pub(crate) rank: SharedRank,
    /// An attach request that came before the start was reported.
    pub(crate) early_attach: Option<Box<AttachRequest>>,
    connection: Option<Connection>,
    /// The process id of the attached process, if it is visible in our pid namespace.
    attached_pid: Option<u32>,
    /// The attached process, which may be a descendant of the leader.
    attached_pidfd: Option<Pidfd>,
    watch: Option<LivenessWatch>,
}

impl WorkerProcess {
    /// A process that the starter was asked to start.
    pub(crate) fn starting(process: Process) -> Self {
        Self {
            process,
            state: ProcessState::Starting(None),
            rank: SharedRank::default(),
            early_attach: None,
            connection: None,
            attached_pid: None,
            attached_pidfd: None,
            watch: None,
        }
    }

    /// Records that the process runs. Returns the signal that came meanwhile.
    pub(crate) fn set_running(&mut self, pid: u32, pidfd: Pidfd) -> io::Result<Option<Signal>> {
        // SAFETY: the leader owns its descriptor and gives the same one as long as it lives.
        let pidfd =
            unsafe { AsyncFd::register_with_interest(LeaderPidfd(pidfd), Interest::READABLE) };
        let pidfd = pidfd.map_err(|error| error.into_parts().1)?;
        let before = std::mem::replace(&mut self.state, ProcessState::Running { pid, pidfd });
        Ok(match before {
            ProcessState::Starting(signal) => signal,
            _ => None,
        })
    }

    /// Whether a process has attached as this worker.
    pub(crate) fn is_attached(&self) -> bool {
        self.watch.is_some()
    }

    /// Whether this is the process that attached.
    pub(crate) fn is_attached_as(&self, pid: Option<u32>) -> bool {
        self.is_attached() && self.attached_pid == pid
    }

    /// Records the process that attached. `watch` watches its page.
    pub(crate) fn attach(
        &mut self,
        connection: Connection,
        pid: Option<u32>,
        process: Option<Pidfd>,
        watch: LivenessWatch,
    ) {
        self.connection = Some(connection);
        self.attached_pid = pid;
        self.attached_pidfd = process;
        self.watch = Some(watch);
    }

    /// Sends a message. A connection that fails is closed, and its worker gets no more messages.
    pub(crate) fn send(&mut self, message: &ToWorker, fds: Vec<SharedFd>) {
        if let Some(connection) = &mut self.connection
            && let Err(error) = connection.send(message, fds)
        {
            spans::worker(self.process)
                .in_scope(|| tracing::debug!(%error, "a worker cannot be told"));
            self.connection = None;
        }
    }

    /// Signals the process group.
    pub(crate) fn signal(&mut self, signal: Signal) {
        match &mut self.state {
            ProcessState::Starting(pending) => {
                // SIGKILL overrides all other signals.
                if *pending != Some(Signal::Kill) {
                    *pending = Some(signal);
                }
            }
            ProcessState::Running { pid, .. } => signal_group(*pid, signal_number(signal)),
            ProcessState::Ended(_) => {}
        }
    }

    /// The process id of the leader, while it runs.
    pub(crate) fn leader(&self) -> Option<u32> {
        match &self.state {
            ProcessState::Running { pid, .. } => Some(*pid),
            _ => None,
        }
    }

    /// Kills the process that held the liveness lock, since only the thread that held it may have ended.
    pub(crate) fn kill_attached(&self) {
        let killed = match (&self.attached_pidfd, &self.state) {
            (Some(pidfd), _) => pidfd.kill(libc::SIGKILL),
            (None, ProcessState::Running { pidfd, .. }) => pidfd.get_ref().0.kill(libc::SIGKILL),
            (None, _) => Ok(()),
        };
        if let Err(error) = killed
            && error.raw_os_error() != Some(libc::ESRCH)
        {
            spans::worker(self.process).in_scope(
                || tracing::warn!(%error, "a worker that lost its sign of life cannot be killed"),
            );
        }
    }

    /// The next message of the worker. The end of the connection does not end the worker.
    pub(crate) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<FromWorker> {
        let Some(connection) = &mut self.connection else {
            return Poll::Pending;
        };
        match connection.poll_message(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(message)) => Poll::Ready(message),
            Poll::Ready(Err(error)) => {
                spans::worker(self.process)
                    .in_scope(|| tracing::debug!(%error, "the connection of a worker ended"));
                self.connection = None;
                Poll::Pending
            }
        }
    }

    /// Ready when the leader has ended and is not yet reaped.
    pub(crate) fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()> {
        match &self.state {
            ProcessState::Running { pidfd, .. } => pidfd.poll_read_ready(cx).map(|_| ()),
            _ => Poll::Pending,
        }
    }

    /// The remaining messages of an ended worker.
    pub(crate) fn drain_messages(&mut self) -> Vec<FromWorker> {
        self.connection
            .as_mut()
            .map(Connection::drain_messages)
            .unwrap_or_default()
    }

    /// Kills the rest of the process group and takes the exit status of the leader. Call it when
    /// [`WorkerProcess::poll_ended`] is ready.
    pub(crate) fn reap(&mut self) -> Exit {
        let ProcessState::Running { pid, pidfd } = &self.state else {
            return Exit::NotStarted("it never ran".into());
        };
        // Signal before the leader is reaped, while no other process can get its process id.
        signal_group(*pid, libc::SIGKILL);
        let exit = match pidfd.get_ref().0.reap() {
            Ok(Some(status)) => to_exit(status),
            Ok(None) => Exit::NotStarted("it ended, and no status came".into()),
            Err(error) => {
                spans::worker(self.process)
                    .in_scope(|| tracing::error!(%error, pid, "the status of a worker is lost"));
                Exit::NotStarted(format!("its status is lost: {error}"))
            }
        };
        self.connection = None;
        self.attached_pidfd = None;
        self.watch = None;
        self.state = ProcessState::Ended(exit.clone());
        exit
    }
}

fn to_exit(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::NotStarted(format!("an unknown end: {status:?}")),
    }
}

fn signal_number(signal: Signal) -> libc::c_int {
    match signal {
        Signal::Terminate => libc::SIGTERM,
        Signal::Kill => libc::SIGKILL,
        Signal::Stop => libc::SIGSTOP,
        Signal::Continue => libc::SIGCONT,
    }
}

fn signal_group(leader: u32, signal: libc::c_int) {
    let Ok(group) = libc::pid_t::try_from(leader) else {
        return;
    };
    // SAFETY: integers only. The leader is our child and not reaped, so the group is the one we mean.
    if unsafe { libc::killpg(group, signal) } != 0 {
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ESRCH) {
            tracing::warn!(%error, leader, signal, "a process group cannot be signalled");
        }
    }
}
