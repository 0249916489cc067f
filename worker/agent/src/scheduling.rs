//! The agent is on the way of every recovery, while training burns all cores: it asks for short time slices.

use std::time::Duration;

use elasticrun_shared::slice;

/// The calling thread, and those it starts from now on, get short slices, if the kernel grants them.
pub fn react_quickly() {
    if let Err(error) = slice::set(slice::SHORTEST) {
        tracing::debug!(%error, "no short time slices here");
    }
}

/// The calling thread, and what it starts, is scheduled as everybody.
pub(crate) fn as_usual() {
    if let Err(error) = slice::set(Duration::ZERO) {
        tracing::debug!(%error, "the time slice stays as it is");
    }
}
