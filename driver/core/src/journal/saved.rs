//! The records of an earlier driver, sorted for the machines that continue with them.

use std::collections::BTreeMap;

use elasticrun_protocol::{CommitId, HostId, Round, control::StoredCommit};

use super::{DomainEntry, FailuresEntry, HostEntry, MembersEntry, Progress, Record, SlotsEntry};
use crate::{blacklist::Domain, relapses::Relapses};

/// The records of an earlier driver. The default is that of a job without any round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// How far the job has come.
    pub progress: Progress,
    /// Rounds and their bases.
    pub bases: Vec<(Round, Option<CommitId>)>,
    /// Known hosts.
    pub hosts: BTreeMap<HostId, HostEntry>,
    /// Slots that had a process.
    pub slots: BTreeMap<HostId, SlotsEntry>,
    /// The members of the last started round.
    pub members: BTreeMap<HostId, MembersEntry>,
    /// Domains that have failed.
    pub domains: BTreeMap<Domain, DomainEntry>,
    /// Failures by exit code in rounds without a commit.
    pub relapses: Relapses,
    /// The failures that the outcome may name.
    pub failures: FailuresEntry,
    /// The durable commit of a former run that was loaded.
    pub former: Option<StoredCommit>,
}

impl Extend<Record> for Saved {
    fn extend<T: IntoIterator<Item = Record>>(&mut self, records: T) {
        for record in records {
            match record {
                Record::Progress(progress) => self.progress = progress,
                Record::Bases(bases) => self.bases = bases,
                Record::Host(entry) => {
                    self.hosts.insert(entry.host.clone(), entry);
                }
                Record::Slots(entry) => {
                    self.slots.insert(entry.host.clone(), entry);
                }
                Record::Members(entry) => {
                    self.members.insert(entry.host.clone(), entry);
                }
                Record::Domain(entry) => {
                    self.domains.insert(entry.domain.clone(), entry);
                }
                Record::Relapses(relapses) => self.relapses = relapses,
                Record::Failures(failures) => self.failures = *failures,
                Record::Former(stored) => self.former = Some(stored),
            }
        }
    }
}

impl FromIterator<Record> for Saved {
    fn from_iter<T: IntoIterator<Item = Record>>(records: T) -> Self {
        let mut saved = Self::default();
        saved.extend(records);
        saved
    }
}
