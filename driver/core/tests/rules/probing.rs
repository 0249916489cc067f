//! Rule 2: a host joins others that train only after a probe has shown that it reaches them.

use elasticrun_core::{Decision, Rejected, Settings};
use elasticrun_protocol::{AgentCommand, AgentReport, HostId};

use crate::{
    harness::{Harness, host, range, seconds},
    returning::{adoption, in_round_1},
};

fn settings(np: u32, min: u32) -> Settings {
    Settings {
        cooldown: range(10, 300),
        ..Settings::elastic(np, min, None)
    }
}

/// A job that trains on these hosts.
fn training(names: &[&str]) -> Harness {
    let mut harness = Harness::new(settings(names.len() as u32, 1));
    harness.list(&names.iter().map(|name| host(name, 1)).collect::<Vec<_>>());
    assert_eq!((harness.started(), harness.size()), (1, names.len() as u32));
    harness.commit();
    harness
}

/// Probe commands so far: the probing host, the number of the probe, and the hosts to reach.
fn probes(harness: &Harness) -> Vec<(String, u64, Vec<String>)> {
    let asked = |(host, command): &(HostId, AgentCommand)| match command {
        AgentCommand::Probe { number, hosts, .. } => {
            let names = hosts.iter().map(|probed| probed.host.to_string());
            Some((host.to_string(), *number, names.collect()))
        }
        _ => None,
    };
    harness.sent.iter().filter_map(asked).collect()
}

fn failed_hosts(harness: &Harness) -> Vec<(String, String)> {
    let failed = |note: &Decision| match note {
        Decision::HostFailed { host, why } => Some((host.to_string(), why.clone())),
        _ => None,
    };
    harness.notes.iter().filter_map(failed).collect()
}

fn was_interrupted(harness: &Harness) -> bool {
    let hold = |(_, command): &(HostId, AgentCommand)| matches!(command, AgentCommand::Hold { .. });
    harness.sent.iter().any(hold)
}

#[test]
fn a_newcomer_that_reaches_all_joins() {
    let mut harness = training(&["a", "b", "c"]);
    assert_eq!(probes(&harness), []);
    harness.list(&[host("a", 1), host("b", 1), host("c", 1), host("d", 1)]);
    let asked = ["a", "b", "c"].map(str::to_owned).to_vec();
    assert_eq!(probes(&harness), [("d".to_owned(), 1, asked)]);
    assert_eq!((harness.started(), harness.size()), (2, 4));
}

#[test]
fn a_newcomer_that_misses_a_host_of_the_round_fails_and_the_round_trains_on() {
    let mut harness = training(&["a", "b", "c"]);
    harness.cut.insert(("d".into(), "b".into()));
    let all = [host("a", 1), host("b", 1), host("c", 1), host("d", 1)];
    harness.list(&all);
    harness.pass(seconds(5));
    assert_eq!(harness.started(), 1);
    assert!(!was_interrupted(&harness));
    let failed = failed_hosts(&harness);
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(
        failed[0].0 == "d" && failed[0].1.contains("reach b,"),
        "{failed:?}"
    );
    assert_eq!(harness.runs("d"), 0);
    // The driver probes again after each cooldown, which grows, and the host joins once the network is mended.
    harness.pass(seconds(50));
    assert_eq!((harness.started(), failed_hosts(&harness).len()), (1, 3));
    harness.cut.clear();
    harness.pass(seconds(50));
    assert_eq!((harness.started(), harness.size()), (2, 4));
    assert_eq!(failed_hosts(&harness).len(), 3);
}

#[test]
fn a_newcomer_that_does_not_answer_fails_in_time_and_others_do_not_wait_for_it() {
    let mut harness = training(&["a", "b"]);
    harness.mute.insert("c".into());
    harness.list(&[host("a", 1), host("b", 1), host("c", 1), host("d", 1)]);
    harness.pass(seconds(1));
    assert_eq!(
        (harness.started(), harness.size()),
        (2, 3),
        "after the last call"
    );
    harness.pass(seconds(9));
    assert_eq!(failed_hosts(&harness), []);
    harness.pass(seconds(1));
    let failed = failed_hosts(&harness);
    assert!(failed.len() == 1 && failed[0].0 == "c", "{failed:?}");
    assert_eq!((harness.started(), harness.size()), (2, 3));
}

#[test]
fn answers_that_are_late_or_come_twice_are_refused() {
    let mut harness = training(&["a"]);
    harness.mute.insert("b".into());
    harness.list(&[host("a", 1), host("b", 1)]);
    let number = probes(&harness)[0].1;
    let answer = |number, unreachable: &[&str]| AgentReport::Probed {
        number,
        unreachable: unreachable.iter().map(|name| (*name).into()).collect(),
    };
    harness.report("b", answer(number + 1, &["a"]));
    assert_eq!(
        harness.rejected.pop(),
        Some(Rejected::StaleProbe(number + 1))
    );
    // Answers of a host that was not probed, and about hosts that the probe did not name.
    harness.report("a", answer(number, &["b"]));
    assert_eq!(harness.rejected.pop(), Some(Rejected::StaleProbe(number)));
    harness.list(&[host("a", 2), host("b", 1)]);
    harness.pass(seconds(1));
    assert_eq!(
        (harness.started(), harness.size()),
        (2, 2),
        "a new slot of a"
    );
    harness.report("b", answer(number, &["a"]));
    assert_eq!(harness.rejected.pop(), Some(Rejected::StaleProbe(number)));
    let (asked, again, members) = probes(&harness).pop().expect("b was asked anew");
    assert!(asked == "b" && again > number && members == ["a"]);
    harness.passive.insert("a".into());
    harness.report("b", answer(again, &["moon"]));
    harness.report("b", answer(again, &["a"]));
    assert_eq!(harness.rejected.pop(), Some(Rejected::Repeated));
    assert_eq!(failed_hosts(&harness), []);
    assert!(was_interrupted(&harness));
}

#[test]
fn a_recovery_asks_nobody_and_leaves_out_who_is_asked_if_others_are_enough() {
    for (min, size) in [(1, 1), (2, 2)] {
        let mut harness = Harness::new(settings(2, min));
        harness.list(&[host("a", 1), host("b", 1)]);
        harness.commit();
        harness.mute.insert("c".into());
        harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
        assert_eq!(probes(&harness).len(), 1);
        harness.kill("b", 0);
        assert_eq!((harness.started(), harness.size()), (2, size));
        // The driver probes again only if the host is not in the round that trains.
        assert_eq!(probes(&harness).len() as u32, 3 - size);
        harness.pass(seconds(9));
        let failed = failed_hosts(&harness);
        assert_eq!(failed, []);
    }
}

/// Host c does not reach host b.
fn misses_b(harness: &mut Harness, number: u64) {
    let unreachable = vec!["b".into()];
    harness.report(
        "c",
        AgentReport::Probed {
            number,
            unreachable,
        },
    );
}

#[test]
fn a_host_that_goes_meanwhile_is_not_missed() {
    let mut harness = training(&["a", "b"]);
    harness.mute.insert("c".into());
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    let number = probes(&harness)[0].1;
    harness.passive.insert("a".into());
    harness.lose("b");
    // The round without b has not begun yet, and the probe of c was about the round with b.
    misses_b(&mut harness, number);
    harness.comes_back("a");
    assert_eq!(harness.started(), 2);
    let failed: Vec<_> = failed_hosts(&harness)
        .into_iter()
        .map(|(host, _)| host)
        .collect();
    assert_eq!(failed, ["b"]);
}

/// The round waits for host b, and host c does not reach it.
#[test]
fn a_newcomer_that_missed_a_host_out_of_reach_is_asked_again() {
    let mut harness = Harness::new(settings(4, 4));
    harness.returns = true;
    harness.list(&[host("a", 2), host("b", 2)]);
    harness.commit();
    harness.mute.insert("c".into());
    harness.list(&[host("a", 2), host("b", 2), host("c", 1)]);
    let number = probes(&harness)[0].1;
    harness.breaks_off("b");
    misses_b(&mut harness, number);
    harness.mute.clear();
    harness.cut.insert(("c".into(), "b".into()));
    harness.returns("b", adoption(in_round_1(), Vec::new()));
    assert_eq!(probes(&harness).len(), 2);
    let failed = failed_hosts(&harness);
    assert!(failed.len() == 1 && failed[0].0 == "c", "{failed:?}");
    assert!(!was_interrupted(&harness));
}

#[test]
fn a_host_that_goes_while_it_is_asked_has_not_failed() {
    let mut harness = training(&["a", "b"]);
    harness.mute.insert("c".into());
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    harness.list(&[host("a", 1), host("b", 1)]);
    harness.list(&[host("a", 1), host("b", 1)]);
    assert_eq!(harness.runs("c"), 0);
    harness.pass(seconds(20));
    assert_eq!(failed_hosts(&harness), []);
}

#[test]
fn an_agent_that_knows_no_probe_is_not_asked() {
    let mut harness = training(&["a"]);
    harness.older.insert("b".into());
    harness.list(&[host("a", 1), host("b", 1)]);
    assert_eq!(probes(&harness), []);
    assert_eq!((harness.started(), harness.size()), (2, 2));
}

#[test]
fn of_a_large_round_some_hosts_are_dialled() {
    let names: Vec<_> = (10..40).map(|number| format!("h{number}")).collect();
    let mut harness = training(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let mut list: Vec<_> = names.iter().map(|name| host(name, 1)).collect();
    list.push(host("new", 1));
    harness.list(&list);
    let (_, _, members) = &probes(&harness)[0];
    assert!((7..=8).contains(&members.len()), "{members:?}");
    assert_eq!((harness.started(), harness.size()), (2, 31));
}
