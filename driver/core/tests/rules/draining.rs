//! Rule 7: hosts that will go away, by a notice. (By a list: `hosts`.)

use std::time::Duration;

use elasticrun_core::{Departure, Event, Note, Refusal, Settings, results::Outcome};
use elasticrun_protocol::{Boundary, HostId, Notice, NoticeKind, Order, Report};

use crate::{
    hosts::elastic,
    play::{Play, commit, draining, host, seconds},
};

fn notice(kind: NoticeKind, within: Option<u64>) -> Notice {
    let within = within.map(Duration::from_secs);
    Notice { kind, within }
}

/// The agent of a host hears that it will go.
fn noticed(play: &mut Play, name: &str, within: Option<u64>) {
    let notice = notice(NoticeKind::SpotInterruption, within);
    play.report(name, Report::Noticed { notice });
}

fn drained(play: &Play) -> Vec<&str> {
    let drained = play.departures.iter();
    let drained = drained.filter(|(_, state)| *state == Departure::Drained);
    drained.map(|(host, _)| host.as_str()).collect()
}

fn failures(play: &Play) -> usize {
    let failed = |note: &&Note| matches!(note, Note::HostFailed { .. } | Note::Blacklisted { .. });
    play.notes.iter().filter(failed).count() + play.job.results().failures() as usize
}

#[test]
fn a_noticed_host_is_left_at_a_commit_given_free_and_never_used_again() {
    let mut play = Play::new(elastic(4, 2, 4));
    play.list(&[host("a", 2), host("b", 2)]);
    play.commit();
    noticed(&mut play, "b", Some(120));
    assert_eq!((play.started(), play.size()), (2, 2));
    assert_eq!(play.base(), Some(commit(1, 2)), "nothing is lost");
    assert_eq!(drained(&play), ["b"]);
    let ordered = (HostId::new("b"), Order::Shutdown);
    assert!(
        play.orders.contains(&ordered),
        "its agent ends before the host does"
    );
    play.list(&[host("a", 2), host("b", 2)]);
    play.pass(seconds(60));
    assert_eq!(
        (play.started(), play.runs("b")),
        (2, 0),
        "no list takes a notice back"
    );
    play.list(&[host("a", 2)]);
    play.list(&[host("a", 2)]);
    play.list(&[host("a", 2), host("b", 2)]);
    play.pass(seconds(1));
    assert_eq!(
        play.size(),
        4,
        "a host that was gone and is there again is a new one"
    );
    assert_eq!(failures(&play), 0);
}

#[test]
fn a_notice_is_told_once_and_one_of_no_host_is_refused() {
    let mut play = Play::new(elastic(2, 1, 2));
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    noticed(&mut play, "b", Some(120));
    let told = |play: &Play| {
        let draining = |note: &&Note| matches!(note, Note::Draining { .. });
        play.notes.iter().filter(draining).count()
    };
    play.asks_to_drain("b");
    assert_eq!((told(&play), play.answers.pop()), (1, Some(Ok(()))));
    play.asks_to_drain("moon");
    let refusal = Refusal::UnknownHost {
        host: "moon".into(),
        known: vec!["a".into(), "b".into()],
    };
    assert_eq!((told(&play), play.answers.pop()), (1, Some(Err(refusal))));
}

#[test]
fn what_a_person_asks_is_refused_where_nobody_could_go_on_and_behind_the_end() {
    let mut play = Play::new(Settings::standard(1));
    play.list(&[host("a", 1)]);
    play.asks_to_drain("a");
    assert_eq!(play.answers.pop(), Some(Err(Refusal::NotElastic)));
    let mut play = Play::new(elastic(2, 1, 2));
    play.list(&[host("a", 1), host("b", 1)]);
    play.event(Event::StopRequested { signal: 15 });
    play.asks_to_drain("a");
    assert_eq!(play.answers.pop(), Some(Err(Refusal::Ending)));
}

#[test]
fn a_mere_risk_moves_nobody() {
    let mut play = Play::new(elastic(2, 1, 2));
    play.list(&[host("a", 1), host("b", 1)]);
    let notice = notice(NoticeKind::RebalanceRecommendation, None);
    play.report("b", Report::Noticed { notice });
    assert_eq!((play.started(), play.size()), (1, 2));
    assert!(
        play.notes
            .iter()
            .any(|note| matches!(note, Note::AtRisk { .. }))
    );
}

#[test]
fn workers_that_are_needed_train_on_until_others_are_there() {
    let mut play = Play::new(elastic(2, 2, 2));
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    noticed(&mut play, "b", Some(120));
    play.pass(seconds(40));
    assert_eq!(
        (play.started(), play.runs("b")),
        (1, 1),
        "too few without it"
    );
    play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    assert_eq!(play.started(), 2);
    assert_eq!(play.members(), [("a".to_owned(), 0), ("c".to_owned(), 0)]);
    assert_eq!(play.base(), Some(commit(1, 2)));
    assert_eq!(drained(&play), ["b"]);
    assert_eq!(failures(&play), 0);
}

#[test]
fn workers_that_are_needed_leave_in_time_all_the_same() {
    let mut play = Play::new(elastic(2, 2, 2));
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    noticed(&mut play, "b", Some(120));
    play.pass(seconds(89));
    assert_eq!(play.runs("b"), 1);
    play.pass(seconds(2));
    assert_eq!(play.runs("b"), 0, "90 seconds are over");
    assert_eq!(
        drained(&play),
        [""; 0],
        "it may keep the newest commit while nobody trains"
    );
    play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    assert_eq!((play.started(), play.base()), (2, Some(commit(1, 2))));
    assert_eq!(drained(&play), ["b"]);
}

#[test]
fn a_second_host_that_drains_while_the_first_is_left_costs_no_step_either() {
    let mut play = Play::new(elastic(4, 1, 4));
    play.list(&[host("a", 2), host("b", 1), host("c", 1)]);
    play.commit();
    play.passive.insert("a".into());
    noticed(&mut play, "b", None);
    let counted = Report::Counted {
        round: play.round(),
        highest: Boundary(4),
    };
    // Workers of `a` are on their way to the boundary; those of `b` and `c` are there.
    play.report("a", counted);
    noticed(&mut play, "c", None);
    let cut = Order::Abort {
        round: play.round(),
    };
    assert!(play.orders.iter().all(|(_, order)| *order != cut));
    play.commit_on("a");
    play.comes_back("a");
    assert_eq!((play.started(), play.size()), (2, 2));
    assert_eq!(play.base(), Some(commit(1, 2)), "nothing is lost");
    assert_eq!(drained(&play), ["b", "c"]);
    assert_eq!(failures(&play), 0);
}

#[test]
fn a_host_that_goes_before_it_was_left_is_no_failure() {
    let mut play = Play::new(elastic(2, 1, 2));
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    play.passive.insert("b".into());
    noticed(&mut play, "b", Some(30));
    play.lose("b");
    assert_eq!((play.started(), play.size()), (2, 1));
    assert_eq!(
        play.base(),
        Some(commit(1, 1)),
        "from the commit that is there"
    );
    assert!(
        play.notes
            .iter()
            .any(|note| matches!(note, Note::WentEarly { .. }))
    );
    assert_eq!(failures(&play), 0);
}

#[test]
fn a_job_that_ends_gives_free_what_still_drains_once_it_is_left() {
    let mut play = Play::new(elastic(2, 2, 2));
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    noticed(&mut play, "b", Some(120));
    play.event(Event::StopRequested { signal: 15 });
    assert_eq!(play.outcome, Some(Outcome::Stopped { signal: 15 }));
    assert_eq!(drained(&play), [""; 0], "its agent still ends its workers");
    play.lose("a");
    assert_eq!(drained(&play), [""; 0], "that one did not drain");
    play.lose("b");
    play.lose("b");
    assert_eq!(drained(&play), ["b"], "once");
    assert_eq!(failures(&play), 0);
}

#[test]
fn a_draining_host_is_given_free_with_its_last_worker() {
    let mut play = Play::new(elastic(2, 2, 2));
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    noticed(&mut play, "b", Some(120));
    play.finish_all();
    assert_eq!(play.outcome, Some(Outcome::Succeeded));
    assert_eq!(drained(&play), ["b"]);
}

#[test]
fn a_job_that_ends_gives_free_what_was_waited_for_only_because_of_its_memory() {
    let mut play = Play::new(elastic(2, 2, 2));
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    noticed(&mut play, "b", Some(4));
    play.pass(seconds(3));
    assert_eq!((play.runs("b"), drained(&play)), (0, vec![]));
    play.event(Event::StopRequested { signal: 2 });
    assert_eq!(drained(&play), [""; 0]);
    play.lose("b");
    assert_eq!(drained(&play), ["b"]);
}

#[test]
fn what_an_agent_says_while_no_list_has_its_host_holds_when_one_has_it_again() {
    let mut play = Play::new(elastic(1, 1, 2));
    let both = [host("a", 1), host("b", 1)];
    play.list(&both);
    play.passive.insert(HostId::new("b"));
    play.list(&[host("a", 1)]);
    play.list(&[host("a", 1)]);
    noticed(&mut play, "b", Some(120));
    let draining =
        |play: &Play| (play.notes.iter()).any(|note| matches!(note, Note::Draining { .. }));
    assert!(!draining(&play));
    play.list(&both);
    assert!(draining(&play));
    play.notes.clear();
    play.list(&[host("a", 1)]);
    play.list(&[host("a", 1)]);
    play.list(&both);
    assert!(draining(&play), "nor is it forgotten when it was known");
    let before = format!("{:?}", play.job);
    noticed(&mut play, "b", Some(120));
    assert_eq!(before, format!("{:?}", play.job), "R3");
}

/// Seed 3430 of the simulation.
#[test]
fn an_agent_that_comes_when_its_host_is_drained_is_sent_away() {
    let mut play = Play::new(elastic(1, 1, 2));
    play.list(&[host("a", 1)]);
    play.passive.insert("b".into());
    play.list(&[host("a", 1), host("b", 1)]);
    play.list(&[host("a", 1), draining("b", 1)]);
    assert_eq!(drained(&play), ["b"], "it runs nothing");
    play.connects("b");
    assert_eq!(play.refused.len(), 1);
    play.passive.clear();
    play.list(&[host("a", 1), host("b", 1)]);
    play.pass(seconds(1));
    assert_eq!(
        (play.size(), failures(&play)),
        (2, 0),
        "the host is ready after all"
    );
}
