//! The loop around the machine of the server.

use std::{
    collections::BTreeMap,
    io,
    net::TcpListener as StdListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use elasticrun_core::{
    Time,
    rendezvous::server::{Command, Event, Server},
};
use elasticrun_protocol::{
    frame,
    rendezvous::{Channel, Open},
    store::{Answer, Refused},
};
use serde::Serialize;
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout},
};

use super::{
    Nodes,
    accept::accept,
    connection::{ConnectionEvent, Incoming, Outbox},
};

/// Capacity of the queue of messages. Further ones wait in their sockets.
const MESSAGES: usize = 256;

/// Bytes that may wait for a peer that does not read. Beyond that its connection is closed.
const MAX_QUEUED: usize = 64 << 20;

/// How long the end waits for peers to take what is answered.
const LAST_BYTES: Duration = Duration::from_millis(500);

/// An open connection.
#[derive(Debug)]
struct Peer {
    outbox: mpsc::UnboundedSender<Bytes>,
    queued: Arc<AtomicUsize>,
    open: Open,
}

struct Loop {
    server: Server,
    began: Instant,
    peers: BTreeMap<u64, Peer>,
    last_connection: u64,
    nodes: Arc<Nodes>,
}

/// Serves until `stopped`.
pub(super) async fn run(
    listener: StdListener,
    first_token: u64,
    nodes: Arc<Nodes>,
    mut stopped: oneshot::Receiver<()>,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let (sender, mut messages) = mpsc::channel(MESSAGES);
    let mut connections = tokio::task::JoinSet::new();
    let accepting = tokio::spawn(accept(listener, sender));
    let mut this = Loop {
        server: Server::new(first_token),
        began: Instant::now(),
        peers: BTreeMap::new(),
        last_connection: 0,
        nodes,
    };
    loop {
        let due = this.server.next_deadline();
        let due = due.and_then(|due| this.began.checked_add(due.since_start()));
        tokio::select! {
            _ = &mut stopped => break,
            Some(incoming) = messages.recv() => match incoming {
                Incoming::Opening { open, serve } => this.open(open, serve),
                Incoming::Serving(task) => { connections.spawn(task); }
                Incoming::Event(event) => this.on_event(event),
            },
            Some(_) = connections.join_next() => {}
            () = sleep_until(due.unwrap_or(this.began)), if due.is_some() => this.tick(),
        }
    }
    accepting.abort();
    drop(messages);
    // Each connection ends once it has sent what is in its outbox.
    drop(this);
    let _ = timeout(LAST_BYTES, connections.join_all()).await;
    Ok(())
}

impl Loop {
    fn open(&mut self, open: Open, serve: oneshot::Sender<Result<Outbox, String>>) {
        self.last_connection += 1;
        let connection = self.last_connection;
        let mut commands = Vec::new();
        if let Err(refusal) = self.server.open(connection, open.clone(), &mut commands) {
            // Fails if the peer is gone.
            let _ = serve.send(Err(refusal.to_string()));
            return;
        }
        let (outbox, frames) = mpsc::unbounded_channel();
        let queued = Arc::new(AtomicUsize::new(0));
        let run = open.run.clone();
        let peer = Peer {
            outbox,
            queued: Arc::clone(&queued),
            open,
        };
        let channel = peer.open.channel;
        self.peers.insert(connection, peer);
        let outbox = Outbox {
            connection,
            channel,
            frames,
            queued,
        };
        if serve.send(Ok(outbox)).is_err() {
            return self.close(connection);
        }
        self.count(&run);
        self.execute(commands);
    }

    fn on_event(&mut self, event: ConnectionEvent) {
        let event = match event {
            ConnectionEvent::Closed(connection) => return self.close(connection),
            ConnectionEvent::Node(connection, message) => Event::FromNode {
                connection,
                message,
            },
            ConnectionEvent::Client(connection, message) => Event::FromClient {
                connection,
                message,
            },
        };
        self.step(event);
    }

    fn close(&mut self, connection: u64) {
        if let Some(peer) = self.peers.remove(&connection) {
            self.step(Event::Closed { connection });
            self.count(&peer.open.run);
        }
    }

    fn count(&self, run: &str) {
        self.nodes.set(run, self.server.watching(Some(run)));
    }

    fn step(&mut self, event: Event) {
        let now = self.now();
        let mut commands = Vec::new();
        self.server.step(now, event, &mut commands);
        self.execute(commands);
    }

    fn tick(&mut self) {
        let now = self.now();
        let mut commands = Vec::new();
        self.server.tick(now, &mut commands);
        self.execute(commands);
    }

    fn now(&self) -> Time {
        Time::from_start(self.began.elapsed())
    }

    fn execute(&mut self, commands: Vec<Command>) {
        let mut ended = Vec::new();
        for command in commands {
            match command {
                Command::ToNodes {
                    connections,
                    message,
                } => {
                    // A state that the server took fits a frame.
                    let Some(frame) = to_bytes(&message) else {
                        ended.extend(connections);
                        continue;
                    };
                    for connection in connections {
                        if !self.send(connection, frame.clone()) {
                            ended.push(connection);
                        }
                    }
                }
                Command::Answer { connection, answer } => {
                    let frame = to_bytes(&answer).or_else(|| to_bytes(&too_large(answer.number)));
                    if !frame.is_some_and(|frame| self.send(connection, frame)) {
                        ended.push(connection);
                    }
                }
                Command::Close { connection, why } => {
                    tracing::warn!(connection, why, "a peer breaks the protocol");
                    ended.push(connection);
                }
            }
        }
        for connection in ended {
            self.close(connection);
        }
    }

    /// Queues a frame. `false` if the peer does not read or is gone.
    fn send(&self, connection: u64, frame: Bytes) -> bool {
        let Some(peer) = self.peers.get(&connection) else {
            return true;
        };
        let queued = peer.queued.fetch_add(frame.len(), Ordering::Relaxed);
        queued < MAX_QUEUED && peer.outbox.send(frame).is_ok()
    }
}

fn to_bytes(message: &impl Serialize) -> Option<Bytes> {
    frame::to_frame(message).ok().map(Bytes::from)
}

fn too_large(number: u64) -> Answer {
    let why = "the answer does not fit a frame".to_owned();
    Answer {
        number,
        result: Err(Refused::Unreachable { why }),
    }
}

impl Outbox {
    /// Whether the connection is about the state.
    pub(super) fn is_state(&self) -> bool {
        matches!(self.channel, Channel::State { .. })
    }
}
