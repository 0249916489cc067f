//! The state that all handles of this process share: pending requests, and the connection to the
//! store.
//!
//! There are two locks. `connection` is held to connect and to pass a request to the kernel, so
//! requests are sent in the order of their numbers. `calls` is held only briefly, since the SDK's
//! thread takes it when a round is over. Code that needs both takes `connection` first.

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Sender, channel},
    },
    time::Duration,
};

use elasticrun_collectives::RoundId;
use elasticrun_core::worker::Ended;
use elasticrun_protocol::{
    Process, frame,
    store::{Answer, FromClient, Namespace, Op, Refused, Request, Value},
};

use super::{
    connection::StoreConnection,
    dial::{AgentDialler, Dial},
    exchange::Exchange,
    standalone::StandaloneStore,
};
use crate::{Error, Interrupt};

/// Where the store is.
#[derive(Debug)]
enum Backend {
    /// In this single process.
    Standalone(Box<Mutex<StandaloneStore>>),
    /// Behind a connection.
    Remote {
        dial: Box<dyn Dial>,
        /// `None` before the first request, and after the connection has ended.
        connection: Mutex<Option<Arc<StoreConnection>>>,
    },
}

/// The shared client of the store.
#[derive(Debug)]
pub(crate) struct Client {
    backend: Backend,
    /// The process that created this. A forked child has the memory, but must not use the
    /// connection.
    pid: u32,
    calls: Mutex<Calls>,
}

#[derive(Debug, Default)]
struct Calls {
    /// Number of the last request.
    number: u64,
    /// Number of the last connection.
    connections: u64,
    /// Number of the last staged value.
    staged: u64,
    pending: BTreeMap<u64, PendingCall>,
    /// The newest round that is over.
    over: Option<RoundId>,
    /// The newest round whose end was delivered by a call.
    delivered_end: Option<RoundId>,
    ended: Option<Ended>,
    /// Whether a call has delivered `ended`.
    end_delivered: bool,
}

#[derive(Debug)]
struct PendingCall {
    /// The connection over which it was sent.
    connection: u64,
    round: Option<RoundId>,
    answer: Sender<Result<Value, Error>>,
}

impl Default for Client {
    /// The store of a single process.
    fn default() -> Self {
        Self::new(Backend::Standalone(Box::default()))
    }
}

impl Client {
    fn new(backend: Backend) -> Self {
        Self {
            backend,
            pid: std::process::id(),
            calls: Mutex::default(),
        }
    }

    /// The store of a job, for one of its workers.
    pub(crate) fn for_worker(socket: PathBuf, process: Process) -> Self {
        Self::remote(AgentDialler { socket, process })
    }

    /// The store behind the connections of a dialler.
    pub(super) fn remote(dial: impl Dial + 'static) -> Self {
        Self::new(Backend::Remote {
            dial: Box::new(dial),
            connection: Mutex::default(),
        })
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request.
    pub(super) fn start(
        self: &Arc<Self>,
        namespace: Namespace,
        op: Op,
        timeout: Duration,
    ) -> Result<Exchange, Error> {
        op.check().map_err(Error::Store)?;
        if std::process::id() != self.pid {
            return Err(Error::Forked);
        }
        let version = op.version();
        let round = match namespace {
            Namespace::Job => None,
            Namespace::Round { epoch, round } => Some(RoundId {
                epoch: epoch.0,
                round: round.0,
            }),
        };
        let (sender, answer) = channel();
        let ask = |connection: u64| -> Result<Request, Error> {
            let pending = PendingCall {
                connection,
                round,
                answer: sender,
            };
            let number = self.calls().begin(pending)?;
            Ok(Request {
                number,
                namespace,
                timeout,
                op,
                reads_staged: true,
            })
        };
        let number = match &self.backend {
            Backend::Standalone(store) => {
                let request = ask(0)?;
                let number = request.number;
                let answers = lock(store).ask(request);
                answers.into_iter().for_each(|answer| self.answered(answer));
                number
            }
            Backend::Remote { connection, .. } => self.send(&mut lock(connection), version, ask)?,
        };
        Ok(Exchange::new(Arc::clone(self), number, answer, timeout))
    }

    /// Sends over the current connection or a new one, to an agent of this version or a later one.
    /// Returns the number of the request.
    fn send(
        self: &Arc<Self>,
        connection: &mut Option<Arc<StoreConnection>>,
        version: u16,
        ask: impl FnOnce(u64) -> Result<Request, Error>,
    ) -> Result<u64, Error> {
        if connection
            .as_ref()
            .is_none_or(|connection| connection.has_ended())
        {
            *connection = Some(self.connect()?);
        }
        let Some(open) = connection else {
            return Err(unreachable("there is no connection to the store"));
        };
        if version > open.version() {
            let peer = open.peer().to_owned();
            return Err(Error::Store(Refused::Unsupported { peer }));
        }
        let request = ask(open.number())?;
        let number = request.number;
        let frame = frame::to_frame(&FromClient::Ask(request));
        let sent = frame
            .map_err(io::Error::other)
            .and_then(|frame| open.send(&frame));
        if let Err(error) = sent {
            self.calls().pending.remove(&number);
            return Err(unreachable(error));
        }
        // If the connection ended meanwhile, its thread may not have seen this call.
        if open.has_ended() {
            let why = format!("the {} closed the connection", open.peer());
            self.connection_ended(open.number(), &why);
        }
        Ok(number)
    }

    fn connect(self: &Arc<Self>) -> Result<Arc<StoreConnection>, Error> {
        let mut calls = self.calls();
        calls.check()?;
        calls.connections += 1;
        let number = calls.connections;
        drop(calls);
        let Backend::Remote { dial, .. } = &self.backend else {
            return Err(unreachable(
                "the store of a single process has no connection",
            ));
        };
        StoreConnection::open(number, dial.dial()?, Arc::clone(self))
    }

    /// Cancels a request that is no longer waited for.
    pub(super) fn forget(&self, number: u64) {
        if self.calls().pending.remove(&number).is_none() || std::process::id() != self.pid {
            return;
        }
        self.tell(FromClient::Forget { number });
    }

    /// A number for a value that is about to be staged.
    pub(super) fn next_staged(&self) -> u64 {
        let mut calls = self.calls();
        calls.staged += 1;
        calls.staged
    }

    /// Drops values that were staged, or begun to be.
    pub(super) fn discard(&self, uploads: Vec<u64>, downloads: Vec<u64>) {
        let is_empty = uploads.is_empty() && downloads.is_empty();
        if !is_empty && std::process::id() == self.pid {
            self.tell(FromClient::Discard { uploads, downloads });
        }
    }

    /// Drops the staged values of an answer that is not read.
    pub(super) fn discard_answer(&self, value: &Value) {
        if let Value::Large { staged, .. } = value {
            let numbers = staged.iter().map(|value| value.staged);
            self.discard(Vec::new(), numbers.collect());
        }
    }

    /// Sends a message that has no answer, if there is a connection.
    fn tell(&self, message: FromClient) {
        match &self.backend {
            Backend::Standalone(store) => lock(store).tell(message),
            Backend::Remote { connection, .. } => {
                let frame = frame::to_frame(&message);
                if let (Some(connection), Ok(frame)) = (&*lock(connection), frame) {
                    // If that fails, the connection ends and its requests are cancelled.
                    let _ = connection.send(&frame);
                }
            }
        }
    }

    /// Delivers an answer.
    pub(super) fn answered(&self, answer: Answer) {
        let mut calls = self.calls();
        let Some(pending) = calls.pending.remove(&answer.number) else {
            drop(calls);
            // Nobody waits for it any more.
            let value = answer.result.ok();
            return value
                .into_iter()
                .for_each(|value| self.discard_answer(&value));
        };
        let result = answer
            .result
            .map_err(|refused| match (refused, pending.round) {
                (Refused::StaleRound { .. }, Some(round)) => calls.interrupt(round),
                (refused, _) => Error::Store(refused),
            });
        // Fails if the caller no longer waits.
        let _ = pending.answer.send(result);
    }

    /// A connection has ended: its pending requests fail.
    pub(super) fn connection_ended(&self, connection: u64, why: &str) {
        let mut calls = self.calls();
        for (_, pending) in calls
            .pending
            .extract_if(.., |_, call| call.connection == connection)
        {
            let _ = pending.answer.send(Err(unreachable(why)));
        }
    }

    /// A round is over: its pending and later calls end at once.
    pub(crate) fn round_over(&self, round: RoundId) {
        let mut calls = self.calls();
        calls.over = calls.over.max(Some(round));
        let affected = |pending: &PendingCall| pending.round.is_some_and(|id| id <= round);
        let ended: Vec<_> = calls
            .pending
            .extract_if(.., |_, call| affected(call))
            .collect();
        for (_, pending) in ended {
            let error = calls.interrupt(round);
            let _ = pending.answer.send(Err(error));
        }
    }

    /// No round will come any more: all pending and later calls end.
    pub(crate) fn end(&self, ended: &Ended) {
        let mut calls = self.calls();
        calls.ended.get_or_insert_with(|| ended.clone());
        for pending in std::mem::take(&mut calls.pending).into_values() {
            calls.end_delivered = true;
            let _ = pending.answer.send(Err(ended.clone().into()));
        }
    }

    /// Whether a call has delivered to its caller that this round is over, or that no further round
    /// comes.
    pub(crate) fn abort_delivered(&self, round: RoundId) -> bool {
        let calls = self.calls();
        calls.end_delivered || calls.delivered_end >= Some(round)
    }

    /// Time until [`Client::tick`] has work. Only for a single process.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        match &self.backend {
            Backend::Standalone(store) => lock(store).next_deadline(),
            Backend::Remote { .. } => None,
        }
    }

    /// Applies timeouts.
    pub(super) fn tick(&self) {
        if let Backend::Standalone(store) = &self.backend {
            let answers = lock(store).tick();
            answers.into_iter().for_each(|answer| self.answered(answer));
        }
    }
}

impl Calls {
    /// Registers a request that is about to be sent. Returns its number.
    fn begin(&mut self, pending: PendingCall) -> Result<u64, Error> {
        self.check()?;
        if let Some(round) = pending.round.filter(|round| self.over >= Some(*round)) {
            return Err(self.interrupt(round));
        }
        self.number += 1;
        self.pending.insert(self.number, pending);
        Ok(self.number)
    }

    fn check(&mut self) -> Result<(), Error> {
        let Some(ended) = &self.ended else {
            return Ok(());
        };
        self.end_delivered = true;
        Err(ended.clone().into())
    }

    fn interrupt(&mut self, round: RoundId) -> Error {
        self.delivered_end = self.delivered_end.max(Some(round));
        Interrupt::WorkersFailed.into()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unreachable(why: impl ToString) -> Error {
    let why = why.to_string();
    Error::Store(Refused::Unreachable { why })
}
