//! The scheduling of the agent's threads. The loop is on the path of every recovery while training uses all cores, so it
//! asks for short time slices.

use std::time::Duration;

use elasticrun_shm::sched;

/// Gives the calling thread, and threads that it starts later, short time slices, if the kernel grants them.
pub fn use_short_time_slices() {
    if let Err(error) = sched::set_time_slice(sched::SHORTEST_SLICE) {
        tracing::debug!(%error, "no short time slices here");
    }
}

/// Gives the calling thread the lowest priority, so that it runs on otherwise idle processors.
pub(crate) fn run_at_lowest_priority() {
    use_default_time_slices();
    // SAFETY: integers; 0 is the calling thread. It cannot fail, since every process may lower its priority.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
}

/// Gives the calling thread, and threads that it starts later, the default time slices.
pub fn use_default_time_slices() {
    if let Err(error) = sched::set_time_slice(Duration::ZERO) {
        tracing::debug!(%error, "the time slice stays as it is");
    }
}
