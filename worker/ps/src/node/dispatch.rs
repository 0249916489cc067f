//! The loop of a receiving thread: what each frame means.

use std::sync::{Arc, atomic::Ordering};

use bytes::Bytes;

use super::{Control, Node, Roster, addresses, lock, registry::Parked, waiting::Goodbye};
use crate::{
    core::{
        frame::{FAILURE, Header, Kind, REQUEST},
        membership::Member,
        node::{NodeId, Role, SCHEDULER},
    },
    error::Refusal,
    net::{Connection, Pace, Payload, Reading, ReceiveError, Receiver, Scratch},
};

impl Node {
    /// Receives frames until the connection ends. No other thread reads it.
    pub(super) fn receive(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
    ) -> Result<(), ReceiveError> {
        let mut turn = connection.turns().keep();
        loop {
            let more = turn.receiver.has_frame();
            connection.cork(more);
            if !more && self.options.role == Role::Server {
                self.hold_back(connection)?;
            }
            self.receive_frame(connection, &mut turn)?;
        }
    }

    /// A server that cannot send its answers, or what it passes on to other servers, reads no further requests of workers.
    ///
    /// It always reads what other servers and the scheduler send: two servers that pass on pushes to each other would wait for each other
    /// otherwise, and a server would not hear that the one for which it waits is dead.
    fn hold_back(&self, connection: &Connection) -> std::io::Result<()> {
        if role_of(connection) != Some(Role::Worker) {
            return Ok(());
        }
        let limit = self.options.request_timeout;
        if let Err(error) = connection.wait_for_space(limit) {
            return Err(std::io::Error::other(error.to_string()));
        }
        if self.elastic.is_some() {
            let all: Vec<_> = lock(&self.connections).values().cloned().collect();
            let servers = all.iter().filter(|it| role_of(it) == Some(Role::Server));
            // One that is closed takes nothing more, and is dialled anew by others.
            servers.for_each(|server| _ = server.wait_for_space(limit));
        }
        Ok(())
    }

    /// Receives frames until the connection ends, while no thread that waits for an answer reads it.
    pub(super) fn receive_in_turns(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
    ) -> Result<(), ReceiveError> {
        loop {
            let mut turn = connection.turns().wait()?;
            loop {
                connection.cork(turn.receiver.has_frame());
                let received = turn.receiver.next_header().is_some();
                if received || !connection.turns().in_demand() {
                    self.receive_frame(connection, &mut turn)?;
                } else if turn.receiver.is_drained() || !turn.receiver.read_some()? {
                    break;
                }
            }
        }
    }

    /// Receives a frame. It waits for what has not come.
    pub(super) fn receive_frame(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        reading: &mut Reading,
    ) -> Result<(), ReceiveError> {
        let Reading { receiver, scratch } = reading;
        let header = receiver.header()?;
        let peer = connection.peer().unwrap_or(NodeId(0));
        // The connection says who it is, not the frame. A server may serve before it knows its own id.
        let header = Header {
            sender: peer,
            ..header
        };
        if peer == SCHEDULER {
            let now = self.now().as_millis() as u64;
            self.scheduler_heard.store(now, Ordering::Relaxed);
        }
        if let Some(scheduler) = &self.scheduler {
            lock(scheduler).members.seen(peer, self.now());
        }
        let received = self.receive_payload(connection, &header, receiver, scratch);
        receiver.release();
        received
    }

    fn receive_payload(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        header: &Header,
        receiver: &mut Receiver,
        scratch: &mut Scratch,
    ) -> Result<(), ReceiveError> {
        let peer = header.sender;
        let process = connection.process().unwrap_or((peer, 0));
        match header.kind {
            Kind::Control => self.receive_control(connection, header, receiver, scratch),
            Kind::Acknowledgement => {
                receiver.skip(header.payload())?;
                if let Some(resends) = &self.resends {
                    match resends.drops(self.options.drop_percent) {
                        true => self.log(2, || format!("dropped {header:?}")),
                        false => resends.acknowledge(process, header.sequence),
                    }
                }
                Ok(())
            }
            Kind::Chain => {
                let payload = receiver.payload(header, scratch)?;
                self.receive_chain(peer, header, payload);
                Ok(())
            }
            Kind::Data | Kind::Simple => {
                self.receive_message(connection, peer, header, receiver, scratch)
            }
        }
    }

    fn receive_message(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        peer: NodeId,
        header: &Header,
        receiver: &mut Receiver,
        scratch: &mut Scratch,
    ) -> Result<(), ReceiveError> {
        if let Some(resends) = &self.resends {
            if resends.drops(self.options.drop_percent) {
                self.log(2, || format!("dropped {header:?}"));
                return Ok(receiver.skip(header.payload())?);
            }
            if header.sequence != 0 {
                self.acknowledge(connection, header.sequence);
                let process = connection.process().unwrap_or((peer, 0));
                if !resends.admit(process, header.sequence) {
                    self.log(2, || format!("repeated {header:?}"));
                    return Ok(receiver.skip(header.payload())?);
                }
            }
        }
        self.log(2, || format!("from {peer}: {header:?}"));
        if !header.has(REQUEST) {
            return match self.registry.customer(header) {
                Some(sink) => sink.answer(header, receiver, scratch),
                // Its customer has gone.
                None => Ok(receiver.skip(header.payload())?),
            };
        }
        let payload = receiver.payload(header, scratch)?;
        self.request(Some(connection), header, payload);
        Ok(())
    }

    /// Gives a request to its handler, or keeps it until there is one.
    pub(crate) fn request(
        self: &Arc<Self>,
        from: Option<&Arc<Connection>>,
        header: &Header,
        payload: Payload<'_>,
    ) {
        match self.registry.app_or_park(from, header, payload) {
            Ok(Some(sink)) => sink.request(from, header, payload),
            Ok(None) => self.alarm(),
            Err(request) => self.refuse_parked(&request),
        }
    }

    /// Answers a request for which no handler came.
    pub(super) fn refuse_parked(self: &Arc<Self>, request: &Parked) {
        let refusal = Refusal::NoHandler {
            app: request.header.app,
            waited: request.since.elapsed(),
        };
        if let Some(connection) = &request.from {
            self.refuse(connection, &request.header, &refusal);
        }
    }

    /// Answers a request with a refusal.
    pub(crate) fn refuse(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        request: &Header,
        refusal: &Refusal,
    ) {
        let body = serde_json::to_vec(refusal).expect("a refusal is plain data");
        let header = Header {
            dtype: 0,
            keys: 0,
            lens: 0,
            per_key: 0,
            value_bytes: body.len() as u64,
            ..answer_header(request, self.id())
        };
        let header = Header {
            flags: header.flags | FAILURE,
            ..header
        };
        self.answer(
            connection,
            header,
            [Bytes::new(), Bytes::new(), body.into()],
        );
    }

    /// Sends an answer back over the connection of its request.
    pub(crate) fn answer(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        header: Header,
        parts: [Bytes; 3],
    ) {
        // A broken connection is noticed by its receiving thread.
        let _ = self.send_kept(connection, header, parts, Pace::Corked);
    }

    fn receive_control(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        header: &Header,
        receiver: &mut Receiver,
        scratch: &mut Scratch,
    ) -> Result<(), ReceiveError> {
        let payload = receiver.payload(header, scratch)?;
        let message = match serde_json::from_slice(payload.values) {
            Ok(message) => message,
            Err(error) => {
                // A message of a later release: it is no reason to end the connection.
                tracing::warn!(%error, "ignored a control message");
                return Ok(());
            }
        };
        if let Some(message) = self.scheduler_message(connection, message) {
            self.node_message(connection, message);
        }
        Ok(())
    }

    /// Handles what every node may get.
    pub(super) fn node_message(self: &Arc<Self>, connection: &Arc<Connection>, message: Control) {
        match message {
            Control::Roster {
                id,
                servers,
                workers,
                members,
                late,
            } => {
                self.set_roster(id, (servers, workers), &members, late);
            }
            Control::Refused { reason } => {
                if let Some(elastic) = &self.elastic {
                    elastic.refused(reason.clone());
                }
                lock(&self.waiting).refused = Some(reason);
                self.changed.notify_all();
            }
            Control::Released {
                group,
                number,
                dead,
                because,
            } => {
                self.processes.name(&because);
                lock(&self.waiting).released(group, number, dead);
                self.changed.notify_all();
            }
            Control::Dead { deaths } => self.declared_dead(deaths),
            Control::Members { members } if self.elastic.is_none() => self.members_came(&members),
            Control::Bye {
                deaths, because, ..
            } => {
                // First: they are why this node ends.
                self.died(&deaths);
                self.processes.name(&because);
                if let Some((peer, incarnation)) = connection.process() {
                    let loss = match self.options.replace_timeout.is_zero() {
                        true => deaths.first().or(because.first()).cloned(),
                        // What is lost may have been replaced.
                        false => None,
                    };
                    let goodbye = Goodbye { incarnation, loss };
                    lock(&self.waiting).said_goodbye(peer, goodbye);
                    for app in self.registry.apps() {
                        app.node_left(peer);
                    }
                }
            }
            Control::Opened => self.answers_may_be_lost(connection),
            Control::Heartbeat => self.beat_answered(),
            other => {
                // What else a node of no elastic job gets, or what only the scheduler should.
                let _ = self.elastic_message(other);
            }
        }
    }

    pub(super) fn set_roster(
        &self,
        id: NodeId,
        (servers, workers): (u32, u32),
        members: &[Member],
        late: bool,
    ) {
        self.processes_at_start(members);
        let addresses = addresses(members, self.options.scheduler);
        // The first one counts.
        let _ = self.roster.set(Roster {
            id,
            servers,
            workers,
            late,
            addresses,
        });
        self.notify();
    }

    /// Wakes all that wait for a change. The lock is taken, so that nobody misses it between a look and a wait.
    fn notify(&self) {
        drop(lock(&self.waiting));
        self.changed.notify_all();
    }
}

/// The header of an answer without keys and values.
pub(crate) fn answer_header(request: &Header, sender: NodeId) -> Header {
    Header {
        flags: request.flags & !REQUEST,
        sender,
        sequence: 0,
        keys: 0,
        lens: 0,
        per_key: 0,
        value_bytes: 0,
        ..*request
    }
}

/// What the other end is, once it has registered.
fn role_of(connection: &Connection) -> Option<Role> {
    connection.peer().and_then(NodeId::role)
}
