//! Why a server cannot be started or reached.

use std::io;

use elasticrun_protocol::opening;

use crate::Endpoint;

/// An error of an endpoint.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is no endpoint.
    #[error("{text:?} is no endpoint: give HOST:PORT")]
    Endpoint {
        /// The text.
        text: String,
    },
    /// The address of a cluster, or a file of its certificates, cannot be used.
    #[error("{why}")]
    Cluster {
        /// The reason.
        why: String,
    },
    /// The cluster does not answer as it should.
    #[error("the rendezvous in {cluster} cannot be reached: {source}")]
    Etcd {
        /// The cluster.
        cluster: String,
        /// The reason.
        source: elasticrun_etcd::Error,
    },
    /// The address of the endpoint cannot be served.
    #[error("cannot serve the rendezvous at {endpoint}: {source}")]
    Bind {
        /// The endpoint.
        endpoint: Endpoint,
        /// The reason.
        source: io::Error,
    },
    /// No server answers at the endpoint.
    #[error(
        "no rendezvous at {endpoint}: {source}; start the node whose address this is, and look whether this host reaches it"
    )]
    Unreachable {
        /// The endpoint.
        endpoint: Endpoint,
        /// The reason.
        source: io::Error,
    },
    /// The peer at the endpoint is no server of this protocol, or of another release.
    #[error("no rendezvous at {endpoint}: {source}")]
    Opening {
        /// The endpoint.
        endpoint: Endpoint,
        /// The reason.
        source: opening::Error,
    },
    /// The server refuses the run.
    #[error("the rendezvous at {endpoint} refuses: {why}")]
    Refused {
        /// The endpoint.
        endpoint: Endpoint,
        /// The server's reason.
        why: String,
    },
    /// The system gives no thread, descriptor or random number.
    #[error("cannot {what}: {source}")]
    System {
        /// What failed.
        what: &'static str,
        /// The reason.
        source: io::Error,
    },
}

impl Error {
    /// Whether another attempt may succeed without a change of anything but the network and the server.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Etcd { source, .. } => source.is_temporary(),
            _ => false,
        }
    }

    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
