//! Sources: the last answers of all sources of hosts and the findings of agents, merged into one list.
//!
//! - A host leaves the list when every source that listed it has omitted it from two answers in a row. An incomplete
//!   answer omits no host, and a source that fails keeps its last answer. So one empty answer removes no host.
//! - A host of several sources is one host ([`elasticrun_hosts::merge()`]); each of these sources can revoke it.
//! - The slots of a host, most trustworthy first: given by the user, a tag or label, the accelerators that the source
//!   counted, `--slots-per-host`, the slots that the agent found. Only a count that the source inferred is replaced by
//!   a lower count of the agent. Each host with a lower count of its agent is announced once ([`Doubt`]).
//! - A host that a source lists with 0 slots is pending ([`Host::apply_zero_slots`]), and is announced.
//!
//! The findings of an agent cost a look at its host alone; an answer costs a look at all hosts.

use std::collections::{BTreeMap, BTreeSet};

use elasticrun_hosts::{Host, HostState, SlotsFrom, Snapshot, merge_hosts};
use elasticrun_protocol::HostId;

use crate::{
    hosts::HostRecord,
    mutant::{Mutant, planted},
};

/// How many answers in a row must omit a host.
const MISSING_LIMIT: u8 = 2;

fn missing_limit() -> u8 {
    MISSING_LIMIT - u8::from(planted(Mutant::MissingOnce))
}

/// A host in the answers of one source.
#[derive(Clone, Debug)]
struct Entry {
    host: Host,
    /// The number of answers in a row that have omitted it.
    missing: u8,
}

/// The answers of one source.
#[derive(Clone, Debug, Default)]
struct Answers {
    entries: Vec<Entry>,
    /// The source has answered or failed.
    heard: bool,
    /// The source has failed since its last answer.
    failing: bool,
}

/// The findings of an agent on its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    /// Slots that the agent offers.
    slots: u32,
    /// Slots that the agent detected; `None` if nothing could be detected.
    detected: Option<u32>,
}

/// A source reports more slots than the agent detects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The host on which the two numbers differ.
    pub host: HostId,
    /// Slots as the source reports them.
    pub said: u32,
    /// The origin of that number.
    pub from: Option<SlotsFrom>,
    /// Slots as the agent detects them.
    pub detected: u32,
    /// Slots that are used.
    pub used: u32,
}

/// The sources of hosts.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Slots of a host whose source reports none; `None` for the slots that its agent offers.
    slots_per_host: Option<u32>,
    answers: Vec<Answers>,
    found: BTreeMap<HostId, Found>,
    /// The merged answers.
    hosts: Vec<Host>,
    /// The sources that have answered.
    answered: BTreeSet<usize>,
    /// How often they were merged.
    merges: u64,
    /// The index of each host in `hosts`.
    places: BTreeMap<HostId, usize>,
    /// An answer has listed a host, or has come when all sources had answered or failed.
    listed: bool,
    /// Hosts with an announced doubt, or one in `doubts`.
    doubted: BTreeSet<HostId>,
    doubts: Vec<Doubt>,
    /// Hosts that a source lists with 0 slots, so that they are not used.
    without_slots: BTreeSet<HostId>,
    /// Those that were not announced yet.
    new_without_slots: Vec<HostId>,
}

impl Sources {
    /// `count` sources without an answer.
    pub fn new(count: usize, slots_per_host: Option<u32>) -> Self {
        Self {
            slots_per_host,
            answers: vec![Answers::default(); count],
            ..Self::default()
        }
    }

    /// Begins with the hosts that the sources of an earlier driver have listed. Each source has listed them as far as is known,
    /// so a source that does not answer keeps them, in their states, and one answer without them removes none.
    pub(crate) fn restore(&mut self, hosts: &[HostRecord]) {
        for answers in &mut self.answers {
            answers.heard = true;
            answers.entries = (hosts.iter())
                .map(|record| Entry {
                    host: Host {
                        slots: Some(record.slots),
                        state: record.state,
                        deadline: record.within,
                        ..Host::new(record.id.as_str())
                    },
                    missing: 0,
                })
                .collect();
        }
        self.fold();
    }

    /// Applies the answer of a source. Returns whether it ends the failures: the source has failed before, and now no
    /// source fails.
    pub fn answered(&mut self, source: usize, snapshot: Snapshot) -> bool {
        let Some(answers) = self.answers.get_mut(source) else {
            return false;
        };
        self.answered.insert(source);
        let failed_before = std::mem::take(&mut answers.failing);
        let before = planted(Mutant::OneSourceRemoves).then(|| answers.ids());
        answers.take(snapshot);
        let left_out = before.map(|before| &before - &answers.ids());
        for answers in self.answers.iter_mut().filter(|_| left_out.is_some()) {
            let stays = |id: &str| !left_out.iter().flatten().any(|left| left == id);
            answers.entries.retain(|entry| stays(&entry.host.id));
        }
        self.fold();
        failed_before && !self.answers.iter().any(|answers| answers.failing)
    }

    /// Records that a source failed; its last answer stays valid. Returns whether it had neither answered nor failed
    /// before.
    pub fn failed(&mut self, source: usize) -> bool {
        let Some(answers) = self.answers.get_mut(source) else {
            return false;
        };
        let first = !std::mem::replace(&mut answers.heard, true);
        answers.failing = true;
        if planted(Mutant::FailureRemoves) {
            answers.entries.clear();
            self.fold();
        }
        first
    }

    /// Whether there is a list: an answer has listed a host, or has come when all sources had answered or failed.
    pub fn have_listed(&self) -> bool {
        self.listed
    }

    /// Whether each source has answered this driver. Hosts of an earlier driver that no answer has are not listed then.
    pub(crate) fn have_all_answered(&self) -> bool {
        self.answered.len() == self.answers.len()
    }

    /// Records the findings of an agent. Returns whether they change the slots of a listed host.
    pub fn found(&mut self, host: &HostId, slots: u32, detected: Option<u32>) -> bool {
        let before = self.slots_of(host);
        self.found.insert(host.clone(), Found { slots, detected });
        if let Some(place) = self.places.get(host) {
            self.doubt(*place);
        }
        before != self.slots_of(host)
    }

    /// The hosts of all sources, in their order.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// A number that grows whenever [`Sources::hosts`] may have changed.
    pub fn version(&self) -> u64 {
        self.merges
    }

    /// A host with the merged data of the sources.
    pub fn host(&self, id: &HostId) -> Option<&Host> {
        self.places.get(id).map(|place| &self.hosts[*place])
    }

    /// The hosts with the slots that apply.
    pub(crate) fn records(&self) -> Vec<HostRecord> {
        let record = |host: &Host| HostRecord {
            id: HostId::new(&host.id),
            slots: self.slots(host),
            state: host.state,
            within: host.deadline,
        };
        self.hosts.iter().map(record).collect()
    }

    /// Doubts that were not announced yet; each host appears once.
    pub(crate) fn take_doubts(&mut self) -> Vec<Doubt> {
        std::mem::take(&mut self.doubts)
    }

    /// Hosts that a source lists with 0 slots and that were not announced yet. A host is announced again when a source has
    /// listed it with slots in between.
    pub(crate) fn take_without_slots(&mut self) -> Vec<HostId> {
        std::mem::take(&mut self.new_without_slots)
    }

    /// Finds the hosts that are pending because a source lists them with 0 slots.
    fn find_without_slots(&mut self) {
        let entries = self.answers.iter().flat_map(|answers| &answers.entries);
        let is_withheld = |host: &Host| host.state == HostState::Pending && host.slots == Some(0);
        let before = std::mem::take(&mut self.without_slots);
        for Entry { host, .. } in entries.filter(|entry| is_withheld(&entry.host)) {
            let id = HostId::new(&host.id);
            if !before.contains(&id) && !self.without_slots.contains(&id) {
                self.new_without_slots.push(id.clone());
            }
            self.without_slots.insert(id);
        }
    }

    fn fold(&mut self) {
        self.find_without_slots();
        let entries = self.answers.iter().flat_map(|answers| &answers.entries);
        self.merges += 1;
        self.hosts = merge_hosts(entries.map(|entry| &entry.host));
        self.places = (self.hosts.iter().map(|host| HostId::new(&host.id)))
            .zip(0..)
            .collect();
        for place in 0..self.hosts.len() {
            self.doubt(place);
        }
        let all_heard = self.answers.iter().all(|answers| answers.heard);
        self.listed |= all_heard || !self.hosts.is_empty();
    }

    fn slots_of(&self, id: &HostId) -> Option<u32> {
        self.host(id).map(|host| self.slots(host))
    }

    fn slots(&self, host: &Host) -> u32 {
        let found = self.found.get(&HostId::new(&host.id));
        let inferred = host.slots_from == Some(SlotsFrom::Accelerators);
        let said = match self.shortfall(host) {
            Some((_, detected)) if inferred && !planted(Mutant::InferredSlots) => Some(detected),
            _ => host.slots,
        };
        said.or(self.slots_per_host)
            .or(found.map(|found| found.slots))
            .unwrap_or(1)
    }

    fn doubt(&mut self, place: usize) {
        let host = &self.hosts[place];
        let Some((said, detected)) = self.shortfall(host) else {
            return;
        };
        let doubt = Doubt {
            host: HostId::new(&host.id),
            said,
            from: host.slots_from,
            detected,
            used: self.slots(host),
        };
        if self.doubted.insert(doubt.host.clone()) {
            self.doubts.push(doubt);
        }
    }

    /// The slots that a source reports and those that the agent detects, if the latter are fewer. Slots that the user
    /// gave are exempt.
    fn shortfall(&self, host: &Host) -> Option<(u32, u32)> {
        let said = host.slots?;
        let detected = self.found.get(&HostId::new(&host.id))?.detected?;
        let given = host.slots_from == Some(SlotsFrom::Explicit);
        (detected < said && !given).then_some((said, detected))
    }
}

impl Answers {
    fn ids(&self) -> BTreeSet<String> {
        (self.entries.iter())
            .map(|entry| entry.host.id.clone())
            .collect()
    }

    /// Takes the hosts of the answer in its order, then the omitted ones that stay.
    fn take(&mut self, snapshot: Snapshot) {
        self.heard = true;
        let before = std::mem::take(&mut self.entries);
        let places: BTreeMap<_, _> = (before.iter())
            .map(|entry| entry.host.id.clone())
            .zip(0..)
            .collect();
        let mut before: Vec<_> = before.into_iter().map(Some).collect();
        let complete = snapshot.complete || planted(Mutant::PartLeavesOut);
        for host in snapshot.hosts {
            let place: Option<&usize> = places.get(&host.id);
            let entry = match place.and_then(|place| before[*place].take()) {
                // The host is no longer ready, which counts as an omission.
                Some(last) if host.state == HostState::Pending && last.host.state != host.state => {
                    last.left_out().unwrap_or(Entry { host, missing: 0 })
                }
                _ => Entry { host, missing: 0 },
            };
            self.entries.push(entry);
        }
        let stay = before
            .into_iter()
            .flatten()
            .filter_map(|entry| match complete {
                true => entry.left_out(),
                false => Some(entry),
            });
        self.entries.extend(stay);
    }
}

impl Entry {
    /// Counts one more answer that omits the host. Gives `None` if that removes the host.
    fn left_out(mut self) -> Option<Self> {
        self.missing += 1;
        (self.missing < missing_limit()).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(ids: &[&str]) -> Snapshot {
        Snapshot::new(ids.iter().map(|id| Host::new(*id)).collect())
    }

    fn ids(sources: &Sources) -> Vec<&str> {
        sources
            .hosts()
            .iter()
            .map(|host| host.id.as_str())
            .collect()
    }

    fn with(host: Host) -> Sources {
        let mut sources = Sources::new(1, None);
        sources.answered(0, Snapshot::new(vec![host]));
        sources
    }

    fn host(slots: Option<u32>, from: Option<SlotsFrom>) -> Host {
        Host {
            slots,
            slots_from: from,
            ..Host::new("a")
        }
    }

    #[test]
    fn each_source_must_leave_its_hosts_out_twice() {
        let mut sources = Sources::new(2, None);
        sources.answered(1, snapshot(&["f", "both"]));
        assert_eq!(ids(&sources), ["f", "both"]);
        sources.answered(0, snapshot(&["s", "both"]));
        assert_eq!(ids(&sources), ["s", "both", "f"]);
        sources.answered(1, snapshot(&["g"]));
        assert_eq!(ids(&sources), ["s", "both", "g", "f"], "f once");
        sources.answered(1, snapshot(&["g"]));
        assert_eq!(ids(&sources), ["s", "both", "g"], "f twice");
        sources.answered(0, snapshot(&[]));
        assert_eq!(ids(&sources), ["s", "both", "g"], "once, of this one");
        sources.answered(0, snapshot(&[]));
        assert_eq!(ids(&sources), ["g"]);
    }

    #[test]
    fn a_host_that_is_seen_in_between_is_left_out_anew() {
        let mut sources = with(Host::new("a"));
        for list in [&[][..], &["a"], &[]] {
            sources.answered(0, snapshot(list));
            assert_eq!(ids(&sources), ["a"]);
        }
        sources.answered(0, snapshot(&[]));
        assert_eq!(ids(&sources), [""; 0]);
    }

    #[test]
    fn an_answer_that_is_not_complete_and_a_failure_leave_nothing_out() {
        let mut sources = with(Host::new("a"));
        for _ in 0..3 {
            let part = Snapshot {
                complete: false,
                ..snapshot(&["b"])
            };
            sources.answered(0, part);
            sources.failed(0);
            assert_eq!(ids(&sources), ["b", "a"]);
        }
    }

    #[test]
    fn a_host_that_is_pending_again_is_as_one_that_is_left_out() {
        let pending = || Host {
            state: HostState::Pending,
            ..Host::new("a")
        };
        let mut sources = with(Host::new("a"));
        for state in [HostState::Ready, HostState::Pending, HostState::Pending] {
            sources.answered(0, Snapshot::new(vec![pending()]));
            assert_eq!(sources.hosts()[0].state, state);
        }
    }

    #[test]
    fn a_host_with_0_slots_is_not_used_and_is_announced_once() {
        let listed = |slots| {
            let mut host = host(Some(slots), None);
            host.apply_zero_slots();
            Snapshot::new(vec![host, Host::new("b")])
        };
        let mut sources = Sources::new(1, None);
        sources.answered(0, listed(4));
        sources.answered(0, listed(0));
        assert_eq!(
            sources.hosts()[0].state,
            HostState::Ready,
            "one short answer"
        );
        assert_eq!(sources.take_without_slots(), []);
        for expected in [&["a"][..], &[]] {
            sources.answered(0, listed(0));
            assert_eq!(sources.hosts()[0].state, HostState::Pending);
            assert_eq!(sources.hosts()[1].state, HostState::Ready);
            let expected: Vec<HostId> = expected.iter().map(|id| HostId::new(*id)).collect();
            assert_eq!(sources.take_without_slots(), expected);
        }
        sources.answered(0, listed(4));
        assert_eq!(sources.records()[0].slots, 4);
        for expected in [0, 1] {
            sources.answered(0, listed(0));
            assert_eq!(sources.take_without_slots().len(), expected);
        }
    }

    #[test]
    fn there_is_a_list_when_a_host_is_listed_or_all_were_heard() {
        let mut sources = Sources::new(2, None);
        sources.answered(0, snapshot(&[]));
        assert!(!sources.have_listed(), "the other may have some");
        sources.failed(1);
        sources.answered(0, snapshot(&[]));
        assert!(sources.have_listed());
        let mut sources = Sources::new(2, None);
        sources.answered(1, snapshot(&["a"]));
        assert!(sources.have_listed());
    }

    /// The used slots, and those in the doubt, for a host of a source and a count of its agent.
    fn used(host: Host, detected: Option<u32>) -> (u32, Option<u32>) {
        let mut sources = with(host);
        sources.found(&"a".into(), detected.unwrap_or(1), detected);
        let doubts = sources.take_doubts();
        assert_eq!(sources.take_doubts(), [], "once");
        let used = doubts.first().map(|doubt| doubt.used);
        (sources.records()[0].slots, used)
    }

    #[test]
    fn what_a_host_shows_corrects_what_was_inferred_and_doubts_what_was_said() {
        let accelerators = || host(Some(8), Some(SlotsFrom::Accelerators));
        let label = host(Some(8), Some(SlotsFrom::Label));
        for (said, detected, slots, doubt) in [
            (accelerators(), Some(4), 4, Some(4)),
            (label, Some(4), 8, Some(8)),
            (host(Some(8), None), Some(4), 8, Some(8)),
            (accelerators(), Some(8), 8, None),
            (accelerators(), Some(16), 8, None),
            // Nothing could be detected, or no slots are reported.
            (accelerators(), None, 8, None),
            (host(None, None), Some(2), 2, None),
            (host(None, None), None, 1, None),
            // The count of a user is final.
            (host(Some(8), Some(SlotsFrom::Explicit)), Some(4), 8, None),
        ] {
            assert_eq!(used(said.clone(), detected), (slots, doubt), "{said:?}");
        }
    }

    #[test]
    fn a_list_that_comes_after_the_agent_is_corrected_as_well() {
        let mut sources = Sources::new(1, Some(2));
        assert!(!sources.found(&"a".into(), 4, Some(4)));
        let eight = host(Some(8), Some(SlotsFrom::Accelerators));
        sources.answered(0, Snapshot::new(vec![eight]));
        assert_eq!(sources.records()[0].slots, 4);
        assert_eq!(sources.take_doubts().len(), 1);
        sources.answered(0, snapshot(&["a"]));
        assert_eq!(sources.records()[0].slots, 2, "--slots-per-host");
    }
}
