//! HTTP requests of plugins, each within the rest of the poll's deadline.
//!
//! TLS trusts the system's certificates. Nothing is retried. The job backs off after a failure.

mod error;
mod request;

pub use request::{Answer, agent, get};
