//! A client of etcd 3.4 or later over its JSON gateway, and the election of one leader on it.
//!
//! A [`Client`] has the few calls that a journal needs: leases, ranges, transactions and watches. It tries several endpoints,
//! gives each a deadline, and says of each error whether the request may have been executed. It is plain HTTP with hyper,
//! since clients of etcd's gRPC need tonic.
//!
//! Facts of the gateway on which the crate builds:
//! - It writes fields only if they differ from their default, 64-bit numbers as text, and bytes as base64.
//! - A streamed answer is a sequence of JSON values, which may be cut anywhere, with newlines between them.
//! - It buffers the requests of a stream, so each keep-alive is a request of its own.
//! - etcd may grant a longer time to live than was asked for. Only the granted one counts.
//!
//! Not promised: that a lease ends in time. Members end leases twice a second, and a new leader of etcd gives each lease its
//! whole time again.

#![forbid(unsafe_code)]

#[cfg(any(test, fuzzing))]
pub mod any_input;
mod client;
mod error;
pub mod leader;
mod model;
mod options;
mod tls;
mod transport;
mod values;
mod watch;

pub use client::{Client, Granted};
pub use error::{Attempt, Code, Error};
pub use model::{Batch, Change, Compare, Found, KeyValue, Keys, LeaseId, Op, Outcome, Revision};
pub use options::{Address, AddressError, ClearPassword, Options, User};
pub use tls::{Tls, TlsError};
pub use watch::{Watch, WatchError};
