//! Collectives among the leaders of the hosts, over TCP.
//!
//! Each pair of neighbours has one connection for the round, used in both directions without ever
//! blocking in a socket. A leader sends and receives what it can. Then it sleeps in poll(2) on the
//! sockets that it needs and on the abort event. Small messages go up and down a binomial tree
//! rooted at host 0; two hosts exchange them directly. Large messages go around the ring in
//! segments, so that both directions of each host's network link stay busy.
//!
//! # Invariants
//! - N1 A connection belongs to one round: both ends proved that they know the key and named the
//!   round before it carried anything else.
//! - N2 Each frame names the operation as its sender understands it. A receiver that expects
//!   another one fails with both names.
//! - N3 A leader that fails closes all its connections, so its neighbours fail too, and so on. No
//!   leader is left waiting for one that has left.
//! - N4 A leader waits for a neighbour only as long as the neighbour's machine answers (`path`).
//!   The limit is about the timeout for connecting. A neighbour that is late but reachable is
//!   waited for.
//! - N5 A frame has a valid tag of its header, and of its payload, before anything of it is used
//!   (`protection`). A leader that receives another one ends the round.
//!
//! # Not promised
//! Secrecy, unless the job encrypts its data plane: lengths and times of messages are visible even
//! then.

mod cipher_speed;
mod connect;
mod dial;
mod frame;
mod handshake;
mod inbound;
mod late;
mod link;
mod path;
mod plan;
mod protection;
mod ring;
mod tree;
mod tree_layout;
mod wire;

pub(crate) use connect::establish;
pub(crate) use late::{LateHosts, explain};
pub use path::watch_path;
pub(crate) use plan::Plan;
pub(crate) use wire::{Net, NetOperation};
