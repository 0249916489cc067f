//! The agent is on the way of every recovery, while training burns all cores: it asks for short time slices.

use std::time::Duration;

use elasticrun_shm::slice;

/// The calling thread, and those it starts from now on, get short slices, if the kernel grants them.
pub fn react_quickly() {
    if let Err(error) = slice::set(slice::SHORTEST) {
        tracing::debug!(%error, "no short time slices here");
    }
}

/// The calling thread takes the processor that nobody else wants.
pub(crate) fn yield_to_all() {
    take_turns_as_usual();
    // SAFETY: integers; 0 is the calling thread. It cannot fail: anybody may be nicer.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
}

/// The calling thread, and what it starts, is scheduled as everybody.
pub fn take_turns_as_usual() {
    if let Err(error) = slice::set(Duration::ZERO) {
        tracing::debug!(%error, "the time slice stays as it is");
    }
}
