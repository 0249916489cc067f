//! A rendezvous of nodes without a driver, over the network: PyTorch's `torchrun` joins by it.
//!
//! `elasticrun_core::rendezvous` decides everything. This crate moves its messages: it is a shell of its own, beside the
//! driver and the worker's SDK, since a job under `torchrun` has neither of them.
//!
//! | part | purpose |
//! |---|---|
//! | [`Endpoint`] | host and port; whether they are of this machine |
//! | [`Server`] | holds the states and keys of all runs of an endpoint, within the program of one node |
//! | [`Cluster`] | etcd, which holds the states of runs in place of a server |
//! | [`Place`] | one of the two |
//! | [`Node`] | takes part in the rounds of a run |
//! | [`Holder`] | the state of a run as bytes with a compare-and-set, for programs with rules of their own |
//! | [`dial`](Endpoint::dial) | a connection for one channel of a run |
//!
//! ```text
//! program of node 0                         program of node 1
//!   Node ----.                                Node
//!            v                                  |
//!   Server <-+------------ TCP -----------------'
//! ```
//! # Not promised
//! - The rendezvous survives its server, other than etcd. Nodes lose their leases, and join again when a server of the endpoint is there.
//! - Secrecy. Connections are not encrypted, as those of PyTorch's store.

#![forbid(unsafe_code)]

mod connection;
mod dial;
mod endpoint;
mod error;
mod etcd;
mod holder;
mod node;
mod place;
mod server;

pub use dial::Dialled;
pub use endpoint::{DEFAULT_PORT, Endpoint};
pub use error::Error;
pub use etcd::{Cluster, TlsFiles};
pub use holder::{Holder, Replaced};
pub use node::{Exit, JoinError, Node, Observed, Pending};
pub use place::Place;
pub use server::Server;
