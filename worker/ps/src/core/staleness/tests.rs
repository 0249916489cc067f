//! Tests of bounded staleness: examples, and any events against a model.

use proptest::{collection::vec, prelude::*};

use super::*;

const NEVER: Duration = Duration::MAX;

fn worker(rank: u32) -> NodeId {
    NodeId::worker(rank)
}

fn clocks(staleness: Staleness, workers: u32) -> Clocks<u32> {
    Clocks::new(staleness, (0..workers).map(worker), 1000)
}

#[test]
fn in_step_a_pull_waits_for_the_slowest() {
    let mut clocks = clocks(Staleness::BSP, 3);
    assert_eq!(clocks.pull(worker(0), 0, 1, NEVER), Verdict::Go(0));
    assert_eq!(clocks.tick(worker(0), 1), Some(vec![]));
    assert_eq!(clocks.pull(worker(0), 1, 1, NEVER), Verdict::Held);
    assert_eq!(clocks.tick(worker(1), 1), Some(vec![]));
    assert_eq!(clocks.pull(worker(1), 2, 1, NEVER), Verdict::Held);
    // A repetition of a clock, and an older one, change nothing.
    assert_eq!(clocks.tick(worker(1), 1), Some(vec![]));
    assert_eq!(clocks.tick(worker(1), 0), Some(vec![]));
    assert_eq!(clocks.held(), 2);
    assert_eq!(clocks.tick(worker(2), 1), Some(vec![1, 2]));
    assert_eq!(clocks.bytes, 0);
}

#[test]
fn with_a_bound_a_worker_may_be_so_far_ahead() {
    let mut clocks = clocks(Staleness::Ssp(2), 2);
    for clock in 1..=2 {
        clocks.tick(worker(0), clock);
        assert_eq!(clocks.pull(worker(0), 0, 1, NEVER), Verdict::Go(0));
    }
    clocks.tick(worker(0), 3);
    assert_eq!(clocks.pull(worker(0), 7, 1, NEVER), Verdict::Held);
    assert_eq!(clocks.pull(worker(1), 8, 1, NEVER), Verdict::Go(8));
    assert_eq!(clocks.tick(worker(1), 1), Some(vec![7]));
}

#[test]
fn without_a_bound_nobody_waits() {
    let mut clocks = clocks(Staleness::Asp, 2);
    clocks.tick(worker(0), 1000);
    assert_eq!(clocks.pull(worker(0), 1, 5000, NEVER), Verdict::Go(1));
}

#[test]
fn nobody_waits_for_who_has_left_and_who_joins_begins_at_the_slowest() {
    let mut clocks = clocks(Staleness::BSP, 3);
    for rank in [0, 1] {
        clocks.tick(worker(rank), 5);
        assert_eq!(clocks.pull(worker(rank), rank, 1, NEVER), Verdict::Held);
    }
    // Its own pull goes with it.
    assert!(clocks.leave(worker(1)).is_empty());
    assert_eq!(clocks.leave(worker(2)), [0]);
    assert_eq!(clocks.tick(worker(2), 9), None);
    assert_eq!(clocks.pull(worker(2), 3, 1, NEVER), Verdict::Gone(3));
    assert_eq!(clocks.join(worker(7)), 5);
    // A new process in the place of the lost one.
    assert_eq!(clocks.join(worker(2)), 5);
    assert_eq!(clocks.pull(worker(2), 3, 1, NEVER), Verdict::Go(3));
    // All leave: a later one does not begin at 0 again.
    for rank in [0, 2, 7] {
        clocks.leave(worker(rank));
    }
    assert_eq!(clocks.join(worker(8)), 5);
}

#[test]
fn a_new_server_takes_over_the_clocks_of_another() {
    let mut clocks = clocks(Staleness::Ssp(1), 3);
    clocks.tick(worker(0), 6);
    assert_eq!(clocks.pull(worker(0), 1, 1, NEVER), Verdict::Held);
    let old = [(worker(0), 6), (worker(1), 5), (worker(3), 7)];
    assert_eq!(clocks.take_over(old), [1]);
    assert_eq!(clocks.clocks().collect::<Vec<_>>(), old);
    assert_eq!(clocks.join(worker(2)), 5);
}

#[test]
fn what_waits_is_limited_in_time_and_bytes() {
    let mut clocks = clocks(Staleness::BSP, 2);
    clocks.tick(worker(0), 1);
    let second = Duration::from_secs(1);
    assert_eq!(clocks.pull(worker(0), 1, 600, second), Verdict::Held);
    assert_eq!(clocks.pull(worker(0), 2, 600, second), Verdict::Full(2));
    assert_eq!(clocks.pull(worker(0), 3, 400, 2 * second), Verdict::Held);
    assert!(clocks.expire(second / 2).is_empty());
    let waits_for = WaitsFor {
        slowest: worker(1),
        clock: 0,
        needed: 1,
    };
    assert_eq!(clocks.expire(second), [(1, waits_for)]);
    assert_eq!(clocks.pull(worker(0), 4, 600, 2 * second), Verdict::Held);
    assert_eq!(clocks.tick(worker(1), 1), Some(vec![3, 4]));
}

#[derive(Clone, Debug)]
enum Event {
    Step(u32),
    Pull(u32),
    Leave(u32),
    Join(u32),
    Time,
}

fn event() -> impl Strategy<Value = Event> {
    let worker = 0u32..5;
    prop_oneof![
        6 => worker.clone().prop_map(Event::Step),
        6 => worker.clone().prop_map(Event::Pull),
        1 => worker.clone().prop_map(Event::Leave),
        1 => worker.prop_map(Event::Join),
        1 => Just(Event::Time),
    ]
}

proptest! {
    /// Any events: each pull ends once, none is let go while a clock is behind its bound, and none waits that could go.
    #[test]
    fn no_pull_is_staler_than_the_bound_and_none_waits_in_vain(
        bound in 0u64..4,
        events in vec(event(), 1..200),
    ) {
        let mut clocks = Clocks::new(Staleness::Ssp(bound), (0..3).map(worker), 40);
        let mut model: BTreeMap<NodeId, u64> = (0..3).map(|rank| (worker(rank), 0)).collect();
        let mut gone = BTreeSet::new();
        // Pulls that wait: the worker, and its clock at the time.
        let mut waiting: BTreeMap<u32, (NodeId, u64)> = BTreeMap::new();
        let mut slowest = 0;
        for (number, event) in (0u32..).zip(events) {
            let now = Duration::from_secs(u64::from(number));
            let mut go = Vec::new();
            match event {
                Event::Step(rank) => {
                    let worker = worker(rank);
                    let clock = model.get(&worker).map_or(slowest, |clock| *clock) + 1;
                    match clocks.tick(worker, clock) {
                        Some(released) => {
                            prop_assert!(!gone.contains(&worker));
                            model.insert(worker, clock);
                            go = released;
                        }
                        None => prop_assert!(gone.contains(&worker)),
                    }
                }
                Event::Pull(rank) => {
                    let worker = worker(rank);
                    match clocks.pull(worker, number, 7, now + Duration::from_secs(30)) {
                        Verdict::Gone(_) => prop_assert!(gone.contains(&worker)),
                        verdict => {
                            let clock = *model.entry(worker).or_insert(slowest);
                            match verdict {
                                Verdict::Go(pull) => {
                                    waiting.insert(pull, (worker, clock));
                                    go.push(pull);
                                }
                                Verdict::Held => _ = waiting.insert(number, (worker, clock)),
                                _ => prop_assert!((waiting.len() + 1) * 7 > 40),
                            }
                        }
                    }
                }
                Event::Leave(rank) => {
                    go = clocks.leave(worker(rank));
                    model.remove(&worker(rank));
                    gone.insert(worker(rank));
                    waiting.retain(|_, (from, _)| *from != worker(rank));
                }
                Event::Join(rank) => {
                    gone.remove(&worker(rank));
                    let clock = *model.entry(worker(rank)).or_insert(slowest);
                    prop_assert_eq!(clocks.join(worker(rank)), clock);
                }
                Event::Time => {
                    for (pull, waits_for) in clocks.expire(now) {
                        prop_assert_eq!(model.get(&waits_for.slowest), Some(&waits_for.clock));
                        prop_assert!(waiting.remove(&pull).is_some());
                    }
                }
            }
            let found = model.values().min().copied().unwrap_or(slowest);
            prop_assert!(found >= slowest, "the slowest went back");
            slowest = found;
            for pull in go {
                let (_, clock) = waiting.remove(&pull).expect("it waits, and goes once");
                prop_assert!(slowest + bound >= clock);
            }
            for (_, clock) in waiting.values() {
                prop_assert!(slowest + bound < *clock, "a pull waits in vain");
            }
            prop_assert_eq!(clocks.held(), waiting.len());
            prop_assert_eq!(clocks.bytes, 7 * waiting.len());
            prop_assert_eq!(clocks.clocks().collect::<BTreeMap<_, _>>(), model.clone());
        }
    }
}
