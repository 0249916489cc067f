//! Rules 1 to 4, 7 and 10: hosts come and go, and workers with them.

use elasticrun_core::{Cooldown, Decision, Settings, results::Outcome, rounds::Cause};
use elasticrun_protocol::AgentCommand;

use crate::harness::{Harness, commit, draining, host, seconds};

pub(crate) fn elastic(np: u32, min: u32, max: u32) -> Settings {
    Settings {
        cooldown: Cooldown::Forever,
        ..Settings::elastic(np, min, Some(max))
    }
}

fn members(harness: &Harness) -> Vec<(String, u32)> {
    harness.members()
}

fn named(names: &[(&str, u32)]) -> Vec<(String, u32)> {
    names
        .iter()
        .map(|(host, slot)| ((*host).to_owned(), *slot))
        .collect()
}

#[test]
fn sizes_two_four_two_and_the_survivor_becomes_rank_0() {
    let mut harness = Harness::new(elastic(2, 2, 4));
    harness.list(&[host("a", 2)]);
    assert_eq!((harness.size(), harness.started()), (2, 1));
    harness.commit();
    harness.list(&[host("a", 2), host("b", 2)]);
    assert_eq!((harness.size(), harness.started()), (4, 2));
    assert_eq!(
        members(&harness),
        named(&[("a", 0), ("a", 1), ("b", 0), ("b", 1)]),
        "R2"
    );
    harness.commit();
    harness.list(&[host("b", 2)]);
    assert_eq!(harness.size(), 4, "missing once is not gone");
    harness.list(&[host("b", 2)]);
    assert_eq!((harness.size(), harness.started()), (2, 3));
    assert_eq!(members(&harness), named(&[("b", 0), ("b", 1)]));
    assert_eq!(harness.base(), Some(commit(2, 2)), "they left at a commit");
    assert_eq!(
        harness.runs("a"),
        0,
        "rule 10: a worker whose slot is gone ends"
    );
    harness.finish_all();
    assert_eq!(harness.outcome, Some(Outcome::Succeeded));
    assert_eq!(harness.rejected, []);
}

#[test]
fn a_host_that_comes_before_the_first_worker_registers_is_not_lost() {
    let mut harness = Harness::new(elastic(2, 2, 4));
    harness.slow = true;
    harness.list(&[host("a", 2)]);
    harness.list(&[host("a", 2), host("b", 2)]);
    for (name, slot) in [("a", 0), ("a", 1), ("b", 0), ("b", 1)] {
        harness.joins(name, slot);
    }
    harness.pass(seconds(2));
    assert_eq!(harness.size(), 4, "R6");
}

#[test]
fn a_growth_waits_one_last_call_for_more() {
    let mut harness = Harness::new(elastic(1, 1, 3));
    harness.list(&[host("a", 1)]);
    harness.slow = true;
    harness.list(&[host("a", 1), host("b", 2)]);
    harness.joins("b", 0);
    assert_eq!(harness.started(), 1, "the other one of b is coming");
    harness.joins("b", 1);
    assert_eq!(
        (harness.started(), harness.size()),
        (2, 3),
        "all are there: no reason to wait"
    );
}

#[test]
fn a_last_call_ends_without_those_who_are_late() {
    let mut harness = Harness::new(elastic(1, 1, 3));
    harness.list(&[host("a", 1)]);
    harness.slow = true;
    harness.list(&[host("a", 1), host("b", 2)]);
    harness.joins("b", 0);
    harness.pass(seconds(1));
    assert_eq!((harness.started(), harness.size()), (2, 2));
}

#[test]
fn a_change_that_leaves_the_assignment_interrupts_nobody() {
    let mut harness = Harness::new(elastic(2, 2, 2));
    harness.list(&[host("a", 2)]);
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.list(&[host("a", 4), host("b", 2)]);
    harness.pass(seconds(10));
    assert_eq!((harness.started(), harness.size()), (1, 2));
    assert!(
        !harness
            .sent
            .iter()
            .any(|(_, command)| matches!(command, AgentCommand::Hold { .. }))
    );
}

#[test]
fn spares_wait_and_take_over() {
    let mut harness = Harness::new(Settings {
        spares: 1,
        ..elastic(2, 2, 2)
    });
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    assert_eq!(
        (harness.size(), harness.runs("c")),
        (2, 1),
        "the spare waits"
    );
    harness.commit();
    harness.kill("b", 0);
    assert_eq!((harness.started(), harness.size()), (2, 2));
    assert_eq!(members(&harness), named(&[("a", 0), ("c", 0)]));
}

#[test]
fn a_drained_host_is_left_at_a_boundary_and_is_no_failure() {
    let mut harness = Harness::new(elastic(2, 1, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.list(&[host("a", 1), draining("b", 1)]);
    assert_eq!((harness.started(), harness.size()), (2, 1));
    assert_eq!(harness.runs("b"), 0);
    harness.lose("b");
    let failed = |note: &&Decision| {
        matches!(
            note,
            Decision::HostFailed { .. } | Decision::Blacklisted { .. }
        )
    };
    assert_eq!(harness.notes.iter().filter(failed).count(), 0, "rule 7");
    assert_eq!(harness.job.results().failures(), 0);
}

#[test]
fn all_hosts_may_drain_while_others_come() {
    let mut harness = Harness::new(elastic(1, 1, 2));
    harness.list(&[host("a", 1)]);
    harness.commit();
    harness.list(&[draining("a", 1)]);
    assert_eq!(harness.outcome, None, "to drain is not to be out for good");
    harness.list(&[draining("a", 1), host("b", 1)]);
    assert_eq!(members(&harness), named(&[("b", 0)]));
    assert_eq!(harness.base(), Some(commit(1, 2)));
}

#[test]
fn fewer_slots_are_a_removal_and_more_slots_are_a_growth() {
    let mut harness = Harness::new(elastic(2, 1, 4));
    harness.list(&[host("a", 2)]);
    harness.list(&[host("a", 1)]);
    assert_eq!(members(&harness), named(&[("a", 0)]));
    harness.list(&[host("a", 3)]);
    harness.pass(seconds(1));
    assert_eq!(members(&harness), named(&[("a", 0), ("a", 1), ("a", 2)]));
    let causes: Vec<_> = (harness.notes.iter())
        .filter_map(|note| match note {
            Decision::RoundStarted { cause, .. } => Some(cause.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(causes, [Cause::First, Cause::Removed, Cause::Added]);
}

#[test]
fn a_host_without_slots_leaves_and_the_others_train_on() {
    let mut harness = Harness::new(elastic(2, 1, 2));
    let mut without = host("b", 0);
    without.apply_zero_slots();
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.list(&[host("a", 1), without.clone()]);
    assert_eq!(harness.size(), 2, "one short answer removes no host");
    for _ in 0..3 {
        harness.list(&[host("a", 1), without.clone()]);
        assert_eq!(members(&harness), named(&[("a", 0)]));
    }
    let b = Decision::NoSlots { host: "b".into() };
    let announced = |harness: &Harness| harness.notes.iter().filter(|note| **note == b).count();
    assert_eq!(announced(&harness), 1);
    assert_eq!(harness.base(), Some(commit(1, 2)), "it left at a commit");
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.pass(seconds(1));
    assert_eq!(members(&harness), named(&[("a", 0), ("b", 0)]));
    assert_eq!((announced(&harness), harness.blacklisted()), (1, 0));
}

#[test]
fn a_worker_that_does_not_reach_the_boundary_is_aborted() {
    let mut harness = Harness::new(elastic(2, 1, 4));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.passive.insert("b".into());
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    harness.pass(seconds(59));
    assert_eq!(harness.started(), 1);
    harness.pass(seconds(1));
    let aborted = |(host, command): &(_, AgentCommand)| {
        *host == "b".into() && matches!(command, AgentCommand::Abort { .. })
    };
    assert!(
        harness.sent.iter().any(aborted),
        "the interrupt is never needed for safety"
    );
    harness.comes_back("b");
    assert_eq!((harness.started(), harness.size()), (2, 3));
}
