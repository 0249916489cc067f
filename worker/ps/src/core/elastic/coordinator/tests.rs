//! Decisions of the coordinator, without servers: each order is carried out at once.

use super::*;

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
