//! The control connection to the driver. It has no task: [`DriverLink::send`] writes a report to the socket before
//! it returns, if the socket buffer has space.

use std::{
    io,
    os::fd::AsRawFd,
    task::{Context, Poll},
};

use bytes::BytesMut;
use elasticrun_protocol::{
    FromAgent, ToAgent,
    frame::{self, FrameBuffer},
};
use elasticrun_tls::{Session, TlsStream};
use tokio::net::TcpStream;

use crate::error::PeerError;

/// Bytes of reports that may wait. The connection fails if a driver that does not read leaves more.
const MAX_UNSENT: usize = 64 << 20;

/// How much is read from the socket at once.
const READ: usize = 4096;

/// The control connection to the driver; the loop polls it.
#[derive(Debug)]
pub(crate) struct DriverLink {
    session: Session,
    stream: TcpStream,
    /// Encrypted bytes of the driver.
    received: BytesMut,
    frames: FrameBuffer,
    /// The report that is being encrypted.
    report: Vec<u8>,
    /// Encrypted reports.
    unsent: Vec<u8>,
    /// Bytes of `unsent` that are written already.
    sent: usize,
}

impl DriverLink {
    /// Takes over a connection whose first command has been read.
    pub(crate) fn new(stream: TlsStream<TcpStream>, mut frames: FrameBuffer) -> Self {
        let (session, stream, unread) = stream.into_parts();
        frames.extend(&unread);
        Self {
            session,
            stream,
            received: BytesMut::new(),
            frames,
            report: Vec::new(),
            unsent: Vec::with_capacity(4096),
            sent: 0,
        }
    }

    /// Writes a report as far as the socket takes it. [`DriverLink::poll_message`] writes the rest.
    pub(crate) fn send(&mut self, report: &FromAgent) -> Result<(), PeerError> {
        self.report.clear();
        frame::encode(report, &mut self.report)?;
        self.session.send(&self.report)?;
        self.session.take_outgoing(&mut self.unsent);
        self.flush()?;
        if self.unsent.len() - self.sent > MAX_UNSENT {
            return Err(io::Error::other("it does not read our reports").into());
        }
        Ok(())
    }

    /// Whether the driver's machine has acknowledged all that was sent.
    pub(crate) fn is_acknowledged(&self) -> bool {
        let mut unacknowledged: libc::c_int = 0;
        // SAFETY: the descriptor is open, and the call writes one integer.
        let result =
            unsafe { libc::ioctl(self.stream.as_raw_fd(), libc::TIOCOUTQ, &mut unacknowledged) };
        self.unsent.is_empty() && result == 0 && unacknowledged == 0
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.unsent.len() {
            match self.stream.try_write(&self.unsent[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        self.unsent.clear();
        self.sent = 0;
        Ok(())
    }

    /// The next command. An error ends the connection.
    pub(crate) fn poll_message(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ToAgent, PeerError>> {
        while !self.unsent.is_empty() && self.stream.poll_write_ready(cx)?.is_ready() {
            self.flush()?;
        }
        loop {
            if let Some(message) = self.frames.next_message()? {
                return Poll::Ready(Ok(message));
            }
            if self.stream.poll_read_ready(cx)?.is_pending() {
                return Poll::Pending;
            }
            self.received.reserve(READ);
            match self.stream.try_read_buf(&mut self.received) {
                Ok(0) => return Poll::Ready(Err(PeerError::Closed)),
                Ok(_) => {
                    (self.session).feed(&mut self.received, self.frames.buffer())?;
                    // What the session answers goes with the next report.
                    self.session.take_outgoing(&mut self.unsent);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
}
