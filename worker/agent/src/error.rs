//! The errors that end an agent.

use std::{io, net::IpAddr, path::PathBuf, time::Duration};

use elasticrun_protocol::{HostId, frame};
use elasticrun_tls::{enrol, opening};

use crate::TokenFileError;

/// A failure that ends the agent.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No address of the driver could be reached in time.
    #[error(
        "cannot reach the driver within {within:?}: {tried}; is it running, and is its port open to this host?"
    )]
    Unreachable {
        /// How long the agent tried.
        within: Duration,
        /// Each address with its error.
        tried: String,
    },
    /// One of this agent and the driver does not trust the other; a retry cannot help.
    #[error("the driver at {address}: {source}")]
    Handshake {
        /// The address of the driver.
        address: String,
        /// The cause.
        source: enrol::Error,
    },
    /// The first command of the driver was not a setup.
    #[error(
        "the driver at {address} sent something else than the settings of the run first; run the same release on all hosts"
    )]
    NoSetup {
        /// The address of the driver.
        address: String,
    },
    /// The credentials that the driver has issued cannot be used.
    #[error("the keys of this agent cannot be used: {0}")]
    Keys(#[from] elasticrun_tls::Error),
    /// Another machine has registered with the name of this host.
    #[error(
        "host {host} is {by} already; give each machine its own name: elasticrun agent --host NAME"
    )]
    NameTaken {
        /// The name.
        host: HostId,
        /// The address of the machine that has the name.
        by: IpAddr,
    },
    /// The host offers another number of slots than each node of the job must offer.
    #[error(
        "this node has {offered} workers, and the job has {expected} on each node; give all nodes the same --nproc-per-node"
    )]
    OtherSlots {
        /// Slots of this host.
        offered: u32,
        /// Slots of each node of the job.
        expected: u32,
    },
    /// Another agent serves this host.
    #[error(
        "another agent (process {pid}) serves host {host} of run {run_id} and has not ended within {waited:?}; end it or wait for it"
    )]
    Locked {
        /// The process id of the other agent, as the agent wrote it.
        pid: String,
        /// The host.
        host: HostId,
        /// The run.
        run_id: String,
        /// How long this agent waited.
        waited: Duration,
    },
    /// The directory for sockets and locks cannot be used.
    #[error(
        "cannot use {path} for sockets and locks: {why}; set XDG_RUNTIME_DIR to a directory of your own"
    )]
    RunDirectory {
        /// The directory or file.
        path: PathBuf,
        /// The cause.
        why: String,
    },
    /// The interface does not exist, or has no address of the driver's family.
    #[error(
        "network interface {name} of this host has no address of the driver's family (IPv{version}); expected {usable}"
    )]
    Interface {
        /// The names that the user gave.
        name: String,
        /// The family: 4 or 6.
        version: u8,
        /// The interfaces of this host that have an address of it.
        usable: String,
    },
    /// The name of the machine cannot be used as a host id.
    #[error("this machine has no name; give the host one by --host")]
    NoHostName,
    /// A system call that an agent needs failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The attempted operation.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

impl Error {
    /// Makes [`Error::System`], for `map_err`.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}

/// Why one connection to a peer failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PeerError {
    /// One side does not trust the other.
    #[error(transparent)]
    Untrusted(enrol::Error),
    /// There is no join token now. Another one may come.
    #[error(transparent)]
    Token(#[from] TokenFileError),
    /// The peer sent an invalid frame.
    #[error(transparent)]
    Frame(#[from] frame::Error),
    /// The stream failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The peer closed the stream.
    #[error("it hung up")]
    Closed,
    /// The peer closed the stream without an answer.
    #[error("{0}")]
    Unanswered(opening::Error),
    /// The peer did not answer in time.
    #[error("no answer in time")]
    TimedOut,
}

impl From<opening::Error> for PeerError {
    fn from(error: opening::Error) -> Self {
        match error {
            opening::Error::Frame(error) => Self::Frame(error),
            opening::Error::Io(error) => Self::Io(error),
            opening::Error::Closed => Self::Closed,
            opening::Error::TimedOut => Self::TimedOut,
            opening::Error::Unanswered => Self::Unanswered(error),
            error => Self::Untrusted(error.into()),
        }
    }
}

impl From<enrol::Error> for PeerError {
    fn from(error: enrol::Error) -> Self {
        match error {
            enrol::Error::Opening(error) => error.into(),
            error => Self::Untrusted(error),
        }
    }
}

impl From<elasticrun_tls::Error> for PeerError {
    fn from(error: elasticrun_tls::Error) -> Self {
        opening::Error::from(error).into()
    }
}
