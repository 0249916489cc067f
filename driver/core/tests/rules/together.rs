//! Events that come together: all are received before one plan is made, and what one has completed another may undo.

use elasticrun_core::Note;
use elasticrun_protocol::{
    Boundary, Order, Report, Round,
    control::{Held, Waiting},
};

use crate::{
    hosts::elastic,
    play::{Play, host, process},
};

fn planned(play: &Play) -> usize {
    let planned = |note: &&Note| matches!(note, Note::RoundPlanned { .. });
    play.notes.iter().filter(planned).count()
}

/// Hosts a and b have been planned for round 1; a has answered, b has not.
fn one_answer_is_missing() -> Play {
    let mut play = Play::new(elastic(2, 1, 2));
    play.passive.insert("b".into());
    play.list(&[host("a", 1), host("b", 1)]);
    play.connects("b");
    let waiting = Waiting {
        process: process(0, 1),
        left: None,
        data_port: 1,
    };
    let workers = vec![waiting];
    play.report("b", Report::Waiting { workers });
    assert_eq!((planned(&play), play.started()), (1, 0));
    play
}

fn last_answer(play: &mut Play) {
    let held = Held {
        process: process(0, 1),
        commit: None,
        empty: false,
        data_port: 1,
    };
    let ready = Report::Ready {
        round: Round(1),
        members: vec![held],
        kept: Vec::new(),
        free_port: 9,
    };
    play.report("b", ready);
}

#[test]
fn the_loss_of_many_hosts_is_one_plan() {
    let names: Vec<_> = (0..40).map(|n| format!("h{n}")).collect();
    let mut play = Play::new(elastic(40, 2, 40));
    play.list(&names.iter().map(|n| host(n, 1)).collect::<Vec<_>>());
    play.commit();
    assert_eq!((play.size(), planned(&play)), (40, 1));
    let before = play.notes.len();
    play.together(|play| names[5..].iter().for_each(|name| play.lose(name)));
    assert_eq!((play.size(), play.started(), planned(&play)), (5, 2, 2));
    let counted = |note: &&Note| matches!(note, Note::HostsChanged { .. });
    assert_eq!(play.notes[before..].iter().filter(counted).count(), 1);
}

#[test]
fn a_round_does_not_start_if_a_member_is_lost_with_the_last_answer() {
    let mut play = one_answer_is_missing();
    play.together(|play| {
        last_answer(play);
        play.lose("a");
    });
    assert_eq!(play.started(), 0);
    assert_eq!(play.rejected, []);
}

#[test]
fn a_round_starts_if_the_last_answer_comes_with_something_else() {
    let mut play = one_answer_is_missing();
    play.together(|play| {
        last_answer(play);
        play.list(&[host("a", 1), host("b", 1)]);
    });
    assert_eq!((play.started(), play.size()), (1, 2));
}

#[test]
fn a_round_does_not_start_if_a_host_drains_with_the_last_answer() {
    let mut play = one_answer_is_missing();
    play.together(|play| {
        last_answer(play);
        play.asks_to_drain("a");
    });
    assert_eq!(play.started(), 0, "R5");
}

#[test]
fn nobody_leaves_at_a_boundary_that_is_counted_when_a_member_fails() {
    let mut play = Play::new(elastic(2, 1, 3));
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    play.passive.insert("b".into());
    play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    let round = play.round();
    play.together(|play| {
        let highest = Boundary(3);
        play.report("b", Report::Counted { round, highest });
        play.kill("a", 0);
    });
    let leave = |order: &Order| matches!(order, Order::Leave { .. });
    assert!(!play.orders.iter().any(|(_, order)| leave(order)));
    assert_eq!(planned(&play), 2, "the others are planned without it");
}
