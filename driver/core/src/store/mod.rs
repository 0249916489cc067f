//! Store: the key-value store that workers of a job meet in, as one machine.
//!
//! Beside [`crate::Job`] and in the same shape: [`Store::step`] takes an event and appends commands, and
//! [`Store::next_deadline`] says when waiting ends. It decides nothing about the job and the job nothing about it,
//! but for one thing: when a round starts, the keys of the one before are gone. So it can be driven by any shell
//! that has the requests: the driver for the job, a worker for itself when it is alone.
//!
//! # Invariants
//! - S1 an operation is done at once and as a whole, or waits, or is refused and has changed nothing.
//! - S2 a request gets one answer, unless it was forgotten; a repeat of one is no request (R3).
//! - S3 the keys of a round can be reached from the first request after its start to the start of the next one,
//!   and by nobody else (R3). Those of the job stay.
//! - S4 keys, values and the keys that are waited for never take more than [`Limits`].
//!
//! Not promised: an order among those that wait for the same key.

mod contents;
mod perform;
mod waits;

use std::collections::BTreeMap;

use elasticrun_protocol::{
    DriverEpoch, Process, Round,
    store::{Answer, FromClient, Namespace, Refused, Request, Value},
};

use crate::Time;
use contents::Contents;
use waits::Waits;

/// Who asks: a process, by the connection of its agent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Client {
    /// The shell's number of the connection that it comes by.
    pub connection: u64,
    /// The worker.
    pub process: Process,
}

/// How much there may be, beside the limits of [`elasticrun_protocol::store`].
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Keys that have a value.
    pub keys: usize,
    /// Bytes of keys, of values, and of keys that are waited for.
    pub bytes: usize,
    /// Requests in which one worker may wait at a time.
    pub waits: usize,
}

impl Default for Limits {
    /// 1,048,576 keys, 256 MiB, 1,024 requests.
    fn default() -> Self {
        Self {
            keys: 1 << 20,
            bytes: 256 << 20,
            waits: 1 << 10,
        }
    }
}

/// Something that happened outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A round has started.
    RoundStarted {
        /// By which driver.
        epoch: DriverEpoch,
        /// Which.
        round: Round,
    },
    /// A worker says something.
    Said {
        /// Who.
        client: Client,
        /// What.
        message: FromClient,
    },
    /// A connection of an agent has ended: whoever came by it is gone.
    Closed {
        /// Which.
        connection: u64,
    },
}

/// What the shell must do.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Tell a worker.
    Answer {
        /// Whom.
        client: Client,
        /// What.
        answer: Answer,
    },
    /// A request that repeats an older one was dropped (R3).
    Reject {
        /// Whose.
        client: Client,
        /// Its number.
        number: u64,
    },
}

/// Keys of the round that started last, or of the job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Space {
    Round,
    Job,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Store {
    limits: Limits,
    current: Option<(DriverEpoch, Round)>,
    /// The last number of each worker that is there.
    clients: BTreeMap<Client, u64>,
    contents: Contents,
    waits: Waits,
}

impl Store {
    /// An empty one.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Applies one event and appends what must be done.
    pub fn step(&mut self, now: Time, event: Event, out: &mut Vec<Command>) {
        self.tick(now, out);
        match event {
            Event::RoundStarted { epoch, round } => self.round_started(epoch, round, out),
            Event::Said { client, message } => match message {
                FromClient::Ask(request) => self.asked(now, client, request, out),
                FromClient::Forget { number } => self.waits.forget((client, number)),
                FromClient::Left => self.left(client),
            },
            Event::Closed { connection } => {
                let of_it = |client: &&Client| client.connection == connection;
                let gone: Vec<_> = self.clients.keys().filter(of_it).copied().collect();
                gone.into_iter().for_each(|client| self.left(client));
            }
        }
    }

    /// Lets the timeouts that have passed take effect.
    pub fn tick(&mut self, now: Time, out: &mut Vec<Command>) {
        while let Some(wait) = self.waits.take_overdue(now) {
            let refused = self.contents.timed_out(wait.space, &wait.keys);
            out.push(answer(wait.client, wait.number, Err(refused)));
        }
    }

    /// When [`Store::tick`] has something to do.
    pub fn next_deadline(&self) -> Option<Time> {
        self.waits.next_deadline()
    }

    /// Keys that have a value, of the round and of the job.
    pub fn len(&self) -> usize {
        self.contents.keys()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that count against [`Limits::bytes`].
    pub fn bytes(&self) -> usize {
        self.contents.bytes() + self.waits.bytes()
    }

    /// Requests that wait for keys.
    pub fn waiting(&self) -> usize {
        self.waits.len()
    }

    fn round_started(&mut self, epoch: DriverEpoch, round: Round, out: &mut Vec<Command>) {
        if self.current >= Some((epoch, round)) {
            return;
        }
        self.current = Some((epoch, round));
        self.contents.clear_round();
        for wait in self.waits.take_round() {
            let refused = Refused::StaleRound {
                asked: wait.round.unwrap_or(round),
                current: Some(round),
            };
            out.push(answer(wait.client, wait.number, Err(refused)));
        }
    }

    fn left(&mut self, client: Client) {
        self.clients.remove(&client);
        self.waits.left(client);
    }

    fn asked(&mut self, now: Time, client: Client, request: Request, out: &mut Vec<Command>) {
        let number = request.number;
        let last = self.clients.entry(client).or_default();
        if number <= *last {
            return out.push(Command::Reject { client, number });
        }
        *last = number;
        let result = self
            .space_of(request.namespace)
            .and_then(|space| self.perform(now, client, space, request, out));
        if let Some(result) = result.transpose() {
            out.push(answer(client, number, result));
        }
        self.wake(out);
    }

    fn space_of(&self, namespace: Namespace) -> Result<Space, Refused> {
        match namespace {
            Namespace::Job => Ok(Space::Job),
            Namespace::Round { epoch, round } if self.current == Some((epoch, round)) => {
                Ok(Space::Round)
            }
            Namespace::Round { round, .. } => Err(Refused::StaleRound {
                asked: round,
                current: self.current.map(|(_, round)| round),
            }),
        }
    }
}

fn answer(client: Client, number: u64, result: Result<Value, Refused>) -> Command {
    Command::Answer {
        client,
        answer: Answer { number, result },
    }
}
