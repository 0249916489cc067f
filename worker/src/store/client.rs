//! What all handles of this process share: requests that have no answer yet, and how to reach the store.
//!
//! Two locks. `line` is held to connect and to hand a request to the kernel, so requests leave in the order of
//! their numbers; `calls` only for an instant, since the SDK's thread takes it when a round is over. Who needs
//! both takes `line` first.

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

use super::{Call, alone::Alone, line::Line};
use crate::{Error, Interrupt};

/// Where the store is.
#[derive(Debug)]
enum Way {
    /// In this process, which is the world.
    Alone(Box<Mutex<Alone>>),
    /// Behind the agent.
    Agent {
        socket: PathBuf,
        process: Process,
        /// None before the first request, and after the connection has ended.
        line: Mutex<Option<Arc<Line>>>,
    },
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Client {
    way: Way,
    /// The process that all this is of. A fork has the memory, but neither the thread nor the right.
    pid: u32,
    calls: Mutex<Calls>,
}

#[derive(Debug, Default)]
struct Calls {
    /// Of the last request.
    number: u64,
    /// Of the last connection.
    lines: u64,
    waiting: BTreeMap<u64, Waiting>,
    /// The newest round that is over.
    over: Option<RoundId>,
    /// The newest round whose end a call has told.
    told: Option<RoundId>,
    ended: Option<Ended>,
    /// A call has told that.
    end_told: bool,
}

#[derive(Debug)]
struct Waiting {
    /// The connection that it was sent over.
    line: u64,
    round: Option<RoundId>,
    answer: Sender<Result<Value, Error>>,
}

impl Default for Client {
    /// The store of a process that is the world.
    fn default() -> Self {
        Self::new(Way::Alone(Box::default()))
    }
}

impl Client {
    fn new(way: Way) -> Self {
        Self {
            way,
            pid: std::process::id(),
            calls: Mutex::default(),
        }
    }

    /// The store of a job, for one of its workers.
    pub(crate) fn of_worker(socket: PathBuf, process: Process) -> Self {
        Self::new(Way::Agent {
            socket,
            process,
            line: Mutex::default(),
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
    ) -> Result<Call, Error> {
        op.check().map_err(Error::Store)?;
        if std::process::id() != self.pid {
            return Err(Error::Forked);
        }
        let round = match namespace {
            Namespace::Job => None,
            Namespace::Round { epoch, round } => Some(RoundId {
                epoch: epoch.0,
                round: round.0,
            }),
        };
        let (sender, answer) = channel();
        let ask = |line: u64| -> Result<Request, Error> {
            let waiting = Waiting {
                line,
                round,
                answer: sender,
            };
            let number = self.calls().begin(waiting)?;
            Ok(Request {
                number,
                namespace,
                timeout,
                op,
            })
        };
        let number = match &self.way {
            Way::Alone(alone) => {
                let request = ask(0)?;
                let number = request.number;
                let answers = lock(alone).ask(request);
                answers.into_iter().for_each(|answer| self.answered(answer));
                number
            }
            Way::Agent { line, .. } => self.send(&mut lock(line), ask)?,
        };
        Ok(Call::new(Arc::clone(self), number, answer, timeout))
    }

    /// Over the connection, or over a new one. Gives the number of the request.
    fn send(
        self: &Arc<Self>,
        line: &mut Option<Arc<Line>>,
        ask: impl FnOnce(u64) -> Result<Request, Error>,
    ) -> Result<u64, Error> {
        if line.as_ref().is_none_or(|line| line.has_ended()) {
            *line = Some(self.connect()?);
        }
        let Some(open) = line else {
            return Err(unreachable("there is no connection to the agent"));
        };
        let request = ask(open.number())?;
        let number = request.number;
        let frame = frame::to_frame(&FromClient::Ask(request));
        let sent = frame
            .map_err(io::Error::other)
            .and_then(|frame| open.send(&frame));
        if let Err(error) = sent {
            self.calls().waiting.remove(&number);
            return Err(unreachable(error));
        }
        // If it ended meanwhile, its thread may not have seen this call.
        if open.has_ended() {
            self.line_ended(open.number(), "the agent closed the connection");
        }
        Ok(number)
    }

    fn connect(self: &Arc<Self>) -> Result<Arc<Line>, Error> {
        let mut calls = self.calls();
        calls.check()?;
        calls.lines += 1;
        let number = calls.lines;
        drop(calls);
        let Way::Agent {
            socket, process, ..
        } = &self.way
        else {
            return Err(unreachable("this process has no agent"));
        };
        Line::open(number, socket, *process, Arc::clone(self))
    }

    /// Nobody waits for the answer any more.
    pub(super) fn forget(&self, number: u64) {
        if self.calls().waiting.remove(&number).is_none() || std::process::id() != self.pid {
            return;
        }
        match &self.way {
            Way::Alone(alone) => lock(alone).forget(number),
            Way::Agent { line, .. } => {
                let frame = frame::to_frame(&FromClient::Forget { number });
                if let (Some(line), Ok(frame)) = (&*lock(line), frame) {
                    // If that fails, the connection ends, and all that it asked for is forgotten.
                    let _ = line.send(&frame);
                }
            }
        }
    }

    /// An answer has come.
    pub(super) fn answered(&self, answer: Answer) {
        let mut calls = self.calls();
        let Some(waiting) = calls.waiting.remove(&answer.number) else {
            return;
        };
        let result = answer
            .result
            .map_err(|refused| match (refused, waiting.round) {
                (Refused::StaleRound { .. }, Some(round)) => calls.interrupt(round),
                (refused, _) => Error::Store(refused),
            });
        // Fails if nobody waits any more.
        let _ = waiting.answer.send(result);
    }

    /// A connection has ended: what was asked over it will not be answered.
    pub(super) fn line_ended(&self, line: u64, why: &str) {
        let mut calls = self.calls();
        for (_, waiting) in calls.waiting.extract_if(.., |_, w| w.line == line) {
            let _ = waiting.answer.send(Err(unreachable(why)));
        }
    }

    /// A round is over: calls in it end at once, and those that come later.
    pub(crate) fn round_over(&self, round: RoundId) {
        let mut calls = self.calls();
        calls.over = calls.over.max(Some(round));
        let of_it = |waiting: &Waiting| waiting.round.is_some_and(|own| own <= round);
        let ended: Vec<_> = calls.waiting.extract_if(.., |_, w| of_it(w)).collect();
        for (_, waiting) in ended {
            let error = calls.interrupt(round);
            let _ = waiting.answer.send(Err(error));
        }
    }

    /// No round will come any more: all calls end, and those that come later.
    pub(crate) fn end(&self, ended: &Ended) {
        let mut calls = self.calls();
        calls.ended.get_or_insert_with(|| ended.clone());
        for waiting in std::mem::take(&mut calls.waiting).into_values() {
            calls.end_told = true;
            let _ = waiting.answer.send(Err(ended.clone().into()));
        }
    }

    /// Whether a call has told its caller that this round is over, or that there will be none any more.
    pub(crate) fn has_told(&self, round: RoundId) -> bool {
        let calls = self.calls();
        calls.end_told || calls.told >= Some(round)
    }

    /// When [`Client::tick`] has something to do. Only where this process is the world.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        match &self.way {
            Way::Alone(alone) => lock(alone).next_deadline(),
            Way::Agent { .. } => None,
        }
    }

    /// Lets timeouts take effect.
    pub(super) fn tick(&self) {
        if let Way::Alone(alone) = &self.way {
            let answers = lock(alone).tick();
            answers.into_iter().for_each(|answer| self.answered(answer));
        }
    }
}

impl Calls {
    /// Gives the number of a request that is about to be sent.
    fn begin(&mut self, waiting: Waiting) -> Result<u64, Error> {
        self.check()?;
        if let Some(round) = waiting.round.filter(|round| self.over >= Some(*round)) {
            return Err(self.interrupt(round));
        }
        self.number += 1;
        self.waiting.insert(self.number, waiting);
        Ok(self.number)
    }

    fn check(&mut self) -> Result<(), Error> {
        let Some(ended) = &self.ended else {
            return Ok(());
        };
        self.end_told = true;
        Err(ended.clone().into())
    }

    fn interrupt(&mut self, round: RoundId) -> Error {
        self.told = self.told.max(Some(round));
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
