//! What every start must be, and what late and repeated messages may not do.

use elasticrun_core::{Rejected, Settings};
use elasticrun_protocol::{
    Boundary, Order, Rank, Report, Round,
    control::{Held, Waiting},
};

use crate::{
    hosts::elastic,
    play::{Play, host, process, seconds},
};

#[test]
fn ranks_places_and_neighbours_of_a_start() {
    let mut play = Play::new(elastic(5, 5, 5));
    play.list(&[host("a", 2), host("b", 1), host("c", 2)]);
    let places: Vec<_> = (play.starts.iter())
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
    let peers: Vec<Vec<u32>> = (play.starts.iter())
        .map(|(_, start)| start.peers.keys().copied().collect())
        .collect();
    assert_eq!(peers, [vec![1, 2], vec![0, 2], vec![0, 1]]);
    assert!(
        play.starts
            .iter()
            .all(|(_, start)| start.prefix == "run/1/1")
    );
}

#[test]
fn repeated_reports_change_nothing() {
    let mut play = Play::new(elastic(2, 1, 3));
    play.list(&[host("a", 1), host("b", 1)]);
    let (round, before) = (play.round(), format!("{:?}", play.job));
    let one = process(0, 1);
    let waiting = Waiting {
        process: one,
        left: None,
        data_port: 1,
    };
    let held = Held {
        process: one,
        commit: None,
        empty: false,
        data_port: 1,
    };
    let ready = |round, members| Report::Ready {
        round,
        members,
        kept: Vec::new(),
        free_port: 2,
    };
    let reports = [
        Report::Waiting {
            workers: vec![waiting],
        },
        ready(round, vec![held]),
        Report::Counted {
            round,
            highest: Boundary(3),
        },
        ready(Round(0), vec![]),
        Report::Broken {
            round: Round(0),
            process: one,
            unreachable: Vec::new(),
        },
        Report::Lost {
            process: process(0, 7),
            silent: false,
        },
    ];
    let count = reports.len();
    for report in reports {
        play.report("a", report);
    }
    assert_eq!(play.rejected.len(), count, "{:?}", play.rejected);
    assert_eq!(format!("{:?}", play.job), before, "R3");
}

#[test]
fn an_answer_about_other_workers_is_refused() {
    let mut play = Play::new(elastic(1, 1, 1));
    play.passive.insert("a".into());
    play.list(&[host("a", 1)]);
    play.connects("a");
    let waiting = Waiting {
        process: process(0, 1),
        left: None,
        data_port: 1,
    };
    play.report(
        "a",
        Report::Waiting {
            workers: vec![waiting],
        },
    );
    let held = |slot| Held {
        process: process(slot, 1),
        commit: None,
        empty: false,
        data_port: 1,
    };
    for members in [vec![], vec![held(5)], vec![held(0), held(1)]] {
        let kept = Vec::new();
        play.report(
            "a",
            Report::Ready {
                round: Round(1),
                members,
                kept,
                free_port: 2,
            },
        );
    }
    assert_eq!(
        (play.started(), play.rejected.len()),
        (0, 3),
        "remote input is checked"
    );
    let (members, kept) = (vec![held(0)], Vec::new());
    play.report(
        "a",
        Report::Ready {
            round: Round(1),
            members,
            kept,
            free_port: 2,
        },
    );
    assert_eq!(play.started(), 1);
}

#[test]
fn a_newer_connection_of_a_host_replaces_the_older() {
    let mut play = Play::new(elastic(1, 1, 1));
    play.list(&[host("a", 1)]);
    play.connects("a");
    assert_eq!(
        play.job.results().failures(),
        1,
        "the workers of the older one are lost"
    );
}

#[test]
fn an_agent_of_an_unknown_host_is_sent_away_and_its_host_may_come_later() {
    let mut play = Play::new(elastic(1, 1, 2));
    play.list(&[host("a", 1)]);
    play.passive.insert("b".into());
    play.list(&[host("a", 1), host("b", 1)]);
    play.list(&[host("a", 1)]);
    play.list(&[host("a", 1)]);
    play.connects("b");
    assert_eq!(play.rejected, [Rejected::UnknownHost]);
    assert_eq!(play.refused.len(), 1);
    assert_eq!(play.ended_launches.last(), Some(&("b".into(), false)));
    play.passive.clear();
    play.list(&[host("a", 1), host("b", 1)]);
    play.pass(seconds(1));
    assert_eq!(play.size(), 2, "it is launched anew, and at once");
}

#[test]
fn peers_that_break_away_from_a_round_that_is_left_are_not_waited_for() {
    let mut play = Play::new(elastic(2, 1, 3));
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    play.passive.insert("b".into());
    play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    let round = play.round();
    play.report(
        "b",
        Report::Counted {
            round,
            highest: Boundary(6),
        },
    );
    let one = process(0, 1);
    play.report(
        "b",
        Report::Broken {
            round,
            process: one,
            unreachable: Vec::new(),
        },
    );
    let aborted =
        |(host, order): &(_, Order)| *host == "b".into() && *order == Order::Abort { round };
    assert!(
        play.orders.iter().any(aborted),
        "the others would wait for it in vain"
    );
    play.comes_back("b");
    assert_eq!((play.started(), play.size()), (2, 3));
}

#[test]
fn hosts_that_register_themselves_are_used_and_forgotten() {
    let mut play = Play::new(Settings {
        self_registration: true,
        ..elastic(2, 1, 4)
    });
    play.connects("a");
    play.connects("b");
    assert_eq!(play.size(), 2);
    play.commit();
    play.lose("a");
    assert_eq!((play.started(), play.size()), (2, 1));
    play.connects("c");
    assert_eq!(
        play.started(),
        2,
        "the survivor has the processor to itself for a moment"
    );
    play.pass(std::time::Duration::from_millis(20));
    assert_eq!((play.started(), play.size()), (3, 2));
}

#[test]
fn a_listed_host_that_never_registers_is_not_waited_for_without_end() {
    let settings = Settings {
        self_registration: true,
        elastic_timeout: seconds(10),
        ..elastic(2, 2, 2)
    };
    let mut play = Play::new(settings);
    play.list(&[host("a", 1), host("b", 1)]);
    play.connects("a");
    play.pass(seconds(11));
    assert!(play.outcome.is_some(), "R9");
}

#[test]
fn every_host_is_used_when_there_is_room_for_all() {
    let mut play = Play::new(elastic(2, 1, 3));
    play.list(&[host("a", 2)]);
    play.commit();
    // b's second slot must not be forgotten while a still holds two places.
    play.passive.insert("a".into());
    play.list(&[host("b", 2)]);
    play.list(&[host("b", 2)]);
    play.pass(seconds(70));
    play.comes_back("a");
    play.pass(seconds(70));
    assert_eq!(play.runs("b"), 2);
}
