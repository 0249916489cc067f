//! One connection to a neighbour: sends and receives frames without blocking.

mod receive;
mod send;
#[cfg(test)]
mod tests;

use std::{
    io::{self, ErrorKind},
    net::{Shutdown, TcpStream},
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use nix::errno::Errno;
use rustix::event::{PollFd, PollFlags, poll};

use self::{receive::Incoming, send::Outgoing};
use super::{
    frame::Head,
    path::{self, PathMonitor, watch_path},
    protection::{Opener, Sealer, Session},
};
use crate::error::Record;

/// Socket buffer size within a machine. The kernel doubles it, so a segment fits.
const LOCAL_BUFFER: usize = 256 << 10;

/// A connection and the frames in flight on it.
#[derive(Debug)]
pub(super) struct Link {
    /// The neighbour's host index.
    pub(super) peer: u32,
    stream: TcpStream,
    sealer: Sealer,
    opener: Opener,
    outgoing: Option<Outgoing>,
    /// The payload to send, if it is encrypted.
    sealed: Vec<u8>,
    incoming: Incoming,
    /// The neighbour's last question, until it is taken.
    question: Option<Head>,
    /// The unsent rest of a question that the socket took only in part.
    question_rest: Vec<u8>,
    path: PathMonitor,
    /// The kernel ended the connection because nothing answered. It reports that error only once.
    silent: bool,
}

/// Why a link is unusable.
#[derive(Debug)]
pub(super) enum Fault {
    /// The connection broke or was closed.
    Lost(String),
    /// Nothing that was sent is acknowledged: the path to the neighbour is cut, or its machine is
    /// down.
    Silent,
    /// The neighbour failed and sent the reason.
    Failed(Record),
    /// The neighbour is in another operation.
    Other(Head),
    /// What arrived is not what the neighbour sent.
    Altered,
}

/// The progress of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Done,
    /// The socket cannot take or give more now.
    Stuck,
}

impl Link {
    /// `stream` must be in non-blocking mode.
    pub(super) fn new(peer: u32, stream: TcpStream, session: Session) -> Self {
        Self {
            peer,
            stream,
            sealer: session.sealer,
            opener: session.opener,
            outgoing: None,
            sealed: Vec::new(),
            incoming: Incoming::default(),
            question: None,
            question_rest: Vec::new(),
            path: PathMonitor::default(),
            silent: false,
        }
    }

    /// Configures the socket for frames, and to end when its peer is silent for `timeout`. Returns
    /// whether the peer is on this machine.
    ///
    /// Connections within a machine get small buffers, so that data in flight stays in the caches.
    /// For others, the kernel sizes the buffers.
    pub(super) fn tune(&self, timeout: Duration) -> io::Result<bool> {
        watch_path(&self.stream, timeout)?;
        let socket = socket2::SockRef::from(&self.stream);
        socket.set_tcp_nodelay(true)?;
        let (local, remote) = (
            self.stream.local_addr()?.ip(),
            self.stream.peer_addr()?.ip(),
        );
        let is_local = local == remote || remote.is_loopback();
        if is_local {
            socket.set_send_buffer_size(LOCAL_BUFFER)?;
            socket.set_recv_buffer_size(LOCAL_BUFFER)?;
        }
        Ok(is_local)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn record_error(&mut self, error: &io::Error) {
        let errno = error.raw_os_error().map(Errno::from_raw);
        self.silent |= errno.is_some_and(path::is_silence);
    }

    fn fault(&self, reason: &str) -> Fault {
        if self.silent {
            Fault::Silent
        } else {
            Fault::Lost(reason.to_owned())
        }
    }

    /// Checks whether the path to the neighbour is cut. For a leader that has waited for long.
    pub(super) fn check_path(&mut self, timeout: Duration, now: Instant) -> Result<(), Fault> {
        self.silent = self.silent || self.path.is_cut(&self.stream, timeout, now);
        if self.silent {
            return Err(Fault::Silent);
        }
        Ok(())
    }

    /// Whether the neighbour owes an answer and has been silent for at least this long.
    pub(super) fn is_silent(&self, at_least: Duration) -> bool {
        self.silent || path::is_silent(&self.stream, at_least)
    }

    /// Closes for all processes that may share the descriptor (a fork of this one).
    pub(super) fn close(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn ready(&self, what: PollFlags, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(timeout) = left.try_into() else {
            return false;
        };
        let mut fds = [PollFd::new(&self.stream, what)];
        !left.is_zero() && poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready > 0)
    }
}

/// Whether an error of a fresh connection only means "not yet".
pub(super) fn is_pending(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
