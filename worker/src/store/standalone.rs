//! The store of a single process: the driver's machine, driven by its callers.

use std::time::{Duration, Instant};

use elasticrun_core::{
    Time,
    store::{Client, Command, Event, Store},
};
use elasticrun_protocol::{
    Generation, LocalRank, Process,
    store::{Answer, FromClient, Namespace, Request},
};

/// The only client.
const CLIENT: Client = Client {
    connection: 0,
    process: Process {
        local_rank: LocalRank(0),
        generation: Generation(1),
    },
};

/// The driver's store machine in this process.
#[derive(Debug)]
pub(super) struct StandaloneStore {
    store: Store,
    began: Instant,
}

impl Default for StandaloneStore {
    fn default() -> Self {
        Self {
            store: Store::default(),
            began: Instant::now(),
        }
    }
}

impl StandaloneStore {
    /// Processes a request. Returns the answers that are available at once.
    pub(super) fn ask(&mut self, request: Request) -> Vec<Answer> {
        let mut out = Vec::new();
        if let Namespace::Round { epoch, round } = request.namespace {
            // A single process starts a round by being in it. An older round changes nothing.
            let started = Event::RoundStarted { epoch, round };
            self.store.step(self.now(), started, &mut out);
        }
        let message = FromClient::Ask(request);
        let client = CLIENT;
        let event = Event::Message { client, message };
        self.store.step(self.now(), event, &mut out);
        answers(out)
    }

    /// Processes a message that has no answer.
    pub(super) fn tell(&mut self, message: FromClient) {
        let client = CLIENT;
        let event = Event::Message { client, message };
        self.store.step(self.now(), event, &mut Vec::new());
    }

    /// Returns the answers to requests that have timed out.
    pub(super) fn tick(&mut self) -> Vec<Answer> {
        let mut out = Vec::new();
        self.store.tick(self.now(), &mut out);
        answers(out)
    }

    /// Time until [`StandaloneStore::tick`] has work.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        let due = self.store.next_deadline()?;
        Some(due.since(self.now()))
    }

    fn now(&self) -> Time {
        Time::from_start(self.began.elapsed())
    }
}

fn answers(out: Vec<Command>) -> Vec<Answer> {
    let answer = |command| match command {
        Command::Answer { answer, .. } => Some(answer),
        Command::Reject { .. } => None,
    };
    out.into_iter().filter_map(answer).collect()
}
