//! A store and its clients in virtual time.

use std::{collections::BTreeMap, time::Duration};

use elasticrun_core::{
    Time,
    store::{Client, Command, Event, Limits, Store},
};
use elasticrun_protocol::{
    DriverEpoch, Generation, LocalRank, Process, Round,
    store::{Blob, FromClient, Namespace, Op, Refused, Request, Value},
};

pub(crate) const EPOCH: DriverEpoch = DriverEpoch(1);

/// The answer to a request, if there is one yet.
pub(crate) type Answer = Option<Result<Value, Refused>>;

pub(crate) fn client(number: u32) -> Client {
    Client {
        connection: u64::from(number / 2),
        process: Process {
            local_rank: LocalRank(number % 2),
            generation: Generation(1),
        },
    }
}

pub(crate) fn namespace(round: u64) -> Namespace {
    Namespace::Round {
        epoch: EPOCH,
        round: Round(round),
    }
}

pub(crate) fn blob(text: &str) -> Blob {
    Blob(text.as_bytes().to_vec())
}

pub(crate) fn set(key: &str, value: &str) -> Op {
    Op::Set {
        key: key.into(),
        value: blob(value),
    }
}

pub(crate) fn get(key: &str) -> Op {
    Op::Get { key: key.into() }
}

pub(crate) fn push(key: &str, value: &str) -> Op {
    Op::QueuePush {
        key: key.into(),
        value: blob(value),
    }
}

/// A pop that waits for an element.
pub(crate) fn pop(key: &str) -> Op {
    Op::QueuePop {
        key: key.into(),
        block: true,
    }
}

/// A refusal of a value for which the store has no room.
pub(crate) fn full(limit: u64, key: &str, length: u64) -> Refused {
    let key = key.into();
    Refused::Full { limit, key, length }
}

pub(crate) fn keys(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

pub(crate) fn bytes(text: &str) -> Answer {
    Some(Ok(Value::Bytes(blob(text))))
}

/// A store, its clock, and its answers.
pub(crate) struct Harness {
    pub(crate) store: Store,
    pub(crate) now: Time,
    pub(crate) round: u64,
    /// Whether the workers can read staged values.
    pub(crate) reads_staged: bool,
    numbers: BTreeMap<Client, u64>,
    /// Answers that the test has not taken yet.
    answers: BTreeMap<(Client, u64), Result<Value, Refused>>,
    pub(crate) rejected: Vec<(Client, u64)>,
}

impl Harness {
    /// A store in round 1.
    pub(crate) fn new(limits: Limits) -> Self {
        let mut harness = Self {
            store: Store::new(limits),
            now: Time::ZERO,
            round: 0,
            reads_staged: true,
            numbers: BTreeMap::new(),
            answers: BTreeMap::new(),
            rejected: Vec::new(),
        };
        harness.start(1);
        harness
    }

    pub(crate) fn step(&mut self, event: Event) {
        let mut out = Vec::new();
        self.store.step(self.now, event, &mut out);
        self.heard(out);
    }

    fn heard(&mut self, out: Vec<Command>) {
        for command in out {
            match command {
                Command::Answer { client, answer } => {
                    let twice = self.answers.insert((client, answer.number), answer.result);
                    assert_eq!(
                        twice, None,
                        "S2: one answer to {client:?} {}",
                        answer.number
                    );
                }
                Command::Reject { client, number } => self.rejected.push((client, number)),
            }
        }
    }

    pub(crate) fn start(&mut self, round: u64) {
        self.round = round;
        self.step(Event::RoundStarted {
            epoch: EPOCH,
            round: Round(round),
        });
    }

    /// Advances time, deadline by deadline.
    pub(crate) fn pass(&mut self, wait: Duration) {
        let end = self.now + wait;
        while let Some(due) = self.store.next_deadline().filter(|due| *due <= end) {
            self.now = due;
            let mut out = Vec::new();
            self.store.tick(due, &mut out);
            assert!(!out.is_empty(), "a deadline at which nothing happens");
            self.heard(out);
        }
        self.now = end;
    }

    pub(crate) fn say(&mut self, client: Client, message: FromClient) {
        self.step(Event::Message { client, message });
    }

    /// Sends a request and gives its number.
    pub(crate) fn ask_in(
        &mut self,
        number: u32,
        namespace: Namespace,
        timeout: Duration,
        op: Op,
    ) -> (Client, u64) {
        let client = client(number);
        let next = self.numbers.entry(client).or_default();
        *next += 1;
        let number = *next;
        let request = Request {
            number,
            namespace,
            timeout,
            op,
            reads_staged: self.reads_staged,
        };
        self.say(client, FromClient::Ask(request));
        (client, number)
    }

    /// Sends a request for the current round with a timeout of one second.
    pub(crate) fn ask(&mut self, number: u32, op: Op) -> (Client, u64) {
        let second = Duration::from_secs(1);
        self.ask_in(number, namespace(self.round), second, op)
    }

    pub(crate) fn said(&mut self, asked: (Client, u64)) -> Answer {
        self.answers.remove(&asked)
    }

    /// Whether the test has taken all answers.
    pub(crate) fn nothing_said(&self) -> bool {
        self.answers.is_empty()
    }

    /// Sends a request and gives its answer, if it comes at once.
    pub(crate) fn call(&mut self, number: u32, op: Op) -> Answer {
        let asked = self.ask(number, op);
        self.said(asked)
    }

    pub(crate) fn call_in(&mut self, number: u32, namespace: Namespace, op: Op) -> Answer {
        let asked = self.ask_in(number, namespace, Duration::ZERO, op);
        self.said(asked)
    }
}
