//! The control connection to the driver. It has no task: [`DriverLink::send`] writes a report to the socket before
//! it returns, if the socket buffer has space.

use std::{
    io,
    os::fd::AsRawFd,
    task::{Context, Poll},
};

use elasticrun_protocol::{
    FromAgent, ToAgent,
    frame::{self, FrameBuffer},
};
use tokio::net::TcpStream;

use crate::error::PeerError;

/// Bytes of reports that may wait. The connection fails if a driver that does not read leaves more.
const MAX_UNSENT: usize = 64 << 20;

/// The control connection to the driver; the loop polls it.
#[derive(Debug)]
pub(crate) struct DriverLink {
    stream: TcpStream,
    frames: FrameBuffer,
    unsent: Vec<u8>,
    /// Bytes of `unsent` that are written already.
    sent: usize,
}

impl DriverLink {
    /// Takes over a connection whose first command has been read.
    pub(crate) fn new(stream: TcpStream, frames: FrameBuffer) -> Self {
        Self {
            stream,
            frames,
            unsent: Vec::with_capacity(4096),
            sent: 0,
        }
    }

    /// Writes a report as far as the socket takes it. [`DriverLink::poll_message`] writes the rest.
    pub(crate) fn send(&mut self, report: &FromAgent) -> Result<(), PeerError> {
        frame::encode(report, &mut self.unsent)?;
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
            match self.stream.try_read_buf(self.frames.buffer()) {
                Ok(0) => return Poll::Ready(Err(PeerError::Closed)),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
}
