//! Nodes that join, leave and lose their server.

use std::collections::BTreeSet;

use elasticrun_core::rendezvous::{Failure, Membership, RoundOver};
use elasticrun_protocol::{Rank, Round};
use elasticrun_rendezvous::{JoinError, Node, Server};

use crate::support::{LONG, holder, node, server, settings, wait_until};

/// Joins all nodes at once and gives their places.
fn join(nodes: &[Node]) -> Vec<Membership> {
    let pending: Vec<_> = nodes.iter().map(Node::join).collect();
    let joined = pending.into_iter().map(|join| join.wait());
    joined.collect::<Result<_, _>>().expect("all join")
}

#[test]
fn nodes_that_come_at_once_form_one_round() {
    let (_server, endpoint) = server();
    let count = 48;
    let settings = settings(count, count, &[]);
    let nodes: Vec<_> = (0..count)
        .map(|number| node(&endpoint, &number.to_string(), &settings))
        .collect();
    let places = join(&nodes);
    let ranks: BTreeSet<_> = places.iter().map(|place| place.rank).collect();
    assert_eq!(ranks, (0..48).map(Rank).collect());
    assert!(places.iter().all(|place| place.world_size == 48));
    assert!(places.iter().all(|place| place.round == Round(0)));
    // All come again, as after a failure of a worker.
    let again = join(&nodes);
    assert!(again.iter().all(|place| place.round == Round(1)));
}

#[test]
fn a_node_that_leaves_is_missed_at_once() {
    let (_server, endpoint) = server();
    let settings = settings(1, 2, &[("last_call_timeout", "0.01")]);
    let nodes = [
        node(&endpoint, "a", &settings),
        node(&endpoint, "b", &settings),
    ];
    let first = nodes[0].join().wait().expect("it joins");
    assert_eq!(first.world_size, 1);
    let second = nodes[1].join();
    wait_until(&nodes[0], |observed| observed.waiting == 1);
    assert_eq!(nodes[0].join().wait().expect("it joins").world_size, 2);
    assert_eq!(second.wait().expect("it joins").world_size, 2);
    assert_eq!(nodes[1].exit().wait(), Ok(()));
    let observed = wait_until(&nodes[0], |observed| observed.left == 1);
    assert!(observed.asks_to_join_again());
    assert_eq!(nodes[0].join().wait().expect("it joins").world_size, 1);
}

#[test]
fn a_redundant_node_is_released_and_the_server_stays_until_it_has_left() {
    let (server, endpoint) = server();
    let settings = settings(1, 1, &[]);
    let member = node(&endpoint, "a", &settings);
    assert_eq!(member.join().wait().expect("it joins").rank, Rank(0));
    let redundant = node(&endpoint, "b", &settings);
    let join = redundant.join();
    while server.nodes(Some(super::support::RUN)) < 2 {
        std::thread::yield_now();
    }
    assert_eq!(member.close().wait(), Ok(()));
    assert_eq!(member.exit().wait(), Ok(()));
    drop(member);
    assert!(!server.wait_for_leave(None, 0, std::time::Duration::ZERO));
    let released = join.wait();
    // A node that had not arrived yet finds it closed.
    let expected = [JoinError::Released, JoinError::Failed(Failure::Closed)];
    assert!(released.is_err_and(|error| expected.contains(&error)));
    drop(redundant);
    assert!(server.wait_for_leave(None, 0, LONG));
}

#[test]
fn a_node_that_comes_and_dies_in_a_loop_does_not_stop_the_others() {
    let (_server, endpoint) = server();
    let options = [("keep_alive_interval", "0.2"), ("last_call_timeout", "0.2")];
    let settings = settings(2, 4, &options);
    let dying = {
        let (endpoint, settings) = (endpoint.clone(), settings.clone());
        std::thread::spawn(move || {
            for number in 0..20 {
                let dying = node(&endpoint, &format!("dying-{number}"), &settings);
                let join = dying.join();
                // Its end without a word.
                drop(dying);
                assert_eq!(join.wait(), Err(JoinError::Ended));
            }
        })
    };
    let nodes = [
        node(&endpoint, "a", &settings),
        node(&endpoint, "b", &settings),
    ];
    dying.join().expect("all have died");
    // The last of them are removed once they miss their heartbeats.
    let mut places = join(&nodes);
    while places[0].world_size != 2 {
        for node in &nodes {
            wait_until(node, |observed| observed.asks_to_join_again());
        }
        places = join(&nodes);
    }
    assert_eq!(places[0].round, places[1].round);
}

/// Its death is seen by the heartbeats that it does not send: they are requests of their own.
#[test]
fn a_node_that_dies_right_after_its_join_is_removed() {
    let (_server, endpoint) = server();
    let settings = settings(1, 2, &[("keep_alive_interval", "1")]);
    let nodes = [
        node(&endpoint, "a", &settings),
        node(&endpoint, "b", &settings),
    ];
    join(&nodes);
    let [stays, dies] = nodes;
    drop(dies);
    let observed = wait_until(&stays, |observed| observed.left == 1);
    assert_eq!(observed.over, None);
}

#[test]
fn a_server_that_comes_back_without_its_memory_serves_the_next_round() {
    let (server, endpoint) = server();
    let options = [("keep_alive_interval", "0.3"), ("heartbeat_timeout", "1")];
    let settings = settings(2, 2, &options);
    let nodes = [
        node(&endpoint, "a", &settings),
        node(&endpoint, "b", &settings),
    ];
    let first = join(&nodes);
    drop(server);
    for node in &nodes {
        let observed = wait_until(node, |observed| observed.over.is_some());
        assert_eq!(observed.over, Some(RoundOver::LeaseExpired));
        assert!(observed.asks_to_join_again());
    }
    let pending: Vec<_> = nodes.iter().map(Node::join).collect();
    let _server = Server::start(&endpoint).expect("the port is free again");
    for join in pending {
        let place = join.wait().expect("it joins");
        assert!(place.round > first[0].round);
    }
}

#[test]
fn a_join_without_a_server_fails_in_time() {
    let (server, endpoint) = server();
    drop(server);
    let node = node(&endpoint, "a", &settings(1, 1, &[("join_timeout", "0.1")]));
    assert_eq!(
        node.join().wait(),
        Err(JoinError::Failed(Failure::Unreachable))
    );
    assert!(!node.observed().connected);
}

#[test]
fn too_few_nodes_end_by_the_timeout() {
    let (_server, endpoint) = server();
    let node = node(&endpoint, "a", &settings(2, 2, &[("join_timeout", "0.1")]));
    assert_eq!(node.join().wait(), Err(JoinError::Failed(Failure::Timeout)));
}

#[test]
fn a_corrupt_state_fails_joins_and_is_left_alone() {
    let (_server, endpoint) = server();
    let mut holder = holder(&endpoint);
    let garbage = b"not a state";
    holder.compare_and_set(None, garbage).expect("a write");
    let node = node(&endpoint, "a", &settings(1, 1, &[]));
    let joined = node.join().wait();
    assert!(
        matches!(&joined, Err(JoinError::Failed(Failure::Corrupt(_)))),
        "{joined:?}"
    );
    let state = holder.read().expect("an answer").state.expect("a state");
    assert_eq!(state.0, garbage);
}

#[test]
fn an_exit_cancels_a_join() {
    let (_server, endpoint) = server();
    let node = node(&endpoint, "a", &settings(2, 2, &[]));
    let join = node.join();
    assert_eq!(node.exit().wait(), Ok(()));
    assert_eq!(join.wait(), Err(JoinError::Failed(Failure::Cancelled)));
}

#[test]
fn a_closed_rendezvous_stays_closed() {
    let (_server, endpoint) = server();
    let settings = settings(1, 1, &[]);
    let first = node(&endpoint, "a", &settings);
    assert_eq!(first.close().wait(), Ok(()));
    drop(first);
    let late = node(&endpoint, "b", &settings);
    assert_eq!(late.join().wait(), Err(JoinError::Failed(Failure::Closed)));
    assert!(late.observed().closed);
}
