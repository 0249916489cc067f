//! Rule 7: hosts that go away by a notice. `hosts` tests those that go away by a list.

use std::time::Duration;

use elasticrun_core::{
    Decision, Departure, Event, Refusal, Settings,
    results::{Outcome, Reason},
};
use elasticrun_protocol::{AgentCommand, AgentReport, Boundary, HostId, Notice, NoticeKind};

use crate::{
    harness::{Harness, commit, draining, host, seconds},
    hosts::elastic,
};

fn notice(kind: NoticeKind, within: Option<u64>) -> Notice {
    let within = within.map(Duration::from_secs);
    Notice { kind, within }
}

/// The agent of a host reports that its host will go.
pub(crate) fn noticed(harness: &mut Harness, name: &str, within: Option<u64>) {
    let notice = notice(NoticeKind::SpotInterruption, within);
    harness.report(name, AgentReport::Noticed { notice });
}

fn drained(harness: &Harness) -> Vec<&str> {
    let drained = harness.departures.iter();
    let drained = drained.filter(|(_, state)| *state == Departure::Drained);
    drained.map(|(host, _)| host.as_str()).collect()
}

pub(crate) fn failures(harness: &Harness) -> usize {
    let failed = |note: &&Decision| {
        matches!(
            note,
            Decision::HostFailed { .. } | Decision::Blacklisted { .. }
        )
    };
    harness.notes.iter().filter(failed).count() + harness.job.results().failures() as usize
}

#[test]
fn a_noticed_host_is_left_at_a_commit_given_free_and_never_used_again() {
    let mut harness = Harness::new(elastic(4, 2, 4));
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.commit();
    noticed(&mut harness, "b", Some(120));
    assert_eq!((harness.started(), harness.size()), (2, 2));
    assert_eq!(harness.base(), Some(commit(1, 2)), "nothing is lost");
    assert_eq!(drained(&harness), ["b"]);
    let ordered = (HostId::new("b"), AgentCommand::Shutdown);
    assert!(
        harness.sent.contains(&ordered),
        "its agent ends before the host does"
    );
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.pass(seconds(60));
    assert_eq!(
        (harness.started(), harness.runs("b")),
        (2, 0),
        "no list takes a notice back"
    );
    harness.list(&[host("a", 2)]);
    harness.list(&[host("a", 2)]);
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.pass(seconds(1));
    assert_eq!(
        harness.size(),
        4,
        "a host that returns after a removal is a new host"
    );
    assert_eq!(failures(&harness), 0);
}

#[test]
fn a_notice_is_told_once_and_one_of_no_host_is_refused() {
    let mut harness = Harness::new(elastic(2, 1, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    noticed(&mut harness, "b", Some(120));
    let told = |harness: &Harness| {
        let draining = |note: &&Decision| matches!(note, Decision::Draining { .. });
        harness.notes.iter().filter(draining).count()
    };
    harness.asks_to_drain("b");
    assert_eq!((told(&harness), harness.answers.pop()), (1, Some(Ok(()))));
    harness.asks_to_drain("moon");
    let refusal = Refusal::UnknownHost {
        host: "moon".into(),
        known: vec!["a".into(), "b".into()],
    };
    assert_eq!(
        (told(&harness), harness.answers.pop()),
        (1, Some(Err(refusal)))
    );
}

#[test]
fn what_a_person_asks_is_refused_where_nobody_could_go_on_and_behind_the_end() {
    let mut harness = Harness::new(Settings::standard(1));
    harness.list(&[host("a", 1)]);
    harness.asks_to_drain("a");
    assert_eq!(harness.answers.pop(), Some(Err(Refusal::NotElastic)));
    let mut harness = Harness::new(elastic(2, 1, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.event(Event::StopRequested { signal: 15 });
    harness.asks_to_drain("a");
    assert_eq!(harness.answers.pop(), Some(Err(Refusal::Ending)));
}

#[test]
fn a_mere_risk_moves_nobody() {
    let mut harness = Harness::new(elastic(2, 1, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    let notice = notice(NoticeKind::RebalanceRecommendation, None);
    harness.report("b", AgentReport::Noticed { notice });
    assert_eq!((harness.started(), harness.size()), (1, 2));
    assert!(
        harness
            .notes
            .iter()
            .any(|note| matches!(note, Decision::AtRisk { .. }))
    );
}

#[test]
fn workers_that_are_needed_train_on_until_others_are_there() {
    let mut harness = Harness::new(elastic(2, 2, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    noticed(&mut harness, "b", Some(120));
    harness.pass(seconds(40));
    assert_eq!(
        (harness.started(), harness.runs("b")),
        (1, 1),
        "too few without it"
    );
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    assert_eq!(harness.started(), 2);
    assert_eq!(
        harness.members(),
        [("a".to_owned(), 0), ("c".to_owned(), 0)]
    );
    assert_eq!(harness.base(), Some(commit(1, 2)));
    assert_eq!(drained(&harness), ["b"]);
    assert_eq!(failures(&harness), 0);
}

#[test]
fn workers_that_are_needed_leave_in_time_all_the_same() {
    let mut harness = Harness::new(elastic(2, 2, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    noticed(&mut harness, "b", Some(120));
    harness.pass(seconds(89));
    assert_eq!(harness.runs("b"), 1);
    harness.pass(seconds(2));
    assert_eq!(harness.runs("b"), 0, "90 seconds are over");
    assert_eq!(
        drained(&harness),
        [""; 0],
        "the host may keep the newest commit while no worker trains"
    );
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    assert_eq!((harness.started(), harness.base()), (2, Some(commit(1, 2))));
    assert_eq!(drained(&harness), ["b"]);
}

#[test]
fn a_second_host_that_drains_while_the_first_is_left_costs_no_step_either() {
    let mut harness = Harness::new(elastic(4, 1, 4));
    harness.list(&[host("a", 2), host("b", 1), host("c", 1)]);
    harness.commit();
    harness.passive.insert("a".into());
    noticed(&mut harness, "b", None);
    let counted = AgentReport::BoundaryCounted {
        round: harness.round(),
        highest: Boundary(4),
    };
    // The workers of `a` have not reached the boundary yet; those of `b` and `c` have.
    harness.report("a", counted);
    noticed(&mut harness, "c", None);
    let cut = AgentCommand::Abort {
        round: harness.round(),
    };
    assert!(harness.sent.iter().all(|(_, command)| *command != cut));
    harness.commit_on("a");
    harness.comes_back("a");
    assert_eq!((harness.started(), harness.size()), (2, 2));
    assert_eq!(harness.base(), Some(commit(1, 2)), "nothing is lost");
    assert_eq!(drained(&harness), ["b", "c"]);
    assert_eq!(failures(&harness), 0);
}

#[test]
fn a_host_that_goes_before_it_was_left_is_no_failure() {
    let mut harness = Harness::new(elastic(2, 1, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.passive.insert("b".into());
    noticed(&mut harness, "b", Some(30));
    harness.lose("b");
    assert_eq!((harness.started(), harness.size()), (2, 1));
    assert_eq!(
        harness.base(),
        Some(commit(1, 1)),
        "from the commit that is there"
    );
    assert!(
        harness
            .notes
            .iter()
            .any(|note| matches!(note, Decision::WentEarly { .. }))
    );
    assert_eq!(failures(&harness), 0);
}

/// Seed 932748 of the simulation: a later driver learned from its first list that the host drains.
#[test]
fn a_standard_job_names_the_draining_host_that_it_ends_with() {
    let mut harness = Harness::new(Settings::standard(2));
    harness.passive.extend(["a".into(), "b".into()]);
    harness.list(&[host("a", 1), host("b", 1)]);
    for name in ["a", "b"] {
        harness.connects(name);
        harness.joins(name, 0);
    }
    assert_eq!((harness.started(), harness.size()), (1, 2));
    harness.list(&[host("a", 1), draining("b", 1)]);
    harness.lose("b");
    let reason = Reason::Standard;
    assert_eq!(harness.outcome, Some(Outcome::WorkerFailed(reason)));
    let first = harness.job.results().first_failure();
    assert_eq!(first.map(|first| first.host.as_str()), Some("b"));
}

#[test]
fn a_job_that_ends_gives_free_what_still_drains_once_it_is_left() {
    let mut harness = Harness::new(elastic(2, 2, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    noticed(&mut harness, "b", Some(120));
    harness.event(Event::StopRequested { signal: 15 });
    assert_eq!(harness.outcome, Some(Outcome::Stopped { signal: 15 }));
    assert_eq!(
        drained(&harness),
        [""; 0],
        "its agent still ends its workers"
    );
    harness.lose("a");
    assert_eq!(drained(&harness), [""; 0], "that one did not drain");
    harness.lose("b");
    harness.lose("b");
    assert_eq!(drained(&harness), ["b"], "once");
    assert_eq!(failures(&harness), 0);
}

#[test]
fn a_draining_host_is_given_free_with_its_last_worker() {
    let mut harness = Harness::new(elastic(2, 2, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    noticed(&mut harness, "b", Some(120));
    harness.finish_all();
    assert_eq!(harness.outcome, Some(Outcome::Succeeded));
    assert_eq!(drained(&harness), ["b"]);
}

#[test]
fn a_job_that_ends_gives_free_what_was_waited_for_only_because_of_its_memory() {
    let mut harness = Harness::new(elastic(2, 2, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    noticed(&mut harness, "b", Some(4));
    harness.pass(seconds(3));
    assert_eq!((harness.runs("b"), drained(&harness)), (0, vec![]));
    harness.event(Event::StopRequested { signal: 2 });
    assert_eq!(drained(&harness), [""; 0]);
    harness.lose("b");
    assert_eq!(drained(&harness), ["b"]);
}

#[test]
fn what_an_agent_says_while_no_list_has_its_host_holds_when_one_has_it_again() {
    let mut harness = Harness::new(elastic(1, 1, 2));
    let both = [host("a", 1), host("b", 1)];
    harness.list(&both);
    harness.passive.insert(HostId::new("b"));
    harness.list(&[host("a", 1)]);
    harness.list(&[host("a", 1)]);
    noticed(&mut harness, "b", Some(120));
    let draining = |harness: &Harness| {
        (harness.notes.iter()).any(|note| matches!(note, Decision::Draining { .. }))
    };
    assert!(!draining(&harness));
    harness.list(&both);
    assert!(draining(&harness));
    harness.notes.clear();
    harness.list(&[host("a", 1)]);
    harness.list(&[host("a", 1)]);
    harness.list(&both);
    assert!(draining(&harness), "nor is it forgotten when it was known");
    let before = harness.state();
    noticed(&mut harness, "b", Some(120));
    assert_eq!(before, harness.state(), "R3");
}

/// Seed 3430 of the simulation.
#[test]
fn an_agent_that_comes_when_its_host_is_drained_is_sent_away() {
    let mut harness = Harness::new(elastic(1, 1, 2));
    harness.list(&[host("a", 1)]);
    harness.passive.insert("b".into());
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.list(&[host("a", 1), draining("b", 1)]);
    assert_eq!(drained(&harness), ["b"], "it runs nothing");
    harness.connects("b");
    assert_eq!(harness.refused.len(), 1);
    harness.passive.clear();
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.pass(seconds(1));
    assert_eq!(
        (harness.size(), failures(&harness)),
        (2, 0),
        "the host is ready after all"
    );
}
