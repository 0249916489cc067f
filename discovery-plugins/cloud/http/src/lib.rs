//! Requests of plugins: each within what is left of the poll's deadline, and what it means that no answer came.
//!
//! TLS trusts what the system trusts. Nothing is retried: a failure goes to the job, which backs off.

mod failure;
mod request;

pub use failure::{late, unreachable};
pub use request::{Answer, Ask, agent, ask};
