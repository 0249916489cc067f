//! HostSet: the hosts that discovery knows, in their order of arrival.
//!
//! - Old hosts keep their order, new ones follow in the order of the source (invariant R2).
//! - A host that is missing from a list is removed when it is missing twice, or at once when it is
//!   reported draining or gone; so one empty list removes nobody.
//! - A host that was away, or was blacklisted, returns at the end of the order.

use std::collections::BTreeMap;

use elasticrun_protocol::HostId;

/// What a source says of a host's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostState {
    /// It may be used.
    #[default]
    Ready,
    /// It will be; not yet.
    Pending,
    /// It will go away: leave it gracefully.
    Draining,
    /// It is gone.
    Gone,
}

/// A host as discovery describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRecord {
    /// Identity. A recycled address has another id.
    pub id: HostId,
    /// How many workers it takes.
    pub slots: u32,
    /// Whether it may be used.
    pub state: HostState,
}

impl HostRecord {
    /// A host that is ready.
    pub fn ready(id: impl Into<HostId>, slots: u32) -> Self {
        Self {
            id: id.into(),
            slots,
            state: HostState::Ready,
        }
    }
}

#[derive(Clone, Debug)]
struct Known {
    slots: u32,
    draining: bool,
    missing: u8,
    /// Place in the order; grows with every arrival.
    arrival: u64,
}

/// The hosts of the job. See the module.
#[derive(Clone, Debug, Default)]
pub struct HostSet {
    known: BTreeMap<HostId, Known>,
    arrivals: u64,
}

/// How often a host must be missing before it is removed.
const MISSING_LIMIT: u8 = 2;

impl HostSet {
    /// Takes a list of discovery; gives back the hosts that it removed.
    pub fn update(&mut self, list: &[HostRecord]) -> Vec<HostId> {
        for known in self.known.values_mut() {
            known.missing = known.missing.saturating_add(1);
        }
        for record in list {
            match record.state {
                HostState::Ready => self.see(&record.id, record.slots),
                HostState::Draining => {
                    if let Some(known) = self.known.get_mut(&record.id) {
                        (known.draining, known.missing) = (true, 0);
                    }
                }
                HostState::Pending => {}
                HostState::Gone => {
                    if let Some(known) = self.known.get_mut(&record.id) {
                        known.missing = MISSING_LIMIT;
                    }
                }
            }
        }
        let removed: Vec<_> = self
            .known
            .iter()
            .filter(|(_, known)| known.missing >= MISSING_LIMIT)
            .map(|(id, _)| id.clone())
            .collect();
        for id in &removed {
            self.known.remove(id);
        }
        removed
    }

    /// A host is there with so many slots: a list says so, or it came by itself.
    pub fn see(&mut self, id: &HostId, slots: u32) {
        if let Some(known) = self.known.get_mut(id) {
            if known.draining {
                known.draining = false;
                known.arrival = self.arrivals;
                self.arrivals += 1;
            }
            (known.slots, known.missing) = (slots, 0);
            return;
        }
        let known = Known {
            slots,
            draining: false,
            missing: 0,
            arrival: self.arrivals,
        };
        self.arrivals += 1;
        self.known.insert(id.clone(), known);
    }

    /// A host that came by itself has gone.
    pub fn forget(&mut self, id: &HostId) {
        self.known.remove(id);
    }

    /// A host that could not be used for a while returns at the end of the order.
    pub fn move_to_end(&mut self, id: &HostId) {
        if let Some(known) = self.known.get_mut(id) {
            known.arrival = self.arrivals;
            self.arrivals += 1;
        }
    }

    /// Slots that may be used: 0 for a host that is unknown or draining.
    pub fn slots(&self, id: &HostId) -> u32 {
        self.known
            .get(id)
            .filter(|known| !known.draining)
            .map_or(0, |known| known.slots)
    }

    /// Slots that it has, also while it is draining.
    pub fn known_slots(&self, id: &HostId) -> u32 {
        self.known.get(id).map_or(0, |known| known.slots)
    }

    /// Whether a list has it (draining or not).
    pub fn contains(&self, id: &HostId) -> bool {
        self.known.contains_key(id)
    }

    /// Place in the order of arrival; who is unknown comes last.
    pub fn arrival(&self, id: &HostId) -> u64 {
        self.known.get(id).map_or(u64::MAX, |known| known.arrival)
    }

    /// Known hosts in their order of arrival.
    pub fn in_order(&self) -> Vec<&HostId> {
        let mut hosts: Vec<_> = self.known.iter().collect();
        hosts.sort_by_key(|(_, known)| known.arrival);
        hosts.into_iter().map(|(id, _)| id).collect()
    }

    /// How many are known.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether none is known.
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
        set.update(&list(&[("b", 1), ("a", 2)]));
        set.update(&list(&[("c", 1), ("a", 2), ("b", 1)]));
        assert_eq!(order(&set), ["b", "a", "c"]);
    }

    #[test]
    fn a_host_is_removed_when_missing_twice_and_returns_at_the_end() {
        let mut set = HostSet::default();
        set.update(&list(&[("a", 1), ("b", 1)]));
        assert!(set.update(&list(&[("b", 1)])).is_empty());
        assert_eq!(order(&set), ["a", "b"]);
        assert_eq!(set.update(&list(&[("b", 1)])), ["a".into()]);
        set.update(&list(&[("a", 1), ("b", 1)]));
        assert_eq!(order(&set), ["b", "a"]);
    }

    #[test]
    fn an_empty_list_counts_only_when_seen_twice() {
        let mut set = HostSet::default();
        set.update(&list(&[("a", 1)]));
        assert!(set.update(&[]).is_empty());
        set.update(&list(&[("a", 1)]));
        assert!(set.update(&[]).is_empty());
        assert_eq!(set.update(&[]), ["a".into()]);
    }

    #[test]
    fn draining_takes_the_slots_at_once_and_gone_the_host() {
        let mut set = HostSet::default();
        set.update(&list(&[("a", 3)]));
        set.update(&[HostRecord {
            state: HostState::Draining,
            ..HostRecord::ready("a", 3)
        }]);
        assert_eq!(
            (set.slots(&"a".into()), set.contains(&"a".into())),
            (0, true)
        );
        let gone = HostRecord {
            state: HostState::Gone,
            ..HostRecord::ready("a", 3)
        };
        assert_eq!(set.update(&[gone]), ["a".into()]);
    }
}
