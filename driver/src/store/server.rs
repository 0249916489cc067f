//! The loop around the store's state machine. Events of the driver and requests of agents become its events. Each answer
//! goes to the connection of its request.

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

use super::{
    DriverEvent, OpenedConnection,
    connection::{self, Channels, ConnectionEvent, Kind},
};

/// Capacity of the queue of requests. Further requests wait at their agents.
const REQUESTS: usize = 64;

/// Bytes of answers that may wait for an agent that does not read. Beyond that its connection is closed.
const MAX_QUEUED: usize = 64 << 20;

/// An open connection.
#[derive(Debug)]
struct Connection {
    host: HostId,
    answers: mpsc::UnboundedSender<Vec<u8>>,
    queued: Arc<AtomicUsize>,
}

struct Server {
    store: Store,
    began: Instant,
    /// Admitted agents, with the instance of each.
    agents: BTreeMap<HostId, u64>,
    connections: BTreeMap<u64, Connection>,
    /// Number of the last connection.
    last_connection: u64,
    /// For new connections.
    events: mpsc::Sender<ConnectionEvent>,
}

/// Runs until all senders of driver events are dropped.
pub(super) async fn run(mut driver_events: mpsc::UnboundedReceiver<DriverEvent>, limits: Limits) {
    let (sender, mut events) = mpsc::channel(REQUESTS);
    let mut server = Server {
        store: Store::new(limits),
        began: Instant::now(),
        agents: BTreeMap::new(),
        connections: BTreeMap::new(),
        last_connection: 0,
        events: sender,
    };
    loop {
        let due = server.store.next_deadline();
        let due = due.and_then(|due| server.began.checked_add(due.since_start()));
        tokio::select! {
            event = driver_events.recv() => match event {
                Some(event) => server.on_driver_event(event),
                None => return,
            },
            Some(request) = events.recv() => {
                // The driver sends its events before a worker can know of them, so they have arrived by now.
                while let Ok(event) = driver_events.try_recv() {
                    server.on_driver_event(event);
                }
                server.on_connection_event(request);
            }
            () = sleep_until(due.unwrap_or(server.began)), if due.is_some() => server.tick(),
        }
    }
}

impl Server {
    fn on_driver_event(&mut self, event: DriverEvent) {
        match event {
            DriverEvent::AgentConnected { host, instance } => {
                self.close_connections(&host);
                self.agents.insert(host, instance);
            }
            DriverEvent::AgentLost { host } => {
                self.close_connections(&host);
                self.agents.remove(&host);
            }
            DriverEvent::RoundStarted { epoch, round } => {
                self.step(Event::RoundStarted { epoch, round });
            }
            DriverEvent::ConnectionOpened(opened) => self.on_opened(*opened),
        }
    }

    /// Accepts the connection of an admitted agent. Any other connection is closed.
    fn on_opened(&mut self, opened: OpenedConnection) {
        let OpenedConnection {
            agent,
            stream,
            frames,
        } = opened;
        if self.agents.get(&agent.host) != Some(&agent.instance) {
            tracing::warn!(host = %agent.host, "an agent that is not part of the job asks for its store");
            return;
        }
        self.close_connections(&agent.host);
        self.last_connection += 1;
        let number = self.last_connection;
        let (answers, outbox) = mpsc::unbounded_channel();
        let queued = Arc::new(AtomicUsize::new(0));
        let channels = Channels {
            connection: number,
            outbox,
            queued: Arc::clone(&queued),
            events: self.events.clone(),
        };
        tracing::debug!(host = %agent.host, connection = number, "an agent asks for the store");
        tokio::spawn(connection::serve(stream, frames, channels));
        let connection = Connection {
            host: agent.host,
            answers,
            queued,
        };
        self.connections.insert(number, connection);
    }

    fn on_connection_event(&mut self, event: ConnectionEvent) {
        let connection = event.connection;
        match event.kind {
            // Messages of a connection that was closed meanwhile change nothing (R3).
            Kind::Message(FromHost { process, message })
                if self.connections.contains_key(&connection) =>
            {
                let client = Client {
                    connection,
                    process,
                };
                self.step(Event::Message { client, message });
            }
            Kind::Message(_) => {}
            Kind::Closed => self.close(connection),
        }
    }

    fn close_connections(&mut self, host: &HostId) {
        let numbers: Vec<_> = (self.connections.iter())
            .filter(|(_, connection)| connection.host == *host)
            .map(|(number, _)| *number)
            .collect();
        for number in numbers {
            self.close(number);
        }
    }

    fn close(&mut self, connection: u64) {
        if self.connections.remove(&connection).is_some() {
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
        let Some(connection) = self.connections.get(&client.connection) else {
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
            let queued = connection.queued.fetch_add(frame.len(), Ordering::Relaxed);
            (queued < MAX_QUEUED).then(|| connection.answers.send(frame).ok())?
        });
        if sent.is_none() {
            tracing::warn!(host = %connection.host, "the agent does not read answers of the store");
            self.close(client.connection);
        }
    }
}
