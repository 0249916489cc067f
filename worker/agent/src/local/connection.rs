//! The connection of a worker. It has no task: the agent's loop reads and writes it.

use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    task::{Context, Poll},
};

use elasticrun_protocol::{
    FromWorker, ToWorker,
    frame::{self, FrameBuffer},
};
use elasticrun_shm::fds;
use tokio::{io::Interest, net::UnixStream};

use crate::error::PeerError;

/// A descriptor on its way to one or several workers.
pub(crate) type SharedFd = Arc<OwnedFd>;

#[derive(Debug)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    fds: Vec<SharedFd>,
}

/// The connection of a worker. The queue for a worker that does not read grows by a few messages per round.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    frames: FrameBuffer,
    waiting: VecDeque<Outgoing>,
}

impl Connection {
    /// Wraps a stream that was just accepted.
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            frames: FrameBuffer::unproven(),
            waiting: VecDeque::new(),
        }
    }

    /// Process and user id of the other side.
    pub(crate) fn peer(&self) -> io::Result<tokio::net::unix::UCred> {
        self.stream.peer_cred()
    }

    /// Gives the stream to another thread. The peer waits for an answer and has sent nothing more.
    pub(crate) fn into_std(self) -> io::Result<std::os::unix::net::UnixStream> {
        self.stream.into_std()
    }

    /// Allows larger messages, once the worker has attached.
    pub(crate) fn trust(&mut self) {
        self.frames.trust();
    }

    /// Writes a message and its descriptors as far as the socket takes them. [`Connection::poll_message`] writes
    /// the rest.
    pub(crate) fn send(&mut self, message: &ToWorker, fds: Vec<SharedFd>) -> Result<(), PeerError> {
        self.waiting.push_back(Outgoing {
            bytes: frame::to_frame(message)?,
            sent: 0,
            fds,
        });
        Ok(self.flush()?)
    }

    fn flush(&mut self) -> io::Result<()> {
        while let Some(next) = self.waiting.front_mut() {
            let fds: Vec<_> = next.fds.iter().map(AsFd::as_fd).collect();
            let result = self.stream.try_io(Interest::WRITABLE, || {
                fds::send(&self.stream, &next.bytes[next.sent..], &fds)
            });
            match result {
                Ok(count) => {
                    next.sent += count;
                    next.fds.clear();
                    if next.sent == next.bytes.len() {
                        self.waiting.pop_front();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The next message. An error ends the connection, not the worker.
    pub(crate) fn poll_message(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<FromWorker, PeerError>> {
        while !self.waiting.is_empty() && self.stream.poll_write_ready(cx)?.is_ready() {
            self.flush()?;
        }
        loop {
            if let Some(message) = self.frames.next_message()? {
                return Poll::Ready(Ok(message));
            }
            if self.stream.poll_read_ready(cx)?.is_pending() {
                return Poll::Pending;
            }
            match self.read() {
                Ok(0) => return Poll::Ready(Err(PeerError::Closed)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// The remaining messages of an ended worker, without waiting.
    pub(crate) fn drain_messages(&mut self) -> Vec<FromWorker> {
        let mut messages = Vec::new();
        // The runtime may not know of the readiness yet, so read the socket directly.
        while let Ok(1..) = receive(&self.stream, &mut self.frames) {}
        while let Ok(Some(message)) = self.frames.next_message() {
            messages.push(message);
        }
        messages
    }

    fn read(&mut self) -> io::Result<usize> {
        let Self { stream, frames, .. } = self;
        stream.try_io(Interest::READABLE, || receive(stream, frames))
    }
}

/// Reads once. Workers send no descriptors, so received ones are closed.
fn receive(stream: &UnixStream, frames: &mut FrameBuffer) -> io::Result<usize> {
    let mut bytes = [0; 4096];
    let count = fds::recv(stream, &mut bytes, &mut Vec::new())?;
    frames.extend(&bytes[..count]);
    Ok(count)
}
