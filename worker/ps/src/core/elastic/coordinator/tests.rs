//! Decisions of the coordinator, without servers: each order is carried out at once.

use super::{super::map::ChainRange, *};

fn server(rank: u32) -> NodeId {
    NodeId::server(rank)
}

/// A coordinator whose orders are carried out at once, and what else it wanted.
struct Job {
    coordinator: Coordinator,
    other: Vec<Action>,
    moves: usize,
}

impl Job {
    fn new(servers: u32, replicas: u32) -> Self {
        let mut job = Self {
            coordinator: Coordinator::new(servers, replicas),
            other: Vec::new(),
            moves: 0,
        };
        (0..servers).for_each(|rank| job.ready(rank));
        job
    }

    fn ready(&mut self, rank: u32) {
        let apps = [App {
            app: 1,
            dtype: 11,
            ..App::default()
        }];
        let actions = self.coordinator.ready(server(rank), &apps);
        self.act(actions);
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            let done = match action {
                Action::Order { to, order } => match order {
                    Order::Attach { first, join, .. } => {
                        self.moves += 1;
                        let report = Report::InSync { first, join };
                        self.coordinator.report(to, &report)
                    }
                    Order::Stop { first, ticket } => {
                        let report = Report::Stopped { first, ticket };
                        self.coordinator.report(to, &report)
                    }
                    Order::Resume { .. } | Order::Save { .. } | Order::Load { .. } => Vec::new(),
                },
                Action::Publish(_) | Action::Accept(_) => Vec::new(),
                other => {
                    self.other.push(other);
                    Vec::new()
                }
            };
            self.act(done);
        }
    }

    /// How many chains each server is in.
    fn shares(&self) -> Vec<usize> {
        let map = self.coordinator.map().unwrap();
        assert!(map.is_complete());
        let count = |node: &NodeId| {
            let chains = map.ranges.iter().filter(|range| range.chain.contains(node));
            chains.count()
        };
        self.coordinator.servers.keys().map(count).collect()
    }

    fn load(&mut self, loads: &[RangeLoad]) {
        let servers: Vec<_> = self.coordinator.servers.keys().copied().collect();
        for (index, node) in servers.into_iter().enumerate() {
            let loads = if index == 0 { loads } else { &[] };
            let actions = self.coordinator.load(node, loads);
            self.act(actions);
        }
    }
}

#[test]
fn a_new_server_gets_its_share_and_gives_it_back() {
    let mut job = Job::new(2, 0);
    assert_eq!(job.shares(), [8, 8]);
    job.ready(2);
    let shares = job.shares();
    assert_eq!(shares.iter().sum::<usize>(), 16);
    assert!(
        shares.iter().all(|share| (5..=6).contains(share)),
        "{shares:?}"
    );
    let actions = job.coordinator.drain(server(1));
    job.act(actions);
    assert_eq!(job.other, [Action::Drained(server(1))]);
    assert_eq!(job.shares(), [8, 8]);
}

#[test]
fn a_death_is_repaired_and_the_last_server_stays() {
    let mut job = Job::new(3, 1);
    assert_eq!(job.shares(), [16, 16, 16]);
    let actions = job.coordinator.died(server(0));
    job.act(actions);
    assert_eq!(job.shares(), [24, 24]);
    assert_eq!(job.other, []);
    let actions = job.coordinator.died(server(1));
    job.act(actions);
    assert_eq!(job.shares(), [24]);
    assert!(
        matches!(&job.other[..], [Action::Note(text)] if text.contains("1 servers for 2 copies"))
    );
    job.other.clear();
    let actions = job.coordinator.drain(server(2));
    job.act(actions);
    assert!(matches!(&job.other[..], [Action::DrainRefused { .. }]));
    // All copies are dead.
    job.other.clear();
    let actions = job.coordinator.died(server(2));
    job.act(actions);
    assert!(matches!(&job.other[0], Action::Note(text) if text.contains("are lost")));
}

#[test]
fn a_server_that_dies_before_it_is_ready_is_not_waited_for() {
    let mut job = Job {
        coordinator: Coordinator::new(2, 0),
        other: Vec::new(),
        moves: 0,
    };
    job.ready(0);
    assert_eq!(job.coordinator.map(), None);
    let actions = job.coordinator.died(server(1));
    assert!(matches!(&actions[..], [Action::Publish(map)] if map.version == 1));
}

#[test]
fn another_list_of_apps_is_refused() {
    let mut job = Job::new(1, 0);
    let apps = [App {
        app: 2,
        dtype: 11,
        ..App::default()
    }];
    let actions = job.coordinator.ready(server(1), &apps);
    assert!(matches!(&actions[..], [Action::Refuse { .. }]));
    assert_eq!(job.shares(), [8]);
}

/// Small keys: all load is on one range. It is split and spread, and then nothing moves any more.
#[test]
fn a_hot_range_is_split_and_spread_until_all_is_quiet() {
    let mut job = Job::new(3, 0);
    // A million keys of equal use.
    let used = 1_000_000u64;
    let mut quiet = 0;
    for _ in 0..60 {
        let map = job.coordinator.map().unwrap().clone();
        let loads: Vec<RangeLoad> = (map.ranges.iter())
            .filter(|range| range.first < used)
            .map(|range| {
                let keys = range.last.min(used - 1) - range.first + 1;
                RangeLoad {
                    first: range.first,
                    keys,
                    middle: Some(range.first + keys / 2),
                }
            })
            .collect();
        let moves = job.moves;
        job.load(&loads);
        let version = job.coordinator.map().unwrap().version;
        quiet = if version == map.version { quiet + 1 } else { 0 };
        assert!(quiet < 2 || moves == job.moves);
    }
    assert!(quiet > 30, "it does not come to rest");
    let map = job.coordinator.map().unwrap();
    let mut keys = BTreeMap::<NodeId, u64>::new();
    for range in map.ranges.iter().filter(|range| range.first < used) {
        *keys.entry(range.chain[0]).or_default() += range.last.min(used - 1) - range.first + 1;
    }
    let most = keys.values().max().unwrap();
    assert!(*most < used / 2, "{keys:?}");
}

fn apps() -> [App; 1] {
    [App {
        app: 1,
        dtype: 11,
        ..App::default()
    }]
}

/// A coordinator whose job begins with a snapshot, and the orders to load it of its servers, which are ready.
fn loading(servers: u32) -> (Coordinator, Vec<Action>) {
    let mut coordinator = Coordinator::new(servers, 0);
    coordinator.begin_with(Origin {
        number: 9,
        apps: apps().to_vec(),
    });
    let ready = (0..servers).flat_map(|rank| coordinator.ready(server(rank), &apps()));
    let actions = ready.collect();
    (coordinator, actions)
}

/// Servers and tickets of the orders to load.
fn loads(actions: &[Action]) -> Vec<(NodeId, u64)> {
    let load = |action: &Action| match action {
        Action::Order {
            to,
            order: Order::Load { number, ticket, .. },
        } => {
            assert_eq!(*number, 9);
            Some((*to, *ticket))
        }
        _ => None,
    };
    actions.iter().filter_map(load).collect()
}

/// Server, ticket, and first and last keys of an order to save.
type Save = (NodeId, u64, Vec<(u64, u64)>);

fn saves(actions: &[Action]) -> Vec<Save> {
    let save = |action: &Action| match action {
        Action::Order {
            to,
            order: Order::Save { ticket, keys, .. },
        } => Some((*to, *ticket, keys.clone())),
        _ => None,
    };
    actions.iter().filter_map(save).collect()
}

#[test]
fn no_server_is_accepted_before_all_have_loaded() {
    let (mut coordinator, actions) = loading(2);
    let orders = loads(&actions);
    assert_eq!((actions.len(), orders.len()), (2, 2), "{actions:?}");
    let ticket = orders[0].1;
    assert_eq!(
        coordinator.report(server(0), &Report::Loaded { ticket }),
        []
    );
    // A third one comes meanwhile. It takes part in no loading.
    assert_eq!(coordinator.ready(server(2), &apps()), []);
    let done = coordinator.report(server(1), &Report::Loaded { ticket });
    let accepted = done
        .iter()
        .filter(|action| matches!(action, Action::Accept(_)));
    assert_eq!(accepted.count(), 3, "{done:?}");
    assert!(
        done.iter()
            .any(|action| matches!(action, Action::Publish(map) if map.version == 1))
    );
    assert!(!coordinator.is_loading());
}

#[test]
fn a_death_while_servers_load_begins_it_anew() {
    let (mut coordinator, actions) = loading(2);
    let old = loads(&actions)[0].1;
    let again = loads(&coordinator.died(server(0)));
    assert_eq!(again.len(), 1);
    let (node, ticket) = again[0];
    assert!(node == server(1) && ticket > old);
    // A report of the earlier loading counts no more.
    assert_eq!(
        coordinator.report(server(1), &Report::Loaded { ticket: old }),
        []
    );
    let done = coordinator.report(server(1), &Report::Loaded { ticket });
    assert!(
        matches!(done[..], [Action::Accept(_), Action::Publish(_), ..]),
        "{done:?}"
    );
}

#[test]
fn servers_that_cannot_load_are_refused_and_replaced_by_as_many() {
    let (mut coordinator, actions) = loading(2);
    let ticket = loads(&actions)[0].1;
    let reason = "it is damaged".to_owned();
    let refused = coordinator.report(server(1), &Report::NotLoaded { ticket, reason });
    let refused = refused
        .iter()
        .filter(|action| matches!(action, Action::Refuse { .. }));
    assert_eq!(refused.count(), 2);
    for rank in 0..2 {
        assert_eq!(coordinator.died(server(rank)), []);
    }
    // One alone does not begin.
    assert_eq!(coordinator.ready(server(2), &apps()), []);
    assert_eq!(loads(&coordinator.ready(server(3), &apps())).len(), 2);
}

#[test]
fn a_server_with_other_apps_than_the_snapshot_is_refused_and_others_are_not() {
    let (mut coordinator, _) = loading(0);
    let other = [App {
        app: 2,
        ..apps()[0].clone()
    }];
    let refused = coordinator.ready(server(0), &other);
    let [Action::Refuse { reason, .. }] = &refused[..] else {
        panic!("{refused:?}");
    };
    assert!(reason.contains("snapshot 9 has 1 of"), "{reason}");
    assert_eq!(loads(&coordinator.ready(server(1), &apps())).len(), 1);
}

#[test]
fn what_a_dead_server_has_not_saved_is_asked_of_its_successor() {
    let mut job = Job::new(2, 1);
    let orders = saves(&job.coordinator.save(1));
    assert_eq!(orders.len(), 2);
    let map = job.coordinator.map().unwrap().clone();
    let saved_by = |node: NodeId| -> Vec<SavedRange> {
        let own = map.ranges.iter().filter(|range| range.tail() == Some(node));
        let saved = |range: &ChainRange| SavedRange {
            first: range.first,
            last: range.last,
            file: String::new(),
            bytes: 0,
        };
        own.map(saved).collect()
    };
    let ticket = orders[0].1;
    let ranges = saved_by(server(0));
    assert_eq!(
        job.coordinator
            .report(server(0), &Report::Saved { ticket, ranges }),
        []
    );
    let actions = job.coordinator.died(server(1));
    let again = saves(&actions);
    let missing = saved_by(server(1));
    assert!(again.len() == 1 && again[0].0 == server(0), "{again:?}");
    let keys: Vec<_> = missing
        .iter()
        .map(|range| (range.first, range.last))
        .collect();
    assert_eq!(again[0].2, keys);
    let ticket = again[0].1;
    let done = job.coordinator.report(
        server(0),
        &Report::Saved {
            ticket,
            ranges: missing,
        },
    );
    assert!(
        matches!(&done[..], [Action::Saved { number: 1, .. }]),
        "{done:?}"
    );
}

#[test]
fn a_snapshot_fails_without_servers_and_without_values() {
    let mut nobody = Coordinator::new(1, 0);
    let failed = nobody.save(1);
    assert!(
        matches!(&failed[..], [Action::NotSaved { reason, .. }] if reason == "no server serves")
    );
    let mut job = Job::new(2, 0);
    job.coordinator.died(server(1));
    let failed = job.coordinator.save(2);
    let [Action::NotSaved { number: 2, reason }] = &failed[..] else {
        panic!("{failed:?}");
    };
    assert!(reason.contains("are lost"), "{reason}");
}

#[test]
fn a_server_that_cannot_save_fails_the_snapshot_and_not_the_next_one() {
    let mut job = Job::new(1, 0);
    let ticket = saves(&job.coordinator.save(1))[0].1;
    let reason = "the disk is full".to_owned();
    let failed = job
        .coordinator
        .report(server(0), &Report::NotSaved { ticket, reason });
    let [Action::NotSaved { reason, .. }] = &failed[..] else {
        panic!("{failed:?}");
    };
    assert_eq!(reason, "server 0: the disk is full");
    assert!(saves(&job.coordinator.save(2))[0].1 > ticket);
    let given_up = job.coordinator.give_up_saving("it took too long");
    assert!(
        matches!(&given_up[..], [Action::NotSaved { number: 2, .. }]),
        "{given_up:?}"
    );
}
