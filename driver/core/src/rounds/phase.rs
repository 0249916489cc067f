//! The data of a round while it is planned, while it trains, and after its abort.

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_protocol::{
    Boundary, HostId, LocalRank, Process, Round,
    control::{Held, Kept},
};

use super::Cause;
use crate::time::Time;

/// The answer of a host to a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadyHost {
    /// What its members hold.
    pub members: Vec<Held>,
    /// Commits that the host's memory holds of other processes.
    pub kept: Vec<Kept>,
}

/// A planned round.
#[derive(Clone, Debug)]
pub struct Forming {
    /// Its number.
    pub round: Round,
    /// Its members by host.
    pub members: BTreeMap<HostId, Vec<Process>>,
    /// The number of members.
    pub size: u32,
    /// Hosts that have answered, with their answers.
    pub ready: BTreeMap<HostId, ReadyHost>,
    /// Hosts that have not answered.
    pub missing: BTreeSet<HostId>,
    /// The round that its members leave at a common boundary, while it may still run.
    pub leaving: Option<Training>,
    /// When a host that has not answered is too late.
    pub deadline: Time,
    /// Why it is formed.
    pub cause: Cause,
}

impl Forming {
    /// Slots of the members.
    pub fn slots(&self) -> impl Iterator<Item = (&HostId, LocalRank)> {
        (self.members.iter())
            .flat_map(|(host, members)| members.iter().map(move |p| (host, p.local_rank)))
    }

    /// Whether a process is a planned member.
    pub fn has(&self, host: &HostId, process: Process) -> bool {
        let members = self.members.get(host);
        members.is_some_and(|members| members.contains(&process))
    }
}

/// A request that all members leave at a common boundary.
#[derive(Clone, Debug)]
pub struct Hold {
    /// Hosts that have not counted yet.
    pub missing: BTreeSet<HostId>,
    /// The largest boundary that any worker has reached.
    pub highest: Boundary,
    /// When the round is aborted instead.
    pub deadline: Time,
    /// The change for which the members leave. The round that is planned once all have counted has the same cause.
    pub cause: Cause,
}

/// A round that has started.
#[derive(Clone, Debug)]
pub struct Training {
    /// Its number.
    pub round: Round,
    /// Its members by host.
    pub members: BTreeMap<HostId, Vec<Process>>,
    /// The number of members.
    pub size: u32,
    /// The number of members that held the base, or of all members if there was none. They need no fetch from a keeper. Of a
    /// divided base: of all members once they have sealed the first commit of the round, and none before.
    pub holders: u32,
    /// Hosts of which not all members are known to have sealed commit 0 of the round. It counts only if the base is divided
    /// among workers.
    pub unsealed: BTreeSet<HostId>,
    /// The hold, if the members are to leave.
    pub hold: Option<Hold>,
}

/// The phase of the rounds of a job.
#[derive(Clone, Debug)]
pub enum Phase {
    /// No round is planned or trains.
    Idle,
    /// A round is planned.
    Forming(Forming),
    /// A round trains.
    Training(Training),
}

/// A round and the hosts that take part in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The planned round that is dropped, or the round that continues.
    pub round: Round,
    /// The hosts that must be informed.
    pub hosts: Vec<HostId>,
}

/// A round that was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted {
    /// The number of the round. It is not used again.
    pub round: Round,
    /// Whether it had started.
    pub started: bool,
}
