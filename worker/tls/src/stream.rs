//! A TLS connection over an asynchronous stream.

use std::{
    future::{Future as _, poll_fn},
    io,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::Session;

/// How much is read from a stream at once, at first. Thousands of connections carry only small messages.
const READ: usize = 4 << 10;
/// How much is read at once from a stream that always has more.
const MAX_READ: usize = 64 << 10;
/// How much is encrypted before it is written to the stream.
const WRITE: usize = 64 << 10;
/// How much may wait for the stream before a write waits.
const MAX_UNSENT: usize = 256 << 10;

/// An asynchronous stream that encrypts. A write may leave bytes in a buffer: flush after the last one.
///
/// The end of a read is the end that the peer has announced. A stream that ends without is
/// [`io::ErrorKind::UnexpectedEof`].
#[derive(Debug)]
pub struct TlsStream<S> {
    session: Session,
    stream: S,
    wire: BytesMut,
    /// How much is read at once.
    room: usize,
    plain: BytesMut,
    /// Bytes that were given to the session and that the stream has not taken, at most.
    unsent: usize,
}

/// A handshake that has failed.
#[derive(Debug)]
pub struct Failed<S> {
    /// The reason. That of an untrusted peer is an [`Error`](crate::Error) inside of an
    /// [`io::ErrorKind::PermissionDenied`].
    pub error: io::Error,
    /// The stream, to answer a peer that does not speak TLS.
    pub stream: S,
    /// What such a peer has sent.
    pub received: BytesMut,
}

/// The peer closed the stream without a byte, as one does that takes a handshake of TLS for something else.
#[derive(Debug, thiserror::Error)]
#[error("it closed the connection without an answer")]
struct Unanswered;

impl<S> Failed<S> {
    /// Whether the peer closed the stream without a byte.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        (self.error.get_ref()).is_some_and(|error| error.is::<Unanswered>())
    }
}

impl<S> TlsStream<S> {
    /// Continues an established session on its stream. `unread` is what the session has already given and no caller has
    /// used.
    pub fn new(session: Session, stream: S, unread: BytesMut) -> Self {
        Self {
            session,
            stream,
            wire: BytesMut::new(),
            room: READ,
            plain: unread,
            unsent: 0,
        }
    }

    /// The session, the stream, and what the session has given and no caller has read. Flush before.
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

    /// Reads from the stream once, and gives the count of bytes that came.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>>
    where
        S: AsyncRead + Unpin,
    {
        self.wire.reserve(self.room);
        let count = ready!(pin!(self.stream.read_buf(&mut self.wire)).poll(cx))?;
        if count >= self.room {
            self.room = (self.room * 2).min(MAX_READ);
        }
        Poll::Ready(Ok(count))
    }

    /// Passes what was received to the session. A word to the peer may be outgoing then.
    fn feed(&mut self) -> io::Result<()> {
        (self.session.feed(&mut self.wire, &mut self.plain)).map_err(untrusted)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream<S> {
    /// Completes the handshake of a session on a stream. Not cancel-safe.
    ///
    /// # Errors
    /// Those of the stream, and an untrusted peer, which has got an alert.
    pub async fn handshake(session: Session, stream: S) -> Result<Self, Failed<S>> {
        let mut this = Self::new(session, stream, BytesMut::new());
        match this.complete().await {
            Ok(()) => Ok(this),
            Err(error) => {
                // The alert. A peer that is gone needs none.
                let _ = this.flush().await;
                Err(Failed {
                    error,
                    stream: this.stream,
                    received: this.wire,
                })
            }
        }
    }

    async fn complete(&mut self) -> io::Result<()> {
        self.flush().await?;
        let mut heard = false;
        while self.session.peer().is_none() {
            let count = match poll_fn(|cx| self.poll_receive(cx)).await {
                // As a peer does that closes with unread bytes.
                Err(error) if !heard && error.kind() == io::ErrorKind::ConnectionReset => 0,
                read => read?,
            };
            if count == 0 {
                let kind = io::ErrorKind::UnexpectedEof;
                return Err(match heard {
                    true => kind.into(),
                    false => io::Error::new(kind, Unanswered),
                });
            }
            heard = true;
            self.feed()?;
            if self.session.peer().is_none() {
                self.flush().await?;
            }
        }
        // What the stream does not take at once, such as tickets, goes with the first message. The peer may wait in its own
        // first write meanwhile.
        poll_fn(|cx| {
            // The first message meets the same error.
            let _ = self.poll_drain(cx, 0);
            Poll::Ready(())
        })
        .await;
        Ok(())
    }

    /// Writes what the session has for the peer. Ends early if at most `limit` bytes wait.
    fn poll_drain(&mut self, cx: &mut Context<'_>, limit: usize) -> Poll<io::Result<()>> {
        while self.session.has_outgoing() && (limit == 0 || self.unsent > limit) {
            let mut stream = Writer(&mut self.stream, cx);
            match self.session.write_outgoing(&mut stream) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(count) => self.unsent = self.unsent.saturating_sub(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        if !self.session.has_outgoing() {
            self.unsent = 0;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<S> {
    /// Writes nothing: reader and writer may be two tasks, and a stream wakes only one of them when it takes bytes again.
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.plain.is_empty() && buffer.remaining() > 0 {
            if this.session.is_closed() {
                return Poll::Ready(Ok(()));
            }
            if ready!(this.poll_receive(cx))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            this.feed()?;
        }
        let count = buffer.remaining().min(this.plain.len());
        buffer.put_slice(&this.plain[..count]);
        this.plain.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        ready!(this.poll_drain(cx, MAX_UNSENT))?;
        let piece = &buffer[..buffer.len().min(WRITE)];
        this.session.send(piece).map_err(untrusted)?;
        this.unsent += piece.len();
        // What the stream does not take waits for the next call.
        if let Poll::Ready(Err(error)) = this.poll_drain(cx, 0) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(piece.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx, 0))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.session.close();
        ready!(this.poll_drain(cx, 0))?;
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }
}

fn untrusted(error: crate::Error) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, error)
}

/// A stream within a poll, as the library writes to it. What the stream does not take now is
/// [`io::ErrorKind::WouldBlock`], and the stream wakes the task later.
struct Writer<'a, 'b, S>(&'a mut S, &'a mut Context<'b>);

impl<S> Writer<'_, '_, S> {
    fn blocks<T>(polled: Poll<io::Result<T>>) -> io::Result<T> {
        match polled {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl<S: AsyncWrite + Unpin> io::Write for Writer<'_, '_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Self::blocks(Pin::new(&mut *self.0).poll_write(self.1, bytes))
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match parts {
            // The most frequent case, and the cheaper call.
            [part] => self.write(part),
            _ => Self::blocks(Pin::new(&mut *self.0).poll_write_vectored(self.1, parts)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Self::blocks(Pin::new(&mut *self.0).poll_flush(self.1))
    }
}

/// Writes a part of these bytes and gives its length. Without bytes it flushes the writer. Cancel-safe.
///
/// # Errors
/// Those of the writer.
pub async fn write_or_flush(
    writer: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
) -> io::Result<usize> {
    if bytes.is_empty() {
        writer.flush().await?;
        return Ok(0);
    }
    writer.write(bytes).await
}
