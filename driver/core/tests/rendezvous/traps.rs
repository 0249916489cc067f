//! Mistakes of other rendezvous that this one must not have.

use elasticrun_core::rendezvous::{Command, Event, RoundOver};
use elasticrun_protocol::Round;

use crate::{
    harness::{World, seconds},
    states::settings,
};

/// Nodes that have joined one after the other, with a short last call.
fn running(nodes: usize, min_nodes: usize, max_nodes: usize) -> World {
    let settings = settings(min_nodes, max_nodes)
        .with("last_call_timeout", "2")
        .expect("seconds");
    let mut world = World::new(nodes, settings);
    for index in 0..nodes {
        world.join(index);
        world.settle();
    }
    world.run(seconds(3));
    world
}

#[test]
fn ranks_are_the_order_of_arrival_and_survive_a_loss() {
    let mut world = running(4, 2, 4);
    assert_eq!(world.ranks(), [Some(0), Some(1), Some(2), Some(3)]);
    world.kill(1);
    world.run(seconds(60));
    assert_eq!(world.ranks(), [Some(0), None, Some(1), Some(2)]);
    world.restart(1);
    world.join(1);
    world.run(seconds(60));
    assert_eq!(
        world.ranks(),
        [Some(0), Some(3), Some(1), Some(2)],
        "it comes last"
    );
}

/// PyTorch: a dead participant of a complete round is removed, and the others are not told.
#[test]
fn a_dead_participant_ends_the_round_of_the_others() {
    let mut world = running(3, 2, 3);
    world.kill(2);
    world.run(seconds(40));
    let changed = Command::MembershipChanged {
        round: Round(0),
        waiting: 0,
        left: 1,
    };
    assert!(
        world.nodes[0].log.contains(&changed),
        "{:?}",
        world.nodes[0].log
    );
    assert_eq!(world.ranks(), [Some(0), Some(1), None]);
}

/// PyTorch: a program that ends closes the rendezvous for all.
#[test]
fn a_node_that_exits_closes_nothing() {
    let mut world = running(3, 1, 3);
    world.request(2, Event::ExitRequested);
    world.run(seconds(5));
    assert!(!world.state().is_closed());
    assert_eq!(world.ranks(), [Some(0), Some(1), None]);
}

/// PyTorch: nodes on the wait list of a full round make the participants restart again and again.
#[test]
fn redundant_nodes_interrupt_nobody() {
    let mut world = running(6, 1, 2);
    assert_eq!(world.ranks(), [Some(0), Some(1), None, None, None, None]);
    assert_eq!((world.state().waiting(), world.state().redundant()), (0, 4));
    // One participant leaves: one redundant node takes over, and the others stay where they are.
    world.request(0, Event::ExitRequested);
    world.run(seconds(30));
    assert_eq!(world.ranks(), [None, Some(0), Some(1), None, None, None]);
    assert_eq!((world.state().waiting(), world.state().redundant()), (0, 3));
    let rounds = |index: usize| {
        let log = world.nodes[index].log.iter();
        log.filter(|command| matches!(command, Command::Joined(_)))
            .count()
    };
    assert_eq!((rounds(1), rounds(2), rounds(3)), (2, 1, 0));
}

/// PyTorch: nodes that wait may take the places of participants that join again.
#[test]
fn participants_that_join_again_keep_their_places() {
    let mut world = running(4, 1, 2);
    for restarts in 1..4 {
        world.join(0);
        world.run(seconds(5));
        assert_eq!(
            world.ranks(),
            [Some(0), Some(1), None, None],
            "restart {restarts}"
        );
    }
}

/// Nodes that wait learn of a round by their heartbeats if reports are lost, and the round does not complete before.
#[test]
fn a_short_last_call_without_reports_starves_no_waiting_node() {
    let settings = settings(1, 2)
        .with("last_call_timeout", "1")
        .expect("seconds");
    let mut world = World::new(2, settings);
    world.reports = false;
    world.join(0);
    world.run(seconds(3));
    assert_eq!(world.ranks(), [Some(0), None]);
    world.join(1);
    world.run(seconds(60));
    assert_eq!(world.ranks(), [Some(0), Some(1)]);
    let joins = world.nodes[0]
        .log
        .iter()
        .filter(|command| matches!(command, Command::Joined(_)));
    assert_eq!(joins.count(), 2);
}

/// A redundant node waits longer than a join may take.
#[test]
fn a_redundant_node_waits_without_a_limit_and_takes_over() {
    let mut world = running(2, 1, 1);
    world.run(seconds(3600));
    assert_eq!(world.nodes[1].log, []);
    world.kill(0);
    world.run(seconds(30));
    assert_eq!(world.ranks(), [None, Some(0)]);
}

/// PyTorch: heartbeats are times of the wall clock, so a node whose clock is behind is removed.
#[test]
fn clocks_that_differ_remove_nobody() {
    let mut world = World::new(3, settings(2, 3));
    for (index, ahead) in [(0, 0), (1, 86_400), (2, 3600)] {
        world.nodes[index].ahead = seconds(ahead);
        world.join(index);
    }
    world.run(seconds(600));
    assert_eq!(world.removed, []);
    assert_eq!(
        world
            .nodes
            .iter()
            .filter(|node| node.training.is_some())
            .count(),
        3
    );
}

#[test]
fn an_observer_that_stood_still_removes_nobody() {
    let mut world = running(4, 2, 4);
    world.nodes[0].stopped = true;
    world.run(seconds(10));
    // Its clock has passed many intervals when it runs again, and nothing has arrived yet.
    world.nodes[0].stopped = false;
    world.nodes[0].ahead = seconds(120);
    world.run(seconds(120));
    assert_eq!(world.removed, []);
    assert_eq!(world.ranks(), [Some(0), Some(1), Some(2), Some(3)]);
    assert!(
        world.nodes.iter().all(|node| node.log.len() == 1),
        "one round for all"
    );
}

#[test]
fn an_outage_of_the_holder_removes_nobody_that_is_back_in_time() {
    let mut world = running(3, 2, 3);
    world.nodes.iter_mut().for_each(|node| node.cut = true);
    world.run(seconds(9));
    world.nodes.iter_mut().for_each(|node| node.cut = false);
    world.run(seconds(120));
    assert_eq!(world.removed, []);
    assert!(
        world.nodes.iter().all(|node| node.log.len() == 1),
        "one round for all"
    );
}

#[test]
fn after_a_long_outage_of_the_holder_the_same_nodes_form_a_round() {
    let mut world = running(3, 2, 3);
    world.nodes.iter_mut().for_each(|node| node.cut = true);
    world.run(seconds(60));
    let over = Command::RoundOver {
        round: Round(0),
        reason: RoundOver::LeaseExpired,
    };
    for node in &world.nodes {
        assert_eq!(
            node.log.last(),
            Some(&over),
            "nobody knows whether the others go on"
        );
    }
    world.nodes.iter_mut().for_each(|node| node.cut = false);
    world.run(seconds(60));
    assert_eq!(world.removed, []);
    assert_eq!(world.ranks(), [Some(0), Some(1), Some(2)]);
}

/// PyTorch: a participant that others have removed trains on.
#[test]
fn a_participant_that_is_cut_off_ends_its_workers_before_others_remove_it() {
    let mut world = running(3, 2, 3);
    world.nodes[2].cut = true;
    let end = world.now + seconds(60);
    while world.now < end {
        world.run(std::time::Duration::from_millis(250));
        assert!(
            world.training_rounds().len() <= 1,
            "{:?}",
            world.training_rounds()
        );
        let ended = world.nodes[2].training.is_none();
        assert!(world.removed.is_empty() || ended, "removed while it trains");
    }
    assert_eq!(world.removed.len(), 1);
    assert_eq!(world.ranks(), [Some(0), Some(1), None]);
}

/// All other nodes look dead: an observer gives them twice the time, and then goes on without them.
#[test]
fn the_only_survivor_of_many_goes_on() {
    let mut world = running(4, 1, 4);
    (1..4).for_each(|index| world.kill(index));
    world.run(seconds(20));
    assert_eq!(world.removed, []);
    world.run(seconds(30));
    assert_eq!(world.removed.len(), 3);
    assert_eq!(world.ranks(), [Some(0), None, None, None]);
}

/// PyTorch: a node that a dead participant of a forming round holds back.
#[test]
fn nodes_that_die_before_the_round_completes_do_not_count() {
    let mut world = World::new(3, settings(2, 2));
    world.join(0);
    world.settle();
    world.kill(0);
    world.run(seconds(1));
    world.join(1);
    world.settle();
    assert_eq!(
        world.ranks(),
        [None, Some(1), None],
        "not known to be dead yet"
    );
    world.join(2);
    world.run(seconds(60));
    assert_eq!(world.ranks(), [None, Some(0), Some(1)]);
}

#[test]
fn nobody_joins_after_all_nodes_of_a_run_have_died() {
    let mut world = running(3, 2, 3);
    (0..3).for_each(|index| world.kill(index));
    (0..3).for_each(|index| world.restart(index));
    (0..3).for_each(|index| world.join(index));
    world.run(seconds(60));
    assert_eq!(
        world.ranks().iter().flatten().count(),
        3,
        "the new processes replace the dead"
    );
}
