//! R9: nothing waits for ever. Workers that are ready stop the clock of the elastic timeout. Starts that hang,
//! agents that never connect and cooldowns do not.

use std::time::Duration;

use elasticrun_core::{Cooldown, RestartMode, Settings, results::Outcome};
use elasticrun_protocol::control::Exit;

use crate::harness::{Harness, host, range, seconds};

/// The defaults of the command line.
fn defaults(np: u32, min: u32) -> Settings {
    Settings::elastic(np, min, Some(np))
}

/// Advances time while the processes of `hang` hang at each start and the others come to `run()`. Gives when the
/// job ended.
fn hanging(
    harness: &mut Harness,
    slots: &[(&str, u32)],
    hang: &[(&str, u32)],
    limit: u64,
) -> Option<u64> {
    for _ in 0..limit {
        for (name, slot) in slots.iter().filter(|slot| !hang.contains(slot)) {
            harness.joins_if_it_starts(name, *slot);
        }
        if harness.outcome.is_some() {
            return Some(harness.now.since_start().as_secs());
        }
        harness.pass(seconds(1));
    }
    None
}

fn timed_out(harness: &Harness) -> bool {
    matches!(harness.outcome, Some(Outcome::TimedOut { .. }))
}

#[test]
fn a_process_that_hangs_at_each_start_ends_the_job() {
    let mut harness = Harness::new(defaults(2, 2));
    harness.slow = true;
    harness.list(&[host("a", 2)]);
    let ended = hanging(&mut harness, &[("a", 0), ("a", 1)], &[("a", 1)], 3000);
    assert_eq!(
        (timed_out(&harness), ended),
        (true, Some(600)),
        "{:?}",
        harness.outcome
    );
    assert!(matches!(
        harness.outcome,
        Some(Outcome::TimedOut {
            workers: 1,
            needed: 2,
            ..
        })
    ));
}

#[test]
fn a_process_that_hangs_at_each_start_lets_the_job_begin_with_fewer() {
    let mut harness = Harness::new(defaults(2, 1));
    harness.slow = true;
    harness.list(&[host("a", 2)]);
    let ended = hanging(&mut harness, &[("a", 0), ("a", 1)], &[("a", 1)], 602);
    assert_eq!((harness.started(), harness.size(), ended), (1, 1, None));
}

#[test]
fn a_first_start_may_take_its_start_timeout() {
    // The agent connects after five minutes, and the imports take almost ten.
    let mut harness = Harness::new(defaults(2, 2));
    harness.slow = true;
    harness.passive.insert("a".into());
    harness.list(&[host("a", 2)]);
    harness.pass(seconds(300));
    harness.connects("a");
    harness.pass(seconds(590));
    assert_eq!(
        harness.outcome, None,
        "890 s, and each start is within its own time"
    );
    harness.joins("a", 0);
    harness.joins("a", 1);
    assert_eq!((harness.started(), harness.size()), (1, 2));
}

#[test]
fn first_starts_without_end_are_not_waited_for() {
    // Each minute another host appears, and each start hangs. In mode auto they might be scripts without the SDK.
    let mut harness = Harness::new(Settings {
        restart_mode: RestartMode::InProcess,
        ..Settings::elastic(1, 1, None)
    });
    harness.slow = true;
    let mut hosts = Vec::new();
    for minute in 0..60 {
        if harness.outcome.is_some() {
            break;
        }
        hosts.push(host(&format!("h{minute}"), 1));
        harness.list(&hosts);
        harness.pass(seconds(60));
    }
    let ended = harness.now.since_start();
    assert!(timed_out(&harness), "{:?}", harness.outcome);
    assert!(
        ended <= seconds(1200),
        "elastic and start timeout: {ended:?}"
    );
}

#[test]
fn a_successor_that_always_hangs_ends_the_job() {
    let mut harness = Harness::new(defaults(2, 2));
    harness.list(&[host("a", 2)]);
    harness.commit();
    harness.pass(seconds(1000));
    harness.slow = true;
    harness.kill("a", 1);
    let ended = hanging(&mut harness, &[("a", 0), ("a", 1)], &[("a", 1)], 3000);
    assert_eq!(
        (timed_out(&harness), ended),
        (true, Some(1600)),
        "{:?}",
        harness.outcome
    );
}

#[test]
fn agents_that_never_connect_end_the_job() {
    for (limit, reachable) in [
        (Some(5), true),
        (None, true),
        (Some(5), false),
        (None, false),
    ] {
        let mut harness = Harness::new(Settings {
            max_host_failures: limit,
            ..defaults(2, 2)
        });
        match reachable {
            true => harness.passive.insert("b".into()),
            false => harness.unreachable.insert("b".into()),
        };
        harness.list(&[host("a", 1), host("b", 1)]);
        let ended = hanging(&mut harness, &[], &[], 3000);
        assert_eq!(
            (timed_out(&harness), ended),
            (true, Some(600)),
            "{limit:?} {reachable}"
        );
    }
}

#[test]
fn a_slot_that_fails_at_each_start_lets_the_job_begin_with_fewer() {
    for limit in [Some(5), None] {
        let mut harness = Harness::new(Settings {
            max_host_failures: limit,
            ..defaults(4, 2)
        });
        harness.slow = true;
        harness.list(&[host("a", 4)]);
        for slot in 0..3 {
            harness.joins("a", slot);
        }
        for _ in 0..700 {
            if harness.started() > 0 {
                break;
            }
            if harness.is_starting("a", 3) {
                harness.ends("a", 3, Exit::Code(1));
            }
            harness.pass(seconds(1));
        }
        let began = harness.now.since_start();
        assert_eq!((harness.started(), harness.size()), (1, 3), "{limit:?}");
        assert!(began <= seconds(602), "{limit:?}: {began:?}");
    }
}

#[test]
fn a_start_that_hangs_is_no_health() {
    let mut harness = Harness::new(Settings {
        start_timeout: seconds(600),
        cooldown: range(1, 10),
        max_host_failures: Some(3),
        ..Settings::elastic(1, 1, Some(2))
    });
    harness.list(&[host("a", 1)]);
    harness.slow = true;
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.pass(seconds(2000));
    assert_eq!(harness.blacklisted(), 3, "and it is out for good");
    assert_eq!(harness.runs("b"), 0);
}

#[test]
fn scripts_of_a_standard_job_never_come_to_run() {
    let mut harness = Harness::new(Settings::standard(2));
    harness.slow = true;
    harness.list(&[host("a", 2)]);
    harness.pass(Duration::from_secs(100_000));
    assert_eq!(harness.outcome, None);
}

#[test]
fn cooldowns_that_come_and_go_do_not_stop_the_clock() {
    let mut harness = Harness::new(Settings {
        cooldown: Cooldown::Range {
            low: seconds(10),
            high: seconds(20),
        },
        max_host_failures: None,
        ..defaults(2, 2)
    });
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.unreachable.insert("b".into());
    harness.lose("b");
    let ended = hanging(&mut harness, &[], &[], 3000);
    assert_eq!(
        (timed_out(&harness), ended),
        (true, Some(600)),
        "{:?}",
        harness.outcome
    );
}
