//! The merge of several sources into one list.

use std::collections::BTreeMap;

use crate::{Host, Snapshot};

/// Merges the snapshots of several sources, in their order.
///
/// A host in several snapshots, by its id, keeps its position in the first of them. Its state is the one nearest to
/// departure, so that each source can withdraw a host. Its slots are those with the most trustworthy origin. Other fields
/// come from the first snapshot that has them. The list is complete if all snapshots are. The next poll is the earliest. The
/// target size is the sum, if all snapshots have one.
pub fn merge<'a>(snapshots: impl IntoIterator<Item = &'a Snapshot>) -> Snapshot {
    let snapshots: Vec<_> = snapshots.into_iter().collect();
    let targets: Option<Vec<u32>> = snapshots.iter().map(|each| each.target_size).collect();
    let sum = |targets: Vec<u32>| targets.into_iter().fold(0, u32::saturating_add);
    Snapshot {
        hosts: merge_hosts(snapshots.iter().flat_map(|each| &each.hosts)),
        complete: snapshots.iter().all(|each| each.complete),
        next_poll: snapshots.iter().filter_map(|each| each.next_poll).min(),
        target_size: targets.filter(|sizes| !sizes.is_empty()).map(sum),
    }
}

/// The hosts of [`merge()`]: each once, at its position in the first list with it.
pub fn merge_hosts<'a>(hosts: impl IntoIterator<Item = &'a Host>) -> Vec<Host> {
    let mut merged: Vec<Host> = Vec::new();
    let mut indices = BTreeMap::new();
    for host in hosts {
        match indices.get(&host.id) {
            Some(index) => add(&mut merged[*index], host),
            None => {
                indices.insert(&host.id, merged.len());
                merged.push(host.clone());
            }
        }
    }
    merged
}

fn add(host: &mut Host, other: &Host) {
    // A reason belongs to a state.
    if other.state > host.state {
        (host.state, host.reason) = (other.state, other.reason.clone());
    } else if other.state == host.state {
        fill(&mut host.reason, &other.reason);
    }
    // `None` is the smallest Option, but the least trustworthy origin.
    let rank = |host: &Host| {
        (
            host.slots.is_none(),
            host.slots_from.is_none(),
            host.slots_from,
        )
    };
    if rank(other) < rank(host) {
        (host.slots, host.slots_from) = (other.slots, other.slots_from);
    }
    host.deadline = host.deadline.into_iter().chain(other.deadline).min();
    host.spot |= other.spot;
    host.port = host.port.or(other.port);
    fill(&mut host.user, &other.user);
    fill(&mut host.zone, &other.zone);
    fill(&mut host.kind, &other.kind);
    for address in other.addresses.iter().chain([&other.address]) {
        if *address != host.address && !host.addresses.contains(address) {
            host.addresses.push(address.clone());
        }
    }
    for (name, value) in &other.labels {
        host.labels
            .entry(name.clone())
            .or_insert_with(|| value.clone());
    }
}

fn fill(field: &mut Option<String>, other: &Option<String>) {
    if field.is_none() {
        field.clone_from(other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostState, SlotsFrom};
    use proptest::prelude::*;
    use std::time::Duration;

    fn ids(snapshot: &Snapshot) -> Vec<&str> {
        snapshot.hosts.iter().map(|host| host.id.as_str()).collect()
    }

    #[test]
    fn hosts_are_one_by_id_and_keep_their_order() {
        let first = Snapshot::new(vec![Host::new("b"), Host::new("a")]);
        let second = Snapshot::new(vec![Host::new("c"), Host::new("b")]);
        assert_eq!(ids(&merge([&first, &second])), ["b", "a", "c"]);
        assert_eq!(ids(&merge([&second, &first])), ["c", "b", "a"]);
        assert_eq!(merge([&first]), first);
        assert_eq!(merge([]), Snapshot::new(vec![]));
    }

    #[test]
    fn each_source_can_withdraw_a_host_and_the_best_slots_win() {
        let mine = Host {
            slots: Some(8),
            slots_from: Some(SlotsFrom::Accelerators),
            zone: Some("z".into()),
            ..Host::new("a")
        };
        let theirs = Host {
            slots: Some(4),
            slots_from: Some(SlotsFrom::Label),
            state: HostState::Draining,
            reason: Some("spot".into()),
            deadline: Some(Duration::from_secs(120)),
            spot: true,
            address: "10.0.0.1".into(),
            ..Host::new("a")
        };
        let (mine, theirs) = (Snapshot::new(vec![mine]), Snapshot::new(vec![theirs]));
        let both = [merge([&mine, &theirs]), merge([&theirs, &mine])];
        for merged in &both {
            let host = &merged.hosts[0];
            assert_eq!(
                (host.slots, host.slots_from),
                (Some(4), Some(SlotsFrom::Label))
            );
            assert_eq!(
                (host.state, host.reason.as_deref()),
                (HostState::Draining, Some("spot"))
            );
            assert_eq!(host.zone.as_deref(), Some("z"));
            assert!(host.spot && host.deadline.is_some());
        }
        assert_eq!(both[0].hosts[0].address, "a");
        assert_eq!(both[0].hosts[0].addresses, ["10.0.0.1"]);
    }

    #[test]
    fn the_whole_is_as_complete_as_its_parts() {
        let first = Snapshot {
            target_size: Some(2),
            next_poll: Some(Duration::from_secs(5)),
            ..Snapshot::new(vec![])
        };
        let second = Snapshot {
            complete: false,
            target_size: Some(3),
            ..Snapshot::new(vec![])
        };
        let merged = merge([&first, &second]);
        assert!(!merged.complete);
        assert_eq!(merged.target_size, Some(5));
        assert_eq!(merged.next_poll, Some(Duration::from_secs(5)));
        assert_eq!(merge([&first, &Snapshot::new(vec![])]).target_size, None);
    }

    fn snapshot() -> impl Strategy<Value = Snapshot> {
        let states = [
            HostState::Ready,
            HostState::Pending,
            HostState::Draining,
            HostState::Gone,
        ];
        let host = (
            prop::sample::select(states.to_vec()),
            prop::option::of(0u32..5),
        );
        prop::collection::btree_map("[a-e]", host, 0..5).prop_map(|hosts| {
            let host = |(id, (state, slots)): (String, _)| Host {
                state,
                slots,
                ..Host::new(id)
            };
            Snapshot::new(hosts.into_iter().map(host).collect())
        })
    }

    proptest! {
        #[test]
        fn merging_in_steps_is_merging_at_once(a in snapshot(), b in snapshot(), c in snapshot()) {
            let at_once = merge([&a, &b, &c]);
            prop_assert_eq!(&merge([&merge([&a, &b]), &c]), &at_once);
            prop_assert_eq!(&merge([&a, &merge([&b, &c])]), &at_once);
            prop_assert_eq!(merge([&at_once, &a, &b, &c]), at_once);
        }
    }
}
