//! Why an agent ends without having been told to.

use std::{io, path::PathBuf, time::Duration};

use elasticrun_protocol::{HostId, auth, frame};

/// An agent's failure; each ends it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No address of the driver could be reached in time.
    #[error(
        "cannot reach the driver within {within:?}: {tried}; is it running, and is its port open to this host?"
    )]
    Unreachable {
        /// How long it was tried.
        within: Duration,
        /// Each address and why.
        tried: String,
    },
    /// The driver and this agent do not get along; to try again cannot help.
    #[error("the driver at {address}: {source}")]
    Handshake {
        /// Which address.
        address: String,
        /// What was wrong.
        source: auth::Error,
    },
    /// What came first was no order that sets up an agent.
    #[error(
        "the driver at {address} sent something else than the settings of the run first; run the same release on all hosts"
    )]
    NoSetup {
        /// Which address.
        address: String,
    },
    /// Another agent serves this host.
    #[error(
        "another agent (process {pid}) serves host {host} of run {run_id} and has not ended within {waited:?}; end it or wait for it"
    )]
    Locked {
        /// Process id of the other one, as it wrote it.
        pid: String,
        /// The host.
        host: HostId,
        /// The run.
        run_id: String,
        /// How long this one waited.
        waited: Duration,
    },
    /// The directory for sockets and locks cannot be used.
    #[error(
        "cannot use {path} for sockets and locks: {why}; set XDG_RUNTIME_DIR to a directory of your own"
    )]
    RunDirectory {
        /// Which directory or file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// There is no such interface, or it has no address.
    #[error(
        "network interface {name} of this host has no address of the driver's family; see `ip address`"
    )]
    Interface {
        /// Which.
        name: String,
    },
    /// The name of the machine cannot be used as a host id.
    #[error("this machine has no name; give the host one by --host")]
    NoHostName,
    /// The system refused something that an agent needs.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl Error {
    /// For `map_err`.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}

/// Why one connection to a peer failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    /// One side did not like what the other one said.
    #[error(transparent)]
    Auth(#[from] auth::Error),
    /// Not a frame of ours.
    #[error(transparent)]
    Frame(#[from] frame::Error),
    /// The stream failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It closed the stream.
    #[error("it hung up")]
    HungUp,
    /// It took too long.
    #[error("no answer in time")]
    TimedOut,
    /// The system has no randomness.
    #[error("no randomness for a nonce: {0}")]
    Random(#[from] getrandom::Error),
}
