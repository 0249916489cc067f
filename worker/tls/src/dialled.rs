//! A connection to another host that a thread opens and uses: the dialler's side of `opening`, over a blocking stream.

use std::{
    io::{self, Read, Write},
    ops::Deref,
};

use elasticrun_protocol::{
    frame::{self, FrameBuffer},
    opening::{Hello, Purpose, Verdict},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{Blocking, ClientConfig, Session};

/// A connection that is open: messages, and raw bytes after a message.
///
/// The stream's own timeouts apply to each read and write.
#[derive(Debug)]
pub struct Dialled<S> {
    stream: Blocking<S>,
    frames: FrameBuffer,
}

impl<S: Read + Write> Dialled<S> {
    /// Opens a connection over a stream that is connected.
    ///
    /// # Errors
    /// Those of the stream, of the handshake, and a refusal of the listener.
    pub fn open(stream: S, config: &ClientConfig, purpose: Purpose) -> io::Result<Self> {
        let session = Session::client(config).map_err(io::Error::other)?;
        let mut dialled = Self {
            stream: Blocking::handshake(session, stream)?,
            frames: FrameBuffer::default(),
        };
        let hello = Hello::new(purpose);
        dialled.send(&hello)?;
        let verdict: Verdict = dialled.receive()?;
        hello.answered(verdict).map_err(io::Error::other)?;
        Ok(dialled)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// Those of the stream, and a message that is too large.
    pub fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let bytes = frame::to_frame(message).map_err(io::Error::other)?;
        self.stream.write_all(&bytes)
    }

    /// Receives a message.
    ///
    /// # Errors
    /// Those of the stream, and a message that cannot be read.
    pub fn receive<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        frame::decode(&self.body()?).map_err(io::Error::other)
    }

    fn body(&mut self) -> io::Result<impl Deref<Target = [u8]> + use<S>> {
        let mut bytes = [0; 4096];
        loop {
            if let Some(body) = self.frames.next_body().map_err(io::Error::other)? {
                return Ok(body);
            }
            match self.stream.read(&mut bytes)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => self.frames.extend(&bytes[..count]),
            }
        }
    }

    /// Reads raw bytes after a message. Some may have arrived with it.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let early = self.frames.buffer();
        let count = early.len().min(bytes.len());
        let (first, rest) = bytes.split_at_mut(count);
        first.copy_from_slice(&early[..count]);
        let _ = early.split_to(count);
        self.stream.read_exact(rest)
    }
}
