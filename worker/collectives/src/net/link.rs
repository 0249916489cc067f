//! One connection to a neighbour: sends and receives frames without blocking.

use std::{
    io::{self, ErrorKind, IoSlice, IoSliceMut, Read},
    net::{Shutdown, TcpStream},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, sendmsg},
};
use rustix::event::{PollFd, PollFlags, poll};

use super::{
    frame::{Frame, HEAD, Head, decode, encode_failure},
    path::{self, PathMonitor, watch_path},
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
    outgoing: Option<Outgoing>,
    incoming: [u8; HEAD],
    /// Bytes received of the current incoming frame, header included.
    received: usize,
    /// The neighbour's last question, until it is taken.
    question: Option<Head>,
    /// The unsent rest of a question that the socket took only in part.
    question_rest: Vec<u8>,
    path: PathMonitor,
    /// The kernel ended the connection because nothing answered. It reports that error only once.
    silent: bool,
}

/// The kind of an incoming header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeaderKind {
    Expected,
    Question,
}

const NO_FRAME: &str = "it sent something that is no frame";

#[derive(Debug)]
struct Outgoing {
    head: [u8; HEAD],
    sent: usize,
    total: usize,
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
    pub(super) fn new(peer: u32, stream: TcpStream) -> Self {
        Self {
            peer,
            stream,
            outgoing: None,
            incoming: [0; HEAD],
            received: 0,
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

    /// Sends as much of a frame as the socket takes. Call it with the same frame until it is done.
    pub(super) fn push(&mut self, head: &Head, payload: &[u8]) -> Result<Progress, Fault> {
        let outgoing = self.outgoing.get_or_insert_with(|| Outgoing {
            head: head.encode(),
            sent: 0,
            total: HEAD + payload.len(),
        });
        debug_assert_eq!(outgoing.total, HEAD + payload.len());
        while !self.question_rest.is_empty() {
            match send(&self.stream, &[&self.question_rest]) {
                Ok(0) => return Ok(Progress::Stuck),
                Ok(sent) => drop(self.question_rest.drain(..sent)),
                Err(error) => return Err(self.send_failed(error)),
            }
        }
        while outgoing.sent < outgoing.total {
            let head = &outgoing.head[outgoing.sent.min(HEAD)..];
            let rest = &payload[outgoing.sent.saturating_sub(HEAD)..];
            match send(&self.stream, &[head, rest]) {
                Ok(0) => return Ok(Progress::Stuck),
                Ok(sent) => outgoing.sent += sent,
                Err(error) => return Err(self.send_failed(error)),
            }
        }
        self.outgoing = None;
        Ok(Progress::Done)
    }

    /// Receives as much of a frame as the socket has; its payload goes to `payload`. Call it with
    /// the same frame until it is done.
    pub(super) fn pull(&mut self, head: &Head, payload: &mut [u8]) -> Result<Progress, Fault> {
        let total = HEAD + payload.len();
        loop {
            let before = self.received;
            let received = if before < HEAD {
                let mut parts = [
                    IoSliceMut::new(&mut self.incoming[before..]),
                    IoSliceMut::new(payload),
                ];
                (&self.stream).read_vectored(&mut parts)
            } else {
                (&self.stream).read(&mut payload[before - HEAD..])
            };
            match received {
                Ok(0) => return Err(self.fault("it closed the connection")),
                Ok(received) => self.received += received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Progress::Stuck),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.receive_failed(&error)),
            }
            if before < HEAD {
                while self.received >= HEAD && self.inspect(head)? == HeaderKind::Question {
                    self.skip_header(payload);
                }
            }
            if self.received == total {
                self.received = 0;
                return Ok(Progress::Done);
            }
        }
    }

    fn inspect(&mut self, expected: &Head) -> Result<HeaderKind, Fault> {
        match decode(&self.incoming) {
            Some(Frame::Data(found)) => {
                let expected = Head {
                    rank: found.rank,
                    ..*expected
                };
                if found == expected {
                    Ok(HeaderKind::Expected)
                } else {
                    Err(Fault::Other(found))
                }
            }
            Some(Frame::Question(question)) => {
                self.question = Some(question);
                Ok(HeaderKind::Question)
            }
            Some(Frame::Failure(record)) => Err(Fault::Failed(record)),
            None => Err(Fault::Lost(NO_FRAME.to_owned())),
        }
    }

    /// Discards the current header. The bytes received after it begin with the next header.
    fn skip_header(&mut self, payload: &mut [u8]) {
        let after = self.received - HEAD;
        let header = after.min(HEAD);
        self.incoming[..header].copy_from_slice(&payload[..header]);
        payload.copy_within(header..after, 0);
        self.received = after;
    }

    /// Takes the neighbour's last question.
    pub(super) fn take_question(&mut self) -> Option<Head> {
        self.question.take()
    }

    /// Asks the neighbour whether it is in the same operation, if the socket can send now.
    pub(super) fn ask(&mut self, head: &Head) {
        if self.outgoing.is_some() {
            // The frame in flight already names the operation.
            return;
        }
        // If the socket takes only a part, the next push completes the question.
        let question = head.encode_question();
        match send(&self.stream, &[&question]) {
            Ok(sent) if sent > 0 && sent < HEAD => self.question_rest = question[sent..].to_vec(),
            // Full: the neighbour has much to read, and will fail or continue based on that.
            // Broken: the next use of the link reports it.
            Ok(_) | Err(_) => {}
        }
    }

    /// Looks at what the neighbour sent while nothing is expected from it, and takes only
    /// questions. Returns whether another look makes sense when more arrives.
    pub(super) fn peek_question(&mut self) -> Result<bool, Fault> {
        if self.received > 0 {
            return Ok(false);
        }
        let mut head = [0; HEAD];
        match self.stream.peek(&mut head) {
            Ok(HEAD) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
            // Less than a header, or the end: left for the operation that expects data from this
            // link.
            Ok(_) => return Ok(false),
            Err(error) => {
                self.record_error(&error);
                return Ok(false);
            }
        }
        match decode(&head) {
            Some(Frame::Question(question)) => {
                let taken = (&self.stream).read_exact(&mut head);
                taken.map_err(|error| self.receive_failed(&error))?;
                self.question = Some(question);
                Ok(true)
            }
            // Its data has come before that, and may be all that the current operation needs.
            Some(Frame::Failure(record)) if record.is_peer_left() => Ok(false),
            Some(Frame::Failure(record)) => Err(Fault::Failed(record)),
            Some(Frame::Data(found)) => {
                // It belongs to this or a later operation. Its header shows whether the two agree.
                self.question = Some(found);
                Ok(false)
            }
            None => Err(Fault::Lost(NO_FRAME.to_owned())),
        }
    }

    /// Why nothing more can be sent: the failure that the neighbour sent before it closed, else
    /// `reason`.
    pub(super) fn peer_closed(&mut self, reason: &str) -> Fault {
        let mut head = self.incoming;
        while self.received < HEAD {
            match (&self.stream).read(&mut head[self.received..]) {
                Ok(received) if received > 0 => self.received += received,
                Ok(_) => return self.fault(reason),
                Err(error) => {
                    self.record_error(&error);
                    return self.fault(reason);
                }
            }
        }
        match decode(&head) {
            Some(Frame::Failure(record)) => Fault::Failed(record),
            _ => self.fault(reason),
        }
    }

    /// Why nothing more can be sent, after a system error.
    fn send_failed(&mut self, errno: Errno) -> Fault {
        self.record_error(&errno.into());
        self.peer_closed(errno.desc())
    }

    /// Why nothing more can be received, after a system error.
    fn receive_failed(&mut self, error: &io::Error) -> Fault {
        self.record_error(error);
        self.fault(&error.to_string())
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

    /// Sends the reason of a failure to the neighbour and closes. A frame in flight is completed
    /// with zeroes, which the neighbour discards. Gives up at the deadline.
    pub(super) fn close_with_failure(&mut self, record: &Record, deadline: Instant) {
        let rest = self.outgoing.take().map_or(0, |o| o.total - o.sent);
        let mut bytes = std::mem::take(&mut self.question_rest);
        bytes.resize(bytes.len() + rest, 0);
        bytes.extend_from_slice(&encode_failure(record));
        let mut sent = 0;
        while sent < bytes.len() {
            match send(&self.stream, &[&bytes[sent..]]) {
                Ok(0) if self.ready(PollFlags::OUT, deadline) => {}
                Ok(0) | Err(_) => break,
                Ok(more) => sent += more,
            }
        }
        let _ = self.stream.shutdown(Shutdown::Write);
        // Closing with unread data would reset the connection and lose the failure record.
        let mut drain = vec![0; 64 << 10];
        loop {
            match (&self.stream).read(&mut drain) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !self.ready(PollFlags::IN, deadline) {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        self.close();
    }

    /// Ends the connection gracefully: what was sent still arrives, and behind it the reason. Does
    /// not wait: if the socket has no space for the reason, the neighbour finds only the end.
    pub(super) fn leave(&self, record: &Record) {
        if self.outgoing.is_none() && self.question_rest.is_empty() {
            let _ = send(&self.stream, &[&encode_failure(record)]);
        }
        let _ = self.stream.shutdown(Shutdown::Write);
        // Unread questions would turn the close into a reset, which loses data in flight.
        let mut drain = [0; 4096];
        while (&self.stream)
            .read(&mut drain)
            .is_ok_and(|received| received > 0)
        {}
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

/// sendmsg without a signal for a closed connection. Returns zero if it would block.
fn send(stream: &TcpStream, parts: &[&[u8]]) -> Result<usize, Errno> {
    let mut slices = [IoSlice::new(&[]), IoSlice::new(&[])];
    for (slice, part) in slices.iter_mut().zip(parts) {
        *slice = IoSlice::new(part);
    }
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    match sendmsg::<()>(stream.as_raw_fd(), &slices, &[], flags, None) {
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(0),
        other => other,
    }
}

/// Whether an error of a fresh connection only means "not yet".
pub(super) fn is_pending(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
