//! Rule 8: a round waits a while for newer commits that are out of reach, and records when it goes back to an
//! older one.

use elasticrun_core::{Decision, Settings, results::Outcome};
use elasticrun_protocol::{AgentCommand, CommitId, HostId, Round};

use crate::harness::{Harness, commit, draining, host, range, seconds};

/// A tenth of the elastic timeout, in seconds.
const WAIT: u64 = 60;

/// Three hosts train. The worker of c fails, a and b train on, and are then cut off. Only c, with a commit of
/// round 1, is in reach.
fn cut_off() -> Harness {
    let mut harness = Harness::new(Settings {
        cooldown: range(20, 300),
        ..Settings::elastic(3, 1, Some(3))
    });
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    harness.commit();
    harness.kill("c", 0);
    assert_eq!((harness.started(), harness.size()), (2, 2));
    harness.commit();
    harness.commit();
    lose_at_once(&mut harness, &["a", "b"]);
    harness.pass(seconds(25));
    assert_eq!(harness.runs("c"), 1, "its cooldown is over");
    harness
}

/// Cuts hosts off before any of them can report that it has left the round.
pub(crate) fn lose_at_once(harness: &mut Harness, names: &[&str]) {
    for name in names {
        harness.passive.insert((*name).into());
        harness.unreachable.insert((*name).into());
    }
    for name in names {
        harness.out_of_reach(name);
    }
    for name in names {
        harness.passive.remove(&HostId::new(*name));
    }
}

fn waits(harness: &Harness) -> Vec<(Option<CommitId>, Round, Vec<HostId>)> {
    let told = |note: &Decision| match note {
        Decision::AwaitingNewer {
            base, newer, hosts, ..
        } => Some((*base, *newer, hosts.clone())),
        _ => None,
    };
    harness.notes.iter().filter_map(told).collect()
}

fn went_back(harness: &Harness) -> Vec<(Option<CommitId>, Round)> {
    let told = |note: &Decision| match note {
        Decision::WentBack { base, newer } => Some((*base, *newer)),
        _ => None,
    };
    harness.notes.iter().filter_map(told).collect()
}

#[test]
fn hosts_that_are_cut_off_bring_the_newest_commit_back() {
    let mut harness = cut_off();
    assert_eq!(harness.started(), 2, "it waits for them");
    let hosts = vec!["a".into(), "b".into()];
    assert_eq!(waits(&harness), [(Some(commit(1, 1)), Round(2), hosts)]);
    harness.pass(seconds(10));
    assert_eq!(harness.started(), 2, "longer than the fence");
    harness.connects_again("b", true);
    assert_eq!((harness.started(), harness.base()), (3, Some(commit(2, 2))));
    assert_eq!(harness.members(), [("c".to_owned(), 0)]);
    let keeper = harness.keeper().expect("c has to fetch it");
    assert_eq!(keeper.host, HostId::new("b"));
    assert_eq!(went_back(&harness), []);
}

#[test]
fn after_a_while_the_job_goes_back_and_says_so() {
    let mut harness = cut_off();
    harness.pass(seconds(WAIT - 6));
    assert_eq!((harness.started(), went_back(&harness)), (2, vec![]));
    harness.pass(seconds(6));
    assert_eq!((harness.started(), harness.base()), (3, Some(commit(1, 1))));
    assert_eq!(went_back(&harness), [(Some(commit(1, 1)), Round(2))]);
    assert_eq!(waits(&harness).len(), 1);
    // A newer commit that comes back now is void.
    harness.connects_again("a", true);
    harness.commit();
    harness.pass(seconds(600));
    assert!(harness.base() >= Some(commit(3, 1)), "{:?}", harness.base());
    assert_eq!(went_back(&harness).len(), 1);
}

#[test]
fn the_wait_for_one_round_is_not_begun_anew() {
    let mut harness = cut_off();
    harness.pass(seconds(30));
    harness.kill("c", 0);
    let since = harness.now;
    while harness.started() < 3 {
        harness.pass(seconds(1));
    }
    let waited = harness.now.since(since);
    assert!(waited <= seconds(WAIT - 30 + 5), "{waited:?}");
    assert_eq!((waits(&harness).len(), went_back(&harness).len()), (1, 1));
}

#[test]
fn nobody_waits_for_hosts_that_are_back_with_nothing_or_gone() {
    let mut harness = cut_off();
    harness.connects("a");
    assert_eq!(harness.started(), 2, "b may still have it");
    harness.connects("b");
    assert_eq!((harness.started(), harness.base()), (3, Some(commit(1, 1))));
    assert_eq!(went_back(&harness).len(), 1);

    let mut harness = cut_off();
    harness.list(&[host("c", 1)]);
    assert_eq!(harness.started(), 2, "a host must be missing twice");
    harness.list(&[host("c", 1)]);
    assert_eq!((harness.started(), harness.base()), (3, Some(commit(1, 1))));
    assert_eq!(went_back(&harness).len(), 1);
}

#[test]
fn a_newcomer_waits_for_the_state_too() {
    let harness = |again: bool| {
        let mut harness = Harness::new(Settings::elastic(1, 1, Some(1)));
        harness.list(&[host("a", 1), host("b", 1)]);
        harness.commit();
        harness.unreachable.insert("a".into());
        harness.out_of_reach("a");
        harness.pass(seconds(WAIT - 1));
        assert_eq!((harness.started(), harness.outcome.clone()), (1, None));
        assert_eq!(waits(&harness), [(None, Round(1), vec!["a".into()])]);
        if again {
            harness.connects_again("a", true);
        }
        harness.pass(seconds(2));
        harness
    };
    let back = harness(true);
    assert_eq!((back.started(), back.base()), (2, Some(commit(1, 1))));
    assert_eq!(back.members(), [("b".to_owned(), 0)]);
    assert_eq!(harness(false).outcome, Some(Outcome::NoStateLeft));
}

#[test]
fn a_member_that_answers_is_enough() {
    let mut harness = Harness::new(Settings {
        cooldown: range(1, 4),
        ..Settings::elastic(3, 1, Some(3))
    });
    harness.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    harness.passive.insert("c".into());
    lose_at_once(&mut harness, &["a", "b"]);
    harness.comes_back("c");
    assert_eq!((harness.started(), harness.base()), (2, Some(commit(1, 0))));
    assert_eq!((waits(&harness), went_back(&harness)), (vec![], vec![]));
}

#[test]
fn a_host_that_is_given_up_meanwhile_still_brings_its_commit_back() {
    for drains in [true, false] {
        let mut harness = Harness::new(Settings::elastic(1, 1, Some(1)));
        harness.list(&[host("a", 1)]);
        harness.commit();
        let left: &[_] = if drains { &[draining("a", 1)] } else { &[] };
        harness.passive.insert("a".into());
        harness.list(left);
        harness.list(left);
        harness.out_of_reach("a");
        harness.passive.clear();
        harness.connects_again("a", true);
        let dismissed = |harness: &Harness| {
            let told = |(name, command): &(HostId, AgentCommand)| {
                *name == HostId::new("a") && matches!(command, AgentCommand::Shutdown)
            };
            harness.sent.iter().any(told)
        };
        assert!(!dismissed(&harness), "it keeps the only commit");
        harness.list(&[left, &[host("b", 1)]].concat());
        harness.pass(seconds(15));
        assert_eq!((harness.started(), harness.base()), (2, Some(commit(1, 1))));
    }
}

#[test]
fn a_list_that_takes_all_hosts_away_begins_nothing() {
    let mut harness = cut_off();
    harness.list(&[]);
    harness.list(&[]);
    assert_eq!(harness.started(), 2, "c may not be used any more (R5)");
}
