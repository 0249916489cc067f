//! The way from a node to the holder of the state: a server, or a cluster of etcd.
//!
//! A link has one request at a time. It reports each write of others, or the newest of several.

mod etcd;
mod server;

use std::time::Duration;

use elasticrun_core::rendezvous::{
    BeatNumber, Event, HeartbeatChanges, HolderError, InvalidNodeId, NodeId, Recorded, RequestId,
    Silence, Snapshot, State, Token,
};
use elasticrun_protocol::rendezvous;

use crate::Place;
use etcd::EtcdLink;
use server::ServerLink;

/// A link to the holder.
#[derive(Debug)]
pub(super) struct Link(Holder);

#[derive(Debug)]
enum Holder {
    Server(ServerLink),
    Etcd(EtcdLink),
}

/// What a link has for the machine.
#[derive(Debug)]
pub(super) enum Heard {
    /// Something to step the machine with.
    Event(Event),
    /// The same, after a write that has lost. If no other one follows, [`Link::pass`] tells the holder.
    Lost(Event),
    /// The same, of a write of another node. Afterwards [`Link::seen`] asks for the next one.
    Changed(Event),
    /// The connection has ended. The request without an answer, if any, has failed.
    Ended(Option<Event>),
}

impl Link {
    /// The link to the state of a run. A state that is closed may end after `closed_for`, where states do not end with their
    /// holder.
    pub(super) fn new(place: Place, run: &str, closed_for: Duration) -> Self {
        Self(match place {
            Place::Server(endpoint) => Holder::Server(ServerLink::new(endpoint, run.to_owned())),
            Place::Etcd(cluster) => Holder::Etcd(EtcdLink::new(cluster.run(run), closed_for)),
        })
    }

    /// Opens the connection if there is none.
    pub(super) fn open(&mut self) {
        match &mut self.0 {
            Holder::Server(link) => link.open(),
            Holder::Etcd(link) => link.open(),
        }
    }

    pub(super) fn read(&mut self, request: RequestId) {
        match &mut self.0 {
            Holder::Server(link) => link.read(request),
            Holder::Etcd(link) => link.read(request),
        }
    }

    pub(super) fn compare_and_set(
        &mut self,
        request: RequestId,
        expected: Token,
        state: &State,
        heartbeats: HeartbeatChanges,
    ) {
        match &mut self.0 {
            Holder::Server(link) => link.compare_and_set(request, expected, state, heartbeats),
            Holder::Etcd(link) => link.compare_and_set(request, expected, state, heartbeats),
        }
    }

    pub(super) fn heartbeat(&mut self, request: RequestId, node: &NodeId, since: BeatNumber) {
        match &mut self.0 {
            Holder::Server(link) => link.heartbeat(request, node, since),
            Holder::Etcd(link) => link.heartbeat(request, node, since),
        }
    }

    /// Whether the holder is within reach.
    pub(super) fn is_open(&self) -> bool {
        match &self.0 {
            Holder::Server(link) => link.is_open(),
            Holder::Etcd(link) => link.is_open(),
        }
    }

    /// Tells the holder that a report is dealt with.
    pub(super) fn seen(&mut self) {
        match &mut self.0 {
            Holder::Server(link) => link.seen(),
            Holder::Etcd(_) => {}
        }
    }

    /// Tells the holder that no write follows one that has lost.
    pub(super) fn pass(&mut self) {
        match &mut self.0 {
            Holder::Server(link) => link.pass(),
            Holder::Etcd(_) => {}
        }
    }

    /// Waits for the next event. Cancel-safe.
    pub(super) async fn next(&mut self) -> Heard {
        match &mut self.0 {
            Holder::Server(link) => link.next().await,
            Holder::Etcd(link) => link.next().await,
        }
    }
}

fn decoded(snapshot: rendezvous::Snapshot) -> Result<Snapshot, HolderError> {
    let state = snapshot.state.map(|state| State::decode(&state.0));
    Ok(Snapshot {
        token: Token(snapshot.token),
        state: state.transpose()?,
    })
}

fn encoded(changes: HeartbeatChanges) -> rendezvous::HeartbeatChanges {
    let names = |nodes: Vec<NodeId>| nodes.into_iter().map(String::from).collect();
    let silence = |silence: Silence| rendezvous::Silence {
        nodes: names(silence.nodes),
        since: silence.since.0,
    };
    rendezvous::HeartbeatChanges {
        beats: names(changes.beats),
        forgets: names(changes.forgets),
        unless_beaten: changes.unless_beaten.map(silence),
    }
}

fn not_silent(request: RequestId, nodes: Vec<String>) -> Event {
    match ids(nodes) {
        Ok(nodes) => Event::NotSilent { request, nodes },
        Err(_) => unusable(request),
    }
}

fn recorded(
    request: RequestId,
    number: u64,
    token: u64,
    nodes: usize,
    silent: Vec<String>,
) -> Event {
    match ids(silent) {
        Ok(silent) => Event::HeartbeatRecorded {
            request,
            recorded: Recorded {
                number: BeatNumber(number),
                nodes,
                silent,
            },
            token: Token(token),
        },
        Err(_) => unusable(request),
    }
}

fn ids(names: Vec<String>) -> Result<Vec<NodeId>, InvalidNodeId> {
    names.into_iter().map(NodeId::try_from).collect()
}

/// The event of an answer that no holder of this release gives.
fn unusable(request: RequestId) -> Event {
    let error = HolderError::Unreachable;
    Event::Failed { request, error }
}
