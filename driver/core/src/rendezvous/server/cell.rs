//! The state of a run, with those that watch it and the writes that have lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use elasticrun_protocol::{
    Blob,
    rendezvous::{Snapshot, ToNode},
};

use super::{Command, PAUSE, TURN};
use crate::{
    Time,
    rendezvous::{BeatNumber, HeartbeatChanges, NodeId, State, heartbeats::Heartbeats},
    time::earliest,
};

/// A write of a node.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) connection: u64,
    pub(super) request: u64,
    pub(super) expected: Option<u64>,
    pub(super) state: Blob,
    pub(super) heartbeats: HeartbeatChanges,
}

/// A state with its fencing token, and the heartbeats of its members.
#[derive(Debug)]
pub(super) struct Cell {
    snapshot: Snapshot,
    heartbeats: Heartbeats,
    /// The number of the last write or heartbeat.
    last: u64,
    watchers: BTreeMap<u64, Watcher>,
    /// Writes that have lost, or came behind one. Each connection has at most one.
    queue: VecDeque<Write>,
    /// The connections of the writes in the queue.
    queued: BTreeSet<u64>,
    /// The connection that was told last that its write has lost, and how long others wait for it.
    turn: Option<(u64, Time)>,
    /// When a write is reported although others wait.
    report_at: Option<Time>,
}

/// A connection that watches.
#[derive(Debug)]
struct Watcher {
    /// The newest token that was sent to it.
    sent: u64,
    /// Whether a report is on its way.
    unseen: bool,
}

impl Cell {
    pub(super) fn new(token: u64) -> Self {
        Self {
            snapshot: Snapshot { token, state: None },
            heartbeats: Heartbeats::default(),
            last: token,
            watchers: BTreeMap::new(),
            queue: VecDeque::new(),
            queued: BTreeSet::new(),
            turn: None,
            report_at: None,
        }
    }

    /// Adds a watching connection, which gets the state of now.
    pub(super) fn watch(&mut self, connection: u64, out: &mut Vec<Command>) {
        let watcher = Watcher {
            sent: self.snapshot.token,
            unseen: true,
        };
        self.watchers.insert(connection, watcher);
        out.push(Command::ToNodes {
            connections: vec![connection],
            message: ToNode::Changed(self.snapshot.clone()),
        });
    }

    pub(super) fn read(&mut self, connection: u64, request: u64, out: &mut Vec<Command>) {
        let snapshot = self.snapshot.clone();
        self.answer(connection, ToNode::Current { request, snapshot }, out);
    }

    pub(super) fn compare_and_set(&mut self, now: Time, write: Write, out: &mut Vec<Command>) {
        let connection = write.connection;
        if self.queued.contains(&connection) {
            // The node has given up its earlier write. It keeps its place.
            let mut queue = self.queue.iter_mut();
            if let Some(earlier) = queue.find(|queued| queued.connection == connection) {
                *earlier = write;
            }
            return;
        }
        let has_turn = self.turn.is_some_and(|(turn, _)| turn == connection);
        if self.is_expected(&write) {
            self.write(now, write, out);
        } else if has_turn || self.turn.is_none() {
            self.lose(now, write, out);
            return;
        } else {
            self.queued.insert(connection);
            self.queue.push_back(write);
            return;
        }
        if has_turn {
            self.end_turn(now, out);
        }
    }

    /// Records a heartbeat. Its sender learns the token, and not the state.
    pub(super) fn heartbeat(
        &mut self,
        connection: u64,
        request: u64,
        node: &NodeId,
        since: BeatNumber,
        out: &mut Vec<Command>,
    ) {
        self.last += 1;
        let recorded = self.heartbeats.beat(node, BeatNumber(self.last), since);
        let message = ToNode::HeartbeatRecorded {
            request,
            number: recorded.number.0,
            token: self.snapshot.token,
            nodes: recorded.nodes,
            silent: recorded.silent.into_iter().map(String::from).collect(),
        };
        out.push(Command::ToNodes {
            connections: vec![connection],
            message,
        });
    }

    /// Whether there is room for the heartbeats of a write. Those of the members of any state have room.
    pub(super) fn has_room(&self, heartbeats: &HeartbeatChanges) -> bool {
        self.heartbeats.len() + heartbeats.beats.len() <= 2 * State::MAX_NODES
    }

    /// The connection has dealt with the last report.
    pub(super) fn seen(&mut self, connection: u64, out: &mut Vec<Command>) {
        if let Some(watcher) = self.watchers.get_mut(&connection) {
            watcher.unseen = false;
            if self.report_at.is_none() {
                self.report(out);
            }
        }
    }

    /// The connection does not repeat the write that it has lost.
    pub(super) fn pass(&mut self, now: Time, connection: u64, out: &mut Vec<Command>) {
        if self.turn.is_some_and(|(turn, _)| turn == connection) {
            self.end_turn(now, out);
        }
    }

    pub(super) fn closed(&mut self, now: Time, connection: u64, out: &mut Vec<Command>) {
        self.watchers.remove(&connection);
        if self.queued.remove(&connection) {
            self.queue.retain(|write| write.connection != connection);
        }
        if self.queue.is_empty() && self.report_at.is_some() {
            self.report(out);
        }
        if self.turn.is_some_and(|(turn, _)| turn == connection) {
            self.end_turn(now, out);
        }
    }

    pub(super) fn tick(&mut self, now: Time, out: &mut Vec<Command>) {
        if self.turn.is_some_and(|(_, until)| now >= until) {
            self.end_turn(now, out);
        }
        if self.report_at.is_some_and(|at| now >= at) {
            self.report(out);
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Time> {
        earliest([self.turn.map(|(_, until)| until), self.report_at])
    }

    fn is_expected(&self, write: &Write) -> bool {
        match write.expected {
            Some(token) => token == self.snapshot.token,
            None => self.snapshot.state.is_none(),
        }
    }

    /// Carries out a write whose token is the expected one.
    fn write(&mut self, now: Time, write: Write, out: &mut Vec<Command>) {
        let silence = write.heartbeats.unless_beaten.as_ref();
        let alive = silence.map_or_else(Vec::new, |silence| self.heartbeats.alive(silence));
        if !alive.is_empty() {
            let message = ToNode::NotSilent {
                request: write.request,
                nodes: alive.into_iter().map(String::from).collect(),
            };
            return self.answer(write.connection, message, out);
        }
        self.last += 1;
        (self.heartbeats).apply(BeatNumber(self.last), &write.heartbeats);
        self.snapshot = Snapshot {
            token: self.last,
            state: Some(write.state),
        };
        let written = ToNode::Written {
            request: write.request,
            token: self.snapshot.token,
        };
        self.answer(write.connection, written, out);
        if self.queue.is_empty() {
            self.report(out);
        } else if self.report_at.is_none() {
            // The next writes are at hand. Watchers that read each state between would need the time of those that write.
            let watchers = u32::try_from(self.watchers.len()).unwrap_or(u32::MAX);
            self.report_at = Some(now + PAUSE.saturating_mul(watchers));
        }
    }

    /// Answers a write that has lost. Its connection has the turn.
    fn lose(&mut self, now: Time, write: Write, out: &mut Vec<Command>) {
        let conflict = ToNode::Conflict {
            request: write.request,
            snapshot: self.snapshot.clone(),
        };
        self.answer(write.connection, conflict, out);
        self.turn = Some((write.connection, now + TURN));
    }

    /// Deals with the writes that wait, until one of them has the turn.
    fn end_turn(&mut self, now: Time, out: &mut Vec<Command>) {
        self.turn = None;
        while self.turn.is_none()
            && let Some(write) = self.queue.pop_front()
        {
            self.queued.remove(&write.connection);
            if self.is_expected(&write) {
                self.write(now, write, out);
            } else {
                self.lose(now, write, out);
            }
        }
        if self.queue.is_empty() && self.report_at.is_some() {
            self.report(out);
        }
    }

    /// Sends an answer, after which the connection knows the newest token.
    fn answer(&mut self, connection: u64, message: ToNode, out: &mut Vec<Command>) {
        if let Some(watcher) = self.watchers.get_mut(&connection) {
            watcher.sent = self.snapshot.token;
        }
        out.push(Command::ToNodes {
            connections: vec![connection],
            message,
        });
    }

    /// Reports the state to the watching connections that do not know it and have seen what they were sent. Those with a
    /// write in the queue learn it by the answer.
    fn report(&mut self, out: &mut Vec<Command>) {
        self.report_at = None;
        let token = self.snapshot.token;
        let queued = &self.queued;
        let due = self.watchers.iter_mut().filter(|(connection, watcher)| {
            watcher.sent < token && !watcher.unseen && !queued.contains(connection)
        });
        let connections: Vec<_> = due
            .map(|(connection, watcher)| {
                watcher.sent = token;
                watcher.unseen = true;
                *connection
            })
            .collect();
        if !connections.is_empty() {
            let message = ToNode::Changed(self.snapshot.clone());
            out.push(Command::ToNodes {
                connections,
                message,
            });
        }
    }
}
