//! Rule 2: who joins a round that trains has shown that it reaches the hosts of it.

use elasticrun_core::{Note, Rejected, Settings};
use elasticrun_protocol::{HostId, Order, Report};

use crate::play::{Play, host, range, seconds};

fn settings(np: u32, min: u32) -> Settings {
    Settings {
        cooldown: range(10, 300),
        ..Settings::elastic(np, min, None)
    }
}

/// A job that trains on these hosts.
fn training(names: &[&str]) -> Play {
    let mut play = Play::new(settings(names.len() as u32, 1));
    play.list(&names.iter().map(|name| host(name, 1)).collect::<Vec<_>>());
    assert_eq!((play.started(), play.size()), (1, names.len() as u32));
    play.commit();
    play
}

/// Who was asked whether it reaches whom, and by which number.
fn probes(play: &Play) -> Vec<(String, u64, Vec<String>)> {
    let asked = |(host, order): &(HostId, Order)| match order {
        Order::Probe { number, hosts, .. } => {
            let names = hosts.iter().map(|probed| probed.host.to_string());
            Some((host.to_string(), *number, names.collect()))
        }
        _ => None,
    };
    play.orders.iter().filter_map(asked).collect()
}

fn failed_hosts(play: &Play) -> Vec<(String, String)> {
    let failed = |note: &Note| match note {
        Note::HostFailed { host, why } => Some((host.to_string(), why.clone())),
        _ => None,
    };
    play.notes.iter().filter_map(failed).collect()
}

fn was_interrupted(play: &Play) -> bool {
    let hold = |(_, order): &(HostId, Order)| matches!(order, Order::Hold { .. });
    play.orders.iter().any(hold)
}

#[test]
fn a_newcomer_that_reaches_all_joins() {
    let mut play = training(&["a", "b", "c"]);
    assert_eq!(probes(&play), []);
    play.list(&[host("a", 1), host("b", 1), host("c", 1), host("d", 1)]);
    let asked = ["a", "b", "c"].map(str::to_owned).to_vec();
    assert_eq!(probes(&play), [("d".to_owned(), 1, asked)]);
    assert_eq!((play.started(), play.size()), (2, 4));
}

#[test]
fn a_newcomer_that_misses_a_host_of_the_round_fails_and_the_round_trains_on() {
    let mut play = training(&["a", "b", "c"]);
    play.cut.insert(("d".into(), "b".into()));
    let all = [host("a", 1), host("b", 1), host("c", 1), host("d", 1)];
    play.list(&all);
    play.pass(seconds(5));
    assert_eq!(play.started(), 1);
    assert!(!was_interrupted(&play));
    let failed = failed_hosts(&play);
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(
        failed[0].0 == "d" && failed[0].1.contains("reach b,"),
        "{failed:?}"
    );
    assert_eq!(play.runs("d"), 0);
    // It is asked again after each cooldown, which grows, and joins when the network is mended.
    play.pass(seconds(50));
    assert_eq!((play.started(), failed_hosts(&play).len()), (1, 3));
    play.cut.clear();
    play.pass(seconds(50));
    assert_eq!((play.started(), play.size()), (2, 4));
    assert_eq!(failed_hosts(&play).len(), 3);
}

#[test]
fn a_newcomer_that_does_not_answer_fails_in_time_and_others_do_not_wait_for_it() {
    let mut play = training(&["a", "b"]);
    play.mute.insert("c".into());
    play.list(&[host("a", 1), host("b", 1), host("c", 1), host("d", 1)]);
    play.pass(seconds(1));
    assert_eq!((play.started(), play.size()), (2, 3), "after the last call");
    play.pass(seconds(9));
    assert_eq!(failed_hosts(&play), []);
    play.pass(seconds(1));
    let failed = failed_hosts(&play);
    assert!(failed.len() == 1 && failed[0].0 == "c", "{failed:?}");
    assert_eq!((play.started(), play.size()), (2, 3));
}

#[test]
fn answers_that_are_late_or_come_twice_are_refused() {
    let mut play = training(&["a"]);
    play.mute.insert("b".into());
    play.list(&[host("a", 1), host("b", 1)]);
    let number = probes(&play)[0].1;
    let answer = |number, unreachable: &[&str]| Report::Probed {
        number,
        unreachable: unreachable.iter().map(|name| (*name).into()).collect(),
    };
    play.report("b", answer(number + 1, &["a"]));
    assert_eq!(play.rejected.pop(), Some(Rejected::StaleProbe(number + 1)));
    // Of a host that nobody asked, and about hosts that it was not asked about.
    play.report("a", answer(number, &["b"]));
    assert_eq!(play.rejected.pop(), Some(Rejected::StaleProbe(number)));
    play.list(&[host("a", 2), host("b", 1)]);
    play.pass(seconds(1));
    assert_eq!((play.started(), play.size()), (2, 2), "a new slot of a");
    play.report("b", answer(number, &["a"]));
    assert_eq!(play.rejected.pop(), Some(Rejected::StaleProbe(number)));
    let (asked, again, members) = probes(&play).pop().expect("b was asked anew");
    assert!(asked == "b" && again > number && members == ["a"]);
    play.passive.insert("a".into());
    play.report("b", answer(again, &["moon"]));
    play.report("b", answer(again, &["a"]));
    assert_eq!(play.rejected.pop(), Some(Rejected::Repeated));
    assert_eq!(failed_hosts(&play), []);
    assert!(was_interrupted(&play));
}

#[test]
fn a_recovery_asks_nobody_and_leaves_out_who_is_asked_if_others_are_enough() {
    for (min, size) in [(1, 1), (2, 2)] {
        let mut play = Play::new(settings(2, min));
        play.list(&[host("a", 1), host("b", 1)]);
        play.commit();
        play.mute.insert("c".into());
        play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
        assert_eq!(probes(&play).len(), 1);
        play.kill("b", 0);
        assert_eq!((play.started(), play.size()), (2, size));
        // Asked anew, if it is not in the round that trains.
        assert_eq!(probes(&play).len() as u32, 3 - size);
        play.pass(seconds(9));
        let failed = failed_hosts(&play);
        assert_eq!(failed, []);
    }
}

#[test]
fn a_host_that_goes_meanwhile_is_not_missed() {
    let mut play = training(&["a", "b"]);
    play.mute.insert("c".into());
    play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    let number = probes(&play)[0].1;
    play.passive.insert("a".into());
    play.lose("b");
    // The round without b has not begun yet, and what c was asked was about the last one.
    let unreachable = vec!["b".into()];
    play.report(
        "c",
        Report::Probed {
            number,
            unreachable,
        },
    );
    play.comes_back("a");
    assert_eq!(play.started(), 2);
    let failed: Vec<_> = failed_hosts(&play)
        .into_iter()
        .map(|(host, _)| host)
        .collect();
    assert_eq!(failed, ["b"]);
}

#[test]
fn a_host_that_goes_while_it_is_asked_has_not_failed() {
    let mut play = training(&["a", "b"]);
    play.mute.insert("c".into());
    play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    play.list(&[host("a", 1), host("b", 1)]);
    play.list(&[host("a", 1), host("b", 1)]);
    assert_eq!(play.runs("c"), 0);
    play.pass(seconds(20));
    assert_eq!(failed_hosts(&play), []);
}

#[test]
fn an_agent_that_knows_no_probe_is_not_asked() {
    let mut play = training(&["a"]);
    play.older.insert("b".into());
    play.list(&[host("a", 1), host("b", 1)]);
    assert_eq!(probes(&play), []);
    assert_eq!((play.started(), play.size()), (2, 2));
}

#[test]
fn of_a_large_round_some_hosts_are_dialled() {
    let names: Vec<_> = (10..40).map(|number| format!("h{number}")).collect();
    let mut play = training(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let mut list: Vec<_> = names.iter().map(|name| host(name, 1)).collect();
    list.push(host("new", 1));
    play.list(&list);
    let (_, _, members) = &probes(&play)[0];
    assert!((7..=8).contains(&members.len()), "{members:?}");
    assert_eq!((play.started(), play.size()), (2, 31));
}
