//! What an agent and a worker of its host say over the Unix socket.
//!
//! Few words, because most goes through the page they share: boundaries, holds, beats, commits. The
//! worker dials; the socket's directory and peer credentials keep other users out.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    CommitId, Generation, LocalRank, Round,
    auth::Bytes32,
    control::{Member, Start, StopReason},
    millis,
};

/// From a worker to its agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromWorker {
    /// First message: who it is. Answered by [`ToWorker::Attached`] with file descriptors.
    Attach {
        /// Its slot, from the environment.
        local_rank: LocalRank,
        /// Its start, from the environment.
        generation: Generation,
        /// Its process id, which may be a child of the one the agent started.
        pid: u32,
    },
    /// It is at `run()` and can be a member of a round.
    Join {
        /// The round it came from, if it was in one.
        left: Option<Round>,
        /// It came at the common boundary or after an abort, not because it lost a peer by itself.
        told: bool,
        /// Where its data plane listens.
        data_port: u16,
        /// What it holds.
        commit: Option<CommitId>,
        /// That commit holds no bytes: this process keeps its state by itself.
        #[serde(default)]
        empty: bool,
        /// Hosts of the round it came from that it could not reach or that fell silent towards it, by
        /// [`Start::host_index`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unreachable: Vec<u32>,
    },
    /// It has failed and is about to end with a non-zero exit code, which may take it a while: nobody needs to wait
    /// for that.
    Failed,
    /// It returned from `run()`.
    Finished {
        /// The round it was in.
        round: Round,
    },
    /// First message on a further connection of a worker that has attached: from its answer
    /// [`ToWorker::StoreOpened`] on, this connection speaks [`crate::store`]'s messages.
    OpenStore {
        /// Its slot.
        local_rank: LocalRank,
        /// Its start.
        generation: Generation,
    },
    /// Only message on a connection of any process of this user: asks for the key of the call that the workers make
    /// ([`Secret::call_key`](crate::auth::Secret::call_key)). Answered by [`ToWorker::CallKey`]; nothing attaches by it.
    AskCallKey,
}

/// From an agent to a worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToWorker {
    /// Three descriptors come with it: the page and the two commit memories.
    Attached {
        /// Key of the data plane.
        data_key: Bytes32,
        /// The address to listen at for the data plane.
        listen: String,
        /// How often to beat.
        #[serde(with = "millis")]
        heartbeat_interval: Duration,
        /// How long a peer of the data plane may take to connect.
        #[serde(with = "millis")]
        connect_timeout: Duration,
    },
    /// Requests to the store may come over this connection.
    StoreOpened,
    /// The answer to [`FromWorker::AskCallKey`], and the last message of its connection.
    CallKey {
        /// The key.
        key: Bytes32,
    },
    /// The attach was refused; the worker ends with this message. Or the opening of the store was.
    Refused {
        /// For a person.
        why: String,
    },
    /// A round begins. One descriptor comes with it if the host has several members: the region of the
    /// collectives; two more if the base is kept by a dead process of this host: its commit memories.
    Start {
        /// As the agent got it.
        start: Box<Start>,
        /// Which member this worker is.
        member: Member,
        /// Its place among the members of its host.
        local_index: u32,
        /// A region comes with it.
        region: bool,
        /// The keeper's commit memories come with it.
        keeper: bool,
    },
    /// The round is over; go back to `run()`.
    Abort {
        /// Which round.
        round: Round,
    },
    /// End.
    Stop {
        /// Why.
        why: StopReason,
    },
}
