//! The connection of a node to the server, opened again when it breaks.
//!
//! A request without an answer says nothing about the connection, since a write may wait for its turn. TCP notices a peer
//! that is gone.

use std::{io, time::Duration};

use elasticrun_core::rendezvous::{
    BeatNumber, Event, HeartbeatChanges, HolderError, NodeId, RequestId, State, Token,
};
use elasticrun_protocol::{
    Blob, frame,
    rendezvous::{Channel, FromNode, MAX_STATE, ToNode},
};
use tokio::{net::TcpStream, task::JoinHandle};

use super::{Heard, decoded, encoded, not_silent, recorded};
use crate::{Dialled, Endpoint, Error, connection::Connection};

/// How long one attempt to connect may take. The machine repeats it.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// The connection of a node to the server.
#[derive(Debug)]
pub(super) struct ServerLink {
    endpoint: Endpoint,
    run: String,
    state: LinkState,
    /// The request without an answer.
    outstanding: Option<RequestId>,
    /// Frames for the connection that is being opened.
    unsent: Vec<u8>,
}

#[derive(Debug)]
enum LinkState {
    Idle,
    Dialling(JoinHandle<Result<Dialled, Error>>),
    Open(Box<Connection>),
}

impl ServerLink {
    pub(super) fn new(endpoint: Endpoint, run: String) -> Self {
        Self {
            endpoint,
            run,
            state: LinkState::Idle,
            outstanding: None,
            unsent: Vec::new(),
        }
    }

    /// Opens the connection if there is none.
    pub(super) fn open(&mut self) {
        if matches!(self.state, LinkState::Idle) {
            let (endpoint, run) = (self.endpoint.clone(), self.run.clone());
            let channel = Channel::State { watch: true };
            self.state = LinkState::Dialling(tokio::task::spawn_blocking(move || {
                endpoint.dial(&run, channel, DIAL_TIMEOUT)
            }));
        }
    }

    pub(super) fn read(&mut self, request: RequestId) {
        let RequestId(number) = request;
        self.ask(request, &FromNode::Read { request: number });
    }

    pub(super) fn compare_and_set(
        &mut self,
        request: RequestId,
        expected: Token,
        state: &State,
        heartbeats: HeartbeatChanges,
    ) {
        let RequestId(number) = request;
        let write = FromNode::CompareAndSet {
            request: number,
            expected: Some(expected.0),
            state: Blob(state.encode()),
            heartbeats: encoded(heartbeats),
        };
        self.ask(request, &write);
    }

    pub(super) fn heartbeat(&mut self, request: RequestId, node: &NodeId, since: BeatNumber) {
        let RequestId(number) = request;
        let heartbeat = FromNode::Heartbeat {
            request: number,
            node: node.as_str().to_owned(),
            since: since.0,
        };
        self.ask(request, &heartbeat);
    }

    /// Whether a connection is open.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, LinkState::Open(_))
    }

    /// Tells the server that a report is dealt with.
    pub(super) fn seen(&mut self) {
        self.send(&FromNode::Seen);
    }

    /// Tells the server that no write follows one that has lost.
    pub(super) fn pass(&mut self) {
        self.send(&FromNode::Pass);
    }

    fn ask(&mut self, request: RequestId, message: &FromNode) {
        self.outstanding = Some(request);
        self.open();
        self.send(message);
    }

    fn send(&mut self, message: &FromNode) {
        match frame::to_frame(message) {
            Ok(frame) => match &mut self.state {
                LinkState::Open(connection) => connection.send(&frame),
                LinkState::Dialling(_) => self.unsent.extend_from_slice(&frame),
                LinkState::Idle => {}
            },
            Err(error) => {
                tracing::error!(%error, max = MAX_STATE, "the state of the rendezvous is too long");
            }
        }
    }

    /// Waits for the next event. Cancel-safe.
    pub(super) async fn next(&mut self) -> Heard {
        loop {
            match &mut self.state {
                LinkState::Idle => return std::future::pending().await,
                LinkState::Dialling(dialling) => {
                    let dialled = dialling.await.map_err(io::Error::other);
                    if let Err(lost) = self.dialled(dialled) {
                        return lost;
                    }
                }
                LinkState::Open(connection) => match connection.frames().next_message::<ToNode>() {
                    Ok(Some(message)) => {
                        if let Some(heard) = self.read_message(message) {
                            return heard;
                        }
                    }
                    Ok(None) => {
                        if let Err(error) = connection.progress(true).await {
                            return self.lost(&error);
                        }
                    }
                    Err(error) => return self.lost(&error),
                },
            }
        }
    }

    fn dialled(&mut self, dialled: io::Result<Result<Dialled, Error>>) -> Result<(), Heard> {
        let opened = dialled.and_then(|dialled| {
            let Dialled { stream, frames } = dialled.map_err(io::Error::other)?;
            stream.set_nonblocking(true)?;
            Ok(Connection::new(TcpStream::from_std(stream)?, frames))
        });
        match opened {
            Ok(mut connection) => {
                connection.send(&std::mem::take(&mut self.unsent));
                self.state = LinkState::Open(Box::new(connection));
                Ok(())
            }
            Err(error) => Err(self.lost(&error)),
        }
    }

    fn lost(&mut self, error: &dyn std::fmt::Display) -> Heard {
        tracing::debug!(endpoint = %self.endpoint, %error, "no connection to the rendezvous");
        self.state = LinkState::Idle;
        self.unsent.clear();
        let failed = self.outstanding.take().map(|request| Event::Failed {
            request,
            error: HolderError::Unreachable,
        });
        Heard::Ended(failed)
    }

    fn read_message(&mut self, message: ToNode) -> Option<Heard> {
        Some(match message {
            ToNode::Current { request, snapshot } => {
                let request = self.answered(request)?;
                Heard::Event(match decoded(snapshot) {
                    Ok(snapshot) => Event::StateRead { request, snapshot },
                    Err(error) => Event::Failed { request, error },
                })
            }
            ToNode::Written { request, token } => Heard::Event(Event::Written {
                request: self.answered(request)?,
                token: Token(token),
            }),
            ToNode::Conflict { request, snapshot } => {
                let Some(request) = self.answered(request) else {
                    self.pass();
                    return None;
                };
                Heard::Lost(match decoded(snapshot) {
                    Ok(snapshot) => Event::Conflict { request, snapshot },
                    Err(error) => Event::Failed { request, error },
                })
            }
            ToNode::NotSilent { request, nodes } => {
                let request = self.answered(request)?;
                Heard::Event(not_silent(request, nodes))
            }
            ToNode::HeartbeatRecorded {
                request,
                number,
                token,
                nodes,
                silent,
            } => {
                let request = self.answered(request)?;
                Heard::Event(recorded(request, number, token, nodes, silent))
            }
            ToNode::Changed(snapshot) => match decoded(snapshot) {
                Ok(snapshot) => Heard::Changed(Event::StateChanged(snapshot)),
                Err(error) => {
                    tracing::warn!(%error, "a report of the rendezvous is not read");
                    self.seen();
                    return None;
                }
            },
        })
    }

    /// The request, if its answer is awaited.
    fn answered(&mut self, number: u64) -> Option<RequestId> {
        (self.outstanding).take_if(|request| request.0 == number)
    }
}
