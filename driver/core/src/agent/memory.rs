//! The memory that an agent shares with its workers, as a port of the machine.

use elasticrun_protocol::{Boundary, CommitId, CommitKey, Process, Round};

use crate::Time;

/// The memory that the agent shares with its workers.
pub trait Memory {
    /// Sets the hold word of a worker, then reads the boundary that the worker has reached.
    fn hold(&mut self, process: Process, round: Round) -> Boundary;
    /// Sets the boundary at which a held worker leaves.
    fn leave_at(&mut self, process: Process, round: Round, at: Boundary);
    /// Withdraws a hold.
    fn withdraw(&mut self, process: Process, round: Round);
    /// Marks the host as at risk of going away.
    fn set_at_risk(&mut self, process: Process);
    /// Sets the end of a worker's lease. After it the worker passes no boundary and commits nothing (R11), even if this
    /// agent stands still.
    fn set_lease(&mut self, process: Process, until: Time) {
        let _ = (process, until);
    }
    /// Sets the commits that a worker keeps beside its newest one, once it has sealed them, as far as its memory suffices.
    /// Those that stay are kept at any instant.
    fn keep_commits(&mut self, process: Process, commits: [Option<CommitId>; 2]) {
        let _ = (process, commits);
    }
    /// The complete commits in the memory of a process, newest first. The process may be dead.
    fn commits(&self, process: Process) -> Vec<CommitKey>;
    /// The newest of them.
    fn newest(&self, process: Process) -> Option<CommitId> {
        self.commits(process).first().map(|key| key.commit)
    }
    /// The number of heartbeats of a process.
    fn beats(&self, process: Process) -> u64;
    /// Whether the thread that sends the heartbeats of a process waits for a processor.
    fn is_starved(&self, process: Process) -> bool {
        let _ = process;
        false
    }
    /// The number of commits of a process.
    fn commit_count(&self, process: Process) -> u64;
    /// Whether a process began an orderly exit outside of a round: at `run()`, or after it had left its round.
    fn exited_outside(&self, process: Process) -> bool;
}
