//! The search of the durable store: which hosts list it, what they have found, and which one loads a commit.

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_protocol::{CommitId, DriverEpoch, HostId, control::StoredCommit};

use crate::Time;

/// The search for a durable commit.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    /// Hosts whose agents can read the store.
    pub(super) readers: BTreeSet<HostId>,
    /// The number of the last command.
    last: u64,
    pub(super) search: Search,
    /// The commit of a former run that this job has loaded.
    pub(super) former: Option<StoredCommit>,
    /// Commits that a host could not load.
    pub(super) refused: BTreeSet<(HostId, StoredCommit)>,
    /// Since the last start of a round, a host could not use the store or a commit in it.
    pub(super) has_failed: bool,
    /// The errors since then that are announced. Hosts that share a store have the same ones.
    pub(super) announced: BTreeSet<String>,
    /// A former driver of this run may have begun rounds that are not in its records, and this one has begun none.
    pub(super) is_resumed: bool,
    /// It is announced that no worker asks for a commit.
    pub(super) is_unused: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) enum Search {
    /// Memory suffices, or no round was planned since the last start.
    #[default]
    Idle,
    /// Hosts list the store.
    Asked {
        missing: BTreeMap<HostId, u64>,
        found: Vec<(HostId, StoredCommit)>,
        until: Time,
    },
    /// A host loads a commit.
    Loading {
        host: HostId,
        number: u64,
        stored: StoredCommit,
        id: CommitId,
        found: Vec<(HostId, StoredCommit)>,
        until: Time,
    },
    /// A host keeps the loaded commit, under this id.
    Loaded {
        host: HostId,
        stored: StoredCommit,
        id: CommitId,
    },
    /// The store has no commit that may be used and that is newer than this one of memory.
    Exhausted { base: Option<CommitId> },
}

impl Stored {
    pub(super) fn new(epoch: DriverEpoch) -> Self {
        Self {
            readers: BTreeSet::new(),
            // Agents ignore numbers that do not grow, and they may have served an earlier driver.
            last: epoch.0 << 32,
            search: Search::Idle,
            former: None,
            refused: BTreeSet::new(),
            has_failed: false,
            announced: BTreeSet::new(),
            is_resumed: false,
            is_unused: false,
        }
    }

    /// The search of a later driver.
    pub(super) fn resume(epoch: DriverEpoch, former: Option<StoredCommit>) -> Self {
        Self {
            former,
            is_resumed: true,
            ..Self::new(epoch)
        }
    }

    /// The number of the next command.
    pub(super) fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Records that the agent of a host has connected.
    pub(super) fn connected(&mut self, host: &HostId, can_read: bool) {
        self.forget(host);
        if can_read {
            self.readers.insert(host.clone());
        }
    }

    /// Records that the agent of a host is gone. What no other host has seen is searched again.
    pub(super) fn forget(&mut self, host: &HostId) {
        self.readers.remove(host);
        let is_left = match &mut self.search {
            Search::Asked { missing, found, .. } => {
                let had = missing.remove(host).is_some() || found.iter().any(|(h, _)| h == host);
                found.retain(|(other, _)| other != host);
                had && missing.is_empty() && found.is_empty()
            }
            Search::Loading {
                host: loads, found, ..
            } => {
                found.retain(|(other, _)| other != host);
                loads == host
            }
            Search::Loaded { host: keeps, .. } => keeps == host,
            Search::Idle | Search::Exhausted { .. } => false,
        };
        if is_left {
            self.search = Search::Idle;
        }
    }

    /// A round has started: the next loss is another search.
    pub(super) fn round_started(&mut self) {
        self.search = Search::Idle;
        self.is_resumed = false;
        self.refused.clear();
        self.has_failed = false;
        self.announced.clear();
    }

    /// The run that `latest` means: the one that wrote the last commit of all that were found.
    pub(super) fn latest<'a>(found: &'a [(HostId, StoredCommit)], own: &str) -> Option<&'a str> {
        let others = found.iter().map(|(_, stored)| stored);
        let others = others.filter(|stored| stored.run_id != own);
        let latest = others.max_by_key(|stored| stored.written_at)?;
        Some(&latest.run_id)
    }

    /// When the hosts that list the store, or the one that loads a commit, are not waited for any more.
    pub(super) fn deadline(&self) -> Option<Time> {
        match &self.search {
            Search::Asked { until, .. } | Search::Loading { until, .. } => Some(*until),
            Search::Idle | Search::Loaded { .. } | Search::Exhausted { .. } => None,
        }
    }
}
