//! The loop around the store's machine: notes of the run loop and requests of agents become events, answers go
//! to the connection that they belong to.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use elasticrun_core::{
    Time,
    store::{Client, Command, Event, Limits, Store},
};
use elasticrun_protocol::{
    HostId, frame,
    store::{Answer, FromHost, Refused, ToHost},
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{Note, Opened, line};

/// Requests that may wait for the store; those behind wait at their agents.
const REQUESTS: usize = 256;

/// Bytes of answers that may wait for an agent that does not read; beyond that it is as good as dead.
const MOST_QUEUED: usize = 64 << 20;

/// What a connection says.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) connection: u64,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    Message(FromHost),
    Closed,
}

/// The way to one connection.
#[derive(Debug)]
struct Line {
    host: HostId,
    answers: mpsc::UnboundedSender<Vec<u8>>,
    queued: Arc<AtomicUsize>,
}

struct Hub {
    store: Store,
    began: Instant,
    /// Agents of the job, and the instance of each.
    agents: BTreeMap<HostId, u64>,
    lines: BTreeMap<u64, Line>,
    /// Number of the last connection.
    opened: u64,
    said: mpsc::Sender<Said>,
}

/// Runs until nobody can tell it anything any more.
pub(super) async fn run(mut notes: mpsc::UnboundedReceiver<Note>, limits: Limits) {
    let (sender, mut said) = mpsc::channel(REQUESTS);
    let mut hub = Hub {
        store: Store::new(limits),
        began: Instant::now(),
        agents: BTreeMap::new(),
        lines: BTreeMap::new(),
        opened: 0,
        said: sender,
    };
    loop {
        let due = hub.store.next_deadline();
        let due = due.and_then(|due| hub.began.checked_add(due.since_start()));
        tokio::select! {
            note = notes.recv() => match note {
                Some(note) => hub.note(note),
                None => return,
            },
            Some(request) = said.recv() => {
                // What the run loop said before the worker could know of it is here by now.
                while let Ok(note) = notes.try_recv() {
                    hub.note(note);
                }
                hub.said(request);
            }
            () = sleep_until(due.unwrap_or(hub.began)), if due.is_some() => hub.tick(),
        }
    }
}

impl Hub {
    fn note(&mut self, note: Note) {
        match note {
            Note::AgentConnected { host, instance } => {
                self.drop_lines(&host);
                self.agents.insert(host, instance);
            }
            Note::AgentLost { host } => {
                self.drop_lines(&host);
                self.agents.remove(&host);
            }
            Note::RoundStarted { epoch, round } => {
                self.step(Event::RoundStarted { epoch, round });
            }
            Note::Opened(opened) => self.opened(*opened),
        }
    }

    /// Takes a connection of an agent of the job; that of another is closed.
    fn opened(&mut self, opened: Opened) {
        let Opened { of, stream, frames } = opened;
        if self.agents.get(&of.host) != Some(&of.instance) {
            tracing::warn!(host = %of.host, "an agent that is not part of the job asks for its store");
            return;
        }
        self.drop_lines(&of.host);
        self.opened += 1;
        let connection = self.opened;
        let (answers, outbox) = mpsc::unbounded_channel();
        let queued = Arc::new(AtomicUsize::new(0));
        let served = line::Served {
            connection,
            outbox,
            queued: Arc::clone(&queued),
            said: self.said.clone(),
        };
        tracing::debug!(host = %of.host, connection, "an agent asks for the store");
        tokio::spawn(line::serve(stream, frames, served));
        let host = of.host;
        let line = Line {
            host,
            answers,
            queued,
        };
        self.lines.insert(connection, line);
    }

    fn said(&mut self, said: Said) {
        let connection = said.connection;
        match said.what {
            // What a connection said that was closed meanwhile changes nothing (R3).
            What::Message(FromHost { process, message })
                if self.lines.contains_key(&connection) =>
            {
                let client = Client {
                    connection,
                    process,
                };
                self.step(Event::Said { client, message });
            }
            What::Message(_) => {}
            What::Closed => self.close(connection),
        }
    }

    fn drop_lines(&mut self, host: &HostId) {
        let of_host = |(number, line): (&u64, &Line)| (line.host == *host).then_some(*number);
        let lines: Vec<_> = self.lines.iter().filter_map(of_host).collect();
        lines.into_iter().for_each(|line| self.close(line));
    }

    fn close(&mut self, connection: u64) {
        if self.lines.remove(&connection).is_some() {
            self.step(Event::Closed { connection });
        }
    }

    fn step(&mut self, event: Event) {
        let now = self.now();
        let mut commands = Vec::new();
        self.store.step(now, event, &mut commands);
        self.execute(commands);
    }

    fn tick(&mut self) {
        let now = self.now();
        let mut commands = Vec::new();
        self.store.tick(now, &mut commands);
        self.execute(commands);
    }

    fn now(&self) -> Time {
        Time::from_start(self.began.elapsed())
    }

    fn execute(&mut self, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Answer { client, answer } => self.answer(client, answer),
                Command::Reject { client, number } => {
                    tracing::debug!(?client, number, "refused a request that repeats one");
                }
            }
        }
    }

    fn answer(&mut self, client: Client, answer: Answer) {
        let Some(line) = self.lines.get(&client.connection) else {
            return;
        };
        let (process, number) = (client.process, answer.number);
        let frame = frame::to_frame(&ToHost { process, answer }).or_else(|error| {
            let why = error.to_string();
            let result = Err(Refused::Unreachable { why });
            frame::to_frame(&ToHost {
                process,
                answer: Answer { number, result },
            })
        });
        let sent = frame.ok().and_then(|frame| {
            let queued = line.queued.fetch_add(frame.len(), Ordering::Relaxed);
            (queued < MOST_QUEUED).then(|| line.answers.send(frame).ok())?
        });
        if sent.is_none() {
            tracing::warn!(host = %line.host, "the agent does not read answers of the store");
            self.close(client.connection);
        }
    }
}
