//! A thread that waits for an answer reads the connections itself: the leader. Without it, the receiving thread would read the
//! answer and wake the one that waits, which costs as much as the answer itself.
//!
//! A leader never waits in the middle of a frame, since its own time may be over before the rest comes. So it leaves to the
//! receiving thread what is larger than the receive buffer. It leaves requests to it too, since a handler may take long.
//!
//! # Invariants
//! - PL1 A leader stops when its request is completed, by whomever, or when its time is over.
//! - PL2 What a leader has received and not handled is handled by the receiving thread (PT1).

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use super::{Node, OF_NODE, lock};
use crate::{
    core::{
        frame::{Kind, REQUEST},
        node::{NodeId, Role},
    },
    net::{Connection, Receiver, Turn, Wake, poll_readable},
};

/// Most connections that one thread reads. The others have their receiving threads.
const MAX_CONNECTIONS: usize = 8;

/// Marks a thread as one of the node: it may call callbacks, so it must not wait for space.
struct OfNode;

impl OfNode {
    fn enter() -> Self {
        OF_NODE.set(true);
        Self
    }
}

impl Drop for OfNode {
    fn drop(&mut self) {
        OF_NODE.set(false);
    }
}

impl Node {
    /// What wakes this thread while it leads. `None` if it must not: a server's threads handle requests, and a callback is called
    /// by one that reads already.
    pub(crate) fn may_lead(&self) -> Option<Arc<Wake>> {
        match self.options.role == Role::Worker && !OF_NODE.get() {
            true => Wake::of_this_thread(),
            false => None,
        }
    }

    /// Reads the connections to these nodes that nobody reads, until it is done, or the time is over, or nothing is left that it
    /// may read.
    pub(crate) fn lead(
        self: &Arc<Self>,
        owed: &[NodeId],
        wake: &Wake,
        deadline: Instant,
        done: impl Fn() -> bool,
    ) {
        let connections: Vec<_> = {
            let connections = lock(&self.connections);
            let owed = owed.iter().take(MAX_CONNECTIONS);
            owed.filter_map(|node| connections.get(node).cloned())
                .collect()
        };
        let _of_node = OfNode::enter();
        let mut turns: Vec<_> = connections
            .iter()
            .filter_map(|connection| Some((connection, connection.turns().take()?)))
            .filter(|(_, turn)| !turn.receiver.expects_large())
            .collect();
        // What an earlier turn has left.
        turns.retain_mut(|(connection, turn)| self.handle_received(connection, turn));
        while !turns.is_empty() {
            if done() {
                self.end_quietly(&mut turns);
                return;
            }
            let streams = turns.iter().map(|(_, turn)| turn.stream());
            let Some(readable) = poll_readable(streams, wake, deadline) else {
                return;
            };
            wake.still();
            let mut readable = readable.into_iter();
            turns.retain_mut(|(connection, turn)| {
                if readable.next() != Some(true) {
                    return true;
                }
                // The receiving thread sees the end of a connection too, and tells the node.
                turn.receiver.read_some().is_ok() && self.handle_received(connection, turn)
            });
        }
    }

    /// Without a request in flight, nothing is expected: no thread needs to listen at once.
    fn end_quietly(&self, turns: &mut [(&Arc<Connection>, Turn<'_>)]) {
        if self.resends.is_none() && self.in_flight.load(Ordering::SeqCst) == 0 {
            for (_, turn) in turns {
                turn.end_quietly();
            }
        }
    }

    /// A request begins for which perhaps no thread waits at once.
    pub(crate) fn listen_for(&self, owed: &[NodeId]) {
        let connections = lock(&self.connections);
        for connection in owed.iter().filter_map(|node| connections.get(node)) {
            connection.turns().unmute();
        }
    }

    /// Handles all frames in the buffer. Returns whether a leader may go on.
    fn handle_received(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        turn: &mut Turn<'_>,
    ) -> bool {
        let mut go_on = true;
        while let Some(header) = turn.receiver.next_header() {
            let Ok(header) = header else {
                go_on = false;
                break;
            };
            let request = matches!(header.kind, Kind::Data | Kind::Simple) && header.has(REQUEST);
            if request || Receiver::is_larger_than_buffer(&header) {
                go_on = false;
                break;
            }
            if !turn.receiver.has_frame() {
                break;
            }
            connection.cork(true);
            if self.receive_frame(connection, turn).is_err() {
                go_on = false;
                break;
            }
        }
        connection.cork(false);
        go_on
    }
}
