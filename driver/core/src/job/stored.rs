//! Durable commits: the store as a holder of the base (R12).
//!
//! Memory is read first, then the store. The job looks into the store if a round would begin without a commit after a
//! loss, or from an older one than hosts out of reach hold. If the first round of a job that continues from a former run
//! would begin without a commit, the job looks there, too. So does each later driver for the first round that it starts,
//! since the last records may be lost with the agents of a round:
//!
//! ```text
//! Idle -> Asked (agents list the store) -> Loading (one agent) -> planned anew: the commit is one that a host keeps
//!           \-> nothing newer ------------------\-> refused: the next older one
//! ```
//! The agents of the first hosts list the store. Commits of this run that are void, and those that are not newer than the
//! base in memory, are not loaded. A commit of a former run gets the id [`FORMER`], which is older than any of this run.
//! Once it is loaded, no other commit of a former run is used, also by a later driver whose journal names it.
//!
//! A job never begins anew by mistake. It does so only if it continues from the latest run, and the store has no commit.
//!
//! Not promised: that a store that is local to each host is searched on all of them.

use std::{collections::BTreeMap, time::Duration};

use elasticrun_protocol::{
    AgentCommand, CommitId, DriverEpoch, HostId, Round,
    control::{ResumeFrom, StoredCommit},
};

use super::{
    Job, Out,
    planning::Completed,
    reject,
    store_search::{Search, Stored},
};
use crate::{
    Command, Decision, Rejected, Time,
    mutant::{Mutant, planted},
    results::Outcome,
    rounds::{Forming, Phase},
};

/// The id of a commit of a former run in this one.
const FORMER: CommitId = CommitId {
    epoch: DriverEpoch(0),
    round: Round(0),
    count: 1,
};

/// Maximum number of hosts that list the store.
const MAX_LISTING_HOSTS: usize = 8;

/// Time limit of agents that list the store.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

impl Job {
    /// Whether the planned round does not start yet, or not at all, because of a durable commit.
    pub(super) fn awaits_stored(
        &mut self,
        now: Time,
        base: Option<CommitId>,
        goes_back: bool,
        out: &mut Out,
    ) -> bool {
        let Phase::Forming(forming) = &self.rounds.phase else {
            return false;
        };
        let is_lost = base.is_none()
            && (self.continues() || self.may_have_committed() || self.has_lost_state(forming));
        let is_used = self.settings.durable && !planted(Mutant::StoreIgnored);
        if !is_used || !is_lost && !goes_back {
            return false;
        }
        match &self.stored.search {
            Search::Idle => self.ask_store(now, base, out),
            Search::Asked { missing, until, .. } if !missing.is_empty() && now < *until => true,
            Search::Asked { .. } => self.load_newest(base, out),
            Search::Loading { until, .. } if now < *until => true,
            Search::Loading { .. } => {
                let limit = self.settings.start_timeout.as_secs();
                let why = format!("a commit was not loaded within {limit} s (--start-timeout)");
                self.refuse_stored(why, out);
                self.load_newest(base, out)
            }
            Search::Loaded { id, .. } if Some(*id) <= base => false,
            Search::Loaded { .. } => self.loaded_elsewhere(now, base, out),
            // A host is lost with the commit that was in memory at the search.
            Search::Exhausted { base: before } if base < *before => self.ask_store(now, base, out),
            Search::Exhausted { .. } => false,
        }
    }

    /// Whether the first round is planned, of a job that continues from a former run.
    fn continues(&self) -> bool {
        self.budgets.started() == 0 && self.settings.resume_from.is_some()
    }

    /// Whether a commit may have been made that no host holds: memory is lost, or a former driver has begun a round that
    /// neither its records nor the agents name. A member that is left shows that the last round has done no step. The store
    /// may have the state with which the round began.
    fn may_have_committed(&self) -> bool {
        self.stored.is_resumed || !self.memory_lost.is_empty()
    }

    /// Searches again: the host that keeps the loaded commit is not asked for the round, or does not have the commit.
    fn loaded_elsewhere(&mut self, now: Time, base: Option<CommitId>, out: &mut Out) -> bool {
        if let Search::Loaded { host, stored, .. } = std::mem::take(&mut self.stored.search)
            && let Phase::Forming(forming) = &self.rounds.phase
            && forming.ready.contains_key(&host)
        {
            let why = "the loaded commit is not in its memory".to_owned();
            self.stored.refused.insert((host.clone(), stored));
            self.store_failed(host, why, out);
        }
        self.ask_store(now, base, out)
    }

    /// Lets the first hosts list the store.
    fn ask_store(&mut self, now: Time, base: Option<CommitId>, out: &mut Out) -> bool {
        let Phase::Forming(forming) = &self.rounds.phase else {
            return false;
        };
        let mut hosts: Vec<_> = (forming.ready.keys())
            .filter(|host| self.stored.readers.contains(*host))
            .cloned()
            .collect();
        hosts.sort_by_key(|host| self.hosts.arrival(host));
        hosts.truncate(MAX_LISTING_HOSTS);
        let mut missing = BTreeMap::new();
        for host in hosts {
            let number = self.stored.next_number();
            let from = self.settings.resume_from.clone();
            self.send(&host, AgentCommand::FindDurable { number, from }, out);
            missing.insert(host, number);
        }
        let is_unread = missing.is_empty();
        self.stored.search = Search::Asked {
            missing,
            found: Vec::new(),
            until: now + LIST_TIMEOUT,
        };
        self.stored.has_failed |= is_unread;
        !is_unread || self.load_newest(base, out)
    }

    /// Lets a host load the newest commit that was found. Returns whether the start does not follow.
    fn load_newest(&mut self, base: Option<CommitId>, out: &mut Out) -> bool {
        let search = std::mem::replace(&mut self.stored.search, Search::Exhausted { base });
        let Search::Asked { missing, found, .. } = search else {
            return false;
        };
        for host in missing.into_keys() {
            let why = format!(
                "it did not list the store within {} s",
                LIST_TIMEOUT.as_secs()
            );
            self.store_failed(host, why, out);
        }
        let latest = Stored::latest(&found, &self.run_id);
        let usable = found.iter().filter_map(|(host, stored)| {
            let id = self.id_of(stored, latest)?;
            let refused = self
                .stored
                .refused
                .contains(&(host.clone(), stored.clone()));
            let arrival = std::cmp::Reverse(self.hosts.arrival(host));
            let key = (id, stored.commit, arrival);
            (!refused && Some(id) > base).then_some((key, host, stored))
        });
        let Some(((id, ..), host, stored)) = usable.max_by(|(a, ..), (b, ..)| a.cmp(b)) else {
            return self.found_none(base, out);
        };
        let (host, stored) = (host.clone(), stored.clone());
        let number = self.stored.next_number();
        out.push(Command::Announce(Decision::DurableLoading {
            host: host.clone(),
            run_id: stored.run_id.clone(),
            commit: stored.commit,
        }));
        let command = AgentCommand::LoadDurable {
            number,
            stored: stored.clone(),
            id,
        };
        self.send(&host, command, out);
        self.stored.search = Search::Loading {
            host,
            number,
            stored,
            id,
            found,
            until: self.now + self.settings.start_timeout,
        };
        true
    }

    /// Ends a search without a commit. Returns whether that ends the job: one that continues from a run does not begin anew.
    fn found_none(&mut self, base: Option<CommitId>, out: &mut Out) -> bool {
        let from = self.settings.resume_from.clone();
        let Some(from) = from.filter(|_| base.is_none() && self.continues()) else {
            return false;
        };
        let run = match from {
            ResumeFrom::Latest if !self.stored.has_failed => {
                out.push(Command::Announce(Decision::DurableNone));
                return false;
            }
            ResumeFrom::Latest => None,
            ResumeFrom::Run(run) => Some(run),
        };
        self.end(Outcome::NothingToResume { run }, out);
        true
    }

    /// Announces once that a job of groups continues from no former run: no worker asks for a commit.
    pub(super) fn tell_unused_store(&mut self, out: &mut Out) {
        let is_unused = self.settings.resume_from.is_some() && self.groups.leads();
        if is_unused && !std::mem::replace(&mut self.stored.is_unused, true) {
            out.push(Command::Announce(Decision::DurableUnused));
        }
    }

    /// Announces that a host cannot use the store or a commit in it.
    fn store_failed(&mut self, host: HostId, why: String, out: &mut Out) {
        self.stored.has_failed = true;
        out.push(Command::Announce(Decision::DurableRefused { host, why }));
    }

    /// The id that a durable commit has in this run; none if it must not be used.
    fn id_of(&self, stored: &StoredCommit, latest: Option<&str>) -> Option<CommitId> {
        let is_usable = match &self.stored.former {
            Some(former) => former == stored,
            None => latest == Some(&stored.run_id),
        };
        let id = match stored.run_id == self.run_id {
            true => stored.commit,
            false if is_usable => FORMER,
            false => return None,
        };
        (self.lineage.is_valid(id) || planted(Mutant::VoidStored)).then_some(id)
    }

    /// Handles what a host has found in the store.
    pub(super) fn stored_found(
        &mut self,
        host: &HostId,
        number: u64,
        commits: Vec<StoredCommit>,
        refused: Vec<String>,
        out: &mut Out,
    ) {
        let Search::Asked { missing, found, .. } = &mut self.stored.search else {
            return reject(out, host, Rejected::Repeated);
        };
        if missing.get(host) != Some(&number) {
            return reject(out, host, Rejected::Repeated);
        }
        missing.remove(host);
        found.extend(commits.into_iter().map(|stored| (host.clone(), stored)));
        let is_complete = missing.is_empty();
        for why in refused {
            if self.stored.announced.insert(why.clone()) {
                self.store_failed(host.clone(), why, out);
            }
        }
        if is_complete {
            self.start_again();
        }
    }

    /// Handles the end of a load. The round is planned anew, so that the host answers with the commit.
    pub(super) fn stored_loaded(
        &mut self,
        host: &HostId,
        number: u64,
        refused: Option<String>,
        out: &mut Out,
    ) {
        let Search::Loading {
            host: loads,
            number: current,
            stored,
            id,
            ..
        } = &self.stored.search
        else {
            return reject(out, host, Rejected::Repeated);
        };
        if (loads, *current) != (host, number) {
            return reject(out, host, Rejected::Repeated);
        }
        let (stored, id) = (stored.clone(), *id);
        match refused {
            Some(why) => {
                self.refuse_stored(why, out);
                self.start_again();
            }
            None => {
                if stored.run_id != self.run_id {
                    self.stored.former = Some(stored.clone());
                }
                self.stored.search = Search::Loaded {
                    host: host.clone(),
                    stored,
                    id,
                };
                self.fleet.host_mut(host).has_memory = true;
                if let Phase::Forming(_) = self.rounds.phase {
                    self.abort_rounds(out);
                }
            }
        }
    }

    /// Gives up the commit that is being loaded, for the next older one.
    fn refuse_stored(&mut self, why: String, out: &mut Out) {
        if let Search::Loading {
            host,
            stored,
            found,
            ..
        } = std::mem::take(&mut self.stored.search)
        {
            self.stored.search = Search::Asked {
                missing: BTreeMap::new(),
                found,
                until: self.now,
            };
            self.stored.refused.insert((host.clone(), stored));
            self.store_failed(host, why, out);
        }
    }

    /// The agent of a host has connected, perhaps once more. What it was asked before may be lost.
    pub(super) fn store_reader_connected(&mut self, host: &HostId, can_read: bool) {
        self.stored.connected(host, can_read);
        self.search_again();
    }

    /// The agent of a host is gone: the search does not wait for it.
    pub(super) fn store_reader_lost(&mut self, host: &HostId) {
        self.stored.forget(host);
        self.search_again();
    }

    fn search_again(&mut self) {
        if !matches!(
            self.stored.search,
            Search::Loaded { .. } | Search::Exhausted { .. }
        ) {
            self.start_again();
        }
    }

    /// Starts the planned round when the job is settled, if all hosts have answered.
    fn start_again(&mut self) {
        if let Phase::Forming(Forming { round, missing, .. }) = &self.rounds.phase
            && missing.is_empty()
        {
            self.completed = Some(Completed::Answers(*round));
        }
    }
}
