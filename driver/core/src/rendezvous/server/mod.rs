//! The server of an endpoint: it holds the states, the heartbeats and the keys of runs for nodes that connect to it.
//!
//! A state is bytes with a fencing token, so any program with a compare-and-set can use it, not only [`super::Machine`]. The
//! shell opens connections, and gives the messages of [`elasticrun_protocol::rendezvous`] in both directions.
//!
//! # Invariants
//! - V1 A write replaces the state only if its token is the expected one. Each write gives a larger token.
//! - V2 A request gets one answer, unless its connection ends or sends the next write.
//! - V3 A watching connection learns of the newest write as soon as it has seen the report before. So a slow node delays
//!   nobody, and costs one report in memory. While other writes wait, reports come after a [pause](PAUSE).
//! - V4 Of the writes that have lost, one at a time gets its answer, in the order of their arrival. Its sender has a
//!   [turn](TURN) for the next write. So N nodes that write at once need 2 N writes, not N squared.
//! - V5 A heartbeat is answered at once and reported to nobody. The heartbeats that a write adds or removes change with the
//!   state or not at all.
//!
//! # Not promised
//! - A state survives its server. The first token of the next server of the endpoint must be larger than all tokens of this
//!   one.
//! - A run ends. Its state and keys stay as long as the server, so that late nodes learn that it is closed.

mod cell;

use std::{collections::BTreeMap, time::Duration};

use elasticrun_protocol::{
    Generation, LocalRank, Process,
    rendezvous::{self as wire, Channel, FromNode, MAX_RUN, MAX_STATE, Open, ToNode},
    store::{Answer, FromClient},
};

use super::{BeatNumber, HeartbeatChanges, InvalidNodeId, NodeId, Silence};
use crate::{
    Time,
    store::{self, Limits, Store},
    time::earliest,
};
use cell::Cell;

/// How long the sender of a lost write may take for the next one before others get their answers.
pub const TURN: Duration = Duration::from_millis(200);

/// How long writes are reported together while others wait, for each watching connection: nodes that read reports do not
/// hold up those that write. A write that no other one waits for is reported at once.
pub const PAUSE: Duration = Duration::from_millis(1);

/// The largest number of runs.
const MAX_RUNS: usize = 1024;

/// Something that happened outside of the server.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A message about the state.
    FromNode {
        /// The connection that it came over.
        connection: u64,
        /// The message.
        message: FromNode,
    },
    /// A message to the key-value store.
    FromClient {
        /// The connection that it came over.
        connection: u64,
        /// The message.
        message: FromClient,
    },
    /// A connection has ended.
    Closed {
        /// The connection.
        connection: u64,
    },
}

/// An action for the shell.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Sends a message about the state to several connections.
    ToNodes {
        /// The connections.
        connections: Vec<u64>,
        /// The message.
        message: ToNode,
    },
    /// Sends an answer of the key-value store.
    Answer {
        /// The connection.
        connection: u64,
        /// The answer.
        answer: Answer,
    },
    /// Closes a connection that breaks the protocol.
    Close {
        /// The connection.
        connection: u64,
        /// The violation.
        why: &'static str,
    },
}

/// Why a connection is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The name is empty, too long, or has a control character.
    #[error("a run has a name of 1 to {MAX_RUN} bytes without control characters")]
    Name,
    /// The server has too many runs.
    #[error("the server has {MAX_RUNS} runs: start another one at another port")]
    Runs,
}

/// The states and keys of all runs of an endpoint.
#[derive(Debug)]
pub struct Server {
    first_token: u64,
    runs: BTreeMap<String, Run>,
    /// The open connections, each with its run.
    connections: BTreeMap<u64, Open>,
}

/// A run.
#[derive(Debug)]
struct Run {
    cell: Cell,
    store: Store,
}

impl Server {
    /// A server without runs. Their first tokens are `first_token`.
    pub fn new(first_token: u64) -> Self {
        Self {
            first_token,
            runs: BTreeMap::new(),
            connections: BTreeMap::new(),
        }
    }

    /// Opens a connection, whose number no other one has had.
    ///
    /// # Errors
    /// The name of the run is not allowed, or the server has too many runs.
    pub fn open(
        &mut self,
        connection: u64,
        open: Open,
        out: &mut Vec<Command>,
    ) -> Result<(), Refusal> {
        let length = open.run.len();
        if length == 0 || length > MAX_RUN || open.run.chars().any(char::is_control) {
            return Err(Refusal::Name);
        }
        if self.runs.len() >= MAX_RUNS && !self.runs.contains_key(&open.run) {
            return Err(Refusal::Runs);
        }
        let first_token = self.first_token;
        let run = self.runs.entry(open.run.clone()).or_insert_with(|| Run {
            cell: Cell::new(first_token),
            store: Store::new(Limits::default()),
        });
        if open.channel == (Channel::State { watch: true }) {
            run.cell.watch(connection, out);
        }
        self.connections.insert(connection, open);
        Ok(())
    }

    /// Applies one event and appends what must be done.
    pub fn step(&mut self, now: Time, event: Event, out: &mut Vec<Command>) {
        match event {
            Event::FromNode {
                connection,
                message,
            } => self.node_message(now, connection, message, out),
            Event::FromClient {
                connection,
                message,
            } => self.store_message(now, connection, message, out),
            Event::Closed { connection } => self.closed(now, connection, out),
        }
    }

    /// Applies the deadlines that have passed.
    pub fn tick(&mut self, now: Time, out: &mut Vec<Command>) {
        for run in self.runs.values_mut() {
            run.cell.tick(now, out);
            let mut answers = Vec::new();
            run.store.tick(now, &mut answers);
            deliver(answers, out);
        }
    }

    /// When [`Self::tick`] is due.
    pub fn next_deadline(&self) -> Option<Time> {
        let runs = self.runs.values();
        earliest(runs.flat_map(|run| [run.cell.next_deadline(), run.store.next_deadline()]))
    }

    /// The number of connections that watch the state of a run, or of all runs.
    pub fn watching(&self, run: Option<&str>) -> usize {
        let watches = |open: &&Open| {
            open.channel == Channel::State { watch: true } && run.is_none_or(|run| open.run == run)
        };
        self.connections.values().filter(watches).count()
    }

    fn node_message(
        &mut self,
        now: Time,
        connection: u64,
        message: FromNode,
        out: &mut Vec<Command>,
    ) {
        let Some((run, Channel::State { .. })) = self.run_of(connection) else {
            return close(connection, "a message about the state", out);
        };
        match message {
            FromNode::Read { request } => run.cell.read(connection, request, out),
            FromNode::CompareAndSet { state, .. } if state.0.len() > MAX_STATE => {
                close(connection, "a state that is too long", out);
            }
            FromNode::CompareAndSet {
                request,
                expected,
                state,
                heartbeats,
            } => match changes(&heartbeats) {
                Ok(heartbeats) if run.cell.has_room(&heartbeats) => {
                    let write = cell::Write {
                        connection,
                        request,
                        expected,
                        state,
                        heartbeats,
                    };
                    run.cell.compare_and_set(now, write, out);
                }
                Ok(_) => close(connection, "heartbeats of too many nodes", out),
                Err(InvalidNodeId { .. }) => close(connection, NO_NODE, out),
            },
            FromNode::Heartbeat {
                request,
                node,
                since,
            } => match NodeId::new(&node) {
                Ok(node) => {
                    let since = BeatNumber(since);
                    run.cell.heartbeat(connection, request, &node, since, out);
                }
                Err(InvalidNodeId { .. }) => close(connection, NO_NODE, out),
            },
            FromNode::Seen => run.cell.seen(connection, out),
            FromNode::Pass => run.cell.pass(now, connection, out),
        }
    }

    fn store_message(
        &mut self,
        now: Time,
        connection: u64,
        message: FromClient,
        out: &mut Vec<Command>,
    ) {
        let Some((run, Channel::Keys)) = self.run_of(connection) else {
            return close(connection, "a request for keys", out);
        };
        let client = client(connection);
        let mut answers = Vec::new();
        let event = store::Event::Message { client, message };
        run.store.step(now, event, &mut answers);
        deliver(answers, out);
    }

    fn closed(&mut self, now: Time, connection: u64, out: &mut Vec<Command>) {
        let Some((run, channel)) = self.run_of(connection) else {
            return;
        };
        match channel {
            Channel::State { .. } => run.cell.closed(now, connection, out),
            Channel::Keys => {
                let mut answers = Vec::new();
                let event = store::Event::Closed { connection };
                run.store.step(now, event, &mut answers);
                deliver(answers, out);
            }
        }
        self.connections.remove(&connection);
    }

    fn run_of(&mut self, connection: u64) -> Option<(&mut Run, Channel)> {
        let open = self.connections.get(&connection)?;
        Some((self.runs.get_mut(&open.run)?, open.channel))
    }
}

/// The violation of a message whose node has no name of a node.
const NO_NODE: &str = "a heartbeat of no node";

fn changes(changes: &wire::HeartbeatChanges) -> Result<HeartbeatChanges, InvalidNodeId> {
    let nodes = |names: &[String]| -> Result<Vec<_>, _> {
        names.iter().map(|name| NodeId::new(name)).collect()
    };
    let silence = changes.unless_beaten.as_ref().map(|silence| {
        Ok(Silence {
            nodes: nodes(&silence.nodes)?,
            since: BeatNumber(silence.since),
        })
    });
    Ok(HeartbeatChanges {
        beats: nodes(&changes.beats)?,
        forgets: nodes(&changes.forgets)?,
        unless_beaten: silence.transpose()?,
    })
}

/// The client of the store that a connection is.
fn client(connection: u64) -> store::Client {
    store::Client {
        connection,
        process: Process {
            local_rank: LocalRank(0),
            generation: Generation(1),
        },
    }
}

fn deliver(answers: Vec<store::Command>, out: &mut Vec<Command>) {
    out.extend(answers.into_iter().map(|command| match command {
        store::Command::Answer { client, answer } => Command::Answer {
            connection: client.connection,
            answer,
        },
        store::Command::Reject { client, .. } => Command::Close {
            connection: client.connection,
            why: "a request that repeats one",
        },
    }));
}

fn close(connection: u64, why: &'static str, out: &mut Vec<Command>) {
    out.push(Command::Close { connection, why });
}
