//! The connection for store requests, and the thread that reads it.
//!
//! A caller passes to the kernel what the socket takes at once. The thread sends the rest. A peer
//! that does not read therefore blocks no call, and all calls end at once when their round is over.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use elasticrun_protocol::{frame::FrameBuffer, store::Answer};
use elasticrun_shm::fds;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::eventfd::{EfdFlags, EventFd},
};

use super::{Client, dial::DialledStore};
use crate::Error;

/// Maximum number of bytes that may wait for a peer that does not read.
const MAX_UNSENT: usize = 64 << 20;

/// A connection for store requests.
#[derive(Debug)]
pub(super) struct StoreConnection {
    number: u64,
    socket: OwnedFd,
    /// The protocol version that both ends speak.
    version: u16,
    /// The other end, for messages.
    peer: &'static str,
    /// Bytes that the kernel has not taken yet.
    unsent: Mutex<Vec<u8>>,
    /// Signalled when there are unsent bytes.
    wakeup: EventFd,
    ended: AtomicBool,
}

impl StoreConnection {
    /// Starts the thread of a connection. Answers go to the client.
    pub(super) fn open(
        number: u64,
        dialled: DialledStore,
        client: Arc<Client>,
    ) -> Result<Arc<Self>, Error> {
        let DialledStore {
            socket,
            frames,
            version,
            peer,
        } = dialled;
        let wakeup = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let connection = Arc::new(Self {
            number,
            socket,
            version,
            peer,
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

    /// The other end, for messages.
    pub(super) fn peer(&self) -> &'static str {
        self.peer
    }

    /// The protocol version that both ends speak.
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
            return Err(io::Error::other(format!(
                "the {} does not read requests",
                self.peer
            )));
        }
        let mut rest = frame;
        if unsent.is_empty() {
            rest = &frame[bytes_taken(fds::send(&self.socket, frame, &[]))?..];
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
            match fds::recv(&self.socket, &mut bytes, &mut Vec::new()) {
                Ok(0) => {
                    let why = format!("the {} closed the connection", self.peer);
                    return Err(io::Error::other(why));
                }
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
            PollFd::new(self.socket.as_fd(), wanted),
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
            let count = bytes_taken(fds::send(&self.socket, &unsent, &[]))?;
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
