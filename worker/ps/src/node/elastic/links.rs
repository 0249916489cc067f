//! Connections that come back, and the time for which a server may serve.

use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{ATTEMPT, Control, Node, OF_NODE, RETRY, lock};
use crate::{
    core::node::{NodeId, Role, SCHEDULER},
    net::{Connection, connect_once},
};

impl Node {
    /// Waits until the scheduler does not take this server for dead. `false` if it may.
    ///
    /// The scheduler declares a node dead when it was silent for the heartbeat timeout. It was not when it answered a heartbeat, so
    /// this server may serve for that time since it has sent the last one that was answered.
    pub(in crate::node) fn has_lease(&self) -> bool {
        let Some(elastic) = &self.elastic else {
            return false;
        };
        loop {
            if (self.now().as_millis() as u64) < elastic.lease.load(Ordering::Relaxed) {
                return true;
            }
            if self.is_stopped() || self.processes.why_lost(SCHEDULER).is_some() {
                return false;
            }
            // A heartbeat is on its way.
            let guard = lock(&elastic.map);
            let woken = elastic.changed.wait_timeout(guard, RETRY);
            drop(woken.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// A connection is open, and nothing was received over it: what may be lost is sent again.
    pub(in crate::node) fn link_up(self: &Arc<Self>, connection: &Arc<Connection>) {
        let (Some(peer), true) = (connection.peer(), self.elastic.is_some()) else {
            return;
        };
        if peer == SCHEDULER {
            return;
        }
        self.with_engine(|engine, connections, out| {
            connections.insert(peer, Arc::clone(connection));
            engine.link_reset(peer, out);
        });
        if peer.role() == Some(Role::Worker) {
            // It may have sent its requests again before this server knew of the connection.
            let _ = self.send_control(connection, &Control::Opened);
        }
        self.answers_may_be_lost(connection);
    }

    /// Requests of this worker that the peer may have answered over an earlier connection are sent again.
    pub(in crate::node) fn answers_may_be_lost(self: &Arc<Self>, connection: &Arc<Connection>) {
        if let Some(peer) = connection.peer() {
            for customer in self.registry.customers() {
                customer.link_reset(peer);
            }
        }
    }

    /// A connection to another node has ended, which is no death of that node yet. Returns whether the node is to be dialled.
    pub(in crate::node) fn link_down(self: &Arc<Self>, peer: NodeId, connection: &Arc<Connection>) {
        self.with_engine(|_, connections, _| {
            let own = connections.get(&peer);
            if own.is_some_and(|own| Arc::ptr_eq(own, connection)) {
                connections.remove(&peer);
            }
        });
    }

    /// Dials a node again and again, on a thread of its own, until it accepts or is dead.
    pub(crate) fn dial_later(self: &Arc<Self>, to: NodeId) {
        let Some(elastic) = &self.elastic else { return };
        if self.is_stopped() || !lock(&elastic.dialling).insert(to) {
            return;
        }
        let node = Arc::clone(self);
        let builder = thread::Builder::new().name("ps-dial".to_owned());
        let spawned = builder.spawn(move || {
            OF_NODE.set(true);
            node.dial_until_dead(to);
            if let Some(elastic) = &node.elastic {
                lock(&elastic.dialling).remove(&to);
            }
        });
        match spawned {
            Ok(handle) => {
                let mut threads = lock(&self.threads);
                threads.retain(|thread| !thread.is_finished());
                threads.push(handle);
            }
            Err(_) => _ = lock(&elastic.dialling).remove(&to),
        }
    }

    pub(in crate::node) fn dial_until_dead(self: &Arc<Self>, to: NodeId) {
        let start = Instant::now();
        loop {
            let gone = self.processes.why_lost(to).is_some() || self.has_left(to);
            if gone || self.is_stopped() {
                return;
            }
            let current = lock(&self.connections).get(&to).cloned();
            if let Some(current) = current {
                // The other end has dialled.
                self.link_up(&current);
                return;
            }
            let dialled = self.address_of(to).ok().and_then(|address| {
                let stream = connect_once(address, self.options.sockets(to), ATTEMPT).ok()?;
                self.open(stream, to, self.options.heartbeat_timeout).ok()
            });
            if dialled.is_some() {
                return;
            }
            // A server that has left may have said goodbye to others only.
            let map = self.elastic.as_ref().and_then(|it| lock(&it.map).clone());
            let serves = map.is_some_and(|map| map.ranges.iter().any(|it| it.chain.contains(&to)));
            if !serves && start.elapsed() >= self.options.heartbeat_timeout {
                return;
            }
            thread::sleep(RETRY);
        }
    }

    /// A heartbeat is sent to the scheduler.
    pub(in crate::node) fn beat_sent(&self) {
        if let Some(elastic) = &self.elastic {
            lock(&elastic.beats).push_back(self.now());
        }
    }

    /// The scheduler has answered the first heartbeat that it had not: it knew then that this node lives.
    pub(in crate::node) fn beat_answered(&self) {
        if let Some(elastic) = &self.elastic
            && let Some(sent) = lock(&elastic.beats).pop_front()
        {
            self.extend_lease(sent);
        }
    }

    /// Nobody takes this node for dead before the heartbeat timeout after this time.
    pub(in crate::node) fn extend_lease(&self, from: Duration) {
        if let Some(elastic) = &self.elastic {
            let until = (from + self.options.heartbeat_timeout).as_millis() as u64;
            elastic.lease.fetch_max(until, Ordering::Relaxed);
        }
    }
}
