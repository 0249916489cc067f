//! Trust between the processes of one job: an `Authority` per job, an [`Identity`] per process, and mutual TLS 1.3 in which
//! the certificate names the [`Role`] of its process. Hosts that register themselves get their identity by a [`token`].
//!
//! A [`Session`] does no I/O: it takes and gives bytes. [`Blocking`] moves them over any blocking stream, and `TlsStream` over
//! any stream of tokio. `opening` opens connections between hosts, and `Dialled` is the same for threads that dial.
//!
//! Invariants:
//! - A session gives no byte of a peer that has not proved a role which is accepted, unless the server serves enrolment and
//!   the peer asks for it ([`Peer::Enrolling`]).
//! - A certificate is parsed by rustls alone. A role is a DNS name in it, which rustls compares.
//! - Private keys and secrets of tokens are in no `Debug` output, and are overwritten when dropped.
//!
//! Not promised: that memory of the cryptographic library is overwritten; secrecy of the sizes and times of messages.

#![forbid(unsafe_code)]

#[cfg(feature = "issue")]
mod authority;
mod blocking;
mod config;
#[cfg(feature = "tokio")]
mod credentials;
#[cfg(feature = "dial")]
mod dialled;
pub mod enrol;
mod error;
#[cfg(feature = "tokio")]
mod handshakes;
mod identity;
#[cfg(feature = "tokio")]
pub mod opening;
mod role;
mod session;
#[cfg(feature = "tokio")]
mod stream;
pub mod token;

#[cfg(feature = "issue")]
pub use authority::{Authority, StoredAuthority};
pub use blocking::Blocking;
pub use config::{ClientConfig, ServerConfig};
#[cfg(feature = "tokio")]
pub use credentials::Credentials;
#[cfg(feature = "dial")]
pub use dialled::Dialled;
pub use error::Error;
#[cfg(feature = "tokio")]
pub use handshakes::{Handshake, Handshakes};
pub use identity::{Certificate, Identity, PrivateKey};
pub use role::Role;
pub use session::{Peer, Session, begins_tls};
#[cfg(feature = "tokio")]
pub use stream::{Failed, TlsStream, write_or_flush};
