//! What a candidate is, what it hears, and what it asks for.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Time;
use crate::{LeaseId, Revision};

/// What a candidate is told at its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The time to live of its lease, 2 s or more.
    pub ttl: Duration,
    /// A random number, different for each process.
    pub nonce: u64,
    /// Addresses at which agents reach it.
    pub endpoints: Vec<String>,
    /// How long a candidate tries on that has not reached etcd yet.
    pub give_up: Duration,
    /// How long a leader tries on whose leadership has ended without a successor; `None`: as long as it runs.
    pub leader_gives_up: Option<Duration>,
}

/// The value of the key `leader`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Holder {
    /// The epoch of the leader.
    pub epoch: u64,
    /// The nonce of its process.
    pub nonce: u64,
    /// Addresses at which agents reach it.
    #[serde(default)]
    pub endpoints: Vec<String>,
}

/// What a candidate is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Status {
    /// It waits, and knows the leader or not. It may have led before.
    Standby(Option<Holder>),
    /// It leads, and acts while the time is before `until`.
    Leading {
        /// Its epoch.
        epoch: u64,
        /// The revision in which it created the key `leader`.
        fence: Revision,
        /// The end of its leadership. It moves with each keep-alive, and may be past.
        until: Time,
    },
    /// etcd could not be used for too long, or refuses this user: the last reason. This one never acts again.
    Unreachable(String),
    /// It has given its leadership back.
    Resigned,
}

/// What happens to a candidate. `sent` is when the request was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The answer to [`Command::Observe`].
    Observed {
        /// The leader, with the revision and the lease of its key.
        leader: Option<(Holder, Revision, LeaseId)>,
        /// The newest epoch and the revision of its key; both 0 before the first leader.
        epoch: (u64, Revision),
        /// The revision at which both were read.
        revision: Revision,
    },
    /// The answer to [`Command::Grant`].
    Granted {
        /// When the request was sent.
        sent: Time,
        /// The lease.
        lease: LeaseId,
        /// Its granted time to live.
        ttl: Duration,
    },
    /// The answer to [`Command::KeepAlive`].
    KeptAlive {
        /// When the request was sent.
        sent: Time,
        /// The lease.
        lease: LeaseId,
        /// Its time to live, or `None` if it is gone.
        ttl: Option<Duration>,
    },
    /// The answer to [`Command::Campaign`]: won in this revision, or lost.
    Campaigned(Option<Revision>),
    /// The key `leader` has changed, or the watch of it has ended.
    Changed,
    /// A write was refused, since `leader` is not the key that was created in this revision.
    Fenced(Revision),
    /// A call has failed. Of a campaign it is not known whether it was won.
    Failed {
        /// Whether it may succeed later.
        is_temporary: bool,
        /// A fragment for a message.
        why: String,
    },
    /// The process is to end.
    Resign,
}

/// What the shell does for a candidate. Each of the first four has one event as its answer, or [`Event::Failed`]; at most one
/// of them is under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    /// Read both keys in one revision.
    Observe,
    /// Grant a lease with this time to live.
    Grant(Duration),
    /// Renew the lease.
    KeepAlive(LeaseId),
    /// Become leader, if there is none and the key `epoch` was last changed in `seen`.
    Campaign {
        /// The value of the key `leader`.
        holder: Holder,
        /// The lease of the key.
        lease: LeaseId,
        /// The revision of the key `epoch`.
        seen: Revision,
    },
    /// Watch the key `leader` from this revision on, in place of an earlier watch. A change or the end is
    /// [`Event::Changed`].
    Watch(Revision),
    /// End the lease. Nothing depends on the result.
    Revoke(LeaseId),
}
