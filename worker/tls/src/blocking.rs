//! A TLS connection over a blocking stream, for code that sends megabytes from a thread of its own.

use std::io::{self, Read, Write};

use bytes::{Buf, BytesMut};

use crate::Session;

/// How much is read from the stream at once.
const READ: usize = 128 << 10;
/// How much is encrypted before it is written to the stream.
const WRITE: usize = 256 << 10;

/// A blocking stream that encrypts. Reads and writes alternate: it is for one thread.
///
/// The stream's own timeouts apply to each read and write. `Ok(0)` of a read is the end that the peer has announced; a stream
/// that ends without is [`io::ErrorKind::UnexpectedEof`].
#[derive(Debug)]
pub struct Blocking<S> {
    session: Session,
    stream: S,
    wire: BytesMut,
    plain: BytesMut,
    outgoing: Vec<u8>,
}

impl<S: Read + Write> Blocking<S> {
    /// Continues an established session on its stream. `unread` is what the session has already given and no caller has
    /// used.
    pub fn new(session: Session, stream: S, unread: BytesMut) -> Self {
        Self {
            session,
            stream,
            wire: BytesMut::new(),
            plain: unread,
            outgoing: Vec::new(),
        }
    }

    /// Completes the handshake of a session on a stream.
    ///
    /// # Errors
    /// Those of the stream. The error of an untrusted peer is an [`Error`](crate::Error) inside of an
    /// [`io::ErrorKind::PermissionDenied`].
    pub fn handshake(session: Session, stream: S) -> io::Result<Self> {
        let mut this = Self::new(session, stream, BytesMut::new());
        this.write_outgoing()?;
        while this.session.peer().is_none() {
            if this.read_some()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(this)
    }

    /// The session, the stream, and what the session has given and no caller has read.
    pub fn into_parts(self) -> (Session, S, BytesMut) {
        (self.session, self.stream, self.plain)
    }

    /// The session, to ask for the peer.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The stream.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// Announces the end to the peer.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn close(&mut self) -> io::Result<()> {
        self.session.close();
        self.write_outgoing()
    }

    /// Reads from the stream once, and gives the count of bytes that came.
    fn read_some(&mut self) -> io::Result<usize> {
        self.wire.resize(READ, 0);
        let count = self.stream.read(&mut self.wire);
        self.wire.truncate(*count.as_ref().unwrap_or(&0));
        let result = self.session.feed(&mut self.wire, &mut self.plain);
        // The peer learns from an alert why it is refused.
        let written = self.write_outgoing();
        result.map_err(|error| io::Error::new(io::ErrorKind::PermissionDenied, error))?;
        written.and(count)
    }

    fn write_outgoing(&mut self) -> io::Result<()> {
        self.session.take_outgoing(&mut self.outgoing);
        let result = self.stream.write_all(&self.outgoing);
        self.outgoing.clear();
        result
    }
}

impl<S: Read + Write> Read for Blocking<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.plain.is_empty() && !buffer.is_empty() {
            if self.session.is_closed() {
                return Ok(0);
            }
            if self.read_some()? == 0 && !self.session.is_closed() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let count = buffer.len().min(self.plain.len());
        self.plain.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

impl<S: Read + Write> Write for Blocking<S> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let piece = &buffer[..buffer.len().min(WRITE)];
        self.session
            .send(piece)
            .map_err(|error| io::Error::new(io::ErrorKind::PermissionDenied, error))?;
        self.write_outgoing()?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
