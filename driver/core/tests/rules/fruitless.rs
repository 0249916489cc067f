//! Rounds that end again and again without a commit lead to a blamed host, or to the end of the job.

use elasticrun_core::{Decision, Settings, results::Outcome};
use elasticrun_protocol::{AgentReport, CommitId};

use crate::{
    going_back::lose_at_once,
    harness::{Harness, commit, draining, host, range, seconds},
};

fn settings(np: u32, min: u32) -> Settings {
    Settings {
        cooldown: range(10, 300),
        ..Settings::elastic(np, min, None)
    }
}

/// Workers train for `wait`. Those at the ends of cut links fail to connect for five seconds and report it.
fn pass(harness: &mut Harness, cut: &[(&str, &str)], wait: u64) {
    let end = harness.now + seconds(wait);
    while harness.now < end && harness.outcome.is_none() {
        let before = harness.started();
        harness.pass(seconds(5));
        if harness.started() == before && harness.breaks(cut) == 0 {
            harness.commit();
        }
    }
}

fn failed_hosts(harness: &Harness) -> Vec<(String, String)> {
    let failed = |note: &Decision| match note {
        Decision::HostFailed { host, why } => Some((host.to_string(), why.clone())),
        _ => None,
    };
    harness.notes.iter().filter_map(failed).collect()
}

#[test]
fn a_newcomer_that_cannot_be_reached_loses_at_once() {
    for cut in [
        &[("a", "d"), ("b", "d"), ("c", "d")][..],
        &[("a", "d")],
        &[("d", "b")],
    ] {
        let mut harness = Harness::new(settings(3, 2));
        harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
        harness.commit();
        harness.list(&[host("a", 1), host("b", 1), host("c", 1), host("d", 1)]);
        assert_eq!((harness.started(), harness.size()), (2, 4));
        harness.pass(seconds(5));
        harness.breaks(cut);
        harness.pass(seconds(1));
        assert_eq!((harness.started(), harness.size()), (3, 3), "{cut:?}");
        let failed = failed_hosts(&harness);
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert_eq!(failed[0].0, "d");
        let named = cut[0].0.replace('d', cut[0].1);
        assert!(failed[0].1.contains(&named), "{failed:?}");
        // The cooldown of host d grows each time, until the host is excluded for good.
        pass(&mut harness, cut, 3000);
        assert_eq!(harness.blacklisted(), 5);
        assert_eq!((harness.size(), harness.outcome.clone()), (3, None));
    }
}

#[test]
fn a_newcomer_is_not_blamed_for_a_host_that_others_cannot_reach_either() {
    let mut harness = Harness::new(settings(3, 2));
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    harness.commit();
    harness.list(&[host("a", 1), host("b", 1), host("c", 1), host("d", 1)]);
    assert_eq!((harness.started(), harness.size()), (2, 4));
    pass(&mut harness, &[("b", "a"), ("b", "c"), ("b", "d")], 45);
    let failed = failed_hosts(&harness);
    assert!(failed.iter().all(|(host, _)| host == "b"), "{failed:?}");
    assert_eq!(failed.len(), 1);
}

#[test]
fn the_host_that_most_others_cannot_reach_is_failed() {
    let mut harness = Harness::new(settings(3, 2));
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    harness.commit();
    let cut = [("c", "a"), ("c", "b")];
    pass(&mut harness, &cut, 45);
    assert_eq!(failed_hosts(&harness)[0].0, "c");
    assert!(harness.started() <= 5, "{}", harness.started());
    assert_eq!(
        harness.members(),
        [("a".to_owned(), 0), ("b".to_owned(), 0)]
    );
    assert_eq!(harness.blacklisted(), 1);
}

#[test]
fn of_two_hosts_the_first_goes_on() {
    let mut harness = Harness::new(settings(2, 1));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    pass(&mut harness, &[("a", "b")], 45);
    assert_eq!(harness.members(), [("a".to_owned(), 0)]);
    assert_eq!(failed_hosts(&harness)[0].0, "b");
    pass(&mut harness, &[], 30);
    assert_eq!(
        harness.size(),
        2,
        "the network is mended and the cooldown over"
    );
}

#[test]
fn two_hosts_that_are_both_needed_end_with_the_elastic_timeout() {
    for names in [true, false] {
        let mut harness = Harness::new(settings(2, 2));
        harness.list(&[host("a", 1), host("b", 1)]);
        harness.commit();
        while harness.outcome.is_none() && harness.now.since_start() < seconds(2000) {
            match names {
                true => drop(harness.breaks(&[("a", "b")])),
                // The report comes at once and names no host.
                false => harness.breaks_away("a"),
            }
            harness.pass(seconds(1));
        }
        let ended = harness.now.since_start();
        assert!(
            matches!(harness.outcome, Some(Outcome::TimedOut { workers: 2, .. })),
            "{:?}",
            harness.outcome
        );
        assert!(ended >= seconds(600) && ended <= seconds(610), "{ended:?}");
        assert!(harness.started() < 150, "{} rounds", harness.started());
        let told = |note: &&Decision| matches!(note, Decision::Fruitless { .. });
        assert_eq!(harness.notes.iter().filter(told).count(), 1);
    }
}

#[test]
fn a_round_whose_commits_are_out_of_reach_is_not_fruitless() {
    let went_back = goes_on_without_the_round(None);
    assert_eq!(went_back.base(), Some(commit(1, 1)));
}

/// It may have made others since.
#[test]
fn a_round_of_which_only_the_first_commit_is_left_is_not_fruitless() {
    let went_on = goes_on_without_the_round(Some(commit(4, 0)));
    assert_eq!(went_on.base(), Some(commit(4, 0)));
}

/// Fruitless rounds, then one with commits whose hosts are lost, and fruitless ones again. A host has this replica of the round.
fn goes_on_without_the_round(replica: Option<CommitId>) -> Harness {
    let mut harness = Harness::new(Settings {
        cooldown: range(2000, 2000),
        ..settings(3, 1)
    });
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    harness.commit();
    for started in 2..4 {
        harness.breaks(&[("b", "a")]);
        harness.pass(seconds(1));
        assert_eq!(harness.started(), started);
    }
    harness.kill("c", 0);
    assert_eq!((harness.started(), harness.size()), (4, 2));
    harness.pass(seconds(400));
    harness.commit();
    if let Some(commit) = replica {
        harness.keeps("c", commit);
    }
    lose_at_once(&mut harness, &["a", "b"]);
    let all = ["a", "b", "c", "d", "e"].map(|name| host(name, 1));
    harness.list(&all);
    harness.pass(seconds(210));
    assert_eq!((harness.started(), harness.size()), (5, 2), "d and e");
    harness.breaks(&[("d", "e")]);
    harness.pass(seconds(2));
    assert_eq!((harness.started(), harness.outcome.clone()), (6, None));
    harness
}

#[test]
fn hosts_that_can_never_begin_a_round_end_the_job() {
    let mut harness = Harness::new(Settings {
        cooldown: range(0, 1),
        max_host_failures: None,
        ..settings(4, 2)
    });
    harness.list(&[host("a", 2), host("b", 2)]);
    while harness.outcome.is_none() && harness.now.since_start() < seconds(3000) {
        for name in ["a", "b"] {
            let (round, why) = (harness.round(), "no memory".to_owned());
            harness.report(name, AgentReport::Unable { round, why });
        }
        harness.pass(seconds(2));
    }
    assert!(
        matches!(harness.outcome, Some(Outcome::TimedOut { .. })),
        "{:?}",
        harness.outcome
    );
    assert!(harness.now.since_start() <= seconds(610));
}

#[test]
fn a_host_that_alone_breaks_away_each_time_is_failed() {
    let mut harness = Harness::new(settings(3, 2));
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    harness.commit();
    harness.breaks_away("b");
    harness.pass(seconds(1));
    for _ in 0..3 {
        assert_eq!(failed_hosts(&harness), []);
        harness.breaks_away("b");
        harness.pass(seconds(1));
    }
    assert_eq!(failed_hosts(&harness)[0].0, "b");
    assert_eq!(harness.size(), 2);
}

#[test]
fn a_death_explains_a_broken_round_and_a_commit_clears_all_names() {
    let mut harness = Harness::new(settings(4, 2));
    harness.list(&[host("a", 1), host("b", 1), host("c", 1), host("d", 1)]);
    harness.commit();
    for _ in 0..3 {
        harness.breaks(&[("a", "b")]);
        harness.kill("d", 0);
        harness.pass(seconds(1));
        assert_eq!(harness.size(), 3);
        harness.pass(seconds(100));
        harness.commit();
    }
    for _ in 0..5 {
        harness.breaks(&[("a", "b")]);
        harness.pass(seconds(1));
        harness.commit();
    }
    assert_eq!(failed_hosts(&harness), []);
}

/// Hosts a, b and c have trained, and d is new.
fn with_newcomer() -> Harness {
    let mut harness = Harness::new(settings(3, 1));
    let all = ["a", "b", "c", "d"].map(|name| host(name, 1));
    harness.list(&all[..3]);
    harness.commit();
    harness.list(&all);
    assert_eq!((harness.started(), harness.size()), (2, 4));
    harness
}

/// The second round breaks at these links, and host b does not come back from it.
fn broken_without_b(cut: &[(&str, &str)]) -> Harness {
    let mut harness = with_newcomer();
    harness.passive.insert("b".into());
    assert_ne!(harness.breaks(cut), 0);
    harness.pass(seconds(1));
    assert_eq!(harness.started(), 2, "it waits for b");
    harness
}

#[test]
fn a_late_death_does_not_explain_the_paths_of_others() {
    let mut harness = broken_without_b(&[("c", "a"), ("c", "d")]);
    harness.lose("b");
    harness.pass(seconds(1));
    assert_eq!((harness.started(), harness.size()), (3, 3));
    for _ in 0..2 {
        let failed = failed_hosts(&harness);
        assert_eq!(failed.len(), 1, "neither d nor, too early, c: {failed:?}");
        assert_ne!(harness.breaks(&[("c", "d")]), 0);
        harness.pass(seconds(1));
    }
    let failed = failed_hosts(&harness);
    let failed: Vec<_> = failed.iter().map(|(host, _)| host.as_str()).collect();
    assert_eq!(failed, ["b", "c"]);
}

#[test]
fn a_late_death_explains_the_paths_of_its_host() {
    // Host a waits for b in vain, and d for a.
    let mut harness = broken_without_b(&[("b", "a"), ("a", "d")]);
    harness.lose("b");
    harness.pass(seconds(1));
    assert_eq!((harness.started(), harness.size()), (3, 3));
    let mut harness = broken_without_b(&[("b", "d")]);
    harness.lose("b");
    harness.pass(seconds(1));
    assert_eq!((harness.started(), harness.size()), (3, 3));
    assert_ne!(harness.breaks(&[("c", "d")]), 0);
    harness.pass(seconds(1));
    let failed = failed_hosts(&harness);
    let failed: Vec<_> = failed.iter().map(|(host, _)| host.as_str()).collect();
    assert_eq!(failed, ["b", "d"], "a later fault of d counts");
}

#[test]
fn a_process_that_was_told_to_stop_may_name_hosts() {
    let mut harness = with_newcomer();
    harness.passive.insert("c".into());
    for (one, others) in [("d", &["c"][..]), ("c", &["a", "d"])] {
        let members = harness.members();
        let index = |name: &&str| members.iter().position(|(host, _)| host == name);
        let unreachable = (others.iter()).filter_map(index).map(|i| i as u32);
        let report = AgentReport::PeerLost {
            round: harness.round(),
            process: harness.current(one, 0),
            unreachable: unreachable.collect(),
        };
        harness.report(one, report);
        for _ in 0..3 {
            // The process of c is told to stop.
            harness.list(&["a", "b", "d"].map(|name| host(name, 1)));
        }
    }
    harness.pass(seconds(1));
    assert_eq!((harness.started(), harness.size()), (3, 3));
    assert_eq!(failed_hosts(&harness), []);
}

#[test]
fn an_old_fruitless_round_does_not_shorten_a_later_shortage() {
    let mut harness = Harness::new(settings(2, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    harness.breaks(&[("a", "b")]);
    harness.pass(seconds(1));
    harness.breaks(&[("a", "b")]);
    harness.pass(seconds(1));
    // The workers train for a day, and then a host is lost for a while.
    harness.pass(seconds(86_400));
    harness.lose("b");
    harness.pass(seconds(9));
    assert_eq!(harness.outcome, None);
    harness.pass(seconds(2));
    assert_eq!((harness.size(), harness.outcome.clone()), (2, None));
    harness.breaks(&[("a", "b")]);
    harness.pass(seconds(1));
    assert_eq!(harness.outcome, None, "what was a day ago is no row");
}

#[test]
fn names_of_another_round_or_of_no_host_change_nothing() {
    let mut harness = Harness::new(settings(2, 1));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    let (round, process) = (harness.round(), harness.current("a", 0));
    for _ in 0..4 {
        harness.commit();
        harness.breaks(&[("a", "b")]);
        harness.pass(seconds(1));
        let unreachable = vec![1, 7, u32::MAX];
        harness.report(
            "a",
            AgentReport::PeerLost {
                round,
                process,
                unreachable,
            },
        );
    }
    assert_eq!(failed_hosts(&harness), []);
}

#[test]
fn one_long_round_without_a_commit_is_no_row() {
    let mut harness = Harness::new(settings(2, 2));
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    // The round has no commit and lasts almost as long as the elastic timeout. Its survivors come back late.
    harness.breaks(&[("a", "b")]);
    harness.pass(seconds(1));
    harness.commit();
    harness.breaks(&[("a", "b")]);
    harness.pass(seconds(1));
    assert_eq!(harness.started(), 3);
    harness.pass(seconds(595));
    harness.passive.insert("b".into());
    harness.breaks(&[("a", "b")]);
    harness.pass(seconds(30));
    assert_eq!(harness.started(), 3);
    harness.passive.clear();
    harness.comes_back("b");
    assert_eq!((harness.started(), harness.outcome.clone()), (4, None));
}

#[test]
fn a_host_that_drains_is_not_failed() {
    let mut harness = Harness::new(settings(3, 2));
    let hosts = [host("a", 1), host("b", 1), host("c", 1)];
    harness.list(&hosts);
    harness.commit();
    let cut = [("a", "c"), ("b", "c")];
    harness.breaks(&cut);
    harness.pass(seconds(1));
    harness.breaks(&cut);
    harness.pass(seconds(1));
    harness.passive.insert("c".into());
    harness.breaks(&cut);
    let [a, b, _] = hosts;
    harness.list(&[a, b, draining("c", 1)]);
    harness.passive.clear();
    harness.comes_back("c");
    harness.pass(seconds(1));
    assert_eq!(harness.size(), 2);
    assert_eq!(failed_hosts(&harness), []);
}

#[test]
fn rounds_that_break_later_than_the_elastic_timeout_are_fruitless_all_the_same() {
    let mut harness = Harness::new(Settings {
        elastic_timeout: seconds(3),
        ..settings(2, 2)
    });
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.commit();
    // The workers need five seconds to detect that a path is cut.
    pass(&mut harness, &[("a", "b")], 60);
    assert!(
        matches!(harness.outcome, Some(Outcome::TimedOut { .. })),
        "{} rounds",
        harness.started()
    );
}
