//! The records of a journal. Each field has a default, so that releases can add fields.

use std::time::Duration;

use elasticrun_protocol::{
    CommitId, DriverEpoch, Generation, HostId, LocalRank, Process, Rank, Round,
    control::StoredCommit,
};
use serde::{Deserialize, Serialize};

use crate::{blacklist::Domain, registry::State, relapses::Relapses, results::Failure};

/// A changed record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What the record is about: a kind, or a kind and an object such as `host/a`.
    pub key: String,
    /// The record. `None` if its object is gone.
    pub record: Option<Record>,
}

/// A record of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// How far the job has come.
    Progress(Progress),
    /// Rounds and their bases ([`crate::lineage`]), oldest first.
    Bases(Vec<(Round, Option<CommitId>)>),
    /// A known host.
    Host(HostEntry),
    /// The slots of a host.
    Slots(SlotsEntry),
    /// The members of the last started round on a host.
    Members(MembersEntry),
    /// A failure domain that has failed.
    Domain(DomainEntry),
    /// Failures by exit code in rounds without a commit.
    Relapses(Relapses),
    /// The failures that the outcome may name.
    Failures(Box<FailuresEntry>),
    /// The durable commit of a former run that was loaded.
    Former(StoredCommit),
}

impl Record {
    /// Notes when the record is written, in milliseconds since the Unix epoch, if it has a time that passes.
    pub fn stamp(&mut self, millis: u64) {
        match self {
            Self::Host(HostEntry {
                drain: Some(drain), ..
            }) => drain.at = Some(millis),
            Self::Domain(domain) => domain.at = Some(millis),
            _ => {}
        }
    }

    /// Takes off the time that has passed since the record was written. A clock that went back takes off nothing.
    pub fn age(&mut self, millis: u64) {
        let passed = |at: Option<u64>| {
            let passed = at.map_or(0, |at| millis.saturating_sub(at));
            Duration::from_millis(passed)
        };
        match self {
            Self::Host(HostEntry {
                drain: Some(drain), ..
            }) => drain.left = drain.left.saturating_sub(passed(drain.at)),
            Self::Domain(DomainEntry {
                out: Some(OutEntry::For(left)),
                at,
                ..
            }) => *left = left.saturating_sub(passed(*at)),
            _ => {}
        }
    }
}

/// How far a job has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// The driver of this record.
    pub epoch: DriverEpoch,
    /// The last round planned.
    pub planned: Round,
    /// The round that started last.
    pub round: Option<Round>,
    /// Rounds that have started.
    pub started: u32,
    /// The newest of these rounds that only agents have named: the record of its start is lost.
    #[serde(default)]
    pub unrecorded: Option<Round>,
    /// Restarts used.
    pub restarts: u32,
    /// A worker has reached `run()`.
    pub sdk_seen: bool,
    /// A worker has attached, so rounds lead and not groups.
    pub rounds_lead: bool,
    /// A member of the last round has finished.
    pub ending: bool,
    /// A later round may have started of which no member is known, and may train where no agent is back.
    pub unseen: bool,
}

/// A known host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostEntry {
    /// Its name.
    pub host: HostId,
    /// Its slots.
    #[serde(default)]
    pub slots: u32,
    /// The host registered itself.
    #[serde(default)]
    pub self_registered: bool,
    /// A list has had the host.
    #[serde(default)]
    pub listed: bool,
    /// Its position in the order of arrival.
    #[serde(default)]
    pub arrival: u64,
    /// The host will go away.
    #[serde(default)]
    pub drain: Option<DrainEntry>,
}

/// A drain of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainEntry {
    /// The time that its workers have left if no others can train.
    #[serde(default)]
    pub left: Duration,
    /// A notice has announced it.
    #[serde(default)]
    pub noticed: bool,
    /// The host is drained.
    #[serde(default)]
    pub drained: bool,
    /// When this was written, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub at: Option<u64>,
}

/// The slots of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotsEntry {
    /// The host.
    pub host: HostId,
    /// The number of starts of each slot.
    #[serde(default)]
    pub starts: Vec<u32>,
    /// Slots whose process ended with code 0 without joining.
    #[serde(default)]
    pub done: Vec<LocalRank>,
    /// Slots whose process was asked to stop, or has failed, and has not ended yet as far as the driver knows.
    #[serde(default)]
    pub stopping: Vec<LocalRank>,
    /// The host's memory may hold commits, or held some when its agent was lost.
    #[serde(default)]
    pub memory: bool,
    /// An agent was lost with such commits.
    #[serde(default)]
    pub lost: bool,
    /// It has an agent, or one is being launched.
    #[serde(default)]
    pub agent: bool,
    /// The reports of its agent that are applied, or of its last one. All records have their effects.
    #[serde(default)]
    pub applied: Option<Applied>,
}

impl SlotsEntry {
    /// Processes that were asked to stop, or have failed, and have not ended yet as far as the driver knows.
    pub(crate) fn stopping_processes(&self) -> impl Iterator<Item = (HostId, Process)> + '_ {
        self.stopping.iter().filter_map(|slot| {
            let process = Process {
                local_rank: *slot,
                generation: Generation(*self.starts.get(slot.0 as usize)?),
            };
            Some((self.host.clone(), process))
        })
    }
}

/// How far the reports of an agent are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The random number of the agent's process.
    pub agent: u64,
    /// The number of the newest report that is applied.
    pub number: u64,
}

/// The members of the last started round on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembersEntry {
    /// The host.
    pub host: HostId,
    /// The round.
    pub round: Round,
    /// The number of its members on all hosts; 0 if that is not known.
    #[serde(default)]
    pub size: u32,
    /// Its members on the host.
    pub members: Vec<MemberEntry>,
}

/// A member of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberEntry {
    /// Slot and start.
    pub process: Process,
    /// Its rank.
    pub rank: Rank,
    /// How it ended, if it has.
    pub state: State,
}

/// A failure domain that has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainEntry {
    /// The domain.
    pub domain: Domain,
    /// Its failures that are not forgiven.
    #[serde(default)]
    pub failures: u32,
    /// How long it is out.
    #[serde(default)]
    pub out: Option<OutEntry>,
    /// It has failed since the last started round.
    #[serde(default)]
    pub recent: bool,
    /// When this was written, in milliseconds since the Unix epoch.
    #[serde(default)]
    pub at: Option<u64>,
}

/// How long a domain is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutEntry {
    /// For this time.
    For(Duration),
    /// For good.
    ForGood,
}

/// The failures that the outcome may name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailuresEntry {
    /// The number of failures.
    pub count: u32,
    /// The first failure.
    pub first: Option<Failure>,
    /// The first failure since the last start.
    pub recent: Option<Failure>,
}
