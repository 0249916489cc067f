//! One worker process of this host while it lives.

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
use elasticrun_protocol::{FromWorker, Rank, ToWorker, control::Exit};
use elasticrun_shm::{death::DeathWatch, pidfd::Pidfd};
use tokio::io::{Interest, unix::AsyncFd};

use crate::local::{Connection, Knock};

/// The rank that a process writes its lines as; none before its first round. Cheap to clone.
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

/// Where it is between its start and its end.
#[derive(Debug)]
pub(crate) enum Life {
    /// The starter has it. A signal that comes now is sent once it runs.
    Starting(Option<Signal>),
    /// It runs.
    Running {
        /// The leader of its session and group.
        pid: u32,
        /// Readable when the leader has ended.
        pidfd: AsyncFd<Leader>,
    },
    /// Its leader is reaped; its last lines are being read.
    Ended(Exit),
}

/// A leader's descriptor as tokio wants it.
#[derive(Debug)]
pub(crate) struct Leader(Pidfd);

impl AsRawFd for Leader {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Hosted {
    pub(crate) life: Life,
    pub(crate) rank: SharedRank,
    /// Who knocked before it was known to run.
    pub(crate) early: Option<Box<Knock>>,
    connection: Option<Connection>,
    /// The number of the process that attached, if it can be seen from here.
    attached_pid: Option<u32>,
    /// The process that attached, which may be a child of the one that we started.
    attached: Option<Pidfd>,
    watch: Option<DeathWatch>,
}

impl Hosted {
    /// One that the starter was asked for.
    pub(crate) fn starting() -> Self {
        Self {
            life: Life::Starting(None),
            rank: SharedRank::default(),
            early: None,
            connection: None,
            attached_pid: None,
            attached: None,
            watch: None,
        }
    }

    /// It runs now. Gives the signal that came meanwhile.
    pub(crate) fn started(&mut self, pid: u32, pidfd: Pidfd) -> io::Result<Option<Signal>> {
        // SAFETY: the leader owns its descriptor and gives the same one as long as it lives.
        let pidfd = unsafe { AsyncFd::register_with_interest(Leader(pidfd), Interest::READABLE) };
        let pidfd = pidfd.map_err(|error| error.into_parts().1)?;
        let before = std::mem::replace(&mut self.life, Life::Running { pid, pidfd });
        Ok(match before {
            Life::Starting(signal) => signal,
            _ => None,
        })
    }

    /// Whether a process has attached as this worker.
    pub(crate) fn is_attached(&self) -> bool {
        self.watch.is_some()
    }

    /// Whether this is the process that attached.
    pub(crate) fn has_attached(&self, pid: Option<u32>) -> bool {
        self.is_attached() && self.attached_pid == pid
    }

    /// It has its page, and `watch` is over it.
    pub(crate) fn attach(
        &mut self,
        connection: Connection,
        pid: Option<u32>,
        process: Option<Pidfd>,
        watch: DeathWatch,
    ) {
        self.connection = Some(connection);
        self.attached_pid = pid;
        self.attached = process;
        self.watch = Some(watch);
    }

    /// Sends a message; a connection that fails is closed, and its worker is told nothing more.
    pub(crate) fn tell(&mut self, message: &ToWorker, fds: Vec<crate::local::SharedFd>) {
        if let Some(connection) = &mut self.connection
            && let Err(error) = connection.send(message, fds)
        {
            tracing::debug!(%error, "a worker cannot be told");
            self.connection = None;
        }
    }

    /// Signals its whole group.
    pub(crate) fn signal(&mut self, signal: Signal) {
        match &mut self.life {
            Life::Starting(pending) => {
                // The stronger one stays.
                if *pending != Some(Signal::Kill) {
                    *pending = Some(signal);
                }
            }
            Life::Running { pid, .. } => signal_group(*pid, number(signal)),
            Life::Ended(_) => {}
        }
    }

    /// The leader of its session and group, while it runs.
    pub(crate) fn leader(&self) -> Option<u32> {
        match &self.life {
            Life::Running { pid, .. } => Some(*pid),
            _ => None,
        }
    }

    /// Makes sure that the process which held the sign of life is dead: it may be its thread alone that is.
    pub(crate) fn kill_attached(&self) {
        let killed = match (&self.attached, &self.life) {
            (Some(pidfd), _) => pidfd.kill(libc::SIGKILL),
            (None, Life::Running { pidfd, .. }) => pidfd.get_ref().0.kill(libc::SIGKILL),
            (None, _) => Ok(()),
        };
        if let Err(error) = killed
            && error.raw_os_error() != Some(libc::ESRCH)
        {
            tracing::warn!(%error, "a worker that lost its sign of life cannot be killed");
        }
    }

    /// The next message of the worker. The end of its connection is not its end.
    pub(crate) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<FromWorker> {
        let Some(connection) = &mut self.connection else {
            return Poll::Pending;
        };
        match connection.poll_message(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(message)) => Poll::Ready(message),
            Poll::Ready(Err(error)) => {
                tracing::debug!(%error, "the connection of a worker ended");
                self.connection = None;
                Poll::Pending
            }
        }
    }

    /// Ready when the leader has ended and is not yet reaped.
    pub(crate) fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()> {
        match &self.life {
            Life::Running { pidfd, .. } => pidfd.poll_read_ready(cx).map(|_| ()),
            _ => Poll::Pending,
        }
    }

    /// What it said last.
    pub(crate) fn last_words(&mut self) -> Vec<FromWorker> {
        self.connection
            .as_mut()
            .map(Connection::last_words)
            .unwrap_or_default()
    }

    /// Ends what is left of its group and takes its exit status. Call when [`Hosted::poll_ended`] is ready.
    pub(crate) fn reap(&mut self) -> Exit {
        let Life::Running { pid, pidfd } = &self.life else {
            return Exit::NotStarted("it never ran".into());
        };
        // Before the leader is reaped, so that no other process can have its number.
        signal_group(*pid, libc::SIGKILL);
        let exit = match pidfd.get_ref().0.reap() {
            Ok(Some(status)) => exit_of(status),
            Ok(None) => Exit::NotStarted("it ended, and no status came".into()),
            Err(error) => {
                tracing::error!(%error, pid, "the status of a worker is lost");
                Exit::NotStarted(format!("its status is lost: {error}"))
            }
        };
        self.connection = None;
        self.attached = None;
        self.watch = None;
        self.life = Life::Ended(exit.clone());
        exit
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::NotStarted(format!("an unknown end: {status:?}")),
    }
}

fn number(signal: Signal) -> libc::c_int {
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
