//! The processes of a launch.

use tokio::process::Command;

use super::push::Push;

/// The processes of a launch.
pub(super) struct Processes {
    /// Copies this program to the host if the agent ends with [`NOT_THERE`](super::push::NOT_THERE).
    pub(super) push: Option<Push>,
    /// The agent.
    pub(super) agent: Command,
}
