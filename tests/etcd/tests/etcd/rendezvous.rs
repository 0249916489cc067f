//! Nodes of a rendezvous whose state is in etcd.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use crate::support::cluster;
use base64::{Engine, engine::general_purpose::STANDARD};
use elasticrun_core::rendezvous::{Failure, Membership, NodeId, RoundOver, Settings};
use elasticrun_etcd_tests::Cluster as Etcd;
use elasticrun_protocol::{Blob, Rank, Round};
use elasticrun_rendezvous::{Cluster, Holder, JoinError, Node, Observed, Replaced};

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(120);

const RUN: &str = "elasticrun/job";

fn address(etcd: &Etcd) -> Cluster {
    let text = format!("etcd://{}/tests", etcd.endpoints().join(","));
    Cluster::new(&text, None).expect("an address")
}

/// Settings of a run whose nodes notice nothing by time.
fn settings(min_nodes: usize, max_nodes: usize, options: &[(&str, &str)]) -> Settings {
    let patient = [
        ("keep_alive_interval", "3600"),
        ("last_call_timeout", "3600"),
        ("heartbeat_timeout", "60"),
    ];
    let mut settings = Settings::new(min_nodes, max_nodes).expect("numbers of nodes");
    for (key, value) in patient.iter().chain(options) {
        settings = settings.with(key, value).expect("an option");
    }
    settings
}

fn node(cluster: &Cluster, name: &str, settings: &Settings) -> Node {
    let id = NodeId::new(name).expect("an id");
    Node::start(cluster.clone(), RUN, id, settings.clone()).expect("a node")
}

/// Joins all nodes at once and gives their places.
fn join(nodes: &[Node]) -> Vec<Membership> {
    let pending: Vec<_> = nodes.iter().map(Node::join).collect();
    let joined = pending.into_iter().map(|join| join.wait());
    joined.collect::<Result<_, _>>().expect("all join")
}

/// Waits until what a node knows is as wanted.
fn wait_until(node: &Node, wanted: impl Fn(&Observed) -> bool) -> Observed {
    let until = Instant::now() + LONG;
    let mut known = node.observed();
    while !wanted(&known) {
        assert!(
            Instant::now() < until,
            "{known:?} does not become as wanted"
        );
        known = node.wait_for_change(&known, Duration::from_secs(1));
    }
    known
}

#[test]
fn nodes_that_come_at_once_form_one_round() {
    let etcd = cluster!(1);
    let cluster = address(&etcd);
    let count = 16;
    let settings = settings(count, count, &[]);
    let nodes: Vec<_> = (0..count)
        .map(|number| node(&cluster, &number.to_string(), &settings))
        .collect();
    let places = join(&nodes);
    let ranks: BTreeSet<_> = places.iter().map(|place| place.rank).collect();
    assert_eq!(ranks, (0..16).map(Rank).collect());
    assert!(places.iter().all(|place| place.round == Round(0)));
    let first = places.iter().position(|place| place.rank == Rank(0));
    let first = nodes[first.expect("a first node")].id();
    assert!(
        nodes
            .iter()
            .all(|node| node.first().as_ref() == Some(first))
    );
    // All come again, as after a failure of a worker.
    assert!(join(&nodes).iter().all(|place| place.round == Round(1)));
}

#[test]
fn a_node_that_leaves_is_missed_at_once_and_one_that_waits_is_seen() {
    let etcd = cluster!(1);
    let cluster = address(&etcd);
    let settings = settings(1, 2, &[("last_call_timeout", "0.01")]);
    let nodes = [
        node(&cluster, "a", &settings),
        node(&cluster, "b", &settings),
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
    assert_eq!(observed.others, 0);
}

#[test]
fn a_node_that_dies_is_removed_and_etcd_may_lose_a_member() {
    let mut etcd = cluster!(3);
    let cluster = address(&etcd);
    let options = [
        ("keep_alive_interval", "0.5"),
        ("last_call_timeout", "0.2"),
        ("heartbeat_timeout", "5"),
        ("keep_alive_max_attempt", "6"),
    ];
    let settings = settings(2, 3, &options);
    let mut nodes: Vec<_> = ["a", "b", "c"]
        .map(|name| node(&cluster, name, &settings))
        .into();
    join(&nodes);
    etcd.kill(etcd.leader());
    drop(nodes.pop());
    for node in &nodes {
        wait_until(node, Observed::asks_to_join_again);
    }
    let mut places = join(&nodes);
    while places.iter().any(|place| place.world_size != 2) {
        for node in &nodes {
            wait_until(node, Observed::asks_to_join_again);
        }
        places = join(&nodes);
    }
}

#[test]
fn heartbeats_change_no_state_and_those_that_etcd_has_lost_are_written_again() {
    let etcd = cluster!(1);
    let cluster = address(&etcd);
    let settings = settings(2, 2, &[("keep_alive_interval", "0.1")]);
    let nodes = [
        node(&cluster, "a", &settings),
        node(&cluster, "b", &settings),
    ];
    join(&nodes);
    let mut holder = Holder::connect(cluster, RUN, LONG, LONG).expect("it answers");
    let joined = holder.read().expect("an answer").token;
    let beats = || {
        let range = serde_json::json!({
            "key": STANDARD.encode("/tests/torch/elasticrun%2Fjob/beats/"),
            "range_end": STANDARD.encode("/tests/torch/elasticrun%2Fjob/beats0"),
        });
        let answer = etcd.post(0, "kv/range", "", &range).expect("an answer");
        answer["kvs"].as_array().cloned().unwrap_or_default()
    };
    let newest = || {
        let revisions = beats().into_iter().map(|beat| {
            let revision = beat["mod_revision"].as_str().map(str::parse::<u64>);
            revision.expect("a revision").expect("a number")
        });
        revisions.min()
    };
    let first = newest();
    while newest() <= first {
        std::thread::yield_now();
    }
    assert_eq!(holder.read().expect("an answer").token, joined);
    let gone = serde_json::json!({
        "key": STANDARD.encode("/tests/torch/elasticrun%2Fjob/beats/"),
        "range_end": STANDARD.encode("/tests/torch/elasticrun%2Fjob/beats0"),
    });
    etcd.post(0, "kv/deleterange", "", &gone)
        .expect("an answer");
    while beats().len() < 2 {
        std::thread::yield_now();
    }
    assert!(nodes.iter().all(|node| node.observed().over.is_none()));
}

#[test]
fn many_nodes_die_at_once() {
    let etcd = cluster!(1);
    let cluster = address(&etcd);
    let options = [("keep_alive_interval", "0.5"), ("heartbeat_timeout", "30")];
    let settings = settings(1, 60, &options);
    let mut nodes: Vec<_> = (0..60)
        .map(|number| node(&cluster, &number.to_string(), &settings))
        .collect();
    join(&nodes);
    nodes.truncate(1);
    let observed = wait_until(&nodes[0], |observed| observed.others == 0);
    assert_eq!(observed.left, 59);
    assert_eq!(observed.over, None);
}

#[test]
fn a_closed_run_stays_closed_for_its_nodes_when_etcd_has_forgotten_it() {
    let etcd = cluster!(1);
    let cluster = address(&etcd);
    let options = [("close_timeout", "1"), ("keep_alive_interval", "0.2")];
    let settings = settings(2, 2, &options);
    let nodes = [
        node(&cluster, "a", &settings),
        node(&cluster, "b", &settings),
    ];
    join(&nodes);
    assert_eq!(nodes[0].close().wait(), Ok(()));
    assert_eq!(nodes[0].exit().wait(), Ok(()));
    let observed = wait_until(&nodes[1], |observed| observed.over.is_some());
    assert!(observed.closed && !observed.asks_to_join_again());
}

#[test]
fn nodes_stop_without_etcd_and_go_on_with_the_same_state() {
    let etcd = cluster!(1);
    let cluster = address(&etcd);
    let options = [("keep_alive_interval", "0.3"), ("heartbeat_timeout", "1")];
    let settings = settings(2, 2, &options);
    let nodes = [
        node(&cluster, "a", &settings),
        node(&cluster, "b", &settings),
    ];
    let first = join(&nodes);
    etcd.stop(0);
    for node in &nodes {
        let observed = wait_until(node, |observed| observed.over.is_some());
        assert_eq!(observed.over, Some(RoundOver::LeaseExpired));
        wait_until(node, |observed| !observed.connected);
    }
    let pending: Vec<_> = nodes.iter().map(Node::join).collect();
    etcd.resume(0);
    for join in pending {
        let place = join.wait().expect("it joins");
        assert!(place.round > first[0].round);
    }
}

#[test]
fn a_closed_run_is_known_for_a_while_and_then_begins_anew() {
    let etcd = cluster!(1);
    let cluster = address(&etcd);
    // etcd grants no shorter lease than about two seconds.
    let settings = settings(1, 1, &[("close_timeout", "1")]);
    let first = node(&cluster, "a", &settings);
    assert_eq!(first.join().wait().expect("it joins").round, Round(0));
    assert_eq!(first.close().wait(), Ok(()));
    assert_eq!(first.exit().wait(), Ok(()));
    drop(first);
    let late = node(&cluster, "b", &settings);
    assert_eq!(late.join().wait(), Err(JoinError::Failed(Failure::Closed)));
    wait_until(&late, |observed| observed.closed);
    drop(late);
    let mut holder = Holder::connect(cluster.clone(), RUN, LONG, LONG).expect("it answers");
    while holder.read().expect("an answer").state.is_some() {
        std::thread::yield_now();
    }
    let next = node(&cluster, "c", &settings);
    assert_eq!(next.join().wait().expect("it joins").world_size, 1);
}

#[test]
fn a_join_without_etcd_fails_in_time() {
    let cluster = Cluster::new("etcd://127.0.0.1:1", None).expect("an address");
    let node = node(&cluster, "a", &settings(1, 1, &[("join_timeout", "0.1")]));
    assert_eq!(
        node.join().wait(),
        Err(JoinError::Failed(Failure::Unreachable))
    );
    let connected = Holder::connect(cluster, RUN, LONG, Duration::from_millis(300));
    let error = connected.expect_err("nothing listens").to_string();
    assert!(error.contains("etcd://127.0.0.1:1"), "{error}");
}

#[test]
fn a_corrupt_state_fails_joins_and_is_left_alone() {
    let etcd = cluster!(1);
    let cluster = address(&etcd);
    let mut holder = Holder::connect(cluster.clone(), RUN, LONG, LONG).expect("it answers");
    let garbage = b"not a state";
    holder.compare_and_set(None, garbage).expect("a write");
    let node = node(&cluster, "a", &settings(1, 1, &[]));
    let joined = node.join().wait();
    assert!(
        matches!(&joined, Err(JoinError::Failed(Failure::Corrupt(_)))),
        "{joined:?}"
    );
    let state = holder.read().expect("an answer").state.expect("a state");
    assert_eq!(state.0, garbage);
}

#[test]
fn holders_that_write_at_once_all_succeed() {
    let etcd = cluster!(1);
    let cluster = address(&etcd);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let cluster = cluster.clone();
            std::thread::spawn(move || {
                let holder = Holder::connect(cluster, RUN, LONG, LONG);
                let mut holder = holder.expect("it answers");
                for _ in 0..20 {
                    add_one(&mut holder);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("it adds");
    }
    let mut holder = Holder::connect(cluster, RUN, LONG, LONG).expect("it answers");
    let state = holder.read().expect("an answer").state;
    assert_eq!(state, Some(Blob(b"80".to_vec())));
}

/// Adds one to the decimal number that the state is.
fn add_one(holder: &mut Holder) {
    let mut now = holder.read().expect("an answer");
    loop {
        let text = now.state.map_or_else(Vec::new, |state| state.0);
        let text = String::from_utf8(text).expect("digits");
        let next = text.parse::<u32>().unwrap_or(0) + 1;
        let written = holder.compare_and_set(Some(now.token), next.to_string().as_bytes());
        match written.expect("an answer") {
            Replaced::Written(_) => return,
            Replaced::Conflict(newer) => now = newer,
        }
    }
}
