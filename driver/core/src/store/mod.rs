//! Store: the key-value store for the rendezvous of a job's workers, as a state machine.
//!
//! The store is independent of [`crate::Job`] and has the same shape. [`Store::step`] takes an event and appends
//! commands; [`Store::next_deadline`] is the next timeout. Store and job do not influence each other, with one
//! exception: when a round starts, the keys of the previous round are deleted. So any shell with the requests can drive
//! it: the driver for a job, a worker for itself if it runs alone.
//!
//! # Invariants
//! - S1 An operation is done at once and as a whole, or waits, or is refused and changes nothing.
//! - S2 A request gets one answer, unless it was forgotten. A repeat of a request gets none (R3).
//! - S3 The keys of a round are accessible from its start to the start of the next round, and only to requests of that
//!   round (R3). The keys of the job stay.
//! - S4 Keys, values, elements, staged values and awaited keys never exceed [`Limits`]. A value that a worker still reads
//!   counts until it has read it.
//! - S5 An element of a queue goes to one request. Elements leave a queue in the order in which they came, and go to the
//!   requests that wait for them in the order in which those came.
//!
//! Not promised: an order among the requests that wait for the value of a key.

mod contents;
mod large;
mod perform;
mod transfers;
mod values;
mod waiting;
mod waits;

use std::collections::BTreeMap;

use elasticrun_protocol::{
    DriverEpoch, Process, Round,
    store::{
        Answer, FromClient, MAX_MESSAGE, MAX_PIECE, Namespace, Refused, Request, Value, shown,
    },
};

use crate::Time;
use contents::Contents;
use transfers::Transfers;
use waits::Waits;

/// A process that sends requests over a connection of its agent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Client {
    /// The shell's number of the connection.
    pub connection: u64,
    /// The worker, by slot and start on the host of that connection.
    pub process: Process,
}

/// Size limits of the store, beside the limits of [`elasticrun_protocol::store`].
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Values and elements of queues.
    pub keys: usize,
    /// Bytes of values and elements, each with its key, of staged values, and of awaited keys.
    pub bytes: usize,
    /// Waiting requests of one worker.
    pub waits: usize,
    /// Staged values of one worker.
    pub transfers: usize,
    /// Bytes of values in one answer. Others are staged.
    pub answer: usize,
    /// Bytes of one piece of a staged value.
    pub piece: usize,
}

impl Default for Limits {
    /// 1,048,576 values and elements, 1 GiB, 1,024 requests, 1,024 staged values, and what fits a message.
    fn default() -> Self {
        Self {
            keys: 1 << 20,
            bytes: 1 << 30,
            waits: 1 << 10,
            transfers: 1 << 10,
            answer: MAX_MESSAGE,
            piece: MAX_PIECE,
        }
    }
}

impl Limits {
    /// The refusal of a value that does not fit beside the others, or not at all.
    fn full(&self, key: &str, length: usize) -> Refused {
        let (key, length, limit) = (shown(key), length as u64, self.bytes as u64);
        if length > limit {
            return Refused::ValueTooLarge { key, length, limit };
        }
        Refused::Full { limit, key, length }
    }
}

/// Something that happened outside of the store.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A round has started.
    RoundStarted {
        /// The driver that started it.
        epoch: DriverEpoch,
        /// The number of the round. The keys of the round before are deleted.
        round: Round,
    },
    /// A worker has sent a message.
    Message {
        /// The worker that sent the message.
        client: Client,
        /// A request, the withdrawal of one, or the end of the worker.
        message: FromClient,
    },
    /// A connection of an agent has ended: all workers that used it are gone.
    Closed {
        /// The number of the connection.
        connection: u64,
    },
}

/// An action for the shell.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Sends an answer to a worker.
    Answer {
        /// The worker that sent the request.
        client: Client,
        /// The value or the refusal, with the number of the request.
        answer: Answer,
    },
    /// A request that repeats an earlier one was dropped (R3).
    Reject {
        /// The worker that sent the repeat. It gets no second answer.
        client: Client,
        /// The number of the request.
        number: u64,
    },
}

/// The two sets of keys: of the round that started last, and of the job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Space {
    Round,
    Job,
}

/// The key-value store of a job.
#[derive(Clone, Debug, Default)]
pub struct Store {
    limits: Limits,
    current: Option<(DriverEpoch, Round)>,
    /// The last request number of each client.
    clients: BTreeMap<Client, u64>,
    contents: Contents,
    waits: Waits,
    transfers: Transfers,
}

impl Store {
    /// An empty store.
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
            Event::Message { client, message } => match message {
                FromClient::Ask(request) => self.asked(now, client, request, out),
                FromClient::Forget { number } => self.waits.forget((client, number)),
                FromClient::Discard { uploads, downloads } => {
                    for staged in uploads {
                        self.transfers.discard_upload((client, staged));
                    }
                    for staged in downloads {
                        self.discard_download(client, staged);
                    }
                }
                FromClient::Left => self.left(client),
            },
            Event::Closed { connection } => {
                let of_it = |client: &&Client| client.connection == connection;
                let gone: Vec<_> = self.clients.keys().filter(of_it).copied().collect();
                gone.into_iter().for_each(|client| self.left(client));
            }
        }
    }

    /// Applies the timeouts that have passed.
    pub fn tick(&mut self, now: Time, out: &mut Vec<Command>) {
        while let Some(wait) = self.waits.take_overdue(now) {
            let condition = wait.wanted.condition();
            let refused = self.contents.timed_out(condition, wait.space, &wait.keys);
            out.push(answer(wait.client, wait.number, Err(refused)));
        }
    }

    /// When [`Store::tick`] is due.
    pub fn next_deadline(&self) -> Option<Time> {
        self.waits.next_deadline()
    }

    /// The number of values and elements of the round and of the job.
    pub fn len(&self) -> usize {
        self.contents.entries()
    }

    /// Whether the store has neither values nor elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that count against [`Limits::bytes`].
    pub fn bytes(&self) -> usize {
        self.contents.bytes() + self.other_bytes()
    }

    /// Bytes that count beside those of keys and values.
    fn other_bytes(&self) -> usize {
        self.waits.bytes() + self.transfers.bytes()
    }

    /// The number of requests that wait for keys.
    pub fn waiting(&self) -> usize {
        self.waits.len()
    }

    fn round_started(&mut self, epoch: DriverEpoch, round: Round, out: &mut Vec<Command>) {
        if self.current >= Some((epoch, round)) {
            return;
        }
        self.current = Some((epoch, round));
        self.contents.clear_round();
        for value in self.transfers.take_round() {
            self.contents.values.release(value);
        }
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
        for value in self.transfers.left(client) {
            self.contents.values.release(value);
        }
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
