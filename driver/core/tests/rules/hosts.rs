//! Rules 1 to 4, 7 and 10: hosts come and go, and workers with them.

use elasticrun_core::{Cooldown, Note, Settings, results::Outcome, rounds::Cause};
use elasticrun_protocol::Order;

use crate::play::{Play, commit, draining, host, seconds};

pub(crate) fn elastic(np: u32, min: u32, max: u32) -> Settings {
    Settings {
        cooldown: Cooldown::Forever,
        ..Settings::elastic(np, min, Some(max))
    }
}

fn members(play: &Play) -> Vec<(String, u32)> {
    play.members()
}

fn named(names: &[(&str, u32)]) -> Vec<(String, u32)> {
    names
        .iter()
        .map(|(host, slot)| ((*host).to_owned(), *slot))
        .collect()
}

#[test]
fn sizes_two_four_two_and_the_survivor_becomes_rank_0() {
    let mut play = Play::new(elastic(2, 2, 4));
    play.list(&[host("a", 2)]);
    assert_eq!((play.size(), play.started()), (2, 1));
    play.commit();
    play.list(&[host("a", 2), host("b", 2)]);
    assert_eq!((play.size(), play.started()), (4, 2));
    assert_eq!(
        members(&play),
        named(&[("a", 0), ("a", 1), ("b", 0), ("b", 1)]),
        "R2"
    );
    play.commit();
    play.list(&[host("b", 2)]);
    assert_eq!(play.size(), 4, "missing once is not gone");
    play.list(&[host("b", 2)]);
    assert_eq!((play.size(), play.started()), (2, 3));
    assert_eq!(members(&play), named(&[("b", 0), ("b", 1)]));
    assert_eq!(play.base(), Some(commit(2, 2)), "they left at a commit");
    assert_eq!(
        play.runs("a"),
        0,
        "rule 10: a worker whose slot is gone ends"
    );
    play.finish_all();
    assert_eq!(play.outcome, Some(Outcome::Succeeded));
    assert_eq!(play.rejected, []);
}

#[test]
fn a_host_that_comes_before_the_first_worker_registers_is_not_lost() {
    let mut play = Play::new(elastic(2, 2, 4));
    play.slow = true;
    play.list(&[host("a", 2)]);
    play.list(&[host("a", 2), host("b", 2)]);
    for (name, slot) in [("a", 0), ("a", 1), ("b", 0), ("b", 1)] {
        play.joins(name, slot);
    }
    play.pass(seconds(2));
    assert_eq!(play.size(), 4, "R6");
}

#[test]
fn a_growth_waits_one_last_call_for_more() {
    let mut play = Play::new(elastic(1, 1, 3));
    play.list(&[host("a", 1)]);
    play.slow = true;
    play.list(&[host("a", 1), host("b", 2)]);
    play.joins("b", 0);
    assert_eq!(play.started(), 1, "the other one of b is coming");
    play.joins("b", 1);
    assert_eq!(
        (play.started(), play.size()),
        (2, 3),
        "all are there: no reason to wait"
    );
}

#[test]
fn a_last_call_ends_without_those_who_are_late() {
    let mut play = Play::new(elastic(1, 1, 3));
    play.list(&[host("a", 1)]);
    play.slow = true;
    play.list(&[host("a", 1), host("b", 2)]);
    play.joins("b", 0);
    play.pass(seconds(1));
    assert_eq!((play.started(), play.size()), (2, 2));
}

#[test]
fn a_change_that_leaves_the_assignment_interrupts_nobody() {
    let mut play = Play::new(elastic(2, 2, 2));
    play.list(&[host("a", 2)]);
    play.list(&[host("a", 2), host("b", 2)]);
    play.list(&[host("a", 4), host("b", 2)]);
    play.pass(seconds(10));
    assert_eq!((play.started(), play.size()), (1, 2));
    assert!(
        !play
            .orders
            .iter()
            .any(|(_, order)| matches!(order, Order::Hold { .. }))
    );
}

#[test]
fn spares_wait_and_take_over() {
    let mut play = Play::new(Settings {
        spares: 1,
        ..elastic(2, 2, 2)
    });
    play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    assert_eq!((play.size(), play.runs("c")), (2, 1), "the spare waits");
    play.commit();
    play.kill("b", 0);
    assert_eq!((play.started(), play.size()), (2, 2));
    assert_eq!(members(&play), named(&[("a", 0), ("c", 0)]));
}

#[test]
fn a_drained_host_is_left_at_a_boundary_and_is_no_failure() {
    let mut play = Play::new(elastic(2, 1, 2));
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    play.list(&[host("a", 1), draining("b", 1)]);
    assert_eq!((play.started(), play.size()), (2, 1));
    assert_eq!(play.runs("b"), 0);
    play.lose("b");
    let failed = |note: &&Note| matches!(note, Note::HostFailed { .. } | Note::Blacklisted { .. });
    assert_eq!(play.notes.iter().filter(failed).count(), 0, "rule 7");
    assert_eq!(play.job.results().failures(), 0);
}

#[test]
fn all_hosts_may_drain_while_others_come() {
    let mut play = Play::new(elastic(1, 1, 2));
    play.list(&[host("a", 1)]);
    play.commit();
    play.list(&[draining("a", 1)]);
    assert_eq!(play.outcome, None, "to drain is not to be out for good");
    play.list(&[draining("a", 1), host("b", 1)]);
    assert_eq!(members(&play), named(&[("b", 0)]));
    assert_eq!(play.base(), Some(commit(1, 2)));
}

#[test]
fn fewer_slots_are_a_removal_and_more_slots_are_a_growth() {
    let mut play = Play::new(elastic(2, 1, 4));
    play.list(&[host("a", 2)]);
    play.list(&[host("a", 1)]);
    assert_eq!(members(&play), named(&[("a", 0)]));
    play.list(&[host("a", 3)]);
    play.pass(seconds(1));
    assert_eq!(members(&play), named(&[("a", 0), ("a", 1), ("a", 2)]));
    let causes: Vec<_> = (play.notes.iter())
        .filter_map(|note| match note {
            Note::RoundStarted { cause, .. } => Some(cause.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(causes, [Cause::First, Cause::Removed, Cause::Added]);
}

#[test]
fn a_worker_that_does_not_reach_the_boundary_is_aborted() {
    let mut play = Play::new(elastic(2, 1, 4));
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    play.passive.insert("b".into());
    play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    play.pass(seconds(59));
    assert_eq!(play.started(), 1);
    play.pass(seconds(1));
    let aborted =
        |(host, order): &(_, Order)| *host == "b".into() && matches!(order, Order::Abort { .. });
    assert!(
        play.orders.iter().any(aborted),
        "the interrupt is never needed for safety"
    );
    play.comes_back("b");
    assert_eq!((play.started(), play.size()), (2, 3));
}
