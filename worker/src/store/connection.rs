//! The connection to the agent for store requests, and the thread that reads it.
//!
//! A caller passes to the kernel what the socket takes at once. The thread sends the rest. An agent
//! that does not read therefore blocks no call, and all calls end at once when their round is over.

use std::{
    io,
    os::{fd::AsFd, unix::net::UnixStream},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use elasticrun_protocol::{
    FromWorker, Process, ToWorker, frame::FrameBuffer, opening::MAX_VERSION, store::Answer,
};
use elasticrun_shm::fds;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::eventfd::{EfdFlags, EventFd},
};

use super::Client;
use crate::{Error, agent::request};

/// Maximum number of bytes that may wait for an agent that does not read.
const MAX_UNSENT: usize = 64 << 20;

/// A connection for store requests.
#[derive(Debug)]
pub(super) struct StoreConnection {
    number: u64,
    stream: UnixStream,
    /// The protocol version that worker and agent speak.
    version: u16,
    /// Bytes that the kernel has not taken yet.
    unsent: Mutex<Vec<u8>>,
    /// Signalled when there are unsent bytes.
    wakeup: EventFd,
    ended: AtomicBool,
}

impl StoreConnection {
    /// Connects, registers, and starts the thread. Answers go to the client.
    pub(super) fn open(
        number: u64,
        socket: &Path,
        process: Process,
        client: Arc<Client>,
    ) -> Result<Arc<Self>, Error> {
        let lost = |error: io::Error| Error::AgentLost {
            why: format!("{}: {error}", socket.display()),
        };
        let stream = UnixStream::connect(socket).map_err(lost)?;
        let (version, frames) = open_store(&stream, process).map_err(lost)??;
        stream.set_nonblocking(true).map_err(lost)?;
        let wakeup = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let connection = Arc::new(Self {
            number,
            stream,
            version,
            unsent: Mutex::default(),
            wakeup: wakeup
                .map_err(io::Error::from)
                .map_err(Error::system("make an eventfd"))?,
            ended: AtomicBool::new(false),
        });
        let reader = Arc::clone(&connection);
        // Ends with the connection, at the latest with the process.
        thread::Builder::new()
            .name("elasticrun-store".into())
            .spawn(move || {
                let Err(error) = reader.listen(frames, &client);
                reader.ended.store(true, Ordering::SeqCst);
                tracing::debug!(%error, "the connection for requests ended");
                client.connection_ended(number, &error.to_string());
            })
            .map_err(Error::system("start a thread"))?;
        Ok(connection)
    }

    /// The number of this connection within the process.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The protocol version that worker and agent speak.
    pub(super) fn version(&self) -> u16 {
        self.version
    }

    /// Whether no more answers will come.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Sends a frame after all earlier ones. Does not block.
    pub(super) fn send(&self, frame: &[u8]) -> io::Result<()> {
        let mut unsent = self.unsent.lock().unwrap_or_else(PoisonError::into_inner);
        if unsent.len() + frame.len() > MAX_UNSENT {
            return Err(io::Error::other("the agent does not read requests"));
        }
        let mut rest = frame;
        if unsent.is_empty() {
            rest = &frame[bytes_taken(fds::send(&self.stream, frame, &[]))?..];
        }
        if !rest.is_empty() {
            unsent.extend_from_slice(rest);
            self.wakeup.write(1)?;
        }
        Ok(())
    }

    fn listen(
        &self,
        mut frames: FrameBuffer,
        client: &Client,
    ) -> io::Result<std::convert::Infallible> {
        let mut bytes = vec![0; 64 << 10];
        loop {
            while let Some(answer) = frames.next_message::<Answer>().map_err(io::Error::other)? {
                client.answered(answer);
            }
            self.wait()?;
            self.flush()?;
            match fds::recv(&self.stream, &mut bytes, &mut Vec::new()) {
                Ok(0) => return Err(io::Error::other("the agent closed the connection")),
                Ok(count) => frames.extend(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sleeps until something can be read, or sent if there is anything to send.
    fn wait(&self) -> io::Result<()> {
        let is_empty = (self.unsent.lock())
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty();
        let wanted = match is_empty {
            true => PollFlags::POLLIN,
            false => PollFlags::POLLIN | PollFlags::POLLOUT,
        };
        let mut sources = [
            PollFd::new(self.stream.as_fd(), wanted),
            PollFd::new(self.wakeup.as_fd(), PollFlags::POLLIN),
        ];
        loop {
            match poll(&mut sources, PollTimeout::NONE) {
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
                Ok(_) => break,
            }
        }
        match self.wakeup.read() {
            Ok(_) | Err(Errno::EAGAIN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn flush(&self) -> io::Result<()> {
        let mut unsent = self.unsent.lock().unwrap_or_else(PoisonError::into_inner);
        if !unsent.is_empty() {
            let count = bytes_taken(fds::send(&self.stream, &unsent, &[]))?;
            unsent.drain(..count);
        }
        Ok(())
    }
}

/// Number of bytes that a non-blocking socket has taken.
fn bytes_taken(sent: io::Result<usize>) -> io::Result<usize> {
    match sent {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        other => other,
    }
}

/// Opens the store on a new connection and waits for the agent's answer. Returns the protocol
/// version, and the bytes received after the answer.
fn open_store(
    stream: &UnixStream,
    process: Process,
) -> io::Result<Result<(u16, FrameBuffer), Error>> {
    let open = FromWorker::OpenStore {
        local_rank: process.local_rank,
        generation: process.generation,
        version: MAX_VERSION,
    };
    Ok(match request(stream, &open)? {
        (ToWorker::StoreOpened, frames) => Ok((3, frames)),
        (ToWorker::StoreReady { version }, frames) => Ok((version, frames)),
        (ToWorker::Refused { why }, _) => Err(Error::Refused { why }),
        _ => Err(Error::Protocol {
            why: "it answered the opening of the store with something else".to_owned(),
        }),
    })
}
