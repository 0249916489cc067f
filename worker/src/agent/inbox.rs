//! Where the machine of this process is, between the two threads that use it.
//!
//! The SDK's thread hands in what the agent says, and executes at once what follows from that. The training thread asks,
//! and waits here for what is to come. With the machine lies what cannot be part of it: descriptors and sockets.

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

use super::attach::Welcome;
use crate::{Error, store::Client};

/// A round that begins, with the descriptors that came.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) start: Box<Start>,
    pub(crate) member: Member,
    pub(crate) local_index: u32,
    /// Of the collectives, if the host has several members.
    pub(crate) region: Option<OwnedFd>,
    /// The commit memories of who keeps the base.
    pub(crate) keeper: Option<CommitFds>,
}

impl Started {
    pub(crate) fn id(&self) -> RoundId {
        (&*self.start).into()
    }

    /// The round, as collectives name it.
    pub(crate) fn collective_round(&self) -> collectives::RoundId {
        collective_round(self.id())
    }

    /// What of it concerns the machine.
    fn facts(&self) -> RoundStart {
        // The agent hands over the memories of a keeper of its own host.
        RoundStart::new(&self.start, &self.member, self.keeper.is_some())
    }
}

/// A round, as collectives name it.
pub(crate) fn collective_round(id: RoundId) -> collectives::RoundId {
    collectives::RoundId {
        epoch: id.epoch.0,
        round: id.round.0,
    }
}

/// What a process that wants to join a round does next.
#[derive(Debug)]
pub(crate) enum NextJoin {
    /// Tell the agent, and come again.
    Announce(Announcement),
    /// Enter this round.
    Connect(Started),
    /// The time is over: come again.
    Late,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    inner: Mutex<Inner>,
    changed: Condvar,
    aborter: Aborter,
    store: Arc<Client>,
    on_abort: Mutex<Hook>,
}

/// What a round's abort is told to, by number.
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
    /// What came with the start that the machine heard of last.
    started: Option<Started>,
    /// Cut when the round is over.
    transfer: Option<socket2::Socket>,
}

impl Inbox {
    /// Of a worker of a job, whose store is reached by `store`.
    pub(super) fn with_store(store: Client) -> Self {
        Self {
            store: Arc::new(store),
            ..Self::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends collectives; the training thread gives it to its groups.
    pub(crate) fn aborter(&self) -> &Aborter {
        &self.aborter
    }

    /// The job's key-value store.
    pub(crate) fn store(&self) -> &Arc<Client> {
        &self.store
    }

    /// Asks the machine. Briefly: the SDK's thread waits for the answer, too.
    pub(crate) fn ask<R>(&self, request: impl FnOnce(&mut Machine) -> R) -> R {
        request(&mut self.lock().machine)
    }

    /// As [`ask`](Self::ask), of a round: what calls of its store have told their callers counts (W4).
    pub(crate) fn ask_in<R>(&self, id: RoundId, request: impl FnOnce(&mut Machine) -> R) -> R {
        if self.store.has_told(collective_round(id)) {
            self.tell(Event::CutShort { id });
        }
        self.ask(request)
    }

    /// Tells the machine, and executes what follows.
    pub(crate) fn tell(&self, event: Event) {
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

    /// A round is started with this process.
    pub(crate) fn started(&self, started: Started) {
        let mut inner = self.lock();
        inner
            .machine
            .step(Event::Started(started.facts()), &mut Vec::new());
        inner.started = Some(started);
        drop(inner);
        self.changed.notify_all();
    }

    /// Waits for what a process that wants to join a round does next, until `deadline`, or without end.
    pub(crate) fn next_join(&self, deadline: Option<Instant>) -> Result<NextJoin, Over> {
        let mut inner = self.lock();
        loop {
            match inner.machine.join()? {
                Join::Announce(announcement) => return Ok(NextJoin::Announce(announcement)),
                Join::Connect(_) => {
                    // They came together, under this lock.
                    let started = inner.started.take();
                    return started.map(NextJoin::Connect).ok_or(Over::OutOfRound);
                }
                // A start that came meanwhile is not entered: its descriptors must not outlive it.
                Join::Wait => inner.started = None,
            }
            let time = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            inner = match time {
                Some(Duration::ZERO) => return Ok(NextJoin::Late),
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

    /// Waits until the agent has said that the newest round is over, or that no further one comes.
    pub(crate) fn wait_until_over(&self, patience: Duration) {
        let goes_on = |inner: &mut Inner| !inner.machine.newest_is_over();
        // Over or not: who waits does not need to know.
        let _ = self
            .changed
            .wait_timeout_while(self.lock(), patience, goes_on);
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

    /// Calls `aborted` with each round that is aborted from now on, on the SDK's thread.
    pub(crate) fn on_abort(&self, aborted: Option<OnAbort>) {
        *self.on_abort.lock().unwrap_or_else(PoisonError::into_inner) = Hook(aborted);
    }

    /// Has a connection cut when the round is over. `false` if it is over already.
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
        self.tell(Event::Aborted { round });
    }

    pub(super) fn end(&self, ended: Ended) {
        self.tell(Event::Ended(ended));
    }

    /// No lock of the inbox is held: the hook may take a while, and our collectives have ended by now.
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
            // Fails if it has ended by itself.
            let _ = transfer.shutdown(Shutdown::Both);
        }
    }
}
