//! Collectives among the leaders of the hosts, over TCP.
//!
//! Each pair of neighbours has one connection for the round, used in both directions without ever
//! blocking in a socket: a leader pushes and pulls what it can, then sleeps in poll(2) on the sockets it
//! needs and on the abort event. Small messages go up and down a binomial tree rooted at host 0 (two
//! hosts simply exchange); large ones around the ring in segments, so that both directions of each
//! host's line are busy all the time.
//!
//! # Invariants
//! - N1 A connection belongs to one session: both ends proved that they know the key and named the
//!   session before it carried anything else.
//! - N2 Each frame names the operation as its sender understands it; a receiver that expects another
//!   one fails with both names.
//! - N3 A leader that fails closes all its connections, so its neighbours fail too, and so on: nobody
//!   is left waiting for somebody that left.
//! - N4 A leader waits for a neighbour no longer than its machine answers (`path`): about as long as it may take
//!   to connect. A neighbour that is there and late is waited for.
//!
//! # Not promised
//! Secrecy: what follows the handshake is neither encrypted nor signed.

mod connect;
mod dial;
mod frame;
mod guest;
mod handshake;
mod late;
mod link;
mod path;
mod place;
mod ring;
mod tree;
mod wire;

pub(crate) use connect::{Plan, establish};
pub(crate) use late::{Late, explain};
pub use path::watch_path;
pub(crate) use wire::{Net, Order};
