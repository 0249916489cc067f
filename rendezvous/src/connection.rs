//! A connection within the runtime: whole frames in both directions.

use std::io;

use elasticrun_protocol::frame::FrameBuffer;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// A connection whose reads and writes make progress together.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    frames: FrameBuffer,
    unsent: Vec<u8>,
    sent: usize,
}

impl Connection {
    /// A connection after its opening. The stream does not block.
    pub(crate) fn new(stream: TcpStream, frames: FrameBuffer) -> Self {
        Self {
            stream,
            frames,
            unsent: Vec::new(),
            sent: 0,
        }
    }

    /// The received bytes.
    pub(crate) fn frames(&mut self) -> &mut FrameBuffer {
        &mut self.frames
    }

    /// Adds bytes to send. [`Self::progress`] sends them.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        self.unsent.extend_from_slice(frame);
    }

    /// Sends, or receives if `reads`, some bytes. Cancel-safe.
    ///
    /// # Errors
    /// The peer has closed the connection, or it broke.
    pub(crate) async fn progress(&mut self, reads: bool) -> io::Result<()> {
        let (mut reader, mut writer) = self.stream.split();
        let unsent = &self.unsent[self.sent..];
        tokio::select! {
            written = writer.write(unsent), if !unsent.is_empty() => {
                self.sent += written?;
                if self.sent == self.unsent.len() {
                    self.unsent.clear();
                    self.sent = 0;
                }
            }
            read = reader.read_buf(self.frames.buffer()), if reads => {
                if read? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            else => std::future::pending().await,
        }
        Ok(())
    }

    /// The number of bytes that are not sent yet.
    pub(crate) fn unsent(&self) -> usize {
        self.unsent.len() - self.sent
    }
}
