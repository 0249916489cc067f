//! HostSet: the hosts that discovery knows, in their order of arrival.
//!
//! - Known hosts keep their order; new hosts follow in the order of the source (R2).
//! - A host that is missing from the list, gone, or pending is removed ([`crate::sources`] decides when it is missing).
//! - A host that registered itself stays when a list omits it. Pending takes its slots until a list says ready. Gone
//!   removes it.
//! - A host that returns after an absence or from the blacklist goes to the end of the order.
//! - A host whose departure was announced by a notice stays draining until it is gone, whatever the lists contain.

mod entry;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

pub use elasticrun_hosts::HostState;
use elasticrun_protocol::HostId;

use crate::{
    Time,
    journal::Changed,
    mutant::{Mutant, planted},
};

/// A host as the job sees it: the data of the sources, corrected by the findings of its agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRecord {
    /// Its identity. A recycled address has another id.
    pub id: HostId,
    /// The number of workers that it takes.
    pub slots: u32,
    /// Whether it may be used.
    pub state: HostState,
    /// The time until it goes away, if it is draining and the source knows the time.
    pub within: Option<Duration>,
}

impl HostRecord {
    /// A host that is ready.
    pub fn ready(id: impl Into<HostId>, slots: u32) -> Self {
        Self {
            id: id.into(),
            slots,
            state: HostState::Ready,
            within: None,
        }
    }
}

/// A host that will go away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Draining {
    /// Its workers may train until this time if too few other workers are available. The wait is half of the remaining
    /// time, or all but [`MARGIN`] of it, whichever is longer.
    due: Time,
    /// A notice has announced it; a list cannot revoke that.
    noticed: bool,
    /// The host runs nothing and holds nothing that is needed.
    drained: bool,
}

#[derive(Clone, Debug)]
struct Known {
    slots: u32,
    /// The host registered itself, so it stays when a list omits it.
    self_registered: bool,
    /// A list has had the host.
    listed: bool,
    /// The last list has omitted the host, and an earlier one had it.
    left_out: bool,
    /// Position in the order of arrival; grows with every arrival.
    arrival: u64,
}

impl Known {
    fn place(&self) -> u64 {
        if planted(Mutant::OrderByName) {
            return 0;
        }
        self.arrival
    }
}

/// The hosts of the job.
#[derive(Clone, Debug, Default)]
pub struct HostSet {
    known: BTreeMap<HostId, Known>,
    /// The known hosts that will go away.
    draining: BTreeMap<HostId, Draining>,
    /// Hosts that the last list had as pending, known or not.
    withheld: BTreeSet<HostId>,
    arrivals: u64,
    /// Hosts whose record has changed.
    changed: Changed<HostId>,
}

/// The most time that workers of a departing host need to reach a boundary and leave.
const MARGIN: Duration = Duration::from_secs(30);

/// The changes of a list, beyond slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Hosts that are no longer known.
    pub removed: Vec<HostId>,
    /// Hosts that began to drain, with the time until they go away.
    pub draining: Vec<(HostId, Option<Duration>)>,
}

impl HostSet {
    /// Applies a list of discovery.
    pub fn update(&mut self, now: Time, list: &[HostRecord]) -> Changes {
        let mut changes = Changes::default();
        let (mut there, mut gone) = (BTreeSet::new(), BTreeSet::new());
        self.withheld.clear();
        for record in list {
            match record.state {
                HostState::Ready => self.see(&record.id, record.slots),
                HostState::Draining => {
                    if self.begin_drain(now, &record.id, record.within, false) {
                        changes.draining.push((record.id.clone(), record.within));
                    }
                }
                HostState::Gone if planted(Mutant::GoneKept) => {}
                HostState::Pending => {
                    self.withheld.insert(record.id.clone());
                    continue;
                }
                HostState::Gone => {
                    gone.insert(&record.id);
                    continue;
                }
            }
            there.insert(&record.id);
        }
        for (id, known) in &mut self.known {
            let listed = there.contains(id) || self.withheld.contains(id);
            known.left_out = known.listed && !listed;
            if listed && !known.listed {
                known.listed = true;
                self.changed.mark(id);
            }
        }
        let removed = |(id, known): &(&HostId, &Known)| match known.self_registered {
            true => gone.contains(id),
            false => !there.contains(id),
        };
        changes.removed = (self.known.iter().filter(removed))
            .map(|(id, _)| id.clone())
            .collect();
        for id in &changes.removed {
            self.forget(id);
        }
        changes
    }

    /// Applies a notice that a host will go away. Returns whether the host begins to drain.
    pub fn noticed(&mut self, now: Time, id: &HostId, within: Option<Duration>) -> bool {
        self.begin_drain(now, id, within, true)
    }

    fn begin_drain(
        &mut self,
        now: Time,
        id: &HostId,
        within: Option<Duration>,
        noticed: bool,
    ) -> bool {
        if !self.known.contains_key(id) {
            return false;
        }
        let left = within.unwrap_or_default();
        let due = now + left.saturating_sub(MARGIN.min(left / 2));
        if let Some(draining) = self.draining.get_mut(id) {
            let before = *draining;
            draining.noticed |= noticed;
            draining.due = draining.due.min(due);
            if *draining != before {
                self.changed.mark(id);
            }
            return false;
        }
        let draining = Draining {
            due,
            noticed,
            drained: false,
        };
        self.draining.insert(id.clone(), draining);
        self.changed.mark(id);
        true
    }

    /// Whether a host will go away.
    pub fn is_draining(&self, id: &HostId) -> bool {
        self.draining.contains_key(id)
    }

    /// Whether a notice has announced that a host goes away.
    pub fn is_noticed(&self, id: &HostId) -> bool {
        (self.draining.get(id)).is_some_and(|draining| draining.noticed)
    }

    /// Until when the workers of a draining host may train if too few other workers are available.
    pub fn drain_due(&self, id: &HostId) -> Option<Time> {
        Some(self.draining.get(id)?.due)
    }

    /// Whether a draining host runs nothing and holds nothing that is needed.
    pub fn is_drained(&self, id: &HostId) -> bool {
        (self.draining.get(id)).is_some_and(|draining| draining.drained)
    }

    /// Hosts that will go away and are not drained yet.
    pub fn draining(&self) -> impl Iterator<Item = &HostId> {
        let not_yet = self.draining.iter().filter(|(_, host)| !host.drained);
        not_yet.map(|(id, _)| id)
    }

    /// Revokes that a host is drained: it still holds something.
    pub fn drains_again(&mut self, id: &HostId) {
        if let Some(draining) = self.draining.get_mut(id) {
            draining.drained = false;
            self.changed.mark(id);
        }
    }

    /// Marks a draining host as drained: it runs nothing and holds nothing that is needed.
    pub fn drained(&mut self, id: &HostId) {
        if let Some(draining) = self.draining.get_mut(id) {
            draining.drained = true;
            self.changed.mark(id);
        }
    }

    /// Adds a host that registered itself, with its slots.
    pub fn came(&mut self, id: &HostId, slots: u32) {
        self.see(id, slots);
        if let Some(known) = self.known.get_mut(id)
            && !std::mem::replace(&mut known.self_registered, true)
        {
            self.changed.mark(id);
        }
    }

    /// Adds a host that a later list may remove.
    pub(crate) fn add(&mut self, id: &HostId, slots: u32) {
        self.see(id, slots);
    }

    /// Adds or updates a host of a list.
    fn see(&mut self, id: &HostId, slots: u32) {
        if let Some(known) = self.known.get_mut(id) {
            let listed = |host: &Draining| !host.noticed || planted(Mutant::NoticeTakenBack);
            if self.draining.get(id).is_some_and(listed) {
                self.draining.remove(id);
                known.arrival = self.arrivals;
                self.arrivals += 1;
                self.changed.mark(id);
            }
            let kept = planted(Mutant::SlotsKept);
            let slots = if kept { slots.max(known.slots) } else { slots };
            if std::mem::replace(&mut known.slots, slots) != slots {
                self.changed.mark(id);
            }
            return;
        }
        let known = Known {
            slots,
            self_registered: false,
            listed: false,
            left_out: false,
            arrival: self.arrivals,
        };
        self.arrivals += 1;
        self.known.insert(id.clone(), known);
        self.changed.mark(id);
    }

    /// Removes a host: it registered itself and has gone, or it is missing from the list.
    pub fn forget(&mut self, id: &HostId) {
        self.known.remove(id);
        self.draining.remove(id);
        self.changed.mark(id);
    }

    /// Moves a host to the end of the order, after a time in which it could not be used.
    pub fn move_to_end(&mut self, id: &HostId) {
        if let Some(known) = self.known.get_mut(id) {
            known.arrival = self.arrivals;
            self.arrivals += 1;
            self.changed.mark(id);
        }
    }

    /// Whether a list has had this host, and the last one has omitted it.
    pub fn is_left_out(&self, id: &HostId) -> bool {
        self.known.get(id).is_some_and(|known| known.left_out)
    }

    /// Usable slots: 0 for a host that is unknown or draining, or that the last list has as pending.
    pub fn slots(&self, id: &HostId) -> u32 {
        if self.withheld.contains(id) {
            return 0;
        }
        if self.is_draining(id) && !planted(Mutant::DrainingUsed) {
            return 0;
        }
        self.known_slots(id)
    }

    /// All slots of a host, even while it is draining.
    pub fn known_slots(&self, id: &HostId) -> u32 {
        self.known.get(id).map_or(0, |known| known.slots)
    }

    /// Whether a host is known, draining or not.
    pub fn contains(&self, id: &HostId) -> bool {
        self.known.contains_key(id)
    }

    /// Position in the order of arrival; an unknown host is last.
    pub fn arrival(&self, id: &HostId) -> u64 {
        self.known.get(id).map_or(u64::MAX, Known::place)
    }

    /// Known hosts in their order of arrival.
    pub fn in_order(&self) -> Vec<&HostId> {
        let mut hosts: Vec<_> = self.known.iter().collect();
        hosts.sort_by_key(|(_, known)| known.place());
        hosts.into_iter().map(|(id, _)| id).collect()
    }

    /// The number of known hosts.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether no host is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(hosts: &[(&str, u32)]) -> Vec<HostRecord> {
        hosts
            .iter()
            .map(|(id, slots)| HostRecord::ready(*id, *slots))
            .collect()
    }

    fn order(set: &HostSet) -> Vec<&str> {
        set.in_order().into_iter().map(HostId::as_str).collect()
    }

    #[test]
    fn old_hosts_keep_their_order_and_new_ones_follow() {
        let mut set = HostSet::default();
        set.update(Time::ZERO, &list(&[("b", 1), ("a", 2)]));
        set.update(Time::ZERO, &list(&[("c", 1), ("a", 2), ("b", 1)]));
        assert_eq!(order(&set), ["b", "a", "c"]);
    }

    #[test]
    fn a_host_that_is_missing_is_removed_and_returns_at_the_end() {
        let mut set = HostSet::default();
        set.update(Time::ZERO, &list(&[("a", 1), ("b", 1)]));
        let changes = set.update(Time::ZERO, &list(&[("b", 1)]));
        assert_eq!(changes.removed, ["a".into()]);
        set.update(Time::ZERO, &list(&[("a", 1), ("b", 1)]));
        assert_eq!(order(&set), ["b", "a"]);
    }

    #[test]
    fn draining_takes_the_slots_at_once_and_gone_the_host() {
        let mut set = HostSet::default();
        set.update(Time::ZERO, &list(&[("a", 3)]));
        set.update(
            Time::ZERO,
            &[HostRecord {
                state: HostState::Draining,
                ..HostRecord::ready("a", 3)
            }],
        );
        assert_eq!(
            (set.slots(&"a".into()), set.contains(&"a".into())),
            (0, true)
        );
        let gone = HostRecord {
            state: HostState::Gone,
            ..HostRecord::ready("a", 3)
        };
        assert_eq!(set.update(Time::ZERO, &[gone]).removed, ["a".into()]);
    }

    #[test]
    fn what_a_list_drains_a_list_takes_back_but_not_what_a_notice_said() {
        let mut set = HostSet::default();
        let ready = list(&[("a", 3), ("b", 1)]);
        set.update(Time::ZERO, &ready);
        let leaving = HostRecord {
            state: HostState::Draining,
            ..ready[0].clone()
        };
        let changes = set.update(Time::ZERO, &[leaving.clone(), ready[1].clone()]);
        assert_eq!(changes.draining, [("a".into(), None)]);
        assert!(
            set.update(Time::ZERO, &[leaving, ready[1].clone()])
                .draining
                .is_empty(),
            "no news"
        );
        set.update(Time::ZERO, &ready);
        assert_eq!(set.slots(&"a".into()), 3);
        assert!(set.noticed(Time::ZERO, &"a".into(), None));
        set.update(Time::ZERO, &ready);
        assert_eq!(set.slots(&"a".into()), 0);
        assert!(
            !set.noticed(Time::ZERO, &"moon".into(), None),
            "not of this job"
        );
    }

    #[test]
    fn workers_may_train_on_for_half_of_the_time_or_all_but_the_margin() {
        let mut set = HostSet::default();
        set.update(Time::ZERO, &list(&[("a", 1), ("b", 1), ("c", 1)]));
        let due = |set: &mut HostSet, id: &str, within| {
            set.noticed(Time::ZERO, &id.into(), within);
            set.drain_due(&id.into()).unwrap().since_start()
        };
        assert_eq!(
            due(&mut set, "a", Some(Duration::from_secs(120))),
            Duration::from_secs(90)
        );
        assert_eq!(
            due(&mut set, "b", Some(Duration::from_secs(30))),
            Duration::from_secs(15)
        );
        assert_eq!(due(&mut set, "c", None), Duration::ZERO);
        assert_eq!(
            due(&mut set, "a", Some(Duration::from_secs(2))),
            Duration::from_secs(1),
            "the sooner one holds"
        );
    }
}
