//! Where the state of runs is.

use std::fmt;

use crate::{Cluster, Endpoint, Error, TlsFiles};

/// Where the state of runs is.
#[derive(Clone, Debug)]
pub enum Place {
    /// In the memory of a [`Server`](crate::Server).
    Server(Endpoint),
    /// In etcd.
    Etcd(Box<Cluster>),
}

impl Place {
    /// `etcd://...` is a cluster, which is reached with `tls` if given. Anything else is the endpoint of a server.
    ///
    /// # Errors
    /// The text is neither, or a file of the certificates cannot be used.
    pub fn parse(text: &str, tls: Option<TlsFiles<'_>>) -> Result<Self, Error> {
        match text.trim().starts_with(Cluster::SCHEME) {
            true => Cluster::new(text, tls).map(Self::from),
            false => Endpoint::parse(text).map(Self::Server),
        }
    }
}

impl From<Endpoint> for Place {
    fn from(endpoint: Endpoint) -> Self {
        Self::Server(endpoint)
    }
}

impl From<Cluster> for Place {
    fn from(cluster: Cluster) -> Self {
        Self::Etcd(Box::new(cluster))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(endpoint) => endpoint.fmt(f),
            Self::Etcd(cluster) => cluster.fmt(f),
        }
    }
}
