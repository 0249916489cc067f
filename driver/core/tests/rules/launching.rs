//! Agents are launched in batches, and a launch that hangs holds up the others for ten seconds only.

use elasticrun_core::Settings;

use crate::harness::{Harness, host, seconds};

/// A job on this number of hosts. Their agents are launched and do not connect by themselves.
fn launching(hosts: usize, settings: Settings) -> Harness {
    let mut harness = Harness::new(settings);
    let names: Vec<_> = (0..hosts).map(|index| format!("h{index:03}")).collect();
    harness.passive = names.iter().map(|name| name.as_str().into()).collect();
    let list: Vec<_> = names.iter().map(|name| host(name, 1)).collect();
    harness.list(&list);
    harness
}

#[test]
fn agents_are_launched_in_batches() {
    let mut harness = launching(300, Settings::elastic(2, 2, None));
    assert_eq!(harness.launched.len(), 64);
    let first = harness.launched[0].to_string();
    harness.connects(&first);
    assert_eq!(harness.launched.len(), 65, "one has made room");
    harness.pass(seconds(9));
    assert_eq!(harness.launched.len(), 65);
    harness.pass(seconds(1));
    assert_eq!(harness.launched.len(), 129, "64 hang");
    harness.pass(seconds(30));
    let mut launched = harness.launched.clone();
    launched.sort();
    launched.dedup();
    assert_eq!(
        (launched.len(), harness.launched.len()),
        (300, 300),
        "each once"
    );
}

#[test]
fn a_launch_that_fails_makes_room_and_the_next_host_is_launched() {
    let mut harness = Harness::new(Settings::elastic(2, 2, None));
    let names: Vec<_> = (0..300).map(|index| format!("h{index:03}")).collect();
    harness.unreachable = names.iter().map(|name| name.as_str().into()).collect();
    let list: Vec<_> = names.iter().map(|name| host(name, 1)).collect();
    harness.list(&list);
    assert_eq!(harness.launched.len(), 300);
}

#[test]
fn hosts_that_leave_while_they_wait_are_not_launched() {
    let mut harness = launching(100, Settings::elastic(2, 2, None));
    assert_eq!(harness.launched.len(), 64);
    let left: Vec<_> = (0..70)
        .map(|index| host(&format!("h{index:03}"), 1))
        .collect();
    harness.list(&left);
    harness.list(&left);
    harness.pass(seconds(11));
    assert_eq!(harness.launched.len(), 70);
}

#[test]
fn the_start_timeout_of_a_host_counts_from_its_launch() {
    let settings = Settings {
        start_timeout: seconds(15),
        ..Settings::elastic(1, 1, None)
    };
    let mut harness = launching(65, settings);
    harness.pass(seconds(16));
    let last = harness.launched[64].to_string();
    harness.connects(&last);
    assert_eq!(harness.admitted.len(), 1);
    assert_eq!(harness.runs(&last), 1, "launched six seconds ago");
}

#[test]
fn only_as_many_agents_as_the_job_wants_are_launched() {
    let harness = launching(300, Settings::elastic(2, 2, Some(10)));
    assert_eq!(harness.launched.len(), 10);
}
