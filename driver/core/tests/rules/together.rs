//! Events that come together: the job receives all of them before it plans, and one may undo what another has
//! completed.

use elasticrun_core::Decision;
use elasticrun_protocol::{
    AgentCommand, AgentReport, Boundary, Round,
    control::{Held, Waiting},
};

use crate::{
    harness::{Harness, host, process, range, seconds},
    hosts::elastic,
};

fn planned(harness: &Harness) -> usize {
    let planned = |note: &&Decision| matches!(note, Decision::RoundPlanned { .. });
    harness.notes.iter().filter(planned).count()
}

/// Hosts a and b are planned for round 1. Host a has answered, b has not.
fn one_answer_is_missing() -> Harness {
    let mut harness = Harness::new(elastic(2, 1, 2));
    harness.passive.insert("b".into());
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.connects("b");
    let waiting = Waiting {
        process: process(0, 1),
        left: None,
        data_port: 1,
    };
    let workers = vec![waiting];
    harness.report("b", AgentReport::Waiting { workers });
    assert_eq!((planned(&harness), harness.started()), (1, 0));
    harness
}

fn last_answer(harness: &mut Harness) {
    let held = Held {
        process: process(0, 1),
        commit: None,
        shard: Default::default(),
        empty: false,
        data_port: 1,
    };
    let ready = AgentReport::Ready {
        round: Round(1),
        members: vec![held],
        kept: Vec::new(),
        free_port: 9,
    };
    harness.report("b", ready);
}

#[test]
fn the_loss_of_many_hosts_is_one_plan() {
    let names: Vec<_> = (0..40).map(|n| format!("h{n}")).collect();
    let mut harness = Harness::new(elastic(40, 2, 40));
    harness.list(&names.iter().map(|n| host(n, 1)).collect::<Vec<_>>());
    harness.commit();
    assert_eq!((harness.size(), planned(&harness)), (40, 1));
    let before = harness.notes.len();
    harness.together(|harness| names[5..].iter().for_each(|name| harness.lose(name)));
    assert_eq!(
        (harness.size(), harness.started(), planned(&harness)),
        (5, 2, 2)
    );
    let counted = |note: &&Decision| matches!(note, Decision::HostsChanged { .. });
    assert_eq!(harness.notes[before..].iter().filter(counted).count(), 1);
}

#[test]
fn cooldowns_of_many_end_together() {
    let names: Vec<_> = (0..200).map(|n| format!("h{n}")).collect();
    let mut settings = elastic(200, 2, 200);
    settings.cooldown = range(10, 100);
    let mut harness = Harness::new(settings);
    harness.list(&names.iter().map(|n| host(n, 1)).collect::<Vec<_>>());
    harness.commit();
    harness.together(|harness| names[5..].iter().for_each(|name| harness.lose(name)));
    let before = harness.notes.len();
    // The jitter spreads the ends over a second.
    harness.pass(seconds(12));
    let count =
        |counted: fn(&&Decision) -> bool| harness.notes[before..].iter().filter(counted).count();
    let over = |note: &&Decision| matches!(note, Decision::CooldownOver { .. });
    let changed = |note: &&Decision| matches!(note, Decision::HostsChanged { .. });
    assert_eq!(count(over), 195);
    assert!((1..=11).contains(&count(changed)), "{}", count(changed));
}

#[test]
fn a_round_does_not_start_if_a_member_is_lost_with_the_last_answer() {
    let mut harness = one_answer_is_missing();
    harness.together(|harness| {
        last_answer(harness);
        harness.lose("a");
    });
    assert_eq!(harness.started(), 0);
    assert_eq!(harness.rejected, []);
}

#[test]
fn a_round_starts_if_the_last_answer_comes_with_something_else() {
    let mut harness = one_answer_is_missing();
    harness.together(|harness| {
        last_answer(harness);
        harness.list(&[host("a", 1), host("b", 1)]);
    });
    assert_eq!((harness.started(), harness.size()), (1, 2));
}

#[test]
fn a_round_does_not_start_if_a_host_drains_with_the_last_answer() {
    let mut harness = one_answer_is_missing();
    harness.together(|harness| {
        last_answer(harness);
        harness.asks_to_drain("a");
    });
    assert_eq!(harness.started(), 0, "R5");
}

#[test]
fn nobody_leaves_at_a_boundary_that_is_counted_when_a_member_fails() {
    let mut harness = Harness::new(elastic(2, 1, 3));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.passive.insert("b".into());
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    let round = harness.round();
    harness.together(|harness| {
        let highest = Boundary(3);
        harness.report("b", AgentReport::BoundaryCounted { round, highest });
        harness.kill("a", 0);
    });
    let leave = |command: &AgentCommand| matches!(command, AgentCommand::Leave { .. });
    assert!(!harness.sent.iter().any(|(_, command)| leave(command)));
    assert_eq!(planned(&harness), 2, "the others are planned without it");
}
