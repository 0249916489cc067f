//! Where the SDK's thread leaves for the training thread what the agent said.
//!
//! Level-triggered: what has come stays until it is taken or outdated.

use std::{
    collections::BTreeSet,
    fmt,
    net::Shutdown,
    os::fd::OwnedFd,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use elasticrun_collectives::{Aborter, Session};
use elasticrun_protocol::{
    Round,
    control::{Member, Start, StopReason},
};
use elasticrun_shared::{commit::CommitFds, page::WorkerPage};

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
    /// The round, as collectives name it.
    pub(crate) fn session(&self) -> Session {
        Session {
            epoch: self.start.epoch.0,
            round: self.start.round.0,
        }
    }
}

/// Why no further round will come.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    Stopped(StopReason),
    AgentLost(String),
}

impl Ended {
    pub(crate) fn error(&self) -> Error {
        match self {
            Self::Stopped(why) => Error::stopped(*why),
            Self::AgentLost(why) => Error::AgentLost { why: why.clone() },
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    heard: Mutex<Heard>,
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
struct Heard {
    welcome: Option<Result<Welcome, Error>>,
    page: Option<WorkerPage>,
    start: Option<Started>,
    /// The newest round that was started.
    current: Option<Session>,
    aborted: Option<Session>,
    /// The newest round whose commits are refused from now on.
    refused: Option<Session>,
    ended: Option<Ended>,
    /// Hosts of a round that this process could not reach, by their place in it.
    unreachable: Option<(Session, BTreeSet<u32>)>,
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

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends collectives; the training thread gives it to its groups.
    pub(crate) fn aborter(&self) -> &Aborter {
        &self.aborter
    }

    /// The job's key-value store.
    pub(crate) fn store(&self) -> &Arc<Client> {
        &self.store
    }

    /// Why no further round will come, if so.
    pub(crate) fn ended(&self) -> Option<Error> {
        self.lock().ended.as_ref().map(Ended::error)
    }

    /// Whether the newest round that was started is over.
    pub(crate) fn is_over(&self) -> bool {
        let heard = self.lock();
        heard
            .current
            .is_some_and(|current| heard.aborted >= Some(current))
    }

    /// Hosts of the newest round do not answer this process.
    pub(crate) fn cannot_reach(&self, hosts: impl IntoIterator<Item = u32>) {
        let mut heard = self.lock();
        let Some(current) = heard.current else {
            return;
        };
        match &mut heard.unreachable {
            Some((session, known)) if *session == current => known.extend(hosts),
            known => *known = Some((current, hosts.into_iter().collect())),
        }
    }

    /// The hosts of a round that this process could not reach, once.
    pub(crate) fn take_unreachable(&self, round: Round) -> Vec<u32> {
        let known = self.lock().unreachable.take();
        let of_round = known.filter(|(session, _)| session.round == round.0);
        of_round.map_or_else(Vec::new, |(_, hosts)| hosts.into_iter().collect())
    }

    /// Something of a round was or will be cut short in this process (W4).
    pub(crate) fn refuse_commits(&self, session: Session) {
        let mut heard = self.lock();
        heard.refused = heard.refused.max(Some(session));
    }

    /// Whether what this process has computed in a round is whole, and somebody may go on from it.
    pub(crate) fn takes_commits(&self, session: Session) -> bool {
        let heard = self.lock();
        heard.ended.is_none() && heard.refused < Some(session) && !self.store.has_told(session)
    }

    /// Waits until the agent has said that the newest round is over, or that no further one comes.
    pub(crate) fn wait_until_over(&self, patience: Duration) {
        let heard = self.lock();
        let goes_on = |heard: &mut Heard| {
            heard.ended.is_none()
                && heard
                    .current
                    .is_some_and(|current| heard.aborted < Some(current))
        };
        // Over or not: who waits does not need to know.
        let _ = self.changed.wait_timeout_while(heard, patience, goes_on);
    }

    /// Waits for the answer to the attach.
    pub(super) fn wait_for_welcome(&self, deadline: Instant) -> Result<Welcome, Error> {
        let mut heard = self.lock();
        loop {
            if let Some(welcome) = heard.welcome.take() {
                return welcome;
            }
            if let Some(ended) = &heard.ended {
                return Err(ended.error());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::AgentLost {
                    why: "it does not answer".to_owned(),
                });
            }
            heard = match self.changed.wait_timeout(heard, left) {
                Ok((heard, _)) => heard,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// Waits for a round after `left`, until `deadline`: then there is `None`. Without one it waits until the
    /// agent says that this is over.
    pub(crate) fn wait_for_start(
        &self,
        left: Option<Round>,
        deadline: Option<Instant>,
    ) -> Result<Option<Started>, Error> {
        let mut heard = self.lock();
        loop {
            if let Some(ended) = &heard.ended {
                return Err(ended.error());
            }
            if let Some(started) = heard.start.take()
                && Some(started.start.round) > left
            {
                return Ok(Some(started));
            }
            let time = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            heard = match time {
                Some(Duration::ZERO) => return Ok(None),
                Some(time) => {
                    let waited = self.changed.wait_timeout(heard, time);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.changed.wait(heard);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }

    /// Calls `aborted` with each round that is aborted from now on, on the SDK's thread.
    pub(crate) fn on_abort(&self, aborted: Option<OnAbort>) {
        *self.on_abort.lock().unwrap_or_else(PoisonError::into_inner) = Hook(aborted);
    }

    /// Has a connection cut when the round is over. `false` if it is over already.
    pub(crate) fn watch_transfer(&self, session: Session, socket: socket2::Socket) -> bool {
        let mut heard = self.lock();
        if heard.ended.is_some() || heard.aborted >= Some(session) {
            return false;
        }
        heard.transfer = Some(socket);
        true
    }

    /// The transfer is over.
    pub(crate) fn forget_transfer(&self) {
        self.lock().transfer = None;
    }

    pub(super) fn welcome(&self, welcome: Result<Welcome, Error>, page: Option<WorkerPage>) {
        let mut heard = self.lock();
        heard.welcome = Some(welcome);
        heard.page = page;
        self.changed.notify_all();
    }

    pub(crate) fn started(&self, started: Started) {
        let mut heard = self.lock();
        heard.current = heard.current.max(Some(started.session()));
        heard.start = Some(started);
        self.changed.notify_all();
    }

    /// A round is over. What is older is so, too.
    pub(super) fn abort(&self, round: Round) {
        let mut heard = self.lock();
        // A round that never started here has nothing to end, and one that is over has ended.
        if let Some(current) = heard.current.filter(|current| current.round == round.0) {
            heard.abort(&self.aborter, current);
            drop(heard);
            self.changed.notify_all();
            self.store.round_over(current);
            self.tell(current);
        }
    }

    pub(super) fn end(&self, ended: Ended) {
        let mut heard = self.lock();
        self.store.end(heard.ended.get_or_insert(ended));
        let current = heard.current;
        if let Some(current) = current {
            heard.abort(&self.aborter, current);
        }
        drop(heard);
        self.changed.notify_all();
        if let Some(current) = current {
            self.tell(current);
        }
    }

    /// No lock of the inbox is held: the hook may take a while, and our collectives have ended by now.
    fn tell(&self, aborted: Session) {
        let hook = self.on_abort.lock().unwrap_or_else(PoisonError::into_inner);
        if let Hook(Some(hook)) = &*hook {
            hook(aborted.round);
        }
    }
}

impl Heard {
    fn abort(&mut self, aborter: &Aborter, session: Session) {
        self.aborted = self.aborted.max(Some(session));
        if let Some(page) = &self.page {
            page.abort(Round(session.round));
        }
        aborter.abort(session);
        if let Some(transfer) = self.transfer.take() {
            // Fails if it has ended by itself.
            let _ = transfer.shutdown(Shutdown::Both);
        }
    }
}
