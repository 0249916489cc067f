//! W2: all members begin with the same state, that of the round's base.

use elasticrun_core::worker::{
    Action, BaseSource, Fingerprint, Machine, Offer, Outcome, RoundStart, SyncError,
};
use elasticrun_protocol::CommitId;

use super::{Held, enter, member, round, start};

const SAME: Fingerprint = Fingerprint { len: 8, digest: 1 };
const OTHER: Fingerprint = Fingerprint { len: 8, digest: 2 };

fn base() -> CommitId {
    round(0).commit(7)
}

fn offer(commit: Option<Fingerprint>) -> Offer {
    Offer {
        commit,
        is_first: false,
        base: commit,
    }
}

fn first(commit: Fingerprint, base: Option<Fingerprint>) -> Offer {
    Offer {
        commit: Some(commit),
        is_first: true,
        base,
    }
}

fn exchange(commit: CommitId, base: Option<CommitId>) -> Action {
    Action::Exchange {
        commit,
        is_first: commit == round(1).commit(0),
        base,
    }
}

/// A machine whose live state comes from a commit, and which is in round 1 now.
fn survivor(rank: u32, of: CommitId) -> Machine {
    let mut machine = Machine::default();
    machine.restored(of, true);
    enter(&mut machine, start(1, rank, Some(base())));
    machine
}

#[test]
fn without_a_base_all_take_the_state_of_rank_0() {
    let (own, first_id) = (&mut Held::default(), round(1).commit(0));
    let mut root = member(0, None);
    assert_eq!(root.sync(false, own), Ok(Action::Save(first_id)));
    own.0.insert(first_id);
    assert_eq!(
        root.synced(Outcome::Done, own),
        Ok(exchange(first_id, None))
    );
    let all = vec![
        first(SAME, None),
        Offer {
            commit: None,
            is_first: true,
            base: None,
        },
    ];
    let exchanged = Outcome::Exchanged(all);
    assert_eq!(
        root.synced(exchanged.clone(), own),
        Ok(Action::Send(first_id))
    );
    let begin = Action::Begin { restored: false };
    assert_eq!(root.synced(Outcome::Done, own), Ok(begin));

    // This holds for a worker that has changed its state as well: one commit has one content.
    for fresh in [false, true] {
        let own = &mut Held::default();
        let mut other = member(1, None);
        assert_eq!(other.sync(fresh, own), Ok(exchange(first_id, None)));
        let receive = Action::Receive {
            id: first_id,
            fingerprint: SAME,
            replaces: false,
        };
        assert_eq!(other.synced(exchanged.clone(), own), Ok(receive));
        own.0.insert(first_id);
        assert_eq!(
            other.synced(Outcome::Done, own),
            Ok(Action::Restore(first_id))
        );
        let begin = Action::Begin { restored: true };
        assert_eq!(other.synced(Outcome::Done, own), Ok(begin));
    }
}

#[test]
fn nothing_is_sent_if_all_hold_the_base() {
    let own = &mut Held::of([base(), round(0).commit(8)]);
    let mut machine = survivor(1, round(0).commit(8));
    assert_eq!(machine.sync(false, own), Ok(exchange(base(), Some(base()))));
    assert_eq!(*own.0.iter().collect::<Vec<_>>(), [&base()], "void");
    let all = Outcome::Exchanged(vec![offer(Some(SAME)); 2]);
    assert_eq!(
        machine.synced(all.clone(), own),
        Ok(Action::Restore(base()))
    );

    // All members left the last round at the common boundary. No state is restored unless it may have changed
    // since.
    for trained in [false, true] {
        let own = &mut Held::of([base()]);
        let mut machine = Machine::default();
        enter(&mut machine, start(0, 1, None));
        machine.committed(base());
        machine.leave_at_commit();
        if trained {
            machine.train();
        }
        machine.leave(false, false);
        enter(&mut machine, start(1, 1, Some(base())));
        let _ = machine.sync(false, own);
        let next = match trained {
            true => Action::Restore(base()),
            false => Action::Begin { restored: false },
        };
        assert_eq!(machine.synced(all.clone(), own), Ok(next));
    }
}

#[test]
fn survivors_that_changed_their_state_make_it_the_first_commit() {
    let (own, first_id) = (&mut Held::of([base()]), round(1).commit(0));
    let mut root = survivor(0, base());
    assert_eq!(root.sync(true, own), Ok(Action::Save(first_id)));
    own.0.insert(first_id);
    let _ = root.synced(Outcome::Done, own);
    let all = vec![first(OTHER, Some(SAME)); 2];
    let begin = Action::Begin { restored: false };
    assert_eq!(root.synced(Outcome::Exchanged(all), own), Ok(begin));
}

#[test]
fn what_was_not_made_of_the_base_does_not_take_its_place() {
    let own = &mut Held::of([base()]);
    let mut newcomer = member(0, Some(base()));
    assert_eq!(newcomer.sync(true, own), Ok(exchange(base(), Some(base()))));
}

#[test]
fn rank_0_says_which_of_the_two_a_round_begins_with() {
    // This member has changed its state, rank 0 has not.
    let (own, first_id) = (&mut Held::of([base()]), round(1).commit(0));
    let mut machine = survivor(1, base());
    assert_eq!(machine.sync(true, own), Ok(Action::Save(first_id)));
    own.0.insert(first_id);
    let _ = machine.synced(Outcome::Done, own);
    let all = vec![offer(Some(SAME)), first(OTHER, Some(SAME))];
    let sent = machine.synced(Outcome::Exchanged(all), own);
    assert_eq!(sent, Ok(Action::Send(base())), "it holds the base, too");
    assert_eq!(*own.0.iter().collect::<Vec<_>>(), [&base()]);
    assert_eq!(
        machine.synced(Outcome::Done, own),
        Ok(Action::Restore(base()))
    );

    // Rank 0 has changed its state, this member has not.
    let own = &mut Held::of([base()]);
    let mut machine = member(1, Some(base()));
    let _ = machine.sync(false, own);
    let all = vec![first(OTHER, Some(SAME)), offer(Some(SAME))];
    let receive = Action::Receive {
        id: first_id,
        fingerprint: OTHER,
        replaces: false,
    };
    assert_eq!(machine.synced(Outcome::Exchanged(all), own), Ok(receive));
}

#[test]
fn members_that_differ_at_the_base_are_compared_before_one_is_given_up() {
    let own = &mut Held::of([base()]);
    let mut machine = survivor(1, base());
    let _ = machine.sync(false, own);
    let all = vec![offer(Some(SAME)), offer(Some(OTHER)), offer(None)];
    let compare = machine.synced(Outcome::Exchanged(all), own);
    assert_eq!(compare, Ok(Action::Compare(base())));
    let receive = Action::Receive {
        id: base(),
        fingerprint: SAME,
        replaces: true,
    };
    assert_eq!(machine.synced(Outcome::Done, own), Ok(receive));
    assert!(own.0.is_empty(), "given up");
}

#[test]
fn rank_0_fetches_a_base_that_it_does_not_hold() {
    for source in [BaseSource::SameHost, BaseSource::OtherHost] {
        let own = &mut Held::default();
        let mut machine = Machine::default();
        let start = RoundStart {
            source,
            ..start(1, 0, Some(base()))
        };
        enter(&mut machine, start);
        let fetch = Action::Fetch {
            id: base(),
            from: source,
        };
        assert_eq!(machine.fetch_base(own), Ok(Some(fetch)));
        assert_eq!(machine.sync(false, own), Ok(fetch));
        own.0.insert(base());
        assert_eq!(
            machine.synced(Outcome::Done, own),
            Ok(exchange(base(), Some(base())))
        );
    }
}

#[test]
fn a_base_that_rank_0_has_no_way_to_is_an_error_in_all_members() {
    let own = &mut Held::of([base()]);
    let mut machine = member(1, Some(base()));
    let _ = machine.sync(false, own);
    let all = vec![offer(None), offer(Some(SAME))];
    let missing = machine.synced(Outcome::Exchanged(all), own);
    assert_eq!(missing, Err(SyncError::BaseMissing(base())));
}

#[test]
fn a_start_that_was_cut_short_leaves_a_state_that_is_whole_nowhere() {
    let own = &mut Held::of([base()]);
    let mut machine = survivor(1, round(0).commit(8));
    let _ = machine.sync(false, own);
    machine.sync_failed(own);
    assert_eq!(machine.live().origin(), None);
}
