//! What the agent gives to a worker that it admits.

use std::time::Duration;

use elasticrun_protocol::{auth::Bytes32, local::WorkerIdentity};
use elasticrun_shm::{commit::CommitFds, page::WorkerPage};

/// The agent's answer to [`FromWorker::Attach`](elasticrun_protocol::FromWorker::Attach).
#[derive(Debug)]
pub(super) struct Welcome {
    pub(super) page: WorkerPage,
    pub(super) commits: CommitFds,
    pub(super) data_key: Bytes32,
    pub(super) listen: String,
    pub(super) connect_timeout: Duration,
    pub(super) encrypt_data: bool,
    /// The most bytes of commits of all workers of a round.
    pub(super) commit_memory: Option<u64>,
    /// The identity of this worker. None from an older agent.
    pub(super) identity: Option<WorkerIdentity>,
}
