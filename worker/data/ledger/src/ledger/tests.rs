use super::{bytes::BEYOND, *};
use crate::Malformed;

fn ledger() -> (Ledger, EpochLayout) {
    let groups = [40, 60];
    let identity = DatasetId {
        rows: 100,
        groups: 2,
        digest: 7,
    };
    let ledger = Ledger::new(identity, Some(3));
    let layout = EpochLayout::new(&groups, ledger.shuffle());
    (ledger, layout)
}

fn workers(ids: impl IntoIterator<Item = u64>) -> Vec<(Owner, u32)> {
    let (host, zone) = (0, 0);
    let owner = |id| (Owner { id, host, zone }, 1);
    ids.into_iter().map(owner).collect()
}

fn rows(ledger: &Ledger) -> Vec<u64> {
    ledger.shares().iter().map(Share::rows).collect()
}

#[test]
fn an_epoch_begins_with_even_shares() {
    let (mut ledger, layout) = ledger();
    let plan = ledger.share_out(&layout, &workers(1..4), Split::Rows);
    assert_eq!(plan.moved, 100);
    assert_eq!((rows(&ledger), ledger.left()), (vec![34, 33, 33], 100));
}

#[test]
fn a_worker_is_known_by_its_id_whatever_its_rank() {
    let (mut ledger, layout) = ledger();
    ledger.share_out(&layout, &workers(1..4), Split::Rows);
    let before = ledger.shares().to_vec();
    let plan = ledger.share_out(&layout, &workers([3, 2, 1]), Split::Rows);
    assert_eq!((plan.moved, &plan.shares[2]), (0, &before[0]));
    let plan = ledger.share_out(&layout, &workers([4, 2]), Split::Rows);
    assert_eq!((plan.moved, rows(&ledger)), (67, vec![50, 50]));
}

#[test]
fn only_what_a_worker_had_may_be_left() {
    let (mut ledger, layout) = ledger();
    ledger.share_out(&layout, &workers(1..3), Split::Rows);
    let share = |range| iter::once(range).collect::<Share>();
    assert_eq!(ledger.record(0, share(10..50)), Ok(()));
    assert_eq!(ledger.record(0, share(9..50)), Err(LedgerError::Foreign(0)));
    assert_eq!(
        ledger.record(1, share(40..60)),
        Err(LedgerError::Foreign(1))
    );
    assert_eq!(ledger.record(2, Share::EMPTY), Err(LedgerError::Unknown(2)));
    assert_eq!(ledger.left(), 90);
}

#[test]
fn a_ledger_comes_back() {
    let (mut ledger, layout) = ledger();
    ledger.begin(5);
    ledger.share_out(&layout, &workers(1..4), Split::Rows);
    let bytes = ledger.encode();
    assert_eq!(Ledger::decode(&bytes), Ok(ledger));
    for len in 0..bytes.len() {
        assert!(Ledger::decode(&bytes[..len]).is_err(), "{len}");
    }
}

#[test]
fn a_row_of_two_workers_is_no_ledger() {
    let (mut ledger, _) = ledger();
    ledger.left = Remaining::Shares {
        owners: vec![Owner::UNASSIGNED; 2],
        shares: vec![iter::once(0..10).collect(), iter::once(9..20).collect()],
    };
    assert_eq!(
        Ledger::decode(&ledger.encode()),
        Err(Malformed("a row is in it twice"))
    );
    ledger.left = Remaining::Shares {
        owners: vec![Owner::UNASSIGNED],
        shares: vec![iter::once(90..101).collect()],
    };
    assert_eq!(Ledger::decode(&ledger.encode()), Err(BEYOND));
}

#[test]
fn stripes_come_back() {
    let mut ledger = Ledger::in_stripes(ledger().0.identity(), None, 60);
    ledger.begin(2);
    assert_eq!(ledger.record_stripes(33), Ok(()));
    assert_eq!((ledger.left(), ledger.epoch()), (67, 2));
    assert_eq!(ledger.record_stripes(32), Err(LedgerError::Foreign(0)));
    assert_eq!(ledger.record_stripes(101), Err(LedgerError::Foreign(0)));
    let bytes = ledger.encode();
    assert!(bytes.len() < 24, "{}", bytes.len());
    assert_eq!(Ledger::decode(&bytes), Ok(ledger));
    for len in 0..bytes.len() {
        assert!(Ledger::decode(&bytes[..len]).is_err(), "{len}");
    }
}

#[test]
fn one_order_opens_as_the_other_between_epochs() {
    let local = ReadOrder::Local(Split::Never);
    let stripes = ReadOrder::Deterministic(7);
    let (start, _) = ledger();
    for done in [0, 100] {
        let mut in_stripes = start.clone().in_order(stripes).unwrap();
        in_stripes.record_stripes(done).unwrap();
        assert_eq!(in_stripes.left(), 100 - done);
        let back = in_stripes.clone().in_order(local).unwrap();
        assert_eq!((back.left(), back.stripes()), (100 - done, None));
        assert_eq!(back.in_order(stripes), Ok(in_stripes.clone()));
        assert!(in_stripes.in_order(ReadOrder::Deterministic(8)).is_ok());
    }
    let mut mid_epoch = start.clone().in_order(stripes).unwrap();
    mid_epoch.record_stripes(1).unwrap();
    assert_eq!(mid_epoch.clone().in_order(stripes), Ok(mid_epoch.clone()));
    assert_eq!(
        mid_epoch.in_order(local).unwrap_err().to_string(),
        "it is in order \"deterministic\" with 7 stripes, 1 of 100 rows into an epoch, and order \"local\" can only begin \
         with one: set what it was, or take a checkpoint from the end of an epoch"
    );
    let (mut mid_epoch, layout) = ledger();
    mid_epoch.share_out(&layout, &workers([1]), Split::Rows);
    mid_epoch.record(0, iter::once(1..100).collect()).unwrap();
    assert!(mid_epoch.clone().in_order(local).is_ok());
    assert!(mid_epoch.in_order(stripes).is_err());
}
