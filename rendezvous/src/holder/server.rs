//! The state in the memory of a server, with blocking calls.

use std::{
    io::{self, Read, Write},
    time::{Duration, Instant},
};

use elasticrun_protocol::{
    Blob, frame,
    rendezvous::{Channel, FromNode, HeartbeatChanges, MAX_STATE, Snapshot, ToNode},
};

use super::Replaced;
use crate::{Dialled, Endpoint, Error};

/// A connection to the state of a run, with blocking calls. A broken connection is opened again by the next call.
#[derive(Debug)]
pub(super) struct ServerHolder {
    endpoint: Endpoint,
    run: String,
    timeout: Duration,
    connection: Option<Dialled>,
    last_request: u64,
}

impl ServerHolder {
    /// The holder behind an open connection.
    pub(super) fn over(dialled: Dialled, endpoint: Endpoint, run: &str, timeout: Duration) -> Self {
        Self {
            endpoint,
            run: run.to_owned(),
            timeout,
            connection: Some(dialled),
            last_request: 0,
        }
    }

    pub(super) fn read(&mut self) -> Result<Snapshot, Error> {
        match self.call(|request| FromNode::Read { request })? {
            ToNode::Current { snapshot, .. } => Ok(snapshot),
            _ => Err(self.unreachable(unexpected())),
        }
    }

    pub(super) fn compare_and_set(
        &mut self,
        expected: Option<u64>,
        state: &[u8],
    ) -> Result<Replaced, Error> {
        if state.len() > MAX_STATE {
            let why = format!("a state of {} bytes, more than {MAX_STATE}", state.len());
            return Err(Error::Refused {
                endpoint: self.endpoint.clone(),
                why,
            });
        }
        let write = |request| FromNode::CompareAndSet {
            request,
            expected,
            state: Blob(state.to_vec()),
            heartbeats: HeartbeatChanges::default(),
        };
        match self.call(write)? {
            ToNode::Written { token, .. } => Ok(Replaced::Written(token)),
            ToNode::Conflict { snapshot, .. } => {
                // The next write may be long in coming.
                self.tell(&FromNode::Pass);
                Ok(Replaced::Conflict(snapshot))
            }
            _ => Err(self.unreachable(unexpected())),
        }
    }

    fn call(&mut self, message: impl FnOnce(u64) -> FromNode) -> Result<ToNode, Error> {
        let deadline = Instant::now() + self.timeout;
        if self.connection.is_none() {
            let channel = Channel::State { watch: false };
            self.connection = Some(self.endpoint.dial(&self.run, channel, self.timeout)?);
        }
        self.last_request += 1;
        let request = self.last_request;
        let answer = match &mut self.connection {
            Some(connection) => exchange(connection, &message(request), request, deadline),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        answer.map_err(|error| {
            self.connection = None;
            self.unreachable(error)
        })
    }

    fn tell(&mut self, message: &FromNode) {
        let told = self.connection.as_mut().map(|connection| {
            let frame = frame::to_frame(message).map_err(io::Error::other)?;
            connection.stream.write_all(&frame)
        });
        if !matches!(told, Some(Ok(()))) {
            self.connection = None;
        }
    }

    fn unreachable(&self, source: io::Error) -> Error {
        Error::Unreachable {
            endpoint: self.endpoint.clone(),
            source,
        }
    }
}

/// Sends a request and waits for its answer.
fn exchange(
    connection: &mut Dialled,
    message: &FromNode,
    request: u64,
    deadline: Instant,
) -> io::Result<ToNode> {
    let frame = frame::to_frame(message).map_err(io::Error::other)?;
    connection.stream.set_write_timeout(Some(left(deadline)?))?;
    connection.stream.write_all(&frame)?;
    let mut bytes = [0; 16 << 10];
    loop {
        let received = connection.frames.next_message::<ToNode>();
        match received.map_err(io::Error::other)? {
            Some(answer) if answers(&answer, request) => return Ok(answer),
            Some(_) => continue,
            None => {}
        }
        connection.stream.set_read_timeout(Some(left(deadline)?))?;
        match connection.stream.read(&mut bytes) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => connection.frames.extend(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) => return Err(error),
        }
    }
}

fn answers(answer: &ToNode, to: u64) -> bool {
    match answer {
        ToNode::Current { request, .. }
        | ToNode::Written { request, .. }
        | ToNode::Conflict { request, .. }
        | ToNode::NotSilent { request, .. }
        | ToNode::HeartbeatRecorded { request, .. } => *request == to,
        ToNode::Changed(_) => false,
    }
}

fn left(deadline: Instant) -> io::Result<Duration> {
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "an answer to another question")
}
