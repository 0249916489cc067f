//! What is known of a round while it is planned, while it trains and once it is given up. Data, without decisions.

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_protocol::{
    Boundary, HostId, LocalRank, Process, Round,
    control::{Held, Kept},
};

use super::Cause;
use crate::time::Time;

/// What a host answered to a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadyHost {
    /// What its members hold.
    pub members: Vec<Held>,
    /// What its memory has beside.
    pub kept: Vec<Kept>,
}

/// A round that is planned.
#[derive(Clone, Debug)]
pub struct Forming {
    /// Its number.
    pub round: Round,
    /// Its members by host.
    pub members: BTreeMap<HostId, Vec<Process>>,
    /// How many they are.
    pub size: u32,
    /// Who has answered.
    pub ready: BTreeMap<HostId, ReadyHost>,
    /// Who has not.
    pub missing: BTreeSet<HostId>,
    /// The round that its members leave at a common boundary, while that may still run.
    pub leaving: Option<Training>,
    /// When somebody has taken too long.
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

    /// Whether a process is planned to be a member.
    pub fn has(&self, host: &HostId, process: Process) -> bool {
        let members = self.members.get(host);
        members.is_some_and(|members| members.contains(&process))
    }
}

/// A request that all leave at a common boundary.
#[derive(Clone, Debug)]
pub struct Hold {
    /// Hosts that have not counted yet.
    pub missing: BTreeSet<HostId>,
    /// The largest boundary that anyone has reached.
    pub highest: Boundary,
    /// When the round is aborted instead.
    pub deadline: Time,
    /// Why.
    pub cause: Cause,
}

/// A round that has started.
#[derive(Clone, Debug)]
pub struct Training {
    /// Its number.
    pub round: Round,
    /// Its members by host.
    pub members: BTreeMap<HostId, Vec<Process>>,
    /// How many they are.
    pub size: u32,
    /// How many of them held the base, or all if there was none: nobody has to fetch it from a keeper.
    pub holders: u32,
    /// A change is wanted.
    pub hold: Option<Hold>,
}

/// What the job's rounds are at.
#[derive(Clone, Debug)]
pub enum Phase {
    /// No round is planned or trains.
    Idle,
    /// A round is planned.
    Forming(Forming),
    /// A round trains.
    Training(Training),
}

/// A round, and the hosts that have to do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leg {
    /// Which.
    pub round: Round,
    /// Who must hear of it.
    pub hosts: Vec<HostId>,
}

/// A round that was ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted {
    /// Which.
    pub round: Round,
    /// It had started.
    pub started: bool,
}
