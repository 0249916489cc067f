//! How a connection begins: who dials, in a job with a key the proofs of both ends, and on one host the memory that they share.

use std::{
    io::{self, ErrorKind, Read},
    os::fd::OwnedFd,
    sync::Arc,
    time::Duration,
};

use rustix::net::SendFlags;

use super::{Control, Node};
use crate::{
    core::{
        node::{NodeId, SCHEDULER},
        opening::{
            CHALLENGE, Hello, Key, NONCE, OPENING, Opening, PROOF, Stranger, challenge, no_key,
            prove,
        },
    },
    error::{Error, end_of_connection},
    net::{Connection, End, ReceiveError, Receiver, SharedMemory, Stream},
};

/// How long an accepted connection may take for each of its bytes.
const LIMIT: Duration = Duration::from_secs(30);
/// The most bytes that are read of a node without the key, before it is told so.
const MAX_REGISTRATION: u64 = 64 << 10;

impl Node {
    /// Says who dials, proves that this node has the key of the job, and offers memory to a node of this host. `limit` is for the
    /// answer of the other end.
    pub(super) fn introduce(
        &self,
        stream: &Stream,
        to: NodeId,
        limit: Duration,
    ) -> Result<Option<Arc<SharedMemory>>, Error> {
        let offer = self.offer(stream, to);
        let opening = Opening {
            sender: self.id(),
            incarnation: self.incarnation(),
            keyed: self.options.key.is_some(),
            shares: offer.is_some(),
        };
        let opening = opening.encode();
        match &self.options.key {
            None => write(stream, &opening).map_err(Error::io("write"))?,
            Some(key) => prove_key(key, opening, stream, to, limit)?,
        }
        let Some((memory, fd)) = offer else {
            return Ok(None);
        };
        let sent = memory.send(&fd, stream).map_err(Error::io("sendmsg"))?;
        let sent = sent.inspect_err(|error| self.does_without(to, error));
        Ok(sent.ok().map(|()| memory))
    }

    fn does_without(&self, node: NodeId, error: &io::Error) {
        self.log(0, || format!("no shared memory with {node}: {error}"));
    }

    /// Memory for the other end, if it is on this host. Without it, all goes through the socket.
    fn offer(&self, stream: &Stream, to: NodeId) -> Option<(Arc<SharedMemory>, OwnedFd)> {
        let len = self.options.shared_memory;
        if !matches!(stream, Stream::Unix(_)) || len == 0 || to == SCHEDULER {
            return None;
        }
        let created = SharedMemory::create(len);
        created
            .inspect_err(|error| self.does_without(to, error))
            .ok()
    }

    /// Learns who has dialled. In a job with a key, whoever does not prove it is refused.
    pub(super) fn welcome(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
    ) -> Result<(NodeId, u16), ReceiveError> {
        let stream = connection.stream();
        stream.set_read_timeout(Some(LIMIT))?;
        let mut turn = connection.turns().keep();
        let receiver = &mut turn.receiver;
        let mut opening = [0; OPENING];
        receiver.read(&mut [&mut opening])?;
        let Opening {
            sender,
            incarnation,
            keyed,
            shares,
        } = Opening::decode(&opening)?;
        match (&self.options.key, keyed) {
            (None, false) => {}
            (Some(key), true) => verify(key, opening, stream, receiver)?,
            (Some(_), false) => return self.refuse_without_key(connection, receiver),
            (None, true) => {
                // Bytes that are not read would end the connection before the answer is read.
                receiver.read(&mut [&mut [0; NONCE]])?;
                write(stream, &no_key())?;
                return Err(Stranger::OtherKey.into());
            }
        }
        if shares {
            match SharedMemory::receive(stream)? {
                Ok(memory) => {
                    let (writer, reader) = memory.halves(End::Accepted);
                    connection.share(writer);
                    receiver.share(reader);
                }
                Err(error) => self.does_without(sender, &error),
            }
        }
        stream.set_read_timeout(None)?;
        Ok((sender, incarnation))
    }

    /// The other end has no key. It dials the scheduler first, and learns there what is missing.
    fn refuse_without_key(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        receiver: &mut Receiver,
    ) -> Result<(NodeId, u16), ReceiveError> {
        if self.scheduler.is_some() {
            // Bytes that are not read would end the connection before the answer is read.
            let header = receiver.header()?;
            if header.payload() > MAX_REGISTRATION {
                return Err(Stranger::NoKey.into());
            }
            receiver.skip(header.payload())?;
            let reason =
                "this job has a key: set ELASTICRUN_PS_KEY to that of the other nodes".to_owned();
            let _ = self.send_control(connection, &Control::Refused { reason });
            // The other end closes the connection.
            let _ = receiver.header();
        }
        Err(Stranger::NoKey.into())
    }
}

/// Proves to the node that was dialled that this one has the key, and has it prove the same.
fn prove_key(
    key: &Key,
    opening: [u8; OPENING],
    stream: &Stream,
    to: NodeId,
    limit: Duration,
) -> Result<(), Error> {
    let nonce = nonce().map_err(Error::io("getrandom"))?;
    let hello = Hello { opening, nonce };
    let exchange = || {
        write(stream, &[&opening[..], &nonce].concat())?;
        stream.set_read_timeout(Some(limit))?;
        let mut challenge = [0; CHALLENGE];
        { stream }.read_exact(&mut challenge)?;
        stream.set_read_timeout(None)?;
        io::Result::Ok(challenge)
    };
    let challenge = exchange().map_err(|error| Error::NodeLost {
        node: to,
        reason: match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!("it did not answer within {limit:?}")
            }
            _ => end_of_connection(&error),
        },
    })?;
    let proof = prove(key, &hello, &challenge).map_err(|stranger| Error::Stranger {
        node: to,
        reason: stranger.to_string(),
    })?;
    write(stream, &proof).map_err(Error::io("write"))
}

/// Has the other end prove the key.
fn verify(
    key: &Key,
    opening: [u8; OPENING],
    stream: &Stream,
    receiver: &mut Receiver,
) -> Result<(), ReceiveError> {
    let mut hello = Hello {
        opening,
        nonce: [0; NONCE],
    };
    receiver.read(&mut [&mut hello.nonce])?;
    let (bytes, expected) = challenge(key, &hello, nonce()?);
    write(stream, &bytes)?;
    let mut proof = [0; PROOF];
    receiver.read(&mut [&mut proof])?;
    Ok(expected.check(&proof)?)
}

fn nonce() -> io::Result<[u8; NONCE]> {
    let mut nonce = [0; NONCE];
    getrandom::fill(&mut nonce)?;
    Ok(nonce)
}

/// Writes a few bytes: the empty buffer of a new socket takes them.
fn write(stream: &Stream, bytes: &[u8]) -> io::Result<()> {
    match rustix::net::send(stream, bytes, SendFlags::NOSIGNAL)? {
        count if count == bytes.len() => Ok(()),
        _ => Err(ErrorKind::WriteZero.into()),
    }
}
