//! One connection to a neighbour: frames pushed and pulled without blocking.

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
    path::{self, Path, watch_path},
};
use crate::error::Record;

/// Bytes of a socket's buffers within a machine; the kernel doubles it, and a segment fits.
const HERE_BUFFER: usize = 256 << 10;

/// A connection and the frames in flight on it.
#[derive(Debug)]
pub(super) struct Link {
    /// The neighbour's host index.
    pub(super) peer: u32,
    stream: TcpStream,
    outgoing: Option<Outgoing>,
    incoming: [u8; HEAD],
    /// Bytes of the current incoming frame so far, header included.
    got: usize,
    /// What the neighbour asked and nobody has looked at.
    asked: Option<Head>,
    /// The rest of a question that the socket did not take whole.
    question_rest: Vec<u8>,
    path: Path,
    /// The kernel ended the connection since nothing answered. It says so once.
    silent: bool,
}

/// What an incoming header is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
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

/// Why a link is of no more use.
#[derive(Debug)]
pub(super) enum Fault {
    /// The connection broke or was closed.
    Lost(String),
    /// Nothing that was sent is answered: the path to the neighbour is cut, or its machine is gone.
    Silent,
    /// The neighbour failed and said why.
    Failed(Record),
    /// The neighbour is in another operation.
    Other(Head),
}

/// How far a frame got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Done,
    /// The socket took or gave as much as it could.
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
            got: 0,
            asked: None,
            question_rest: Vec::new(),
            path: Path::default(),
            silent: false,
        }
    }

    /// Sets the socket up for frames, and to end when its other end is silent for `timeout`. Whether the other end is
    /// on this machine.
    ///
    /// There is no line to fill then: what is in flight should stay in the caches. Elsewhere the kernel
    /// finds the size of the buffers by itself.
    pub(super) fn tune(&self, timeout: Duration) -> io::Result<bool> {
        watch_path(&self.stream, timeout)?;
        let socket = socket2::SockRef::from(&self.stream);
        socket.set_tcp_nodelay(true)?;
        let (own, other) = (
            self.stream.local_addr()?.ip(),
            self.stream.peer_addr()?.ip(),
        );
        let here = own == other || other.is_loopback();
        if here {
            socket.set_send_buffer_size(HERE_BUFFER)?;
            socket.set_recv_buffer_size(HERE_BUFFER)?;
        }
        Ok(here)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Sends what the socket takes of a frame. To be called with the same frame until it is done.
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
                Err(error) => return Err(self.broken(error)),
            }
        }
        while outgoing.sent < outgoing.total {
            let head = &outgoing.head[outgoing.sent.min(HEAD)..];
            let rest = &payload[outgoing.sent.saturating_sub(HEAD)..];
            match send(&self.stream, &[head, rest]) {
                Ok(0) => return Ok(Progress::Stuck),
                Ok(sent) => outgoing.sent += sent,
                Err(error) => return Err(self.broken(error)),
            }
        }
        self.outgoing = None;
        Ok(Progress::Done)
    }

    /// Receives what the socket has of a frame whose payload goes to `payload`. To be called with the
    /// same frame until it is done.
    pub(super) fn pull(&mut self, head: &Head, payload: &mut [u8]) -> Result<Progress, Fault> {
        let total = HEAD + payload.len();
        loop {
            let before = self.got;
            let got = if before < HEAD {
                let mut parts = [
                    IoSliceMut::new(&mut self.incoming[before..]),
                    IoSliceMut::new(payload),
                ];
                (&self.stream).read_vectored(&mut parts)
            } else {
                (&self.stream).read(&mut payload[before - HEAD..])
            };
            match got {
                Ok(0) => return Err(self.ended("it closed the connection")),
                Ok(got) => self.got += got,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Progress::Stuck),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.failed(&error)),
            }
            if before < HEAD {
                while self.got >= HEAD && self.inspect(head)? == Seen::Question {
                    self.skip_header(payload);
                }
            }
            if self.got == total {
                self.got = 0;
                return Ok(Progress::Done);
            }
        }
    }

    fn inspect(&mut self, expected: &Head) -> Result<Seen, Fault> {
        match decode(&self.incoming) {
            Some(Frame::Data(found)) => {
                let expected = Head {
                    rank: found.rank,
                    ..*expected
                };
                if found == expected {
                    Ok(Seen::Expected)
                } else {
                    Err(Fault::Other(found))
                }
            }
            Some(Frame::Question(asked)) => {
                self.asked = Some(asked);
                Ok(Seen::Question)
            }
            Some(Frame::Failure(record)) => Err(Fault::Failed(record)),
            None => Err(Fault::Lost(NO_FRAME.to_owned())),
        }
    }

    /// Forgets the header that is there; what was read after it begins with the next one.
    fn skip_header(&mut self, payload: &mut [u8]) {
        let after = self.got - HEAD;
        let header = after.min(HEAD);
        self.incoming[..header].copy_from_slice(&payload[..header]);
        payload.copy_within(header..after, 0);
        self.got = after;
    }

    /// What the neighbour last asked, once.
    pub(super) fn take_question(&mut self) -> Option<Head> {
        self.asked.take()
    }

    /// Asks the neighbour whether it is in the same operation, if it is possible now.
    pub(super) fn ask(&mut self, head: &Head) {
        if self.outgoing.is_some() {
            // It is being sent a frame, which tells it the same.
            return;
        }
        // Its own frame in flight if the socket takes only a part: the next push completes it.
        let question = head.encode_question();
        match send(&self.stream, &[&question]) {
            Ok(sent) if sent > 0 && sent < HEAD => self.question_rest = question[sent..].to_vec(),
            // No room: its neighbour has much to read, and will fail or go on by that. Broken: the next
            // use of the link tells.
            Ok(_) | Err(_) => {}
        }
    }

    /// Looks at what the neighbour sent while nothing is expected from it; takes questions only.
    /// Whether it makes sense to look again when more comes.
    pub(super) fn glance(&mut self) -> Result<bool, Fault> {
        if self.got > 0 {
            return Ok(false);
        }
        let mut head = [0; HEAD];
        match self.stream.peek(&mut head) {
            Ok(HEAD) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
            // Less than a header, or the end: for who expects something from it.
            Ok(_) => return Ok(false),
            Err(error) => {
                self.note(&error);
                return Ok(false);
            }
        }
        match decode(&head) {
            Some(Frame::Question(asked)) => {
                let taken = (&self.stream).read_exact(&mut head);
                taken.map_err(|error| self.failed(&error))?;
                self.asked = Some(asked);
                Ok(true)
            }
            Some(Frame::Failure(record)) => Err(Fault::Failed(record)),
            Some(Frame::Data(found)) => {
                // Of this or a later operation; its own header tells whether they agree.
                self.asked = Some(found);
                Ok(false)
            }
            None => Err(Fault::Lost(NO_FRAME.to_owned())),
        }
    }

    /// Why nothing more can be sent: what the neighbour said before it closed, if anything.
    pub(super) fn lost(&mut self, reason: &str) -> Fault {
        let mut head = self.incoming;
        while self.got < HEAD {
            match (&self.stream).read(&mut head[self.got..]) {
                Ok(got) if got > 0 => self.got += got,
                Ok(_) => return self.ended(reason),
                Err(error) => {
                    self.note(&error);
                    return self.ended(reason);
                }
            }
        }
        match decode(&head) {
            Some(Frame::Failure(record)) => Fault::Failed(record),
            _ => self.ended(reason),
        }
    }

    /// Why nothing more can be sent, after the system refused it.
    fn broken(&mut self, errno: Errno) -> Fault {
        self.note(&errno.into());
        self.lost(errno.desc())
    }

    /// Why nothing more can be received, after the system refused it.
    fn failed(&mut self, error: &io::Error) -> Fault {
        self.note(error);
        self.ended(&error.to_string())
    }

    fn note(&mut self, error: &io::Error) {
        let errno = error.raw_os_error().map(Errno::from_raw);
        self.silent |= errno.is_some_and(path::is_silence);
    }

    fn ended(&self, reason: &str) -> Fault {
        if self.silent {
            Fault::Silent
        } else {
            Fault::Lost(reason.to_owned())
        }
    }

    /// Looks whether the path to the neighbour is cut, for who has waited for it for long.
    pub(super) fn look(&mut self, timeout: Duration, now: Instant) -> Result<(), Fault> {
        self.silent = self.silent || self.path.is_cut(&self.stream, timeout, now);
        if self.silent {
            return Err(Fault::Silent);
        }
        Ok(())
    }

    /// Whether the neighbour has been silent for so long where it should have answered.
    pub(super) fn is_silent(&self, at_least: Duration) -> bool {
        self.silent || path::is_silent(&self.stream, at_least)
    }

    /// Tells the neighbour why this side fails, and closes. A frame that was begun is filled up with
    /// zeroes, which nobody will use. Gives up at the deadline.
    pub(super) fn farewell(&mut self, record: &Record, deadline: Instant) {
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
        // Closing with unread data would reset the connection and take the farewell along.
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

    /// Ends the connection in good order: what was sent still arrives.
    pub(super) fn leave(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        // Questions that nobody read would turn the close into a reset, which takes along what is
        // still on its way.
        let mut drain = [0; 4096];
        while (&self.stream).read(&mut drain).is_ok_and(|got| got > 0) {}
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

/// sendmsg without a signal for a closed connection. Zero means that it would block.
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

/// Errors of a fresh connection that only mean "not yet".
pub(super) fn is_pending(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
