//! Frames over a stream in both directions at once.

use elasticrun_protocol::frame::{self, FrameBuffer};
use serde::{Serialize, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};

use crate::error::PeerError;

/// With more than so many bytes unsent, nothing more is read.
const ROOM: usize = 8 << 20;

/// See the module.
#[derive(Debug)]
pub(super) struct Duplex<S> {
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    frames: FrameBuffer,
    unsent: Vec<u8>,
    /// How much of `unsent` is sent.
    sent: usize,
}

impl<S: AsyncRead + AsyncWrite> Duplex<S> {
    /// Of a stream, and what has come over it already.
    pub(super) fn new(stream: S, frames: FrameBuffer) -> Self {
        let (reader, writer) = split(stream);
        Self {
            reader,
            writer,
            frames,
            unsent: Vec::new(),
            sent: 0,
        }
    }

    /// Sends a message while [`Duplex::next`] waits.
    ///
    /// # Errors
    /// It does not fit a frame; nothing of it is sent.
    pub(super) fn queue(&mut self, message: &impl Serialize) -> Result<(), frame::Error> {
        frame::encode(message, &mut self.unsent)
    }

    /// Sends a frame while [`Duplex::next`] waits.
    pub(super) fn queue_frame(&mut self, frame: &[u8]) {
        self.unsent.extend_from_slice(frame);
    }

    /// Whether the other side takes what it is sent.
    pub(super) fn has_room(&self) -> bool {
        self.unsent.len() - self.sent < ROOM
    }

    /// The next message. Cancel-safe: nothing is lost, neither of what came nor of what is queued.
    ///
    /// # Errors
    /// The stream has ended or is of no use any more.
    pub(super) async fn next<M: DeserializeOwned>(&mut self) -> Result<M, PeerError> {
        loop {
            let waiting = self.unsent.len() - self.sent;
            if waiting < ROOM
                && let Some(message) = self.frames.next_message()?
            {
                return Ok(message);
            }
            tokio::select! {
                written = self.writer.write(&self.unsent[self.sent..]), if waiting > 0 => {
                    self.sent += written?;
                    if self.sent == self.unsent.len() {
                        self.unsent.clear();
                        self.sent = 0;
                    }
                }
                read = self.reader.read_buf(self.frames.buffer()), if waiting < ROOM => {
                    if read? == 0 {
                        return Err(PeerError::HungUp);
                    }
                }
            }
        }
    }
}
