//! The state machine of this process, shared by the two threads that use it.
//!
//! The SDK's thread passes in the messages of the agent and executes the resulting commands at
//! once. The training thread queries the machine and waits here for events. The inbox also holds
//! the resources that cannot be part of the machine: descriptors and sockets.

use std::{
    fmt,
    net::Shutdown,
    os::fd::OwnedFd,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use elasticrun_collectives::{self as collectives, Aborter};
use elasticrun_core::worker::{
    Announcement, Command, Ended, Event, Join, Machine, Over, RoundId, RoundStart,
};
use elasticrun_protocol::{
    Round,
    control::{Member, Start},
};
use elasticrun_shm::{commit::CommitFds, page::WorkerPage};

use super::welcome::Welcome;
use crate::{Error, store::Client};

/// A started round, with the descriptors that came with it.
#[derive(Debug)]
pub(crate) struct StartedRound {
    pub(crate) start: Box<Start>,
    pub(crate) member: Member,
    pub(crate) local_index: u32,
    /// The collectives' region, if the host has several members.
    pub(crate) region: Option<OwnedFd>,
    /// The commit memories of the keeper of the base.
    pub(crate) keeper: Option<CommitFds>,
}

impl StartedRound {
    pub(crate) fn id(&self) -> RoundId {
        (&*self.start).into()
    }

    /// The round, as an id of collectives.
    pub(crate) fn collective_round(&self) -> collectives::RoundId {
        collective_round(self.id())
    }

    /// The facts that the machine needs.
    fn round_start(&self) -> RoundStart {
        // The agent passes the memories of a keeper only if it is on this host.
        RoundStart::new(&self.start, &self.member, self.keeper.is_some())
    }
}

/// A round, as an id of collectives.
pub(crate) fn collective_round(id: RoundId) -> collectives::RoundId {
    collectives::RoundId {
        epoch: id.epoch.0,
        round: id.round.0,
    }
}

/// The next step of a process that wants to join a round.
#[derive(Debug)]
pub(crate) enum NextJoin {
    /// Send this to the agent, then call again.
    Announce(Announcement),
    /// Enter this round.
    Connect(StartedRound),
    /// Timeout: call again.
    TimedOut,
}

/// The machine of this process and its resources.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    inner: Mutex<Inner>,
    changed: Condvar,
    aborter: Aborter,
    store: Arc<Client>,
    on_abort: Mutex<Hook>,
}

/// Callback for aborts. It takes the number of the round.
type OnAbort = Box<dyn Fn(u64) + Send>;

#[derive(Default)]
struct Hook(Option<OnAbort>);

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hook").field(&self.0.is_some()).finish()
    }
}

#[derive(Debug, Default)]
struct Inner {
    machine: Machine,
    welcome: Option<Result<Welcome, Error>>,
    page: Option<WorkerPage>,
    /// The resources of the last start that the machine accepted.
    started: Option<StartedRound>,
    /// Shut down when the round is over.
    transfer: Option<socket2::Socket>,
}

impl Inbox {
    /// For a worker of a job, whose store is reached by `store`.
    pub(super) fn with_store(store: Client) -> Self {
        Self {
            store: Arc::new(store),
            ..Self::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends collectives. The training thread passes it to its groups.
    pub(crate) fn aborter(&self) -> &Aborter {
        &self.aborter
    }

    /// The job's key-value store.
    pub(crate) fn store(&self) -> &Arc<Client> {
        &self.store
    }

    /// Runs `request` on the machine. It must be short: the SDK's thread waits for the lock.
    pub(crate) fn with_machine<R>(&self, request: impl FnOnce(&mut Machine) -> R) -> R {
        request(&mut self.lock().machine)
    }

    /// Like [`with_machine`](Self::with_machine), within a round. If a store call has delivered the
    /// round's end to its caller, the machine learns of it first (W4).
    pub(crate) fn with_machine_in_round<R>(
        &self,
        id: RoundId,
        request: impl FnOnce(&mut Machine) -> R,
    ) -> R {
        if self.store.abort_delivered(collective_round(id)) {
            self.handle(Event::CutShort { id });
        }
        self.with_machine(request)
    }

    /// Passes an event to the machine, and executes the resulting commands.
    pub(crate) fn handle(&self, event: Event) {
        let mut commands = Vec::new();
        let mut inner = self.lock();
        inner.machine.step(event, &mut commands);
        for command in &commands {
            match command {
                Command::EndRound(id) => inner.end_round(&self.aborter, *id),
                Command::EndCalls(ended) => self.store.end(ended),
            }
        }
        drop(inner);
        self.changed.notify_all();
        for command in commands {
            if let Command::EndRound(id) = command {
                self.store.round_over(collective_round(id));
                self.call_hook(id);
            }
        }
    }

    /// A round with this process was started.
    pub(crate) fn started(&self, started: StartedRound) {
        let mut inner = self.lock();
        inner
            .machine
            .step(Event::Started(started.round_start()), &mut Vec::new());
        inner.started = Some(started);
        drop(inner);
        self.changed.notify_all();
    }

    /// Waits for the next step of a process that wants to join a round, until `deadline`, or
    /// without a limit.
    pub(crate) fn next_join(&self, deadline: Option<Instant>) -> Result<NextJoin, Over> {
        let mut inner = self.lock();
        loop {
            match inner.machine.join()? {
                Join::Announce(announcement) => return Ok(NextJoin::Announce(announcement)),
                Join::Connect(_) => {
                    // Both were set together, under this lock.
                    let started = inner.started.take();
                    return started.map(NextJoin::Connect).ok_or(Over::OutOfRound);
                }
                // A start that came meanwhile is not entered. Its descriptors must not outlive it.
                Join::Wait => inner.started = None,
            }
            let time = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            inner = match time {
                Some(Duration::ZERO) => return Ok(NextJoin::TimedOut),
                Some(time) => {
                    let waited = self.changed.wait_timeout(inner, time);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.changed.wait(inner);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }

    /// Waits until the agent has reported that the newest round is over, or that no further one
    /// comes.
    pub(crate) fn wait_until_over(&self, timeout: Duration) {
        let is_running = |inner: &mut Inner| !inner.machine.newest_is_over();
        // The caller does not need the result.
        let _ = self
            .changed
            .wait_timeout_while(self.lock(), timeout, is_running);
    }

    /// Waits for the answer to the attach.
    pub(super) fn wait_for_welcome(&self, deadline: Instant) -> Result<Welcome, Error> {
        let mut inner = self.lock();
        loop {
            if let Some(welcome) = inner.welcome.take() {
                return welcome;
            }
            if let Some(ended) = inner.machine.ended() {
                return Err(ended.clone().into());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::AgentLost {
                    why: "it does not answer".to_owned(),
                });
            }
            let waited = self.changed.wait_timeout(inner, left);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Sets a callback for each round that is aborted from now on. It runs on the SDK's thread.
    pub(crate) fn on_abort(&self, aborted: Option<OnAbort>) {
        *self.on_abort.lock().unwrap_or_else(PoisonError::into_inner) = Hook(aborted);
    }

    /// Registers a connection to be shut down when the round is over. `false` if it is over
    /// already.
    pub(crate) fn watch_transfer(&self, id: RoundId, socket: socket2::Socket) -> bool {
        let mut inner = self.lock();
        if inner.machine.is_over(id) {
            return false;
        }
        inner.transfer = Some(socket);
        true
    }

    /// The transfer is over.
    pub(crate) fn forget_transfer(&self) {
        self.lock().transfer = None;
    }

    pub(super) fn welcome(&self, welcome: Result<Welcome, Error>, page: Option<WorkerPage>) {
        let mut inner = self.lock();
        inner.welcome = Some(welcome);
        inner.page = page;
        self.changed.notify_all();
    }

    pub(super) fn abort(&self, round: Round) {
        self.handle(Event::Aborted { round });
    }

    pub(super) fn end(&self, ended: Ended) {
        self.handle(Event::Ended(ended));
    }

    /// No lock of the inbox is held: the callback may take a while, and the collectives have ended
    /// by now.
    fn call_hook(&self, aborted: RoundId) {
        let hook = self.on_abort.lock().unwrap_or_else(PoisonError::into_inner);
        if let Hook(Some(hook)) = &*hook {
            hook(aborted.round.0);
        }
    }
}

impl Inner {
    fn end_round(&mut self, aborter: &Aborter, id: RoundId) {
        if let Some(page) = &self.page {
            page.abort(id.round);
        }
        aborter.abort(collective_round(id));
        if let Some(transfer) = self.transfer.take() {
            // Fails if the connection has ended already.
            let _ = transfer.shutdown(Shutdown::Both);
        }
    }
}
