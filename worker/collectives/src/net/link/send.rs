//! The sending half of a link.

use std::{
    io::{ErrorKind, IoSlice, Read},
    net::{Shutdown, TcpStream},
    os::fd::AsRawFd,
    time::Instant,
};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, sendmsg},
};
use rustix::event::PollFlags;

use super::{Fault, Link, Progress};
use crate::{
    error::Record,
    net::{
        frame::{HEAD, Head, encode_failure},
        protection::TAG,
    },
};

/// A sealed frame on its way out.
#[derive(Debug)]
pub(super) struct Outgoing {
    head: [u8; HEAD],
    /// Bytes of the payload.
    payload: usize,
    /// The tag of the payload; not sent if there is no payload.
    tag: [u8; TAG],
    sent: usize,
}

impl Outgoing {
    fn total(&self) -> usize {
        HEAD + self.payload + tag_len(self.payload)
    }

    #[cfg(test)]
    pub(super) fn set_sent(&mut self, sent: usize) {
        self.sent = sent;
    }

    /// The unsent parts of the frame.
    pub(super) fn rest<'a>(&'a self, payload: &'a [u8]) -> [&'a [u8]; 3] {
        let tag = &self.tag[..tag_len(self.payload)];
        let after_head = self.sent.saturating_sub(HEAD);
        [
            &self.head[self.sent.min(HEAD)..],
            &payload[after_head.min(payload.len())..],
            &tag[after_head.saturating_sub(payload.len())..],
        ]
    }
}

/// Bytes of the tag behind a payload.
pub(super) fn tag_len(payload: usize) -> usize {
    if payload == 0 { 0 } else { TAG }
}

impl Link {
    /// Sends as much of a frame as the socket takes. Call it with the same frame until it is done.
    pub(in crate::net) fn push(&mut self, head: &Head, payload: &[u8]) -> Result<Progress, Fault> {
        if self.outgoing.is_none() {
            self.outgoing = Some(self.seal(head, payload));
        }
        while !self.question_rest.is_empty() {
            match send(&self.stream, &[&self.question_rest]) {
                Ok(0) => return Ok(Progress::Stuck),
                Ok(sent) => drop(self.question_rest.drain(..sent)),
                Err(error) => return Err(self.send_failed(error)),
            }
        }
        let bytes = if self.sealer.encrypts() {
            &self.sealed[..payload.len()]
        } else {
            payload
        };
        while let Some(outgoing) = &mut self.outgoing {
            debug_assert_eq!(outgoing.payload, payload.len());
            if outgoing.sent == outgoing.total() {
                self.outgoing = None;
                self.sealer.advance();
                break;
            }
            match send(&self.stream, &outgoing.rest(bytes)) {
                Ok(0) => return Ok(Progress::Stuck),
                Ok(sent) => outgoing.sent += sent,
                Err(error) => return Err(self.send_failed(error)),
            }
        }
        Ok(Progress::Done)
    }

    pub(super) fn seal(&mut self, head: &Head, payload: &[u8]) -> Outgoing {
        let mut tag = [0; TAG];
        if !payload.is_empty() {
            tag = self.sealer.seal_payload(payload, &mut self.sealed);
        }
        Outgoing {
            head: self.sealer.seal_head(&head.encode()),
            payload: payload.len(),
            tag,
            sent: 0,
        }
    }

    /// Asks the neighbour whether it is in the same operation, if the socket can send now.
    pub(in crate::net) fn ask(&mut self, head: &Head) {
        if self.outgoing.is_some() || !self.question_rest.is_empty() {
            // The frame in flight already names the operation.
            return;
        }
        // If the socket takes only a part, the next push completes the question.
        let question = self.sealer.seal_head(&head.encode_question());
        match send(&self.stream, &[&question]) {
            Ok(sent) if sent > 0 => {
                self.question_rest = question[sent..].to_vec();
                self.sealer.advance();
            }
            // Full: the neighbour has much to read, and will fail or continue based on that. As
            // nothing was sent, the next frame has the same number.
            // Broken: the next use of the link reports it.
            Ok(_) | Err(_) => {}
        }
    }

    /// Why nothing more can be sent, after a system error.
    fn send_failed(&mut self, errno: Errno) -> Fault {
        self.record_error(&errno.into());
        self.peer_closed(errno.desc())
    }

    /// Sends the reason of a failure to the neighbour and closes. A frame in flight is completed
    /// with zeroes and a tag by which the neighbour discards it. Gives up at the deadline.
    pub(in crate::net) fn close_with_failure(&mut self, record: &Record, deadline: Instant) {
        let bytes = self.last_bytes(record);
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

    /// The rest of what is in flight, and behind it the reason of a failure.
    pub(super) fn last_bytes(&mut self, record: &Record) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.question_rest);
        if let Some(mut outgoing) = self.outgoing.take() {
            if outgoing.sent < HEAD + outgoing.payload {
                outgoing.tag = self.sealer.cancelled();
            }
            for part in outgoing.rest(&vec![0; outgoing.payload]) {
                bytes.extend_from_slice(part);
            }
            self.sealer.advance();
        }
        bytes.extend_from_slice(&self.sealer.seal_head(&encode_failure(record)));
        self.sealer.advance();
        bytes
    }

    /// Ends the connection gracefully: what was sent still arrives, and behind it the reason. Does
    /// not wait: if the socket has no space for the reason, the neighbour finds only the end.
    pub(in crate::net) fn leave(&self, record: &Record) {
        if self.outgoing.is_none() && self.question_rest.is_empty() {
            let _ = send(
                &self.stream,
                &[&self.sealer.seal_head(&encode_failure(record))],
            );
        }
        let _ = self.stream.shutdown(Shutdown::Write);
        // Unread questions would turn the close into a reset, which loses data in flight.
        let mut drain = [0; 4096];
        while (&self.stream)
            .read(&mut drain)
            .is_ok_and(|received| received > 0)
        {}
    }
}

/// sendmsg without a signal for a closed connection. Returns zero if it would block.
fn send(stream: &TcpStream, parts: &[&[u8]]) -> Result<usize, Errno> {
    let mut slices = [IoSlice::new(&[]); 3];
    for (slice, part) in slices.iter_mut().zip(parts) {
        *slice = IoSlice::new(part);
    }
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    match sendmsg::<()>(stream.as_raw_fd(), &slices, &[], flags, None) {
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(0),
        other => other,
    }
}
