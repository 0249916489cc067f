//! How a connection begins: who dials, and in a job with a key the proofs of both ends.

use std::{
    io::{self, ErrorKind, Read},
    sync::Arc,
    time::Duration,
};

use rustix::net::SendFlags;

use super::{Control, Node};
use crate::{
    core::{
        node::NodeId,
        opening::{
            CHALLENGE, Hello, Key, NONCE, OPENING, Opening, PROOF, Stranger, challenge, no_key,
            prove,
        },
    },
    error::{Error, end_of_connection},
    net::{Connection, ReceiveError, Receiver, Stream},
};

/// How long an accepted connection may take for each of its bytes.
const LIMIT: Duration = Duration::from_secs(30);
/// The most bytes that are read of a node without the key, before it is told so.
const MAX_REGISTRATION: u64 = 64 << 10;

impl Node {
    /// Says who dials, and proves that this node has the key of the job. `limit` is for the answer of the other end.
    pub(super) fn introduce(
        &self,
        stream: &Stream,
        to: NodeId,
        limit: Duration,
    ) -> Result<(), Error> {
        let key = self.options.key.as_ref();
        let opening = Opening {
            sender: self.id(),
            keyed: key.is_some(),
        };
        let opening = opening.encode();
        let Some(key) = key else {
            return write(stream, &opening).map_err(Error::io("write"));
        };
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

    /// Learns who has dialled. In a job with a key, whoever does not prove it is refused.
    pub(super) fn welcome(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
    ) -> Result<NodeId, ReceiveError> {
        let stream = connection.stream();
        stream.set_read_timeout(Some(LIMIT))?;
        let mut turn = connection.turns().keep();
        let receiver = &mut turn.receiver;
        let mut opening = [0; OPENING];
        receiver.read(&mut [&mut opening])?;
        let Opening { sender, keyed } = Opening::decode(&opening)?;
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
        stream.set_read_timeout(None)?;
        Ok(sender)
    }

    /// The other end has no key. It dials the scheduler first, and learns there what is missing.
    fn refuse_without_key(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        receiver: &mut Receiver,
    ) -> Result<NodeId, ReceiveError> {
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
