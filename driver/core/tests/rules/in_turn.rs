//! Drivers that die one after the other, and groups that are cut off in turn: what the last one must know of those before.

use elasticrun_core::{Decision, RestartMode, Settings};
use elasticrun_protocol::control::{AdoptedPhase, Exit};

use crate::{
    harness::{Harness, host, seconds},
    later_driver::{elastic, scripts},
    returning::rounds,
};

#[test]
fn processes_of_a_group_are_in_no_round_once_another_is_found_to_have_the_sdk() {
    let mut harness = scripts(Settings {
        restart_mode: RestartMode::Auto,
        ..elastic()
    });
    harness.driver_dies(0);
    harness.comes_back_with_workers("a");
    let mut adoption = harness.adoption("b");
    for worker in &mut adoption.workers {
        (worker.attached, worker.phase) = (true, AdoptedPhase::Joined);
    }
    harness.comes_back_as("b", adoption);
    let census = harness.job.fleet().census();
    assert_eq!(
        (census.starting, census.waiting, census.training),
        (2, 2, 0)
    );
}

#[test]
fn the_elastic_timeout_waits_for_starts_whose_time_began_with_an_attach() {
    let mut harness = scripts(Settings {
        restart_mode: RestartMode::Auto,
        elastic_timeout: seconds(30),
        start_timeout: seconds(60),
        ..Settings::elastic(4, 4, Some(4))
    });
    harness.pass(seconds(20));
    harness.joins("a", 0);
    harness.pass(seconds(59));
    assert_eq!(harness.outcome, None);
    for (name, slot) in [("a", 1), ("b", 0), ("b", 1)] {
        harness.joins(name, slot);
    }
    assert_eq!((rounds(&harness), harness.size()), (1, 4));
}

/// The script of c has ended, and c has left.
#[test]
fn a_script_on_a_host_that_has_left_takes_no_slot_of_others() {
    let mut harness = Harness::new(Settings {
        restart_mode: RestartMode::InProcess,
        ..Settings::elastic(2, 2, Some(2))
    });
    harness.slow = true;
    harness.list(&[host("c", 1), host("a", 1), host("b", 1)]);
    harness.ends("c", 0, Exit::Code(0));
    harness.joins("a", 0);
    for _ in 0..2 {
        harness.list(&[host("a", 1), host("b", 1)]);
    }
    let waits = |note: &Decision| matches!(note, Decision::WaitingForSlots { .. });
    assert!(!harness.notes.iter().any(waits), "{:?}", harness.notes);
    harness.joins("b", 0);
    assert_eq!((rounds(&harness), harness.size()), (1, 2));
}
