//! Rounds that end again and again without a commit blame a host, or end the job.

use elasticrun_core::{Note, Settings, results::Outcome};
use elasticrun_protocol::Report;

use crate::{
    going_back::lose_at_once,
    play::{Play, draining, host, range, seconds},
};

fn settings(np: u32, min: u32) -> Settings {
    Settings {
        cooldown: range(10, 300),
        ..Settings::elastic(np, min, None)
    }
}

/// Workers train for `wait`; those at the ends of cut links cannot connect for five seconds, and say so.
fn pass(play: &mut Play, cut: &[(&str, &str)], wait: u64) {
    let end = play.now + seconds(wait);
    while play.now < end && play.outcome.is_none() {
        let before = play.started();
        play.pass(seconds(5));
        if play.started() == before && play.breaks(cut) == 0 {
            play.commit();
        }
    }
}

fn failed_hosts(play: &Play) -> Vec<(String, String)> {
    let failed = |note: &Note| match note {
        Note::HostFailed { host, why } => Some((host.to_string(), why.clone())),
        _ => None,
    };
    play.notes.iter().filter_map(failed).collect()
}

#[test]
fn a_newcomer_that_cannot_be_reached_loses_at_once() {
    for cut in [
        &[("a", "d"), ("b", "d"), ("c", "d")][..],
        &[("a", "d")],
        &[("d", "b")],
    ] {
        let mut play = Play::new(settings(3, 2));
        play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
        play.commit();
        play.list(&[host("a", 1), host("b", 1), host("c", 1), host("d", 1)]);
        assert_eq!((play.started(), play.size()), (2, 4));
        play.pass(seconds(5));
        play.breaks(cut);
        play.pass(seconds(1));
        assert_eq!((play.started(), play.size()), (3, 3), "{cut:?}");
        let failed = failed_hosts(&play);
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert_eq!(failed[0].0, "d");
        let named = cut[0].0.replace('d', cut[0].1);
        assert!(failed[0].1.contains(&named), "{failed:?}");
        // It comes back later each time, and at last is out for good.
        pass(&mut play, cut, 3000);
        assert_eq!(play.blacklisted(), 5);
        assert_eq!((play.size(), play.outcome.clone()), (3, None));
    }
}

#[test]
fn a_newcomer_is_not_blamed_for_a_host_that_others_cannot_reach_either() {
    let mut play = Play::new(settings(3, 2));
    play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    play.commit();
    play.list(&[host("a", 1), host("b", 1), host("c", 1), host("d", 1)]);
    assert_eq!((play.started(), play.size()), (2, 4));
    pass(&mut play, &[("b", "a"), ("b", "c"), ("b", "d")], 45);
    let failed = failed_hosts(&play);
    assert!(failed.iter().all(|(host, _)| host == "b"), "{failed:?}");
    assert_eq!(failed.len(), 1);
}

#[test]
fn the_host_that_most_others_cannot_reach_is_failed() {
    let mut play = Play::new(settings(3, 2));
    play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    play.commit();
    let cut = [("c", "a"), ("c", "b")];
    pass(&mut play, &cut, 45);
    assert_eq!(failed_hosts(&play)[0].0, "c");
    assert!(play.started() <= 5, "{}", play.started());
    assert_eq!(play.members(), [("a".to_owned(), 0), ("b".to_owned(), 0)]);
    assert_eq!(play.blacklisted(), 1);
}

#[test]
fn of_two_hosts_the_first_goes_on() {
    let mut play = Play::new(settings(2, 1));
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    pass(&mut play, &[("a", "b")], 45);
    assert_eq!(play.members(), [("a".to_owned(), 0)]);
    assert_eq!(failed_hosts(&play)[0].0, "b");
    pass(&mut play, &[], 30);
    assert_eq!(
        play.size(),
        2,
        "the network is mended and the cooldown over"
    );
}

#[test]
fn two_hosts_that_are_both_needed_end_with_the_elastic_timeout() {
    for names in [true, false] {
        let mut play = Play::new(settings(2, 2));
        play.list(&[host("a", 1), host("b", 1)]);
        play.commit();
        while play.outcome.is_none() && play.now.since_start() < seconds(2000) {
            match names {
                true => drop(play.breaks(&[("a", "b")])),
                // At once, and no host is named.
                false => play.breaks_away("a"),
            }
            play.pass(seconds(1));
        }
        let ended = play.now.since_start();
        assert!(
            matches!(play.outcome, Some(Outcome::TimedOut { workers: 2, .. })),
            "{:?}",
            play.outcome
        );
        assert!(ended >= seconds(600) && ended <= seconds(610), "{ended:?}");
        assert!(play.started() < 150, "{} rounds", play.started());
        let told = |note: &&Note| matches!(note, Note::Fruitless { .. });
        assert_eq!(play.notes.iter().filter(told).count(), 1);
    }
}

#[test]
fn a_round_whose_commits_are_out_of_reach_is_not_fruitless() {
    let mut play = Play::new(Settings {
        cooldown: range(2000, 2000),
        ..settings(3, 1)
    });
    play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    play.commit();
    for started in 2..4 {
        play.breaks(&[("b", "a")]);
        play.pass(seconds(1));
        assert_eq!(play.started(), started);
    }
    play.kill("c", 0);
    assert_eq!((play.started(), play.size()), (4, 2));
    play.pass(seconds(400));
    play.commit();
    lose_at_once(&mut play, &["a", "b"]);
    let all = ["a", "b", "c", "d", "e"].map(|name| host(name, 1));
    play.list(&all);
    play.pass(seconds(210));
    assert_eq!((play.started(), play.size()), (5, 2), "d and e went back");
    play.breaks(&[("d", "e")]);
    play.pass(seconds(2));
    assert_eq!((play.started(), play.outcome.clone()), (6, None));
}

#[test]
fn hosts_that_can_never_begin_a_round_end_the_job() {
    let mut play = Play::new(Settings {
        cooldown: range(0, 1),
        max_host_failures: None,
        ..settings(4, 2)
    });
    play.list(&[host("a", 2), host("b", 2)]);
    while play.outcome.is_none() && play.now.since_start() < seconds(3000) {
        for name in ["a", "b"] {
            let (round, why) = (play.round(), "no memory".to_owned());
            play.report(name, Report::Unable { round, why });
        }
        play.pass(seconds(2));
    }
    assert!(
        matches!(play.outcome, Some(Outcome::TimedOut { .. })),
        "{:?}",
        play.outcome
    );
    assert!(play.now.since_start() <= seconds(610));
}

#[test]
fn a_host_that_alone_breaks_away_each_time_is_failed() {
    let mut play = Play::new(settings(3, 2));
    play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    play.commit();
    play.breaks_away("b");
    play.pass(seconds(1));
    for _ in 0..3 {
        assert_eq!(failed_hosts(&play), []);
        play.breaks_away("b");
        play.pass(seconds(1));
    }
    assert_eq!(failed_hosts(&play)[0].0, "b");
    assert_eq!(play.size(), 2);
}

#[test]
fn a_death_explains_a_broken_round_and_a_commit_clears_all_names() {
    let mut play = Play::new(settings(4, 2));
    play.list(&[host("a", 1), host("b", 1), host("c", 1), host("d", 1)]);
    play.commit();
    for _ in 0..3 {
        play.breaks(&[("a", "b")]);
        play.kill("d", 0);
        play.pass(seconds(1));
        assert_eq!(play.size(), 3);
        play.pass(seconds(100));
        play.commit();
    }
    for _ in 0..5 {
        play.breaks(&[("a", "b")]);
        play.pass(seconds(1));
        play.commit();
    }
    assert_eq!(failed_hosts(&play), []);
}

#[test]
fn an_old_fruitless_round_does_not_shorten_a_later_shortage() {
    let mut play = Play::new(settings(2, 2));
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    play.breaks(&[("a", "b")]);
    play.pass(seconds(1));
    play.breaks(&[("a", "b")]);
    play.pass(seconds(1));
    // It trains for a day, and then a host is lost for a while.
    play.pass(seconds(86_400));
    play.lose("b");
    play.pass(seconds(9));
    assert_eq!(play.outcome, None);
    play.pass(seconds(2));
    assert_eq!((play.size(), play.outcome.clone()), (2, None));
    play.breaks(&[("a", "b")]);
    play.pass(seconds(1));
    assert_eq!(play.outcome, None, "what was a day ago is no row");
}

#[test]
fn names_of_another_round_or_of_no_host_change_nothing() {
    let mut play = Play::new(settings(2, 1));
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    let (round, process) = (play.round(), play.current("a", 0));
    for _ in 0..4 {
        play.commit();
        play.breaks(&[("a", "b")]);
        play.pass(seconds(1));
        let unreachable = vec![1, 7, u32::MAX];
        play.report(
            "a",
            Report::Broken {
                round,
                process,
                unreachable,
            },
        );
    }
    assert_eq!(failed_hosts(&play), []);
}

#[test]
fn one_long_round_without_a_commit_is_no_row() {
    let mut play = Play::new(settings(2, 2));
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    // A round without a commit, almost as long as the elastic timeout, and its survivors take their time.
    play.breaks(&[("a", "b")]);
    play.pass(seconds(1));
    play.commit();
    play.breaks(&[("a", "b")]);
    play.pass(seconds(1));
    assert_eq!(play.started(), 3);
    play.pass(seconds(595));
    play.passive.insert("b".into());
    play.breaks(&[("a", "b")]);
    play.pass(seconds(30));
    assert_eq!(play.started(), 3);
    play.passive.clear();
    play.comes_back("b");
    assert_eq!((play.started(), play.outcome.clone()), (4, None));
}

#[test]
fn a_host_that_drains_is_not_failed() {
    let mut play = Play::new(settings(3, 2));
    let hosts = [host("a", 1), host("b", 1), host("c", 1)];
    play.list(&hosts);
    play.commit();
    let cut = [("a", "c"), ("b", "c")];
    play.breaks(&cut);
    play.pass(seconds(1));
    play.breaks(&cut);
    play.pass(seconds(1));
    play.passive.insert("c".into());
    play.breaks(&cut);
    let [a, b, _] = hosts;
    play.list(&[a, b, draining("c", 1)]);
    play.passive.clear();
    play.comes_back("c");
    play.pass(seconds(1));
    assert_eq!(play.size(), 2);
    assert_eq!(failed_hosts(&play), []);
}

#[test]
fn rounds_that_break_later_than_the_elastic_timeout_are_fruitless_all_the_same() {
    let mut play = Play::new(Settings {
        elastic_timeout: seconds(3),
        ..settings(2, 2)
    });
    play.list(&[host("a", 1), host("b", 1)]);
    play.commit();
    // It takes the workers five seconds to see that a path is cut.
    pass(&mut play, &[("a", "b")], 60);
    assert!(
        matches!(play.outcome, Some(Outcome::TimedOut { .. })),
        "{} rounds",
        play.started()
    );
}
