//! Order "deterministic": the rows of a step only depend on its number.

#![allow(clippy::unwrap_used)]

mod common;

use std::{collections::BTreeMap, num::NonZeroU32, path::Path, sync::Arc};

use common::{ids, three_files};
use elasticrun_core::random::Random;
use elasticrun_data::{
    Comparison, Dataset, GroupOrder, OnError, Predicate, ReaderOptions, Value,
    elastic::{Elastic, ElasticOptions, Error},
};
use elasticrun_ledger::{EpochLayout, Owner, ReadOrder, RoundHello, Shuffle, Split, Stripes};

const ROWS: u64 = 1501;
const STRIPES: u32 = 60;
const BATCH: u32 = 96;
const SEED: u64 = 3;

fn options(order: ReadOrder) -> ElasticOptions {
    ElasticOptions {
        batch: NonZeroU32::new(BATCH).unwrap(),
        weight: 1,
        order,
        reader: ReaderOptions {
            columns: Some(vec!["id".to_owned(), "list".to_owned()]),
            seed: SEED,
            threads: 1,
            ..ReaderOptions::default()
        },
    }
}

fn worker(dataset: &Arc<Dataset>, change: impl FnOnce(&mut ElasticOptions)) -> Elastic {
    let mut options = options(ReadOrder::Deterministic(STRIPES));
    change(&mut options);
    Elastic::new(dataset.clone(), options).unwrap()
}

/// The workers enter a round. All of them are in this process, so they get different ids.
fn enter(workers: &mut [Elastic]) -> Result<(), Error> {
    let all: Vec<Vec<u8>> = (workers.iter().zip(1..))
        .map(|(worker, id)| {
            let owner = Owner {
                id,
                host: 0,
                zone: 0,
            };
            let batch = worker.options().batch.get();
            worker.position().introduce(&RoundHello {
                owner,
                weight: 1,
                batch,
            })
        })
        .collect();
    (workers.iter_mut().enumerate())
        .try_for_each(|(rank, worker)| worker.enter_round(rank, &all).map(drop))
}

/// Runs one step of all workers and returns its rows, sorted.
fn step(workers: &mut [Elastic]) -> Vec<i64> {
    let mut rows = Vec::new();
    for worker in workers {
        let batch = worker.next_batch().unwrap().expect("a step is left");
        assert!(
            batch
                .columns()
                .iter()
                .all(|column| column.array.len() == batch.rows())
        );
        rows.extend(ids(&batch));
    }
    rows.sort_unstable();
    rows
}

fn commit(workers: &mut [Elastic]) -> Vec<u8> {
    let reports: Vec<Vec<u8>> = workers
        .iter_mut()
        .map(|worker| worker.report("").unwrap())
        .collect();
    for worker in &mut *workers {
        worker.agree_on(&reports).unwrap();
    }
    let commit = workers[0].position().save().to_vec();
    assert!(
        workers
            .iter()
            .all(|worker| worker.position().save() == commit)
    );
    commit
}

fn epoch(worker: Elastic) -> Vec<Vec<i64>> {
    let mut workers = [worker];
    enter(&mut workers).unwrap();
    let steps = (0..ROWS.div_ceil(BATCH.into()))
        .map(|_| step(&mut workers))
        .collect();
    assert!(workers[0].next_batch().unwrap().is_none());
    steps
}

/// The steps by the definition of the order, without the reader.
fn as_defined(dataset: &Dataset, stripes: u32) -> Vec<Vec<i64>> {
    let groups: Vec<u32> = dataset.groups().iter().map(|group| group.rows).collect();
    let firsts: Vec<i64> = (groups.iter())
        .scan(0, |next, rows| {
            Some(std::mem::replace(next, *next + i64::from(*rows)))
        })
        .collect();
    let layout = EpochLayout::new(
        &groups,
        Some(Shuffle {
            seed: SEED,
            epoch: 0,
        }),
    );
    let order = Stripes::new(ROWS, stripes);
    let rows: Vec<i64> = (0..ROWS)
        .map(|position| {
            let start = order.row(position);
            let piece = layout.segments(start..start + 1).next().unwrap().piece;
            let rows = groups[piece.group as usize];
            let row = GroupOrder::shuffled(SEED, 0, piece.group, rows).row(piece.lo);
            firsts[piece.group as usize] + i64::from(row)
        })
        .collect();
    (rows.chunks(BATCH as usize))
        .map(|step| {
            let mut step = step.to_vec();
            step.sort_unstable();
            step
        })
        .collect()
}

#[test]
fn the_steps_are_those_of_the_definition() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = three_files(directory.path());
    for stripes in [1, 7, STRIPES, 5040] {
        let steps = epoch(worker(&dataset, |options| {
            options.order = ReadOrder::Deterministic(stripes)
        }));
        assert_eq!(steps, as_defined(&dataset, stripes), "{stripes} stripes");
    }
}

/// Memory and decoding speed do not change the steps.
#[test]
fn memory_and_threads_do_not_matter() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = three_files(directory.path());
    let expected = as_defined(&dataset, STRIPES);
    for (memory, threads) in [(0, 1), (3_000, 2), (20_000, 1), (60_000, 3), (1 << 30, 2)] {
        let worker = worker(&dataset, |options| {
            (options.reader.memory, options.reader.threads) = (memory, threads);
        });
        assert_eq!(epoch(worker), expected, "{memory} bytes");
    }
}

/// 1,000 histories: the size of the world changes at random, and uncommitted steps are repeated.
#[test]
fn every_history_of_sizes_gives_the_same_steps() {
    const MOST: usize = 6;
    let directory = tempfile::tempdir().unwrap();
    let dataset = three_files(directory.path());
    let expected = as_defined(&dataset, STRIPES);
    let mut random = Random::from_seed(1);
    // Survivors of a round have rows in memory, and newcomers have other rows.
    let mut workers: Vec<Elastic> = (0..MOST)
        .map(|_| {
            worker(&dataset, |options| {
                options.reader.memory = [20_000, 40_000, 1 << 20][random.below(3) as usize];
                options.reader.columns = Some(vec!["id".to_owned()]);
            })
        })
        .collect();
    let start = workers[0].position().save().to_vec();
    let (mut rounds, mut again) = (0, 0);
    for history in 0..1000 {
        let (mut last, mut done) = (start.clone(), 0);
        while done < expected.len() {
            let size = 1 + random.below(MOST as u64) as usize;
            random.shuffle(&mut workers);
            for worker in &mut workers[..size] {
                worker.restore_position(&last).unwrap();
            }
            let world = &mut workers[..size];
            enter(world).unwrap();
            rounds += 1;
            let mut ahead = done;
            for _ in 0..2 + random.below(14) {
                if ahead == expected.len() {
                    break;
                }
                assert_eq!(
                    step(world),
                    expected[ahead],
                    "history {history}, step {ahead}, {size} workers"
                );
                ahead += 1;
                if random.below(3) > 0 {
                    (last, done) = (commit(world), ahead);
                }
            }
            again += ahead - done;
        }
    }
    assert!(
        rounds > 2000 && again > 1000,
        "{rounds} rounds, {again} steps again"
    );
}

#[test]
fn another_epoch_has_other_steps_with_the_same_rows() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = three_files(directory.path());
    let mut workers = [worker(&dataset, |_| {}), worker(&dataset, |_| {})];
    enter(&mut workers).unwrap();
    let mut epochs: Vec<Vec<Vec<i64>>> = Vec::new();
    for _ in 0..2 {
        epochs.push((0..16).map(|_| step(&mut workers)).collect());
        workers.iter_mut().for_each(Elastic::next_epoch);
    }
    assert_ne!(epochs[0], epochs[1]);
    let mut rows = epochs.pop().unwrap().concat();
    rows.sort_unstable();
    assert!(rows.into_iter().eq(0..ROWS as i64));
}

#[test]
fn without_shuffling_stripes_are_parts_of_the_files_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = three_files(directory.path());
    let mut workers = [worker(&dataset, |options| options.reader.shuffle = false)];
    enter(&mut workers).unwrap();
    let batch = workers[0].next_batch().unwrap().unwrap();
    // 1501 rows: the first stripe has 26, the others 25.
    let first: Vec<i64> = (0..60)
        .map(|stripe| if stripe == 0 { 0 } else { stripe * 25 + 1 })
        .collect();
    assert_eq!(ids(&batch)[..60], first);
    assert_eq!(ids(&batch)[60..63], [1, 27, 52]);
}

#[test]
fn a_predicate_drops_rows_and_changes_no_step() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = three_files(directory.path());
    let steps = epoch(worker(&dataset, |options| {
        options.reader.predicate = Some(Predicate::Compare {
            column: "id".to_owned(),
            comparison: Comparison::GreaterOrEqual,
            value: Value::Int(1200),
        });
    }));
    let expected: Vec<Vec<i64>> = (as_defined(&dataset, STRIPES).into_iter())
        .map(|step| step.into_iter().filter(|row| *row >= 1200).collect())
        .collect();
    assert_eq!(steps, expected);
}

#[test]
fn more_workers_than_stripes_are_told_what_would_do() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = three_files(directory.path());
    let mut workers: Vec<Elastic> = (0..3)
        .map(|_| {
            worker(&dataset, |options| {
                options.order = ReadOrder::Deterministic(2)
            })
        })
        .collect();
    let error = enter(&mut workers).unwrap_err();
    assert_eq!(
        error.to_string(),
        "3 workers share 2 stripes: set stripes to 5040, which changes the order"
    );
}

/// The last file is cut, so none of its row groups can be read.
fn damaged(directory: &Path) -> Arc<Dataset> {
    let dataset = three_files(directory);
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(directory.join("c.parquet"))
        .unwrap();
    file.set_len(100).unwrap();
    dataset
}

#[test]
fn what_cannot_be_read_is_named_and_nothing_has_moved() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = damaged(directory.path());
    let mut workers = [worker(&dataset, |_| {})];
    enter(&mut workers).unwrap();
    for _ in 0..2 {
        let error = workers[0].next_batch().unwrap_err().to_string();
        assert!(error.contains("c.parquet: row group"), "{error}");
        assert_eq!(workers[0].left(), ROWS);
    }
}

#[test]
fn what_is_skipped_counts_as_processed() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = damaged(directory.path());
    let worker = worker(&dataset, |options| options.reader.on_error = OnError::Skip);
    let mut workers = [worker];
    enter(&mut workers).unwrap();
    let (mut rows, mut processed) = (0, 0);
    while let Some(batch) = workers[0].next_batch().unwrap() {
        rows += batch.rows();
        processed += batch.rows_processed();
    }
    assert_eq!(
        (rows, processed, workers[0].skipped().rows),
        (1001, 1501, 500)
    );
}

#[test]
fn a_checkpoint_opens_in_the_other_order_between_epochs_only() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = three_files(directory.path());
    let local = |options: &mut ElasticOptions| options.order = ReadOrder::Local(Split::Rows);
    let mut checkpoints: BTreeMap<&str, [Vec<u8>; 3]> = BTreeMap::new();
    for (name, worker) in [
        ("stripes", worker(&dataset, |_| {})),
        ("local", worker(&dataset, local)),
    ] {
        let mut workers = [worker];
        let start = workers[0].position().save().to_vec();
        enter(&mut workers).unwrap();
        step(&mut workers);
        let mid_epoch = commit(&mut workers);
        (1..16).for_each(|_| drop(step(&mut workers)));
        let end = commit(&mut workers);
        checkpoints.insert(name, [start, mid_epoch, end]);
    }
    for (name, mut worker) in [
        ("local", worker(&dataset, |_| {})),
        ("stripes", worker(&dataset, local)),
    ] {
        let [start, mid_epoch, end] = &checkpoints[name];
        let error = worker.restore_position(mid_epoch).unwrap_err().to_string();
        assert!(error.contains("96 of 1501 rows into an epoch"), "{error}");
        worker.restore_position(end).unwrap();
        worker.next_epoch();
        assert_eq!(
            (
                worker.position().ledger().epoch(),
                worker.position().ledger().left()
            ),
            (1, ROWS)
        );
        worker.restore_position(start).unwrap();
        let mut workers = [worker];
        enter(&mut workers).unwrap();
        let mut rows: Vec<i64> = (0..16).flat_map(|_| step(&mut workers)).collect();
        rows.sort_unstable();
        assert!(rows.into_iter().eq(0..ROWS as i64));
    }
}

/// Memory stays within the budget if the budget holds a part of each stripe.
#[test]
fn the_budget_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = three_files(directory.path());
    for memory in [100_000, 200_000] {
        let mut workers = [worker(&dataset, |options| options.reader.memory = memory)];
        enter(&mut workers).unwrap();
        while workers[0].next_batch().unwrap().is_some() {
            assert!(
                workers[0].memory() <= memory,
                "{} of {memory}",
                workers[0].memory()
            );
        }
        assert_eq!(workers[0].memory(), 0);
    }
}
