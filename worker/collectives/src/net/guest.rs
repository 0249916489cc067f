//! The acceptor's side of one handshake: somebody came to the port.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use rustix::event::PollFlags;

use super::{
    connect::Plan,
    handshake::{Challenge, HELLO, Hello, PROOF, Status},
    link::is_pending,
};
use crate::topology::neighbours;

/// Longest that a guest may take to introduce itself.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection whose other end has not proved itself yet.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) from: SocketAddr,
    pub(super) deadline: Instant,
    stream: TcpStream,
    hello: [u8; HELLO],
    proof: [u8; PROOF],
    got: usize,
    challenged: Option<(u32, Challenge)>,
}

/// What a step came to.
#[derive(Debug)]
pub(super) enum Heard {
    Waits,
    /// It left, or is in another round.
    Gone(&'static str),
    /// It is none of ours.
    Stranger(&'static str),
    /// It is the leader of this host.
    Proved(u32),
}

impl Guest {
    /// `stream` must be in non-blocking mode.
    pub(super) fn new(stream: TcpStream, from: SocketAddr, now: Instant) -> Self {
        Self {
            from,
            deadline: now + PATIENCE,
            stream,
            hello: [0; HELLO],
            proof: [0; PROOF],
            got: 0,
            challenged: None,
        }
    }

    pub(super) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Does what can be done without waiting.
    pub(super) fn step(&mut self, plan: &Plan<'_>, now: Instant) -> Heard {
        match self.advance(plan) {
            Ok(Heard::Waits) if now >= self.deadline => Heard::Stranger("it said nothing for long"),
            Ok(heard) => heard,
            Err(error) if is_pending(&error) && now < self.deadline => Heard::Waits,
            Err(error) if is_pending(&error) => Heard::Stranger("it took too long"),
            Err(_) => Heard::Gone("the connection broke"),
        }
    }

    fn advance(&mut self, plan: &Plan<'_>) -> io::Result<Heard> {
        if self.challenged.is_none() {
            if !fill(&mut self.stream, &mut self.hello, &mut self.got)? {
                return Ok(Heard::Gone("it closed the connection"));
            }
            let Some(hello) = Hello::decode(&self.hello) else {
                return Ok(Heard::Stranger("it speaks another protocol"));
            };
            if hello.session > plan.session {
                // It comes again when this side has followed.
                return Ok(Heard::Gone("it is in a newer round"));
            }
            let status = judge(plan, &hello);
            let challenge =
                Challenge::new(plan.key, &self.hello, status).map_err(io::Error::other)?;
            // A fresh connection has room for a challenge.
            self.stream.write_all(&challenge.bytes)?;
            match status {
                Status::Welcome => {}
                Status::Stale => return Ok(Heard::Gone("it is in an older round")),
                Status::Disagrees => {
                    return Ok(Heard::Stranger("it has another view of this round"));
                }
            }
            self.challenged = Some((hello.from, challenge));
            self.got = 0;
        }
        if !fill(&mut self.stream, &mut self.proof, &mut self.got)? {
            return Ok(Heard::Gone("it closed the connection"));
        }
        if let Some((from, challenge)) = self.challenged.take()
            && challenge.accepts(&self.proof)
        {
            return Ok(Heard::Proved(from));
        }
        Ok(Heard::Stranger("it does not know the key of this run"))
    }

    /// The socket to wait for.
    pub(super) fn wants(&self) -> (BorrowedFd<'_>, PollFlags) {
        (self.stream.as_fd(), PollFlags::IN)
    }
}

fn judge(plan: &Plan<'_>, hello: &Hello) -> Status {
    let topology = plan.topology;
    if hello.session < plan.session {
        return Status::Stale;
    }
    let agrees = hello.to == topology.host_index
        && hello.from > hello.to
        && hello.host_count == topology.host_count
        && hello.size == topology.size
        && hello.first_rank > topology.first_rank
        && neighbours(hello.to, hello.host_count).contains(&hello.from);
    if agrees {
        Status::Welcome
    } else {
        Status::Disagrees
    }
}

/// Reads until `bytes` is full; false if the other end closed before.
fn fill(stream: &mut TcpStream, bytes: &mut [u8], got: &mut usize) -> io::Result<bool> {
    while *got < bytes.len() {
        match stream.read(&mut bytes[*got..])? {
            0 => return Ok(false),
            more => *got += more,
        }
    }
    Ok(true)
}
