//! Rule 7: workers of hosts that go away train on while too few others can, whatever the round does when the notice comes.

use elasticrun_core::{Decision, FailureDomain, Rejected, Settings, fleet::Life};
use elasticrun_protocol::{
    AgentCommand, AgentReport, Boundary, HostId, Round,
    control::{StopReason, Waiting},
};

use crate::{
    draining::{failures, noticed},
    harness::{Harness, commit, host, range, seconds},
    hosts::elastic,
};

/// A job of one worker on each of these hosts. The workers have committed once.
fn job(settings: Settings, hosts: &[&str]) -> Harness {
    let mut harness = Harness::new(settings);
    let hosts: Vec<_> = hosts.iter().map(|name| host(name, 1)).collect();
    harness.list(&hosts);
    harness.commit();
    harness
}

/// A job on the hosts a, b and c that leaves a for a notice. The worker of `slow` has not reached the boundary yet.
fn leaves_a(slow: &str) -> Harness {
    let mut harness = job(elastic(3, 1, 3), &["a", "b", "c"]);
    harness.passive.insert(slow.into());
    noticed(&mut harness, "a", Some(90));
    harness
}

/// The agent of a slow host reports the boundary that its worker will reach.
fn counts(harness: &mut Harness, slow: &str) {
    let counted = AgentReport::BoundaryCounted {
        round: harness.round(),
        highest: Boundary(4),
    };
    harness.report(slow, counted);
}

/// The worker of a slow host reaches the boundary with a commit and comes back.
fn comes_back(harness: &mut Harness, slow: &str) {
    harness.commit_on(slow);
    harness.comes_back(slow);
    harness.passive.clear();
}

#[test]
fn hosts_that_are_noticed_while_another_is_left_train_on_to_their_time() {
    let mut harness = leaves_a("a");
    noticed(&mut harness, "b", Some(90));
    noticed(&mut harness, "c", Some(90));
    counts(&mut harness, "a");
    comes_back(&mut harness, "a");
    assert_eq!(
        (harness.started(), harness.size()),
        (2, 3),
        "all are needed"
    );
    assert_eq!(harness.base(), Some(commit(1, 2)), "nothing is lost");
    harness.pass(seconds(59));
    assert_eq!((harness.started(), harness.size()), (2, 3));
    let runs = |harness: &Harness| ["a", "b", "c"].map(|name| harness.runs(name));
    assert_eq!(runs(&harness), [1, 1, 1]);
    harness.pass(seconds(2));
    assert_eq!(runs(&harness), [0, 0, 0], "60 seconds are over");
    assert_eq!(failures(&harness), 0);
}

#[test]
fn a_host_that_is_noticed_while_a_round_forms_trains_on_to_its_time() {
    let mut harness = leaves_a("c");
    counts(&mut harness, "c");
    // The next round forms until the worker of c is back.
    noticed(&mut harness, "b", Some(90));
    noticed(&mut harness, "c", Some(90));
    comes_back(&mut harness, "c");
    assert_eq!(harness.started(), 2);
    assert_eq!(harness.members(), [("c".to_owned(), 0)]);
    assert_eq!(harness.base(), Some(commit(1, 2)), "nothing is lost");
    harness.pass(seconds(59));
    assert_eq!((harness.started(), harness.runs("c")), (2, 1));
    harness.pass(seconds(2));
    assert_eq!(harness.runs("c"), 0, "60 seconds are over");
    assert_eq!(failures(&harness), 0);
}

#[test]
fn a_worker_that_is_needed_stays_when_another_fails() {
    let settings = Settings {
        cooldown: range(10, 10),
        ..elastic(2, 2, 2)
    };
    let mut harness = job(settings, &["a", "b"]);
    noticed(&mut harness, "b", Some(120));
    harness.kill("a", 0);
    assert_eq!(harness.runs("b"), 1);
    harness.pass(seconds(12));
    assert_eq!((harness.started(), harness.size()), (2, 2));
    assert_eq!(harness.base(), Some(commit(1, 1)));
    harness.pass(seconds(77));
    assert_eq!(harness.runs("b"), 1);
    harness.pass(seconds(2));
    assert_eq!(harness.runs("b"), 0, "90 seconds are over");
}

#[test]
fn nothing_is_started_on_a_host_that_goes() {
    let settings = Settings {
        cooldown: range(1, 1),
        failure_domain: FailureDomain::Slot,
        ..elastic(3, 3, 3)
    };
    let mut harness = Harness::new(settings);
    harness.list(&[host("a", 1), host("b", 2)]);
    harness.commit();
    noticed(&mut harness, "b", Some(120));
    harness.kill("b", 0);
    harness.pass(seconds(30));
    assert_eq!((harness.runs("a"), harness.runs("b")), (1, 1));
    harness.list(&[host("a", 1), host("b", 2), host("c", 1)]);
    assert_eq!((harness.started(), harness.size()), (2, 3));
    assert_eq!(harness.runs("c"), 1);
}

#[test]
fn others_take_over_when_they_are_there_and_not_before() {
    let mut harness = job(elastic(2, 1, 2), &["a", "b"]);
    harness.together(|harness| {
        noticed(harness, "a", Some(90));
        noticed(harness, "b", Some(90));
    });
    harness.slow = true;
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    harness.breaks_away("a");
    harness.pass(seconds(2));
    assert_eq!(
        (harness.started(), harness.size()),
        (2, 2),
        "the agent of c is connected, its worker not at `run()`"
    );
    harness.joins("c", 0);
    harness.pass(seconds(2));
    assert_eq!(harness.members(), [("c".to_owned(), 0)]);
    assert_eq!((harness.runs("a"), harness.runs("b")), (0, 0));
    assert_eq!(failures(&harness), 0);
}

/// A job that trains on b, c and d. The worker of a has answered a plan that was replaced, so it does not report that it
/// waits. It has a slot in the reserve.
fn leaves_out_a() -> Harness {
    let mut harness = job(elastic(3, 3, 4), &["a", "b", "c"]);
    harness.passive.extend(["a", "b"].map(HostId::new));
    let hosts = ["a", "b", "c", "d"].map(|name| host(name, 1));
    harness.list(&hosts);
    counts(&mut harness, "a");
    counts(&mut harness, "b");
    harness.commit_on("a");
    harness.comes_back("a");
    noticed(&mut harness, "a", Some(120));
    noticed(&mut harness, "b", Some(120));
    comes_back(&mut harness, "b");
    let members = ["b", "c", "d"].map(|name| (name.to_owned(), 0));
    let others: Vec<_> = (harness.members().into_iter())
        .filter(|member| !members.contains(member))
        .collect();
    assert_eq!((harness.started(), harness.size(), others), (2, 3, vec![]));
    assert_eq!(harness.runs("a"), 1, "it is in the reserve");
    harness
}

#[test]
fn a_worker_that_a_round_left_out_returns_from_the_round_before() {
    let mut harness = leaves_out_a();
    let a = harness.current("a", 0);
    let life = |harness: &Harness| {
        let host = HostId::new("a");
        let live = harness.job.fleet().current(&host, a);
        live.expect("it lives").life
    };
    assert_eq!(life(&harness), Life::Returning { round: Round(1) });
    let waits = |left| AgentReport::Waiting {
        workers: vec![Waiting {
            process: a,
            left,
            data_port: 1,
        }],
    };
    harness.passive.extend(["b", "c", "d"].map(HostId::new));
    harness.breaks_away("b");
    harness.report("a", waits(Some(harness.round())));
    assert_eq!(harness.rejected, [Rejected::Repeated], "R3");
    harness.report("a", waits(Some(Round(1))));
    assert_eq!(harness.rejected.len(), 1);
    assert_eq!(life(&harness), Life::Waiting);
}

#[test]
fn the_loss_of_a_worker_that_a_round_left_out_does_not_end_the_round() {
    let mut harness = leaves_out_a();
    harness.lose("a");
    let aborted = |note: &Decision| matches!(note, Decision::RoundAborted { started: true, .. });
    assert!(!harness.notes.iter().any(aborted), "{:?}", harness.notes);
    assert_eq!(harness.started(), 2);
}

#[test]
fn a_worker_that_a_round_left_out_is_stopped_as_the_job_ends() {
    let mut harness = leaves_out_a();
    let process = harness.current("a", 0);
    harness.finishes("c", 0);
    let why = StopReason::JobEnded;
    let stop = (HostId::new("a"), AgentCommand::Stop { process, why });
    assert!(harness.sent.contains(&stop), "{:?}", harness.sent);
}
