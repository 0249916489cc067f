//! Elasticity: ranges with chains of servers, which change while the job runs. docs/design/parameter-server.md describes it.
//!
//! [`coordinator`] decides which servers have which ranges; the scheduler runs it. [`engine`] is a server, and [`client`] the
//! requests of a worker. All are pure: the simulation beside them runs them as they are shipped.

pub(crate) mod balance;
pub(crate) mod client;
pub(crate) mod coordinator;
pub(crate) mod engine;
pub(crate) mod filter;
pub(crate) mod map;
pub(crate) mod message;
pub(crate) mod mutant;
pub(crate) mod snapshot;
pub(crate) mod snapshot_schedule;
pub(crate) mod store;
pub(crate) mod wire;

#[cfg(test)]
mod sim;
