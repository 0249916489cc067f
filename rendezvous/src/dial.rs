//! Opens connections, with blocking calls: a node connects rarely.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use elasticrun_protocol::{
    frame::{self, FrameBuffer},
    opening::{Hello, Purpose, Verdict},
    rendezvous::{Channel, Open, Opened},
};
use serde::de::DeserializeOwned;
use socket2::{SockRef, TcpKeepalive};

use crate::{Endpoint, Error};

/// How long a peer may be silent before the system asks whether it is there, and how often it asks.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(5))
    .with_interval(Duration::from_secs(2))
    .with_retries(3);

/// How long the system repeats bytes that the peer does not acknowledge.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// The first and the longest delay between two attempts.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// An open connection.
#[derive(Debug)]
pub struct Dialled {
    /// The blocking stream.
    pub stream: TcpStream,
    /// The bytes that came after the opening.
    pub frames: FrameBuffer,
}

impl Endpoint {
    /// Opens a connection for a channel of a run.
    ///
    /// # Errors
    /// No server answers within `timeout`, or it refuses.
    pub fn dial(&self, run: &str, channel: Channel, timeout: Duration) -> Result<Dialled, Error> {
        let deadline = Instant::now() + timeout;
        let unreachable = |source| Error::Unreachable {
            endpoint: self.clone(),
            source,
        };
        let addresses = self.addresses().map_err(unreachable)?;
        let stream = connect(&addresses, deadline).map_err(unreachable)?;
        prepare(&stream).map_err(unreachable)?;
        let mut opening = Opening {
            endpoint: self,
            stream: &stream,
            frames: FrameBuffer::default(),
            deadline,
        };
        let open = Open {
            run: run.to_owned(),
            channel,
        };
        opening.exchange(&open)?;
        let frames = opening.frames;
        let open_ended = stream
            .set_read_timeout(None)
            .and_then(|()| stream.set_write_timeout(None));
        open_ended.map_err(unreachable)?;
        Ok(Dialled { stream, frames })
    }

    /// The same, repeated while no server answers.
    ///
    /// # Errors
    /// As [`Self::dial`], once `timeout` is over.
    pub fn dial_patiently(
        &self,
        run: &str,
        channel: Channel,
        timeout: Duration,
    ) -> Result<Dialled, Error> {
        let deadline = Instant::now() + timeout;
        let (mut delay, longest) = RETRY;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let attempt = left.clamp(RETRY.0, Duration::from_secs(5));
            match self.dial(run, channel, attempt) {
                Err(error) if error.is_temporary() => {
                    if Instant::now() + delay >= deadline {
                        return Err(error);
                    }
                }
                done => return done,
            }
            // There is nothing that reports the begin of a server.
            std::thread::sleep(delay);
            delay = (delay * 2).min(longest);
        }
    }
}

fn connect(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for (index, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        // Each address gets a part of the time, the last one all of it.
        let share = left / u32::try_from(addresses.len() - index).unwrap_or(1);
        match TcpStream::connect_timeout(address, share.max(Duration::from_millis(1))) {
            Ok(stream) if connects_to_itself(&stream) => {
                last = io::ErrorKind::ConnectionRefused.into()
            }
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A socket that looks for a server on its own machine may get the port of that server, and connect to itself.
fn connects_to_itself(stream: &TcpStream) -> bool {
    let (own, peer) = (stream.local_addr(), stream.peer_addr());
    own.is_ok_and(|own| peer.is_ok_and(|peer| own == peer))
}

/// Sets what both ends of a connection need.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&KEEPALIVE)?;
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))
}

struct Opening<'a> {
    endpoint: &'a Endpoint,
    stream: &'a TcpStream,
    frames: FrameBuffer,
    deadline: Instant,
}

impl Opening<'_> {
    fn exchange(&mut self, open: &Open) -> Result<(), Error> {
        let hello = Hello::new(Purpose::Rendezvous);
        self.send(&hello)?;
        let verdict: Verdict = self.receive()?;
        let opening = |source| Error::Opening {
            endpoint: self.endpoint.clone(),
            source,
        };
        hello.answered(verdict).map_err(opening)?;
        self.send(open)?;
        match self.receive()? {
            Opened::Ready => Ok(()),
            Opened::Refused { why } => Err(Error::Refused {
                endpoint: self.endpoint.clone(),
                why,
            }),
        }
    }

    fn send(&mut self, message: &impl serde::Serialize) -> Result<(), Error> {
        let frame = frame::to_frame(message).map_err(io::Error::other);
        let sent = frame.and_then(|frame| {
            self.stream.set_write_timeout(Some(self.left()?))?;
            let mut stream = self.stream;
            stream.write_all(&frame)
        });
        sent.map_err(|source| self.unreachable(source))
    }

    fn receive<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        let mut bytes = [0; 4096];
        loop {
            match self.frames.next_message() {
                Ok(Some(message)) => return Ok(message),
                Ok(None) => {}
                Err(_) => {
                    return Err(Error::Opening {
                        endpoint: self.endpoint.clone(),
                        source: elasticrun_protocol::opening::Error::Stranger,
                    });
                }
            }
            let read = self.left().and_then(|left| {
                self.stream.set_read_timeout(Some(left))?;
                let mut stream = self.stream;
                stream.read(&mut bytes)
            });
            match read {
                Ok(0) => return Err(self.unreachable(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.frames.extend(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.unreachable(source)),
            }
        }
    }

    fn left(&self) -> io::Result<Duration> {
        match self.deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }

    fn unreachable(&self, source: io::Error) -> Error {
        let source = match source.kind() {
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => source,
        };
        Error::Unreachable {
            endpoint: self.endpoint.clone(),
            source,
        }
    }
}
