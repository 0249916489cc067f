//! The connector's side of one handshake, tried again until it succeeds.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use rustix::event::PollFlags;
use socket2::{Domain, Protocol, Socket, Type};

use super::{
    connect::Plan,
    handshake::{CHALLENGE, HELLO, Hello, Status, answer},
    link::is_pending,
};

const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// An attempt to reach a neighbour of lower index.
#[derive(Debug)]
pub(super) struct Dial {
    pub(super) peer: u32,
    address: SocketAddr,
    pause: Duration,
    state: State,
}

#[derive(Debug)]
enum State {
    /// To be tried from then on.
    Idle(Option<Instant>),
    Connecting(TcpStream),
    /// The hello is out.
    Greeted {
        stream: TcpStream,
        hello: [u8; HELLO],
        challenge: [u8; CHALLENGE],
        got: usize,
    },
    Over,
}

/// What a step came to.
#[derive(Debug)]
pub(super) enum Dialled {
    Waits,
    /// Will be tried again.
    Failed(String),
    Stale,
    Disagrees,
    Connected(TcpStream),
}

impl Dial {
    pub(super) fn new(peer: u32, address: SocketAddr) -> Self {
        Self {
            peer,
            address,
            pause: FIRST_PAUSE,
            state: State::Idle(None),
        }
    }

    /// Does what can be done without waiting.
    pub(super) fn step(&mut self, plan: &Plan<'_>, now: Instant) -> Dialled {
        match self.advance(plan, now) {
            Ok(dialled) => dialled,
            Err(error) if is_pending(&error) => Dialled::Waits,
            Err(error) => {
                self.state = State::Idle(Some(now + self.pause));
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                Dialled::Failed(format!("{}: {error}", self.address))
            }
        }
    }

    fn advance(&mut self, plan: &Plan<'_>, now: Instant) -> io::Result<Dialled> {
        if let State::Idle(from) = self.state {
            if from.is_some_and(|from| now < from) {
                return Ok(Dialled::Waits);
            }
            self.state = State::Connecting(start(self.address)?);
        }
        if let State::Connecting(stream) = &mut self.state {
            if let Some(error) = stream.take_error()? {
                return Err(error);
            }
            if let Err(error) = stream.peer_addr() {
                // Not connected yet, and no error: the answer is still on its way.
                return match error.kind() {
                    io::ErrorKind::NotConnected => Ok(Dialled::Waits),
                    _ => Err(error),
                };
            }
            let hello = Hello::new(plan.session, plan.topology, self.peer)
                .map_err(io::Error::other)?
                .encode();
            // A fresh connection has room for a hello.
            stream.write_all(&hello)?;
            let State::Connecting(stream) = std::mem::replace(&mut self.state, State::Over) else {
                return Ok(Dialled::Waits);
            };
            self.state = State::Greeted {
                stream,
                hello,
                challenge: [0; CHALLENGE],
                got: 0,
            };
        }
        let State::Greeted {
            stream,
            hello,
            challenge,
            got,
        } = &mut self.state
        else {
            return Ok(Dialled::Waits);
        };
        while *got < CHALLENGE {
            match stream.read(&mut challenge[*got..])? {
                0 => return Err(io::Error::other("it closed the connection")),
                more => *got += more,
            }
        }
        let Some((status, proof)) = answer(plan.key, hello, challenge) else {
            return Err(io::Error::other("it does not know the key of this run"));
        };
        match status {
            Status::Stale => return Ok(Dialled::Stale),
            Status::Disagrees => return Ok(Dialled::Disagrees),
            Status::Welcome => stream.write_all(&proof)?,
        }
        match std::mem::replace(&mut self.state, State::Over) {
            State::Greeted { stream, .. } => Ok(Dialled::Connected(stream)),
            _ => Ok(Dialled::Waits),
        }
    }

    /// The socket to wait for.
    pub(super) fn wants(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        match &self.state {
            State::Connecting(stream) => Some((stream.as_fd(), PollFlags::OUT)),
            State::Greeted { stream, .. } => Some((stream.as_fd(), PollFlags::IN)),
            State::Idle(_) | State::Over => None,
        }
    }

    /// When to try again.
    pub(super) fn wakes(&self) -> Option<Instant> {
        match self.state {
            State::Idle(from) => from,
            _ => None,
        }
    }
}

/// Begins to connect, without waiting.
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
