//! Frames over a stream in both directions at once.

use elasticrun_protocol::frame::{self, FrameBuffer};
use elasticrun_tls::write_or_flush;
use serde::{Serialize, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};

use crate::error::PeerError;

/// Nothing is read while this many bytes are unsent.
const MAX_UNSENT: usize = 8 << 20;

/// A stream that reads and writes frames at once, without a task.
#[derive(Debug)]
pub(crate) struct Duplex<S> {
    reader: ReadHalf<S>,
    writer: WriteHalf<S>,
    frames: FrameBuffer,
    unsent: Vec<u8>,
    /// Bytes of `unsent` that are written already.
    sent: usize,
    /// Written bytes may wait within the stream.
    unflushed: bool,
}

impl<S: AsyncRead + AsyncWrite> Duplex<S> {
    /// Wraps a stream. `frames` holds the bytes that were read already.
    pub(crate) fn new(stream: S, frames: FrameBuffer) -> Self {
        let (reader, writer) = split(stream);
        Self {
            reader,
            writer,
            frames,
            unsent: Vec::new(),
            sent: 0,
            unflushed: false,
        }
    }

    /// Queues a message; [`Duplex::next`] writes it.
    ///
    /// # Errors
    /// The message does not fit a frame; nothing of it is sent.
    pub(crate) fn queue(&mut self, message: &impl Serialize) -> Result<(), frame::Error> {
        frame::encode(message, &mut self.unsent)
    }

    /// Queues a frame; [`Duplex::next`] writes it.
    pub(crate) fn queue_frame(&mut self, frame: &[u8]) {
        self.unsent.extend_from_slice(frame);
    }

    /// Whether fewer than the allowed bytes are unsent.
    pub(crate) fn has_capacity(&self) -> bool {
        self.unsent.len() - self.sent < MAX_UNSENT
    }

    /// Returns the next message, and writes queued ones meanwhile. Cancel-safe: no read or queued byte is lost.
    ///
    /// # Errors
    /// The stream has ended or failed.
    pub(crate) async fn next<M: DeserializeOwned>(&mut self) -> Result<M, PeerError> {
        loop {
            let waiting = self.unsent.len() - self.sent;
            if waiting < MAX_UNSENT
                && let Some(message) = self.frames.next_message()?
            {
                return Ok(message);
            }
            tokio::select! {
                written = write_or_flush(&mut self.writer, &self.unsent[self.sent..]), if waiting > 0 || self.unflushed => {
                    self.sent += written?;
                    self.unflushed = waiting > 0;
                    if self.sent == self.unsent.len() {
                        self.unsent.clear();
                        self.sent = 0;
                    }
                }
                read = self.reader.read_buf(self.frames.buffer()), if waiting < MAX_UNSENT => {
                    if read? == 0 {
                        return Err(PeerError::Closed);
                    }
                }
            }
        }
    }

    /// Ends the direction to the peer.
    pub(crate) async fn shutdown(mut self) {
        // The peer may have closed the stream already.
        let _ = self.writer.shutdown().await;
    }
}
