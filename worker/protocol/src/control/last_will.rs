//! The connection over which the death of an agent is reported.
//!
//! ```text
//! agent                                   driver
//!   LastWillOf { host, agent }     ->              once, when the connection is open
//!   LastWill { why }               ->              once, by the reaper process of a dead agent
//! ```
//! The agent encrypts the second message and does not send it. Its reaper process holds the bytes and the socket. When the agent
//! has died, it kills the workers and writes the bytes. A connection that ends without the message says nothing.

use serde::{Deserialize, Serialize};

use crate::HostId;

/// The first message: whose death the connection reports.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LastWillOf {
    /// The host of the agent.
    pub host: HostId,
    /// The random number of the agent's process, as in its registration.
    pub agent: u64,
}

/// The second message: the agent is dead, and none of its workers is left.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LastWill {
    /// The reason, for the operator.
    pub why: String,
}
