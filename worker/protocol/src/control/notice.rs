//! Notices that a host may go away.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::millis;

/// A notice that a host will go away, or may.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Notice {
    /// The origin, which also decides whether the host may stay ([`NoticeKind::is_risk_only`]).
    pub kind: NoticeKind,
    /// How long the host stays, counted from the notice; `None` if unknown.
    #[serde(with = "millis::option", default)]
    pub within: Option<Duration>,
}

/// The origin of a notice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// EC2 reclaims a spot instance (`spot/instance-action`).
    SpotInterruption,
    /// EC2 sees a higher risk of a reclaim (`events/recommendations/rebalance`).
    RebalanceRecommendation,
    /// Its Auto Scaling group terminates it (`autoscaling/target-lifecycle-state`).
    TargetLifecycleState,
    /// Compute Engine reclaims a spot or preemptible instance (`instance/preempted`).
    Preempted,
    /// Compute Engine terminates it for maintenance (`instance/maintenance-event`).
    Maintenance,
    /// Azure has scheduled an event that terminates or restarts it.
    ScheduledEvent,
    /// Its agent received a signal (Slurm's `--signal`, a pod that is deleted).
    Signal,
    /// The file of `--notice-file` has appeared.
    File,
    /// A source of hosts reports it.
    Discovery,
    /// The operator has requested it (`elasticrun drain`).
    Operator,
    /// A kind that only a newer agent knows.
    #[serde(other)]
    Other,
}

impl NoticeKind {
    /// Whether the host may stay, so that no worker leaves it.
    pub fn is_risk_only(self) -> bool {
        self == Self::RebalanceRecommendation
    }
}

impl std::fmt::Display for NoticeKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::SpotInterruption => "EC2 takes the spot instance back",
            Self::RebalanceRecommendation => "EC2 recommends to rebalance",
            Self::TargetLifecycleState => "its Auto Scaling group ends it",
            Self::Preempted => "Compute Engine preempts it",
            Self::Maintenance => "Compute Engine ends it for maintenance",
            Self::ScheduledEvent => "Azure has scheduled an event",
            Self::Signal => "its agent got a signal",
            Self::File => "its notice file has appeared",
            Self::Discovery => "discovery says so",
            Self::Operator => "a person said so",
            Self::Other => "its agent says so",
        })
    }
}
