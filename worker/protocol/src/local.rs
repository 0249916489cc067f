//! The messages between an agent and a worker of its host, over a Unix socket.
//!
//! There are few messages, because the shared page carries boundaries, holds, heartbeats and commits. The worker dials.
//! The permissions of the socket's directory and the peer credentials keep other users out.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    CommitId, Generation, LocalRank, Process, Round,
    auth::Bytes32,
    control::{BaseShards, Member, Start, StopReason},
    millis,
};

/// A message from a worker to its agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromWorker {
    /// The first message, which identifies the worker. The answer is [`ToWorker::Attached`] with file descriptors.
    Attach {
        /// The slot of the worker, from the environment.
        local_rank: LocalRank,
        /// The start of the worker, from the environment.
        generation: Generation,
        /// The process id of the worker, which may be a child of the process that the agent started.
        pid: u32,
        /// The number of buffers for commits that the worker can use. An older worker uses two.
        #[serde(default = "two_buffers")]
        buffers: u8,
    },
    /// The worker is at `run()` and can be a member of a round.
    Join {
        /// The round that it left, if it was in one.
        left: Option<Round>,
        /// It left at the common boundary or after an abort, not because it lost a peer by itself.
        told: bool,
        /// The port of its data plane.
        data_port: u16,
        /// Its newest commit.
        commit: Option<CommitId>,
        /// The commit is empty: this process keeps its state itself.
        #[serde(default)]
        empty: bool,
        /// Hosts of the round it left that it could not reach, or that fell silent towards it, by [`Start::host_index`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unreachable: Vec<u32>,
    },
    /// The worker has failed and will end with a non-zero exit code. Its end may take a while and need not be awaited.
    Failed,
    /// The worker has returned from `run()`.
    Finished {
        /// The round that it was in.
        round: Round,
    },
    /// The first message on a further connection of an attached worker. After the answer [`ToWorker::StoreReady`] this
    /// connection carries the messages of [`crate::store`].
    OpenStore {
        /// The slot of the worker.
        local_rank: LocalRank,
        /// The start of the worker.
        generation: Generation,
        /// The newest protocol version that the worker speaks. 3 from an older worker.
        #[serde(default = "version_3")]
        version: u16,
    },
    /// The only message on a further connection of an attached worker: a request for copies of a commit that is divided
    /// among workers. The answer is as many [`ToWorker::Shards`] as needed.
    AskShards {
        /// The slot of the worker.
        local_rank: LocalRank,
        /// The start of the worker.
        generation: Generation,
        /// The commit.
        commit: CommitId,
        /// Its layout.
        shards: BaseShards,
    },
    /// The only message on a connection of any process of this user: a request for the identity by which workers prove
    /// themselves to the program whose function they call. The answer is [`ToWorker::CallIdentity`]. It does not attach
    /// the process.
    AskCallIdentity,
}

/// The number of descriptors for each shard of [`ToWorker::Shards`].
pub const DESCRIPTORS_OF_SHARD: usize = 2;

/// An identity (`elasticrun_tls::Identity`) as JSON text. The `Debug` output does not contain it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkerIdentity(pub String);

impl fmt::Debug for WorkerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WorkerIdentity(..)")
    }
}

fn two_buffers() -> u8 {
    2
}

fn version_3() -> u16 {
    3
}

/// A message from an agent to a worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToWorker {
    /// The worker is attached. Its descriptors come with the message: the page and the buffers for commits.
    Attached {
        /// The key of the data plane.
        data_key: Bytes32,
        /// The address at which the data plane listens.
        listen: String,
        /// The interval of the worker's heartbeats.
        #[serde(with = "millis")]
        heartbeat_interval: Duration,
        /// How long a peer of the data plane may take to connect.
        #[serde(with = "millis")]
        connect_timeout: Duration,
        /// Whether messages of the data plane are encrypted. False from an older agent.
        #[serde(default)]
        encrypt_data: bool,
        /// The number of buffers for commits. An older agent has two.
        #[serde(default = "two_buffers")]
        buffers: u8,
        /// The bytes of the commits of all workers of a round beyond which each worker has two buffers, not three. None
        /// for no limit, and from an older agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        commit_memory: Option<u64>,
        /// The identity by which the worker proves to agents of other hosts that it is of the job. None from an older
        /// agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        identity: Option<WorkerIdentity>,
    },
    /// The connection accepts requests to the store, of protocol version 3. The answer to a worker of that version.
    StoreOpened,
    /// The connection accepts requests to the store.
    StoreReady {
        /// The protocol version that both sides speak: at least 4.
        version: u16,
    },
    /// An answer to [`FromWorker::AskShards`]. [`DESCRIPTORS_OF_SHARD`] descriptors for each shard come with it: two buffers
    /// of the process that holds it, one of which has the commit.
    Shards {
        /// The indices of shards that this host holds.
        shards: Vec<u32>,
        /// The process of each.
        processes: Vec<Process>,
        /// Whether a further answer follows.
        more: bool,
    },
    /// The answer to [`FromWorker::AskCallIdentity`] and the last message of its connection.
    CallIdentity {
        /// The identity of the workers of this host.
        identity: WorkerIdentity,
    },
    /// The attach was refused, and the worker ends with this message. Or the store connection was refused.
    Refused {
        /// A message for the user.
        why: String,
    },
    /// Starts a round. If the host has several members, the descriptor of the shared region of the collectives comes
    /// with it. If a dead process of this host keeps the base, the two descriptors of its commit memories do as well.
    Start {
        /// The start as the agent received it.
        start: Box<Start>,
        /// This worker's entry among the members.
        member: Member,
        /// The index of this worker among the members on its host.
        local_index: u32,
        /// Whether a region comes with the message.
        region: bool,
        /// Whether the keeper's commit memories come with the message.
        keeper: bool,
    },
    /// Ends a round; the worker returns to `run()`.
    Abort {
        /// The number of the round.
        round: Round,
    },
    /// Asks the worker to end.
    Stop {
        /// The reason, for the message of the worker.
        why: StopReason,
    },
}
