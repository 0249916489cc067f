//! Hosts, agents and processes of which nothing is heard: when that is a failure, and when they are back in time.

use elasticrun_core::{Event, FailureDomain, Settings};
use elasticrun_hosts::{Host, HostState};
use elasticrun_protocol::{DriverEpoch, Order, Report, control::StopReason};

use crate::{
    hosts::elastic,
    play::{Play, commit, host, process, range, seconds},
};

#[test]
fn a_host_falls_silent_and_returns_at_the_end() {
    let mut play = Play::new(Settings {
        cooldown: range(5, 5),
        ..elastic(2, 1, 2)
    });
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    play.lose("a");
    assert_eq!(play.members(), [("b".to_owned(), 0)]);
    play.pass(seconds(6));
    assert_eq!(
        play.members(),
        [("b".to_owned(), 0), ("a".to_owned(), 0)],
        "R2"
    );
}

#[test]
fn a_host_that_cannot_be_reached_waits_longer_each_time_and_is_out_at_last() {
    let mut play = Play::new(Settings {
        cooldown: range(1, 60),
        max_host_failures: Some(3),
        ..elastic(1, 1, 2)
    });
    play.unreachable.insert("b".into());
    play.list(&[host("a", 1), host("b", 1)]);
    play.pass(seconds(60));
    assert_eq!(play.blacklisted(), 3);
    assert_eq!((play.started(), play.size()), (1, 1));
}

#[test]
fn a_survivor_that_does_not_come_back_is_waited_for_by_its_agent_only() {
    let mut play = Play::new(Settings {
        failure_domain: FailureDomain::Slot,
        ..elastic(3, 1, 3)
    });
    play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    play.commit();
    play.passive.insert("c".into());
    play.kill("a", 0);
    play.pass(seconds(60));
    // The agent of c has killed it.
    let silent = play.current("c", 0);
    play.report(
        "c",
        Report::Lost {
            process: silent,
            silent: true,
        },
    );
    assert_eq!((play.started(), play.size()), (2, 1), "it bounds nobody");
}

#[test]
fn an_agent_that_does_not_answer_at_all_is_lost() {
    let mut play = Play::new(Settings {
        failure_domain: FailureDomain::Slot,
        ..elastic(3, 1, 3)
    });
    play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    play.commit();
    play.passive.insert("c".into());
    play.kill("a", 0);
    play.pass(seconds(70));
    assert_eq!((play.started(), play.size()), (2, 1));
}

#[test]
fn a_stale_connection_says_nothing() {
    let mut play = Play::new(elastic(1, 1, 1));
    play.list(&[host("a", 1)]);
    let report = Report::Lost {
        process: process(0, 1),
        silent: false,
    };
    play.event(Event::Reported {
        host: "a".into(),
        instance: 99,
        epoch: DriverEpoch(1),
        report,
    });
    play.event(Event::AgentLost {
        host: "a".into(),
        instance: 99,
        why: "old".into(),
    });
    assert_eq!(
        (
            play.started(),
            play.rejected.len(),
            play.job.results().failures()
        ),
        (1, 1, 0),
        "R3"
    );
}

#[test]
fn a_process_that_never_joins_is_stopped_in_time() {
    let mut play = Play::new(Settings {
        start_timeout: seconds(5),
        ..elastic(1, 1, 2)
    });
    play.list(&[host("a", 1)]);
    play.passive.insert("b".into());
    play.list(&[host("a", 1), host("b", 1)]);
    play.connects("b");
    play.pass(seconds(5));
    let why = StopReason::TimedOut;
    let stop = Order::Stop {
        process: process(0, 1),
        why,
    };
    assert!(play.orders.contains(&("b".into(), stop)));
    assert_eq!((play.started(), play.blacklisted()), (1, 1));
}

/// Seed 142155 of the simulation.
#[test]
fn who_is_cut_off_may_train_on_while_the_others_are_only_told_to_stop() {
    let settings = Settings {
        spares: 1,
        ..elastic(2, 1, 2)
    };
    let fence = settings.fence;
    let mut play = Play::new(settings);
    play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    play.commit();
    play.passive.insert("a".into());
    let gone = Host {
        state: HostState::Gone,
        ..host("a", 1)
    };
    play.list(&[gone, host("b", 1), host("c", 1)]);
    play.lose("b");
    assert_eq!(play.started(), 1, "R11: a worker of b may do one more step");
    play.pass(fence);
    assert_eq!((play.started(), play.base()), (2, Some(commit(1, 1))));
}
