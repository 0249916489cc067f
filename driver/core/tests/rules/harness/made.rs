//! Constructors for the values that tests pass to the harness.

use std::time::Duration;

use elasticrun_core::Cooldown;
use elasticrun_hosts::{Host, HostState};
use elasticrun_protocol::{CommitId, DriverEpoch, Generation, LocalRank, Process, Round};

pub(crate) fn process(slot: u32, generation: u32) -> Process {
    Process {
        local_rank: LocalRank(slot),
        generation: Generation(generation),
    }
}

pub(crate) fn host(name: &str, slots: u32) -> Host {
    Host {
        slots: Some(slots),
        ..Host::new(name)
    }
}

pub(crate) fn draining(name: &str, slots: u32) -> Host {
    Host {
        state: HostState::Draining,
        ..host(name, slots)
    }
}

pub(crate) fn pending(name: &str, slots: u32) -> Host {
    Host {
        state: HostState::Pending,
        ..host(name, slots)
    }
}

pub(crate) fn gone(name: &str) -> Host {
    Host {
        state: HostState::Gone,
        ..host(name, 1)
    }
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn range(low: u64, high: u64) -> Cooldown {
    Cooldown::Range {
        low: seconds(low),
        high: seconds(high),
    }
}

pub(crate) fn commit(round: u64, count: u64) -> CommitId {
    CommitId {
        epoch: DriverEpoch(1),
        round: Round(round),
        count,
    }
}

/// The layout of a state of so many shards.
pub(crate) fn layout_of(shards: u32) -> u64 {
    100 + u64::from(shards)
}
