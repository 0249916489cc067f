use std::iter;

use super::*;
use crate::{MidEpoch, TooFewStripes};

/// A world of workers.
struct World(Vec<Position>);

fn groups() -> Arc<[u32]> {
    [30, 10, 0, 25, 35].into()
}

fn hello(id: u64) -> RoundHello {
    let (host, zone) = (id, 0);
    RoundHello {
        owner: Owner { id, host, zone },
        weight: 1,
        batch: 4,
    }
}

impl World {
    fn new(size: usize) -> Self {
        Self::ordered(size, Split::Rows)
    }

    fn ordered(size: usize, order: impl Into<ReadOrder>) -> Self {
        Self(vec![Position::new(groups(), 9, Some(1), order); size])
    }

    fn enter(&mut self, ids: &[u64]) -> Vec<Result<u64, Disagreement>> {
        let all: Vec<_> = (self.0.iter().zip(ids))
            .map(|(position, id)| position.introduce(&hello(*id)))
            .collect();
        self.0
            .iter_mut()
            .enumerate()
            .map(|(rank, position)| position.enter(rank, &all))
            .collect()
    }

    fn agree(&mut self) -> Vec<Result<(), Disagreement>> {
        let all: Vec<_> = self.0.iter().map(Position::report).collect();
        self.0
            .iter_mut()
            .map(|position| position.agree(&all))
            .collect()
    }

    /// Each worker processes its next rows.
    fn step(&mut self) {
        for position in &mut self.0 {
            if position.stripes().is_some() {
                position.step_stripes();
                continue;
            }
            let mut taken = position.share().clone();
            let left = taken.split_off(4, None);
            position.step(left).unwrap();
        }
    }
}

#[test]
fn all_have_as_many_steps() {
    let mut world = World::new(3);
    assert!(world.enter(&[1, 2, 3]).iter().all(Result::is_ok));
    let mut steps = 0;
    while world.0[0].steps() > 0 {
        world.step();
        steps += 1;
        assert!(
            world
                .0
                .iter()
                .all(|position| position.steps() == world.0[0].steps())
        );
        assert_eq!(world.agree(), [Ok(()), Ok(()), Ok(())]);
    }
    // At most 34 rows, 4 at a time.
    assert_eq!((steps, world.0[2].ledger().left()), (9, 0));
}

#[test]
fn a_commit_is_what_all_have_reported() {
    let mut world = World::new(2);
    world.enter(&[1, 2]);
    world.step();
    assert!(world.0[1].is_ahead());
    assert_eq!(world.0[1].ledger().left(), 100);
    world.agree();
    assert!(!world.0[1].is_ahead());
    assert_eq!(world.0[1].ledger().left(), 92);
    assert_eq!(world.0[0].save(), world.0[1].save());
}

#[test]
fn after_a_rollback_the_same_rows_are_left() {
    let mut world = World::new(2);
    world.enter(&[1, 2]);
    world.step();
    world.agree();
    let commit = world.0[0].save().to_vec();
    let share = world.0[0].share().clone();
    world.step();
    for position in &mut world.0 {
        position.restore(&commit).unwrap();
    }
    assert_eq!(world.0[0].share(), &share);
    // One of them continues alone, with all remaining rows.
    world.0.remove(0);
    assert_eq!(world.enter(&[2]), [Ok(46)]);
    assert_eq!(world.0[0].share().rows(), 92);
}

#[test]
fn who_is_elsewhere_is_named() {
    let mut world = World::new(3);
    world.0[2].next_epoch();
    assert_eq!(
        world.enter(&[1, 2, 3])[0],
        Err(Disagreement::Diverged { rank: 2 })
    );
    let mut world = World::new(3);
    world.enter(&[1, 2, 3]);
    world.0[1].next_epoch();
    assert_eq!(world.agree()[0], Err(Disagreement::Diverged { rank: 1 }));
    assert_eq!(
        world.enter(&[1, 7, 7])[0],
        Err(Disagreement::Diverged { rank: 1 })
    );
}

#[test]
fn a_step_that_takes_too_little_would_leave_rows_unread() {
    let mut world = World::new(2);
    world.enter(&[1, 2]);
    let left = world.0[1].share().without_first(3);
    let (rank, taken, step) = (1, 3, 4);
    assert_eq!(
        world.0[1].step(left),
        Err(LedgerError::Short { rank, taken, step })
    );
    let left = world.0[1].share().without_first(5);
    assert_eq!(world.0[1].step(left), Ok(()));
}

#[test]
fn one_worker_cannot_be_two() {
    assert_eq!(
        World::new(2).enter(&[5, 5])[0],
        Err(Disagreement::DuplicateWorker(0, 1))
    );
}

#[test]
fn a_commit_of_another_data_set_is_refused() {
    let mut other = Position::new(groups(), 8, Some(1), Split::Rows);
    let commit = Position::new(groups(), 9, Some(1), Split::Rows)
        .save()
        .to_vec();
    assert_eq!(
        other.restore(&commit),
        Err(Malformed("it is of another data set").into())
    );
    let mut other = Position::new(groups(), 9, None, Split::Rows);
    assert_eq!(
        other.restore(&commit),
        Err(Malformed("its order has another seed").into())
    );
}

/// The files became a part of the digest in version 2.
#[test]
fn a_position_of_version_1_is_compared_by_its_own_digest() {
    let position = |digest| Position::new(groups(), digest, Some(1), Split::Rows);
    let mut first = position(8).save().to_vec();
    assert_eq!(first[0], 2);
    first[0] = 1;
    let mut newer = position(9).with_former_digest(8);
    assert_eq!(newer.restore(&first), Ok(()));
    assert_eq!(
        newer.save(),
        position(9).save(),
        "it is written as version 2"
    );
    let another = Err(Malformed("it is of another data set").into());
    assert_eq!(position(9).with_former_digest(7).restore(&first), another);
    assert_eq!(position(9).restore(&first), another);
    first[0] = 2;
    assert_eq!(newer.restore(&first), another);
    first[0] = 3;
    let why = "it is of another version of elasticrun";
    assert_eq!(newer.restore(&first), Err(Malformed(why).into()));
}

#[test]
fn an_empty_data_set_has_no_steps() {
    let mut position = Position::new(Vec::new().into(), 0, Some(1), Split::Rows);
    let hello = position.introduce(&hello(1));
    assert_eq!(position.enter(0, &[hello]), Ok(0));
    assert_eq!(position.steps(), 0);
}

#[test]
fn in_stripes_a_step_is_the_same_whoever_does_it() {
    let mut steps = Vec::new();
    let mut world = World::ordered(3, ReadOrder::Deterministic(12));
    assert_eq!(world.enter(&[1, 2, 3]), [Ok(0), Ok(0), Ok(0)]);
    assert_eq!((world.0[0].steps(), world.0[0].left()), (25, 34));
    while world.0[0].steps() > 0 {
        if steps.len() == 7 {
            let commit = world.0[1].save().to_vec();
            world = World::ordered(5, ReadOrder::Deterministic(12));
            for position in &mut world.0 {
                position.restore(&commit).unwrap();
            }
            world.enter(&[9, 1, 2, 7, 8]);
        }
        steps.push(world.0[0].next_step());
        world.step();
        assert!(world.0[0].is_ahead());
        assert!(world.agree().iter().all(Result::is_ok));
        assert_eq!(world.0[0].taken().iter().sum::<u64>(), 4);
        assert!(!world.0[0].is_ahead());
    }
    assert!(
        steps
            .into_iter()
            .eq((0..25).map(|step| step * 4..step * 4 + 4))
    );
    assert_eq!((world.0[0].left(), world.0[0].ledger().left()), (0, 0));
    world.0[0].next_epoch();
    assert_eq!((world.0[0].steps(), world.0[0].ledger().epoch()), (25, 1));
}

#[test]
fn in_stripes_a_rollback_within_a_round_continues() {
    let mut world = World::ordered(1, ReadOrder::Deterministic(12));
    world.enter(&[1]);
    let commit = world.0[0].save().to_vec();
    world.step();
    world.0[0].restore(&commit).unwrap();
    assert_eq!((world.0[0].steps(), world.0[0].next_step()), (25, 0..4));
}

#[test]
fn in_stripes_all_are_at_the_same_place_with_the_same_batch() {
    let mut world = World::ordered(2, ReadOrder::Deterministic(2));
    assert_eq!(world.enter(&[1, 2]), [Ok(0), Ok(0)]);
    world.0[1].step_stripes();
    assert_eq!(world.agree()[0], Err(Disagreement::Diverged { rank: 1 }));
    let mut world = World::ordered(3, ReadOrder::Deterministic(2));
    assert!(matches!(
        world.enter(&[1, 2, 3])[2],
        Err(Disagreement::TooFewStripes(TooFewStripes {
            workers: 3,
            stripes: 2,
            ..
        }))
    ));
    let mut position = world.0.remove(0);
    let batch = |id, batch| RoundHello { batch, ..hello(id) };
    let all = [batch(1, 4), batch(2, 5)].map(|worker| position.introduce(&worker));
    assert_eq!(
        position.enter(0, &all),
        Err(Disagreement::Batch {
            rank: 1,
            other: 5,
            batch: 4
        })
    );
}

#[test]
fn what_each_worker_takes_is_known() {
    let mut world = World::new(2);
    world.enter(&[1, 2]);
    assert_eq!(world.0[0].taken(), [0; 0]);
    world.step();
    world.step();
    world.agree();
    assert_eq!(world.0[1].taken(), [8, 8]);
    world.enter(&[1, 2]);
    assert_eq!(world.0[1].taken(), [0; 0]);
}

#[test]
fn a_commit_opens_in_the_other_order_between_epochs_only() {
    let mut world = World::new(1);
    world.enter(&[1]);
    let start = world.0[0].save().to_vec();
    world.step();
    world.agree();
    let mid_epoch = world.0[0].save().to_vec();
    let left = world.0[0].share().rows();
    let everything = iter::once(0..left).collect::<Share>().split_off(left, None);
    world.0[0].step(everything).unwrap();
    world.agree();
    let end = world.0[0].save().to_vec();
    let mut world = World::ordered(1, ReadOrder::Deterministic(12));
    world.0[0].restore(&start).unwrap();
    assert_eq!(world.0[0].ledger().left(), 100);
    world.0[0].restore(&end).unwrap();
    assert_eq!(world.0[0].ledger().left(), 0);
    world.enter(&[1]);
    assert_eq!(world.0[0].steps(), 0);
    world.0[0].next_epoch();
    assert_eq!((world.0[0].steps(), world.0[0].ledger().epoch()), (25, 1));
    assert!(matches!(
        world.0[0].restore(&mid_epoch),
        Err(RestoreError::MidEpoch(MidEpoch {
            done: 4,
            rows: 100,
            ..
        }))
    ));
    assert_eq!(world.0[0].steps(), 25);
}

/// Takes all steps, with an agreement behind each, and returns how many there were.
fn take_all(world: &mut World) -> u64 {
    let mut steps = 0;
    while world.0[0].steps() > 0 {
        let same = world.0[0].steps();
        assert!(world.0.iter().all(|position| position.steps() == same));
        world.step();
        assert!(world.agree().iter().all(Result::is_ok));
        steps += 1;
    }
    steps
}

#[test]
fn an_epoch_may_end_with_its_last_complete_step() {
    let mut world = World::new(3);
    world.0.iter_mut().for_each(Position::drop_last);
    assert!(world.enter(&[1, 2, 3]).iter().all(Result::is_ok));
    // Shares of 34, 33 and 33 rows.
    assert_eq!(take_all(&mut world), 8);
    let left_out: Vec<u64> = (world.0.iter())
        .map(|position| position.left_out().rows())
        .collect();
    assert_eq!(left_out.iter().sum::<u64>(), 4);
    assert!(world.0.iter().all(|position| position.all_left_out() == 4));
    world.0.iter_mut().for_each(Position::next_epoch);
    assert!(
        world
            .0
            .iter()
            .all(|position| position.left_out().is_empty())
    );
    assert_eq!(take_all(&mut world), 8);
}

#[test]
fn a_worker_without_weight_ends_no_epoch() {
    let mut world = World::new(2);
    world.0.iter_mut().for_each(Position::drop_last);
    let all: Vec<_> = [(1, 1), (2, 0)]
        .map(|(id, weight)| RoundHello {
            weight,
            ..hello(id)
        })
        .iter()
        .map(|hello| world.0[0].introduce(hello))
        .collect();
    for (rank, position) in world.0.iter_mut().enumerate() {
        position.enter(rank, &all).unwrap();
        assert_eq!(position.steps(), 25);
    }
}

#[test]
fn the_last_complete_step_of_an_order_is_the_same_for_all_sizes() {
    for size in [1, 2, 3] {
        let mut world = World::ordered(size, ReadOrder::Deterministic(7));
        let hello = |id| RoundHello {
            batch: 30,
            ..hello(id)
        };
        world.0.iter_mut().for_each(Position::drop_last);
        let all: Vec<_> = (1..=size as u64)
            .map(|id| world.0[0].introduce(&hello(id)))
            .collect();
        for (rank, position) in world.0.iter_mut().enumerate() {
            position.enter(rank, &all).unwrap();
        }
        assert_eq!(take_all(&mut world), 3);
        let left_out: u64 = (world.0.iter())
            .map(|position| position.left_out().rows())
            .sum();
        assert_eq!((left_out, world.0[0].all_left_out()), (10, 10));
    }
}

#[test]
fn all_workers_drop_the_last_step_or_none_does() {
    let mut world = World::new(2);
    world.0[1].drop_last();
    let told = world.enter(&[1, 2]);
    assert_eq!(told[0], Err(Disagreement::DropLast { rank: 1 }));
    assert_eq!(told[1], Err(Disagreement::DropLast { rank: 0 }));
    assert_eq!(
        told[0].as_ref().unwrap_err().to_string(),
        "rank 1 and this worker differ in drop_last: all workers pass the same"
    );
}
