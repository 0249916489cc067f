//! How the client of a store gets its connections.

use std::{
    fmt::Debug,
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::PathBuf,
};

use elasticrun_protocol::{
    FromWorker, Process, ToWorker, frame::FrameBuffer, opening::MAX_VERSION, store::Refused,
};

use crate::{Error, agent::request};

/// A connection on which the store is open.
#[derive(Debug)]
pub struct DialledStore {
    /// A stream socket that does not block.
    pub socket: OwnedFd,
    /// The bytes that came after the opening.
    pub frames: FrameBuffer,
    /// The protocol version that both ends speak.
    pub version: u16,
    /// The other end, for messages.
    pub peer: &'static str,
}

/// Opens connections to a store.
pub(super) trait Dial: Debug + Send + Sync {
    fn dial(&self) -> Result<DialledStore, Error>;
}

/// The store of a job, behind the agent of this host.
#[derive(Debug)]
pub(super) struct AgentDialler {
    pub(super) socket: PathBuf,
    pub(super) process: Process,
}

impl Dial for AgentDialler {
    fn dial(&self) -> Result<DialledStore, Error> {
        let lost = |error: io::Error| Error::AgentLost {
            why: format!("{}: {error}", self.socket.display()),
        };
        let stream = UnixStream::connect(&self.socket).map_err(lost)?;
        let (version, frames) = open_store(&stream, self.process).map_err(lost)??;
        stream.set_nonblocking(true).map_err(lost)?;
        Ok(DialledStore {
            socket: stream.into(),
            frames,
            version,
            peer: "agent of this host",
        })
    }
}

/// A store that a function connects to.
pub(super) struct FunctionDialler<F>(pub(super) F);

impl<F> Debug for FunctionDialler<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FunctionDialler")
    }
}

impl<F: Fn() -> io::Result<DialledStore> + Send + Sync> Dial for FunctionDialler<F> {
    fn dial(&self) -> Result<DialledStore, Error> {
        (self.0)().map_err(|error| {
            let why = error.to_string();
            Error::Store(Refused::Unreachable { why })
        })
    }
}

/// Opens the store on a new connection and waits for the agent's answer. Returns the protocol
/// version, and the bytes received after the answer.
fn open_store(
    stream: &UnixStream,
    process: Process,
) -> io::Result<Result<(u16, FrameBuffer), Error>> {
    let open = FromWorker::OpenStore {
        local_rank: process.local_rank,
        generation: process.generation,
        version: MAX_VERSION,
    };
    Ok(match request(stream, &open)? {
        (ToWorker::StoreOpened, frames) => Ok((3, frames)),
        (ToWorker::StoreReady { version }, frames) => Ok((version, frames)),
        (ToWorker::Refused { why }, _) => Err(Error::Refused { why }),
        _ => Err(Error::Protocol {
            why: "it answered the opening of the store with something else".to_owned(),
        }),
    })
}
