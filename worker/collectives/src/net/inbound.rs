//! The accepting side of a handshake.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use rustix::event::PollFlags;

use super::{
    handshake::{Challenge, Dialect, HELLO, Hello, PREFIX, PROOF, Status},
    link::is_pending,
    plan::Plan,
    protection::Session,
};
use crate::topology::neighbours;

/// Timeout of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// An inbound connection that has not authenticated yet.
#[derive(Debug)]
pub(super) struct InboundHandshake {
    pub(super) from: SocketAddr,
    pub(super) deadline: Instant,
    stream: TcpStream,
    hello: [u8; HELLO],
    proof: [u8; PROOF],
    filled: usize,
    challenged: Option<(u32, Challenge)>,
}

/// The result of a step.
#[derive(Debug)]
pub(super) enum InboundStep {
    Pending,
    /// The peer closed the connection, or is in another round.
    Closed(&'static str),
    /// The peer is no member of this run, or its view of the round differs.
    Rejected(&'static str),
    /// The peer is the leader of this host. These are the keys of the connection.
    Authenticated(u32, Box<Session>),
}

impl InboundHandshake {
    /// `stream` must be in non-blocking mode.
    pub(super) fn new(stream: TcpStream, from: SocketAddr, now: Instant) -> Self {
        Self {
            from,
            deadline: now + HANDSHAKE_TIMEOUT,
            stream,
            hello: [0; HELLO],
            proof: [0; PROOF],
            filled: 0,
            challenged: None,
        }
    }

    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Makes all progress that is possible without waiting.
    pub(super) fn step(&mut self, plan: &Plan<'_>, now: Instant) -> InboundStep {
        match self.advance(plan) {
            Ok(InboundStep::Pending) if now >= self.deadline => {
                InboundStep::Rejected("it said nothing for long")
            }
            Ok(step) => step,
            Err(error) if is_pending(&error) && now < self.deadline => InboundStep::Pending,
            Err(error) if is_pending(&error) => InboundStep::Rejected("it took too long"),
            Err(_) => InboundStep::Closed("the connection broke"),
        }
    }

    fn advance(&mut self, plan: &Plan<'_>) -> io::Result<InboundStep> {
        if self.challenged.is_none() {
            // A hello of another release may have another length.
            let prefix = &mut self.hello[..PREFIX];
            if !fill(&mut self.stream, prefix, &mut self.filled)? {
                return Ok(InboundStep::Closed("it closed the connection"));
            }
            match Dialect::of_prefix(prefix) {
                Dialect::Ours => {}
                Dialect::OtherRelease => {
                    return Ok(InboundStep::Rejected(
                        "it runs another release of elasticrun: install the same release on all hosts",
                    ));
                }
                Dialect::Unknown => {
                    return Ok(InboundStep::Rejected("it speaks another protocol"));
                }
            }
            if !fill(&mut self.stream, &mut self.hello, &mut self.filled)? {
                return Ok(InboundStep::Closed("it closed the connection"));
            }
            let Some(hello) = Hello::decode(&self.hello) else {
                return Ok(InboundStep::Rejected("it speaks another protocol"));
            };
            if hello.round_id > plan.round_id {
                // The peer tries again once this side has reached its round.
                return Ok(InboundStep::Closed("it is in a newer round"));
            }
            let status = compare(plan, &hello);
            let challenge = Challenge::new(plan.key, &self.hello, status, plan.encrypt)
                .map_err(io::Error::other)?;
            // A challenge fits into the empty send buffer of a fresh connection.
            self.stream.write_all(&challenge.bytes)?;
            match status {
                Status::Welcome => {}
                Status::Stale => return Ok(InboundStep::Closed("it is in an older round")),
                Status::Mismatched => {
                    return Ok(InboundStep::Rejected("it has another view of this round"));
                }
            }
            self.challenged = Some((hello.from, challenge));
            self.filled = 0;
        }
        if !fill(&mut self.stream, &mut self.proof, &mut self.filled)? {
            return Ok(InboundStep::Closed("it closed the connection"));
        }
        if let Some((from, challenge)) = self.challenged.take()
            && let Some(session) = challenge.accept(&self.proof)
        {
            return Ok(InboundStep::Authenticated(from, Box::new(session)));
        }
        Ok(InboundStep::Rejected(
            "it does not know the key of this run",
        ))
    }

    /// The socket and events to poll for.
    pub(super) fn poll_interest(&self) -> (BorrowedFd<'_>, PollFlags) {
        (self.stream.as_fd(), PollFlags::IN)
    }
}

fn compare(plan: &Plan<'_>, hello: &Hello) -> Status {
    let topology = plan.topology;
    if hello.round_id < plan.round_id {
        return Status::Stale;
    }
    let agrees = hello.to == topology.host_index
        && hello.from > hello.to
        && hello.host_count == topology.host_count
        && hello.size == topology.size
        && hello.encrypt == plan.encrypt
        && hello.first_rank > topology.first_rank
        && neighbours(hello.to, hello.host_count).contains(&hello.from);
    if agrees {
        Status::Welcome
    } else {
        Status::Mismatched
    }
}

/// Reads until `bytes` is full. Returns false if the peer closed the connection before.
fn fill(stream: &mut TcpStream, bytes: &mut [u8], filled: &mut usize) -> io::Result<bool> {
    while *filled < bytes.len() {
        match stream.read(&mut bytes[*filled..])? {
            0 => return Ok(false),
            more => *filled += more,
        }
    }
    Ok(true)
}
