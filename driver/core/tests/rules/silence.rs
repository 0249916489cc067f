//! Silent hosts, agents and processes: when silence is a failure, and when they are back in time.

use elasticrun_core::{Event, FailureDomain, Settings};
use elasticrun_hosts::{Host, HostState};
use elasticrun_protocol::{AgentCommand, AgentReport, DriverEpoch, control::StopReason};

use crate::{
    harness::{Harness, commit, host, process, range, seconds},
    hosts::elastic,
};

#[test]
fn a_host_falls_silent_and_returns_at_the_end() {
    let mut harness = Harness::new(Settings {
        cooldown: range(5, 5),
        ..elastic(2, 1, 2)
    });
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.lose("a");
    assert_eq!(harness.members(), [("b".to_owned(), 0)]);
    harness.pass(seconds(6));
    assert_eq!(
        harness.members(),
        [("b".to_owned(), 0), ("a".to_owned(), 0)],
        "R2"
    );
}

#[test]
fn a_host_that_cannot_be_reached_waits_longer_each_time_and_is_out_at_last() {
    let mut harness = Harness::new(Settings {
        cooldown: range(1, 60),
        max_host_failures: Some(3),
        ..elastic(1, 1, 2)
    });
    harness.unreachable.insert("b".into());
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.pass(seconds(60));
    assert_eq!(harness.blacklisted(), 3);
    assert_eq!((harness.started(), harness.size()), (1, 1));
}

#[test]
fn a_survivor_that_does_not_come_back_is_waited_for_by_its_agent_only() {
    let mut harness = Harness::new(Settings {
        failure_domain: FailureDomain::Slot,
        ..elastic(3, 1, 3)
    });
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    harness.commit();
    harness.passive.insert("c".into());
    harness.kill("a", 0);
    harness.pass(seconds(60));
    // The agent of c has killed the worker that did not come back.
    let silent = harness.current("c", 0);
    harness.report(
        "c",
        AgentReport::WorkerLost {
            process: silent,
            silent: true,
        },
    );
    assert_eq!(
        (harness.started(), harness.size()),
        (2, 1),
        "a silent survivor delays no round"
    );
}

#[test]
fn an_agent_that_does_not_answer_at_all_is_lost() {
    let mut harness = Harness::new(Settings {
        failure_domain: FailureDomain::Slot,
        ..elastic(3, 1, 3)
    });
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    harness.commit();
    harness.passive.insert("c".into());
    harness.kill("a", 0);
    harness.pass(seconds(70));
    assert_eq!((harness.started(), harness.size()), (2, 1));
}

#[test]
fn a_stale_connection_says_nothing() {
    let mut harness = Harness::new(elastic(1, 1, 1));
    harness.list(&[host("a", 1)]);
    let report = AgentReport::WorkerLost {
        process: process(0, 1),
        silent: false,
    };
    harness.event(Event::Reported {
        host: "a".into(),
        instance: 99,
        epoch: DriverEpoch(1),
        number: 1,
        report,
    });
    harness.event(Event::AgentLost {
        host: "a".into(),
        instance: 99,
        why: "old".into(),
    });
    assert_eq!(
        (
            harness.started(),
            harness.rejected.len(),
            harness.job.results().failures()
        ),
        (1, 1, 0),
        "R3"
    );
}

#[test]
fn a_process_that_never_joins_is_stopped_in_time() {
    let mut harness = Harness::new(Settings {
        start_timeout: seconds(5),
        ..elastic(1, 1, 2)
    });
    harness.list(&[host("a", 1)]);
    harness.passive.insert("b".into());
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.connects("b");
    harness.pass(seconds(5));
    let why = StopReason::TimedOut;
    let stop = AgentCommand::Stop {
        process: process(0, 1),
        why,
    };
    assert!(harness.sent.contains(&("b".into(), stop)));
    assert_eq!((harness.started(), harness.blacklisted()), (1, 1));
}

/// Seed 142155 of the simulation.
#[test]
fn who_is_cut_off_may_train_on_while_the_others_are_only_told_to_stop() {
    let settings = Settings {
        spares: 1,
        ..elastic(2, 1, 2)
    };
    let fence = settings.fence;
    let mut harness = Harness::new(settings);
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    harness.commit();
    harness.passive.insert("a".into());
    let gone = Host {
        state: HostState::Gone,
        ..host("a", 1)
    };
    harness.list(&[gone, host("b", 1), host("c", 1)]);
    harness.lose("b");
    assert_eq!(
        harness.started(),
        1,
        "R11: a worker of b may do one more step"
    );
    harness.pass(fence);
    assert_eq!((harness.started(), harness.base()), (2, Some(commit(1, 1))));
}
