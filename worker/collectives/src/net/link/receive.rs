//! The receiving half of a link.

use std::io::{self, ErrorKind, IoSliceMut, Read};

use super::{Fault, Link, Progress, send::tag_len};
use crate::net::{
    frame::{Frame, HEAD, Head, decode},
    protection::{Altered, TAG},
};

/// The current incoming frame.
#[derive(Debug)]
pub(super) struct Incoming {
    head: [u8; HEAD],
    tag: [u8; TAG],
    /// Bytes received of the frame.
    received: usize,
    /// The neighbour has ended the connection in the middle of a frame. The reason comes next.
    cancelled: bool,
}

impl Default for Incoming {
    fn default() -> Self {
        Self {
            head: [0; HEAD],
            tag: [0; TAG],
            received: 0,
            cancelled: false,
        }
    }
}

/// The kind of an incoming header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeaderKind {
    Expected,
    Question,
}

const NO_FRAME: &str = "it sent something that is no frame";

impl From<Altered> for Fault {
    fn from(_: Altered) -> Self {
        Self::Altered
    }
}

impl Incoming {
    /// The parts of the frame that are not received yet.
    fn rest<'a>(&'a mut self, payload: &'a mut [u8]) -> [IoSliceMut<'a>; 3] {
        let tag = &mut self.tag[..tag_len(payload.len())];
        let after_head = self.received.saturating_sub(HEAD);
        let after_payload = after_head.saturating_sub(payload.len());
        let len = payload.len();
        [
            IoSliceMut::new(&mut self.head[self.received.min(HEAD)..]),
            IoSliceMut::new(&mut payload[after_head.min(len)..]),
            IoSliceMut::new(&mut tag[after_payload..]),
        ]
    }

    /// Discards the current header. The bytes received after it begin with the next header.
    fn skip_header(&mut self, payload: &mut [u8]) {
        let after = self.received - HEAD;
        let in_payload = after.min(payload.len());
        let mut bytes = payload[..in_payload].to_vec();
        bytes.extend_from_slice(&self.tag[..after - in_payload]);
        self.received = 0;
        let mut rest = &bytes[..];
        for part in &mut self.rest(payload) {
            let len = rest.len().min(part.len());
            part[..len].copy_from_slice(&rest[..len]);
            rest = &rest[len..];
        }
        self.received = after;
    }
}

impl Link {
    /// Receives as much of a frame as the socket has; its payload goes to `payload`. Call it with
    /// the same frame until it is done.
    pub(in crate::net) fn pull(
        &mut self,
        head: &Head,
        payload: &mut [u8],
    ) -> Result<Progress, Fault> {
        let total = HEAD + payload.len() + tag_len(payload.len());
        loop {
            let before = self.incoming.received;
            let mut parts = self.incoming.rest(payload);
            match (&self.stream).read_vectored(&mut parts) {
                Ok(0) => return Err(self.fault("it closed the connection")),
                Ok(received) => self.incoming.received += received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Progress::Stuck),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.receive_failed(&error)),
            }
            if before < HEAD {
                while self.incoming.received >= HEAD && self.inspect(head)? == HeaderKind::Question
                {
                    self.opener.advance();
                    self.incoming.skip_header(payload);
                }
            }
            if self.incoming.received == total {
                self.incoming.received = 0;
                let opened = self.open_payload(payload);
                self.opener.advance();
                if opened? {
                    return Ok(Progress::Done);
                }
            }
        }
    }

    /// Verifies a complete payload. Returns false if its sender has cancelled it.
    fn open_payload(&mut self, payload: &mut [u8]) -> Result<bool, Fault> {
        if payload.is_empty() {
            return Ok(true);
        }
        let tag = self.incoming.tag;
        match self.opener.open_payload(payload, &tag) {
            Ok(()) => Ok(true),
            Err(Altered) if self.opener.is_cancelled(&tag) => {
                self.incoming.cancelled = true;
                Ok(false)
            }
            Err(Altered) => Err(Fault::Altered),
        }
    }

    fn inspect(&mut self, expected: &Head) -> Result<HeaderKind, Fault> {
        match decode(&self.opener.open_head(&self.incoming.head)?) {
            Some(Frame::Failure(record)) => Err(Fault::Failed(record)),
            _ if self.incoming.cancelled => Err(Fault::Lost(NO_FRAME.to_owned())),
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
            None => Err(Fault::Lost(NO_FRAME.to_owned())),
        }
    }

    /// Takes the neighbour's last question.
    pub(in crate::net) fn take_question(&mut self) -> Option<Head> {
        self.question.take()
    }

    /// Looks at what the neighbour sent while nothing is expected from it, and takes only
    /// questions. Returns whether another look makes sense when more arrives.
    pub(in crate::net) fn peek_question(&mut self) -> Result<bool, Fault> {
        if self.incoming.received > 0 {
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
        match decode(&self.opener.open_head(&head)?) {
            Some(Frame::Question(question)) => {
                let taken = (&self.stream).read_exact(&mut head);
                taken.map_err(|error| self.receive_failed(&error))?;
                self.opener.advance();
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
    pub(in crate::net) fn peer_closed(&mut self, reason: &str) -> Fault {
        while self.incoming.received < HEAD {
            let received = self.incoming.received;
            match (&self.stream).read(&mut self.incoming.head[received..]) {
                Ok(more) if more > 0 => self.incoming.received += more,
                Ok(_) => return self.fault(reason),
                Err(error) => {
                    self.record_error(&error);
                    return self.fault(reason);
                }
            }
        }
        let opened = self.opener.open_head(&self.incoming.head);
        match opened.map(|fields| decode(&fields)) {
            Ok(Some(Frame::Failure(record))) => Fault::Failed(record),
            Ok(_) => self.fault(reason),
            Err(Altered) => Fault::Altered,
        }
    }

    /// Why nothing more can be received, after a system error.
    fn receive_failed(&mut self, error: &io::Error) -> Fault {
        self.record_error(error);
        self.fault(&error.to_string())
    }
}
