use proptest::prelude::*;

use super::*;

fn at(seconds: u64) -> Time {
    Time::from_start(Duration::from_secs(seconds))
}

fn list(low: u64, high: u64, limit: Option<u32>) -> Blacklist {
    let cooldown = Cooldown::Range {
        low: Duration::from_secs(low),
        high: Duration::from_secs(high),
    };
    Blacklist::new(&Settings {
        cooldown,
        max_host_failures: limit,
        ..Settings::standard(1)
    })
}

fn host() -> Domain {
    Domain::Host("a".into())
}

#[test]
fn the_second_cooldown_is_longer() {
    let (mut list, mut random) = (list(1, 4, None), Random::from_seed(1));
    let Some(Out::Until(first)) = list.fail(at(0), host(), at(0), &mut random) else {
        panic!()
    };
    assert!(first >= at(1) && first.since(at(1)) <= COMMON_END);
    assert_eq!(
        list.fail(at(0), host(), at(0), &mut random),
        None,
        "counts once between two rounds"
    );
    list.round_started();
    assert_eq!(list.expire(first), BTreeSet::from([host()]));
    let Some(Out::Until(second)) = list.fail(first, host(), at(0), &mut random) else {
        panic!()
    };
    assert!(second.since(first) >= Duration::from_secs(2));
}

#[test]
fn health_forgives_and_the_limit_is_for_good() {
    let (mut list, mut random) = (list(1, 10, Some(2)), Random::from_seed(1));
    list.fail(at(0), host(), at(0), &mut random);
    list.round_started();
    // Two slots of the host, one after the other and overlapping: ten seconds together.
    list.came(at(2), &"a".into(), LocalRank(0));
    list.came(at(3), &"a".into(), LocalRank(1));
    list.went(at(7), &"a".into(), LocalRank(0));
    list.went(at(8), &"a".into(), LocalRank(1));
    list.went(at(9), &"a".into(), LocalRank(1));
    list.came(at(16), &"a".into(), LocalRank(1));
    assert!(
        matches!(
            list.fail(at(20), host(), at(0), &mut random),
            Some(Out::Until(_))
        ),
        "forgiven"
    );
    list.round_started();
    assert_eq!(
        list.fail(at(22), host(), at(0), &mut random),
        Some(Out::ForGood)
    );
    assert!(list.expire(at(1_000_000)).is_empty());
}

#[test]
fn time_without_a_worker_is_no_health() {
    let (mut list, mut random) = (list(1, 10, Some(2)), Random::from_seed(1));
    list.fail(at(0), host(), at(0), &mut random);
    list.round_started();
    list.came(at(100), &"a".into(), LocalRank(0));
    list.went(at(109), &"a".into(), LocalRank(0));
    let slot = Domain::Slot("a".into(), LocalRank(0));
    list.fail(at(500), slot.clone(), at(499), &mut random);
    assert_eq!(
        list.fail(at(1000), host(), at(999), &mut random),
        Some(Out::ForGood),
        "nine seconds are not ten"
    );
    assert_eq!(
        list.fail(at(2000), slot, at(1999), &mut random),
        Some(Out::ForGood),
        "it hung at its start all the time"
    );
}

#[test]
fn an_end_is_rounded_up_within_the_longest_cooldown() {
    let millis = |millis| Time::from_start(Duration::from_millis(millis));
    assert_eq!(common_end(millis(1000)), millis(1000));
    assert_eq!(common_end(millis(1001)), millis(1100));
    assert_eq!(common_end(Time::NEVER), Time::NEVER);
    let (mut list, mut random) = (list(1, 1, None), Random::from_seed(1));
    let out = list.fail(millis(30), host(), at(0), &mut random);
    assert_eq!(out, Some(Out::Until(millis(1030))));
}

proptest! {
    #[test]
    fn a_cooldown_lies_between_its_bounds(low in 0u64..100, more in 0u64..1000, n in 1u32..80, jitter in 0.0f64..0.1) {
        let (low, high) = (Duration::from_secs(low), Duration::from_secs(low + more));
        let wait = cooldown(low, high, n, jitter);
        prop_assert!(low <= wait && wait <= high);
    }
}

#[test]
fn the_next_end_of_a_cooldown_is_that_of_no_other_domain() {
    let (mut list, mut random) = (list(1, 100, None), Random::from_seed(1));
    let other = Domain::Host("b".into());
    for domain in [host(), other.clone()] {
        list.fail(at(0), domain, at(0), &mut random);
    }
    list.round_started();
    // The second cooldown of a replaces the first.
    let Some(Out::Until(end)) = list.fail(at(1), host(), at(1), &mut random) else {
        panic!("it is out for a while")
    };
    let first = list.next_deadline().expect("b is out");
    assert!(first < end);
    assert_eq!(list.expire(first), BTreeSet::from([other]));
    assert_eq!(list.next_deadline(), Some(end));
    list.forgive_episode();
    assert_eq!(list.next_deadline(), None);
    assert!(list.expire(end).is_empty());
}
