//! The connecting side of a handshake, retried until it succeeds.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use rustix::event::PollFlags;
use socket2::{Domain, Protocol, Socket, Type};

use super::{
    handshake::{CHALLENGE, HELLO, Hello, Status, answer},
    link::is_pending,
    plan::Plan,
    protection::Session,
};

const MIN_BACKOFF: Duration = Duration::from_millis(1);
const MAX_BACKOFF: Duration = Duration::from_millis(50);

/// Connects to a neighbour of lower index.
#[derive(Debug)]
pub(super) struct Dial {
    pub(super) peer: u32,
    address: SocketAddr,
    backoff: Duration,
    state: State,
}

#[derive(Debug)]
enum State {
    /// To be tried from this time on.
    Idle(Option<Instant>),
    Connecting(TcpStream),
    /// The hello was sent.
    HelloSent {
        stream: TcpStream,
        hello: [u8; HELLO],
        challenge: [u8; CHALLENGE],
        filled: usize,
    },
    Done,
}

/// The result of a step.
#[derive(Debug)]
pub(super) enum DialStep {
    Pending,
    /// It will be retried.
    Failed(String),
    Stale,
    Mismatched,
    Connected(TcpStream, Box<Session>),
}

impl Dial {
    pub(super) fn new(peer: u32, address: SocketAddr) -> Self {
        Self {
            peer,
            address,
            backoff: MIN_BACKOFF,
            state: State::Idle(None),
        }
    }

    /// Makes all progress that is possible without waiting.
    pub(super) fn step(&mut self, plan: &Plan<'_>, now: Instant) -> DialStep {
        match self.advance(plan, now) {
            Ok(step) => step,
            Err(error) if is_pending(&error) => DialStep::Pending,
            Err(error) => {
                self.state = State::Idle(Some(now + self.backoff));
                self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
                DialStep::Failed(format!("{}: {error}", self.address))
            }
        }
    }

    fn advance(&mut self, plan: &Plan<'_>, now: Instant) -> io::Result<DialStep> {
        if let State::Idle(from) = self.state {
            if from.is_some_and(|from| now < from) {
                return Ok(DialStep::Pending);
            }
            self.state = State::Connecting(start(self.address)?);
        }
        if let State::Connecting(stream) = &mut self.state {
            if let Some(error) = stream.take_error()? {
                return Err(error);
            }
            if let Err(error) = stream.peer_addr() {
                // Not connected yet, and no error so far.
                return match error.kind() {
                    io::ErrorKind::NotConnected => Ok(DialStep::Pending),
                    _ => Err(error),
                };
            }
            let hello = Hello::new(plan.round_id, plan.topology, self.peer, plan.encrypt)
                .map_err(io::Error::other)?
                .encode();
            // A hello fits into the empty send buffer of a fresh connection.
            stream.write_all(&hello)?;
            let State::Connecting(stream) = std::mem::replace(&mut self.state, State::Done) else {
                return Ok(DialStep::Pending);
            };
            self.state = State::HelloSent {
                stream,
                hello,
                challenge: [0; CHALLENGE],
                filled: 0,
            };
        }
        let State::HelloSent {
            stream,
            hello,
            challenge,
            filled,
        } = &mut self.state
        else {
            return Ok(DialStep::Pending);
        };
        while *filled < CHALLENGE {
            match stream.read(&mut challenge[*filled..]) {
                // An acceptor that does not read the whole hello resets the connection.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(no_answer());
                }
                received => match received? {
                    0 => return Err(no_answer()),
                    more => *filled += more,
                },
            }
        }
        let Some(answer) = answer(plan.key, hello, challenge, plan.encrypt) else {
            return Err(io::Error::other("it does not know the key of this run"));
        };
        match answer.status {
            Status::Stale => return Ok(DialStep::Stale),
            Status::Mismatched => return Ok(DialStep::Mismatched),
            Status::Welcome => stream.write_all(&answer.proof)?,
        }
        match std::mem::replace(&mut self.state, State::Done) {
            State::HelloSent { stream, .. } => {
                Ok(DialStep::Connected(stream, Box::new(answer.session)))
            }
            _ => Ok(DialStep::Pending),
        }
    }

    /// The socket and events to poll for.
    pub(super) fn poll_interest(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match &self.state {
            State::Connecting(stream) => Some((stream.as_fd(), PollFlags::OUT)),
            State::HelloSent { stream, .. } => Some((stream.as_fd(), PollFlags::IN)),
            State::Idle(_) | State::Done => None,
        }
    }

    /// When to try again.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        match self.state {
            State::Idle(from) => from,
            _ => None,
        }
    }
}

fn no_answer() -> io::Error {
    io::Error::other(
        "it closed the connection before its answer: is the same release of elasticrun installed there?",
    )
}

/// Starts to connect, without waiting.
fn start(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_nonblocking(true)?;
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(error) => return Err(error),
    }
    Ok(socket.into())
}
