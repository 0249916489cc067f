//! Rule 8: a round waits a while for newer commits that are out of reach, and says when it goes back to an older one.

use elasticrun_core::{Note, Settings, results::Outcome};
use elasticrun_protocol::{CommitId, HostId, Order, Round};

use crate::play::{Play, commit, draining, host, range, seconds};

/// A tenth of the elastic timeout.
const WAIT: u64 = 60;

/// Three hosts train; then c's worker fails, a and b train on, and are cut off. Only c is in reach, with a commit of round 1.
fn cut_off() -> Play {
    let mut play = Play::new(Settings {
        cooldown: range(20, 300),
        ..Settings::elastic(3, 1, Some(3))
    });
    play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    play.commit();
    play.kill("c", 0);
    assert_eq!((play.started(), play.size()), (2, 2));
    play.commit();
    play.commit();
    lose_at_once(&mut play, &["a", "b"]);
    play.pass(seconds(25));
    assert_eq!(play.runs("c"), 1, "its cooldown is over");
    play
}

/// Hosts are cut off before any of them can say that it has left the round.
pub(crate) fn lose_at_once(play: &mut Play, names: &[&str]) {
    for name in names {
        play.passive.insert((*name).into());
        play.unreachable.insert((*name).into());
    }
    for name in names {
        play.out_of_reach(name);
    }
    for name in names {
        play.passive.remove(&HostId::new(*name));
    }
}

fn waits(play: &Play) -> Vec<(Option<CommitId>, Round, Vec<HostId>)> {
    let told = |note: &Note| match note {
        Note::AwaitingNewer {
            base, newer, hosts, ..
        } => Some((*base, *newer, hosts.clone())),
        _ => None,
    };
    play.notes.iter().filter_map(told).collect()
}

fn went_back(play: &Play) -> Vec<(Option<CommitId>, Round)> {
    let told = |note: &Note| match note {
        Note::WentBack { base, newer } => Some((*base, *newer)),
        _ => None,
    };
    play.notes.iter().filter_map(told).collect()
}

#[test]
fn hosts_that_are_cut_off_bring_the_newest_commit_back() {
    let mut play = cut_off();
    assert_eq!(play.started(), 2, "it waits for them");
    let hosts = vec!["a".into(), "b".into()];
    assert_eq!(waits(&play), [(Some(commit(1, 1)), Round(2), hosts)]);
    play.pass(seconds(10));
    assert_eq!(play.started(), 2, "longer than the fence");
    play.connects_again("b", true);
    assert_eq!((play.started(), play.base()), (3, Some(commit(2, 2))));
    assert_eq!(play.members(), [("c".to_owned(), 0)]);
    let keeper = play.keeper().expect("c has to fetch it");
    assert_eq!(keeper.host, HostId::new("b"));
    assert_eq!(went_back(&play), []);
}

#[test]
fn after_a_while_the_job_goes_back_and_says_so() {
    let mut play = cut_off();
    play.pass(seconds(WAIT - 6));
    assert_eq!((play.started(), went_back(&play)), (2, vec![]));
    play.pass(seconds(6));
    assert_eq!((play.started(), play.base()), (3, Some(commit(1, 1))));
    assert_eq!(went_back(&play), [(Some(commit(1, 1)), Round(2))]);
    assert_eq!(waits(&play).len(), 1);
    // What comes back now is void.
    play.connects_again("a", true);
    play.commit();
    play.pass(seconds(600));
    assert!(play.base() >= Some(commit(3, 1)), "{:?}", play.base());
    assert_eq!(went_back(&play).len(), 1);
}

#[test]
fn the_wait_for_one_round_is_not_begun_anew() {
    let mut play = cut_off();
    play.pass(seconds(30));
    play.kill("c", 0);
    let since = play.now;
    while play.started() < 3 {
        play.pass(seconds(1));
    }
    let waited = play.now.since(since);
    assert!(waited <= seconds(WAIT - 30 + 5), "{waited:?}");
    assert_eq!((waits(&play).len(), went_back(&play).len()), (1, 1));
}

#[test]
fn nobody_waits_for_hosts_that_are_back_with_nothing_or_gone() {
    let mut play = cut_off();
    play.connects("a");
    assert_eq!(play.started(), 2, "b may still have it");
    play.connects("b");
    assert_eq!((play.started(), play.base()), (3, Some(commit(1, 1))));
    assert_eq!(went_back(&play).len(), 1);

    let mut play = cut_off();
    play.list(&[host("c", 1)]);
    assert_eq!(play.started(), 2, "a host must be missing twice");
    play.list(&[host("c", 1)]);
    assert_eq!((play.started(), play.base()), (3, Some(commit(1, 1))));
    assert_eq!(went_back(&play).len(), 1);
}

#[test]
fn a_newcomer_waits_for_the_state_too() {
    let play = |again: bool| {
        let mut play = Play::new(Settings::elastic(1, 1, Some(1)));
        play.list(&[host("a", 1), host("b", 1)]);
        play.commit();
        play.unreachable.insert("a".into());
        play.out_of_reach("a");
        play.pass(seconds(WAIT - 1));
        assert_eq!((play.started(), play.outcome.clone()), (1, None));
        assert_eq!(waits(&play), [(None, Round(1), vec!["a".into()])]);
        if again {
            play.connects_again("a", true);
        }
        play.pass(seconds(2));
        play
    };
    let back = play(true);
    assert_eq!((back.started(), back.base()), (2, Some(commit(1, 1))));
    assert_eq!(back.members(), [("b".to_owned(), 0)]);
    assert_eq!(play(false).outcome, Some(Outcome::NoStateLeft));
}

#[test]
fn a_member_that_answers_is_enough() {
    let mut play = Play::new(Settings {
        cooldown: range(1, 4),
        ..Settings::elastic(3, 1, Some(3))
    });
    play.list(&[host("a", 1), host("b", 1), host("c", 1)]);
    play.passive.insert("c".into());
    lose_at_once(&mut play, &["a", "b"]);
    play.comes_back("c");
    assert_eq!((play.started(), play.base()), (2, Some(commit(1, 0))));
    assert_eq!((waits(&play), went_back(&play)), (vec![], vec![]));
}

#[test]
fn a_host_that_is_given_up_meanwhile_still_brings_its_commit_back() {
    for drains in [true, false] {
        let mut play = Play::new(Settings::elastic(1, 1, Some(1)));
        play.list(&[host("a", 1)]);
        play.commit();
        let left: &[_] = if drains { &[draining("a", 1)] } else { &[] };
        play.passive.insert("a".into());
        play.list(left);
        play.list(left);
        play.out_of_reach("a");
        play.passive.clear();
        play.connects_again("a", true);
        let dismissed = |play: &Play| {
            let told = |(name, order): &(HostId, Order)| {
                *name == HostId::new("a") && matches!(order, Order::Shutdown)
            };
            play.orders.iter().any(told)
        };
        assert!(!dismissed(&play), "it keeps the only commit");
        play.list(&[left, &[host("b", 1)]].concat());
        play.pass(seconds(15));
        assert_eq!((play.started(), play.base()), (2, Some(commit(1, 1))));
    }
}

#[test]
fn a_list_that_takes_all_hosts_away_begins_nothing() {
    let mut play = cut_off();
    play.list(&[]);
    play.list(&[]);
    assert_eq!(play.started(), 2, "c may not be used any more (R5)");
}
