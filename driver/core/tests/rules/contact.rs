//! Hosts that are out of reach while others could go on without them: how long the round waits.

use std::time::Duration;

use elasticrun_core::{Decision, rounds::Cause};
use elasticrun_protocol::{AgentReport, Round};

use crate::{
    harness::*,
    hosts::elastic,
    returning::{aborted, adoption, in_round_1, rounds, training},
};

/// The silence after which a host is out of reach.
const SILENCE: Duration = Duration::from_millis(7_500);

fn return_of(harness: &mut Harness, host: &str) {
    harness.returns(host, adoption(in_round_1(), Vec::new()));
}

#[track_caller]
fn assert_nothing_lost(harness: &Harness) {
    assert!(!aborted(harness), "{:?}", harness.notes);
    assert_eq!(rounds(harness), 1);
}

#[test]
fn a_network_of_the_driver_that_is_down_for_8_s_costs_nothing() {
    let mut harness = training(2);
    harness.pass_with(&["a", "b"], seconds(20));
    // The heartbeats of the hosts fall into different moments of the second before the cut.
    harness.pass(Duration::from_millis(500));
    harness.beats("a");
    harness.pass(SILENCE - Duration::from_millis(500));
    harness.breaks_off("b");
    harness.pass(Duration::from_millis(500));
    harness.breaks_off("a");
    harness.pass(Duration::from_millis(700));
    return_of(&mut harness, "b");
    harness.pass_with(&["b"], seconds(2));
    return_of(&mut harness, "a");
    harness.pass_with(&["a", "b"], seconds(600));
    assert_nothing_lost(&harness);
}

#[test]
fn a_host_that_is_silent_while_the_network_of_the_driver_is_down_may_recover() {
    let mut harness = training(2);
    harness.pass(SILENCE);
    harness.breaks_off("a");
    // The connection of b is still open.
    harness.beats("b");
    harness.pass_with(&["b"], SILENCE - seconds(1));
    return_of(&mut harness, "a");
    harness.pass_with(&["a", "b"], seconds(600));
    assert_nothing_lost(&harness);
}

#[test]
fn connections_that_all_end_at_once_cost_nothing() {
    let mut harness = training(2);
    harness.breaks_off("a");
    harness.breaks_off("b");
    harness.pass(seconds(20));
    return_of(&mut harness, "b");
    harness.pass_with(&["b"], seconds(2));
    return_of(&mut harness, "a");
    harness.pass_with(&["a", "b"], seconds(600));
    assert_nothing_lost(&harness);
}

#[test]
fn a_connection_that_breaks_for_a_moment_costs_nothing() {
    let mut harness = training(2);
    harness.pass_with(&["a", "b"], seconds(20));
    harness.breaks_off("a");
    harness.pass_with(&["b"], seconds(2));
    return_of(&mut harness, "a");
    harness.pass_with(&["a", "b"], seconds(600));
    assert_nothing_lost(&harness);
}

#[test]
fn others_go_on_without_a_host_once_it_counts_as_silent() {
    let mut harness = training(2);
    harness.pass_with(&["a", "b"], seconds(20));
    harness.pass_with(&["b"], seconds(1));
    harness.breaks_off("a");
    harness.pass_with(&["b"], SILENCE - seconds(1) - Duration::from_millis(1));
    assert_nothing_lost(&harness);
    harness.pass(Duration::from_millis(1));
    assert!(aborted(&harness));
    assert_eq!(rounds(&harness), 2, "counted from its last heartbeat");
}

#[test]
fn others_go_on_without_a_host_that_does_not_return_with_them() {
    let mut harness = training(2);
    harness.breaks_off("a");
    harness.breaks_off("b");
    harness.pass(seconds(20));
    return_of(&mut harness, "b");
    harness.pass_with(&["b"], SILENCE - Duration::from_millis(1));
    assert_nothing_lost(&harness);
    harness.pass(Duration::from_millis(1));
    assert_eq!(rounds(&harness), 2, "{:?}", harness.notes);
}

#[test]
fn others_go_on_at_once_if_a_worker_has_lost_its_peer() {
    let mut harness = training(2);
    harness.breaks_off("a");
    assert_nothing_lost(&harness);
    harness.breaks_away("b");
    assert!(aborted(&harness));
    assert_eq!(rounds(&harness), 2, "no other report is waited for");
}

/// Hosts a, b and c train, and a is away. A worker on b reports that it has lost peers on the hosts with these indices.
fn loses_peers_while_a_is_away(unreachable: Vec<u32>) -> Harness {
    let mut harness = Harness::new(elastic(6, 2, 6));
    harness.returns = true;
    harness.list(&[host("a", 2), host("b", 2), host("c", 2)]);
    harness.breaks_off("a");
    assert_nothing_lost(&harness);
    let lost = AgentReport::PeerLost {
        round: Round(1),
        process: process(0, 1),
        unreachable,
    };
    harness.report("b", lost);
    assert!(aborted(&harness));
    harness
}

#[test]
fn others_go_on_at_once_if_the_lost_peer_is_on_a_host_that_is_away() {
    for unreachable in [vec![0], vec![2, 0]] {
        let harness = loses_peers_while_a_is_away(unreachable);
        assert_eq!(rounds(&harness), 2, "no other report is waited for");
    }
}

#[test]
fn the_death_of_a_lost_peer_is_waited_for_while_another_host_is_away() {
    let mut harness = loses_peers_while_a_is_away(vec![2]);
    assert_eq!(rounds(&harness), 1, "c may report the death");
    harness.kill("c", 0);
    assert_eq!(rounds(&harness), 2, "{:?}", harness.notes);
    let a_fails = |cause: &Cause| *cause == Cause::HostFailed { host: "a".into() };
    let for_a =
        |note: &Decision| matches!(note, Decision::RoundStarted { cause, .. } if a_fails(cause));
    assert!(!harness.notes.iter().any(for_a), "{:?}", harness.notes);
}

#[test]
fn others_go_on_at_once_without_a_host_that_drains() {
    let mut harness = training(2);
    harness.breaks_off("a");
    assert_nothing_lost(&harness);
    harness.asks_to_drain("a");
    assert_eq!(rounds(&harness), 2);
}

#[test]
fn a_drain_of_another_member_is_not_delayed() {
    let mut harness = Harness::new(elastic(6, 2, 6));
    harness.returns = true;
    harness.list(&[host("a", 2), host("b", 2), host("c", 2)]);
    harness.breaks_off("a");
    assert_nothing_lost(&harness);
    harness.asks_to_drain("b");
    assert_eq!(
        harness.members(),
        [("c".to_owned(), 0), ("c".to_owned(), 1)]
    );
}

#[test]
fn a_pause_of_one_agent_is_no_outage() {
    let mut harness = training(2);
    harness.pass_with(&["a", "b"], seconds(20));
    harness.breaks_off("a");
    harness.pass(seconds(2));
    harness.pass_with(&["b"], SILENCE - seconds(2));
    assert_eq!(rounds(&harness), 2, "{:?}", harness.notes);
}

#[test]
fn an_agent_that_is_heard_rarely_keeps_no_host_that_is_gone() {
    for gap in [4, 5, 7].map(seconds) {
        let mut harness = training(2);
        harness.pass_with(&["a", "b"], seconds(20));
        harness.breaks_off("a");
        let mut waited = Duration::ZERO;
        while rounds(&harness) == 1 && waited < seconds(60) {
            harness.pass(gap);
            harness.beats("b");
            waited += gap;
        }
        assert!(waited <= gap * 2 + SILENCE, "{waited:?}");
    }
}

#[test]
fn a_host_that_fell_silent_before_an_outage_is_not_waited_for_after_it() {
    let mut harness = training(2);
    harness.pass_with(&["a", "b"], seconds(20));
    harness.pass_with(&["b"], seconds(5));
    harness.breaks_off("a");
    harness.breaks_off("b");
    harness.pass(seconds(20));
    assert_nothing_lost(&harness);
    return_of(&mut harness, "b");
    assert_eq!(rounds(&harness), 2, "{:?}", harness.notes);
}
