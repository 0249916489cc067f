//! The store of a process that is the world: the driver's machine, driven by who calls.

use std::time::{Duration, Instant};

use elasticrun_core::{
    Time,
    store::{Client, Command, Event, Store},
};
use elasticrun_protocol::{
    Generation, LocalRank, Process,
    store::{Answer, FromClient, Namespace, Request},
};

/// Who asks: there is one.
const CLIENT: Client = Client {
    connection: 0,
    process: Process {
        local_rank: LocalRank(0),
        generation: Generation(1),
    },
};

/// See the module.
#[derive(Debug)]
pub(super) struct Alone {
    store: Store,
    began: Instant,
}

impl Default for Alone {
    fn default() -> Self {
        Self {
            store: Store::default(),
            began: Instant::now(),
        }
    }
}

impl Alone {
    /// Gives the answers that come at once.
    pub(super) fn ask(&mut self, request: Request) -> Vec<Answer> {
        let mut out = Vec::new();
        if let Namespace::Round { epoch, round } = request.namespace {
            // Whoever is alone starts a round by being in it; an older one changes nothing.
            let started = Event::RoundStarted { epoch, round };
            self.store.step(self.now(), started, &mut out);
        }
        let message = FromClient::Ask(request);
        let client = CLIENT;
        let said = Event::Said { client, message };
        self.store.step(self.now(), said, &mut out);
        answers(out)
    }

    pub(super) fn forget(&mut self, number: u64) {
        let said = Event::Said {
            client: CLIENT,
            message: FromClient::Forget { number },
        };
        self.store.step(self.now(), said, &mut Vec::new());
    }

    /// Gives the answers to those whose time is over.
    pub(super) fn tick(&mut self) -> Vec<Answer> {
        let mut out = Vec::new();
        self.store.tick(self.now(), &mut out);
        answers(out)
    }

    /// How long until [`Alone::tick`] has something to do.
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
