//! Invariants of every start, and the effects that late and repeated messages must not have.

use elasticrun_core::{Rejected, Settings};
use elasticrun_protocol::{
    AgentCommand, AgentReport, Boundary, Rank, Round,
    control::{Held, Waiting},
};

use crate::{
    harness::{Harness, host, process, seconds},
    hosts::elastic,
};

#[test]
fn ranks_places_and_neighbours_of_a_start() {
    let mut harness = Harness::new(elastic(5, 5, 5));
    harness.list(&[host("a", 2), host("b", 1), host("c", 2)]);
    let places: Vec<_> = (harness.starts.iter())
        .flat_map(|(_, start)| &start.members)
        .map(|m| {
            (
                m.place.rank,
                m.place.local_size,
                m.place.cross_rank,
                m.place.cross_size,
            )
        })
        .collect();
    let expected = [
        (0, 2, 0, 3),
        (1, 2, 0, 2),
        (2, 1, 1, 3),
        (3, 2, 2, 3),
        (4, 2, 1, 2),
    ];
    let expected = expected.map(|(rank, local, cross, of)| (Rank(rank), local, cross, of));
    assert_eq!(places, expected, "R1");
    let peers: Vec<Vec<u32>> = (harness.starts.iter())
        .map(|(_, start)| start.peers.keys().copied().collect())
        .collect();
    assert_eq!(peers, [vec![1, 2], vec![0, 2], vec![0, 1]]);
    assert!(
        harness
            .starts
            .iter()
            .all(|(_, start)| start.prefix == "run/1/1")
    );
}

#[test]
fn repeated_reports_change_nothing() {
    let mut harness = Harness::new(elastic(2, 1, 3));
    harness.list(&[host("a", 1), host("b", 1)]);
    let (round, before) = (harness.round(), harness.state());
    let one = process(0, 1);
    let waiting = Waiting {
        process: one,
        left: None,
        data_port: 1,
    };
    let held = Held {
        process: one,
        commit: None,
        shard: Default::default(),
        empty: false,
        data_port: 1,
    };
    let ready = |round, members| AgentReport::Ready {
        round,
        members,
        kept: Vec::new(),
        free_port: 2,
    };
    let reports = [
        AgentReport::Waiting {
            workers: vec![waiting],
        },
        ready(round, vec![held]),
        AgentReport::BoundaryCounted {
            round,
            highest: Boundary(3),
        },
        ready(Round(0), vec![]),
        AgentReport::PeerLost {
            round: Round(0),
            process: one,
            unreachable: Vec::new(),
        },
        AgentReport::WorkerLost {
            process: process(0, 7),
            silent: false,
        },
    ];
    let count = reports.len();
    for report in reports {
        harness.report("a", report);
    }
    assert_eq!(harness.rejected.len(), count, "{:?}", harness.rejected);
    assert_eq!(harness.state(), before, "R3");
}

#[test]
fn an_answer_about_other_workers_is_refused() {
    let mut harness = Harness::new(elastic(1, 1, 1));
    harness.passive.insert("a".into());
    harness.list(&[host("a", 1)]);
    harness.connects("a");
    let waiting = Waiting {
        process: process(0, 1),
        left: None,
        data_port: 1,
    };
    harness.report(
        "a",
        AgentReport::Waiting {
            workers: vec![waiting],
        },
    );
    let held = |slot| Held {
        process: process(slot, 1),
        commit: None,
        shard: Default::default(),
        empty: false,
        data_port: 1,
    };
    for members in [vec![], vec![held(5)], vec![held(0), held(1)]] {
        let kept = Vec::new();
        harness.report(
            "a",
            AgentReport::Ready {
                round: Round(1),
                members,
                kept,
                free_port: 2,
            },
        );
    }
    assert_eq!(
        (harness.started(), harness.rejected.len()),
        (0, 3),
        "remote input is checked"
    );
    let (members, kept) = (vec![held(0)], Vec::new());
    harness.report(
        "a",
        AgentReport::Ready {
            round: Round(1),
            members,
            kept,
            free_port: 2,
        },
    );
    assert_eq!(harness.started(), 1);
}

#[test]
fn a_newer_connection_of_a_host_replaces_the_older() {
    let mut harness = Harness::new(elastic(1, 1, 1));
    harness.list(&[host("a", 1)]);
    harness.connects("a");
    assert_eq!(
        harness.job.results().failures(),
        1,
        "the workers of the older one are lost"
    );
}

#[test]
fn an_agent_of_an_unknown_host_is_sent_away_and_its_host_may_come_later() {
    let mut harness = Harness::new(elastic(1, 1, 2));
    harness.list(&[host("a", 1)]);
    harness.passive.insert("b".into());
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.list(&[host("a", 1)]);
    harness.list(&[host("a", 1)]);
    harness.connects("b");
    assert_eq!(harness.rejected, [Rejected::UnknownHost]);
    assert_eq!(harness.refused.len(), 1);
    assert_eq!(harness.ended_launches.last(), Some(&("b".into(), false)));
    harness.passive.clear();
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.pass(seconds(1));
    assert_eq!(harness.size(), 2, "it is launched anew, and at once");
}

#[test]
fn peers_that_break_away_from_a_round_that_is_left_are_not_waited_for() {
    let mut harness = Harness::new(elastic(2, 1, 3));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.passive.insert("b".into());
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    let round = harness.round();
    harness.report(
        "b",
        AgentReport::BoundaryCounted {
            round,
            highest: Boundary(6),
        },
    );
    let one = process(0, 1);
    harness.report(
        "b",
        AgentReport::PeerLost {
            round,
            process: one,
            unreachable: Vec::new(),
        },
    );
    let aborted = |(host, command): &(_, AgentCommand)| {
        *host == "b".into() && *command == AgentCommand::Abort { round }
    };
    assert!(
        harness.sent.iter().any(aborted),
        "the others would wait for b in vain"
    );
    harness.comes_back("b");
    assert_eq!((harness.started(), harness.size()), (2, 3));
}

#[test]
fn hosts_that_register_themselves_are_used_and_forgotten() {
    let mut harness = Harness::new(Settings {
        self_registration: true,
        ..elastic(2, 1, 4)
    });
    harness.connects("a");
    harness.connects("b");
    assert_eq!(harness.size(), 2);
    harness.commit();
    harness.lose("a");
    assert_eq!((harness.started(), harness.size()), (2, 1));
    harness.connects("c");
    assert_eq!(
        harness.started(),
        2,
        "the survivor has the processor to itself for a moment"
    );
    harness.pass(std::time::Duration::from_millis(20));
    assert_eq!((harness.started(), harness.size()), (3, 2));
}

#[test]
fn a_listed_host_that_never_registers_is_not_waited_for_without_end() {
    let settings = Settings {
        self_registration: true,
        elastic_timeout: seconds(10),
        ..elastic(2, 2, 2)
    };
    let mut harness = Harness::new(settings);
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.connects("a");
    harness.pass(seconds(11));
    assert!(harness.outcome.is_some(), "R9");
}

#[test]
fn every_host_is_used_when_there_is_room_for_all() {
    let mut harness = Harness::new(elastic(2, 1, 3));
    harness.list(&[host("a", 2)]);
    harness.commit();
    // The second slot of b stays wanted while a still holds two of the three places.
    harness.passive.insert("a".into());
    harness.list(&[host("b", 2)]);
    harness.list(&[host("b", 2)]);
    harness.pass(seconds(70));
    harness.comes_back("a");
    harness.pass(seconds(70));
    assert_eq!(harness.runs("b"), 2);
}
