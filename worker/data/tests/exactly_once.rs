//! Each row is read once, for any draws, assignments and repartitions.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::HashMap;

use arrow_array::{Array, BinaryArray, Float32Array, ListArray, StringArray};
use common::{WIDTH, all, drain, ids, reader, tensor, text, three_files};
use elasticrun_data::{Batch, Cursor, GroupOrder, Piece, Reader, ReaderOptions};
use proptest::prelude::*;

fn options(shuffle_rows: usize) -> ReaderOptions {
    ReaderOptions {
        shuffle_rows,
        ..ReaderOptions::default()
    }
}

/// The columns of each row match its number.
fn check_values(batch: &Batch) {
    let list = batch.column("list").unwrap();
    assert_eq!(list.width, Some(WIDTH));
    let lists: &ListArray = list.array.as_any().downcast_ref().unwrap();
    let bytes: &BinaryArray = batch
        .column("bytes")
        .unwrap()
        .array
        .as_any()
        .downcast_ref()
        .unwrap();
    let texts: &StringArray = batch
        .column("text")
        .unwrap()
        .array
        .as_any()
        .downcast_ref()
        .unwrap();
    for (row, id) in ids(batch).into_iter().enumerate() {
        let of_list = lists.value(row);
        let of_list: &Float32Array = of_list.as_any().downcast_ref().unwrap();
        assert_eq!(of_list.values()[..], tensor(id));
        let of_bytes: Vec<f32> = bytes
            .value(row)
            .chunks_exact(4)
            .map(|value| f32::from_le_bytes(value.try_into().unwrap()))
            .collect();
        assert_eq!(of_bytes, tensor(id));
        assert_eq!(texts.value(row), text(id));
    }
}

#[test]
fn each_row_comes_once_with_its_values() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = three_files(directory.path());
    for (shuffle_rows, batch_rows) in [(0, 7), (300, 64), (300, 10_000), (16_384, 100)] {
        let mut reader = reader(&dataset, options(shuffle_rows));
        let batches = drain(&mut reader, batch_rows);
        let mut seen: Vec<i64> = batches.iter().flat_map(ids).collect();
        batches.iter().for_each(check_values);
        assert!(
            batches
                .iter()
                .rev()
                .skip(1)
                .all(|batch| batch.rows() == batch_rows)
        );
        assert_ne!(seen, (0..1501).collect::<Vec<_>>());
        seen.sort_unstable();
        assert_eq!(seen, (0..1501).collect::<Vec<_>>());
        assert_eq!(reader.rows_left(), 0);
    }
}

#[test]
fn without_shuffling_rows_come_in_the_order_of_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = three_files(directory.path());
    let mut reader = reader(
        &dataset,
        ReaderOptions {
            shuffle: false,
            ..options(300)
        },
    );
    let seen: Vec<i64> = drain(&mut reader, 64).iter().flat_map(ids).collect();
    assert_eq!(seen, (0..1501).collect::<Vec<_>>());
}

/// Origins name the row of the file in any order.
#[test]
fn a_row_knows_where_it_came_from() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = three_files(directory.path());
    // The number of the first row of each row group.
    let firsts: Vec<i64> = dataset
        .groups()
        .iter()
        .scan(0, |next, group| {
            let first = *next;
            *next += i64::from(group.rows);
            Some(first)
        })
        .collect();
    let mut reader = reader(&dataset, options(300));
    let mut positions: HashMap<u32, u32> = HashMap::new();
    for batch in drain(&mut reader, 50) {
        let mut next: Vec<u32> = batch.spans().iter().map(|span| span.lo).collect();
        for (origin, id) in batch.origins().iter().zip(ids(&batch)) {
            let span = batch.spans()[origin.span as usize];
            assert_eq!(firsts[span.group as usize] + i64::from(origin.row), id);
            let rows = dataset.groups()[span.group as usize].rows;
            let order = GroupOrder::shuffled(0, 0, span.group, rows);
            assert_eq!(order.row(next[origin.span as usize]), origin.row);
            next[origin.span as usize] += 1;
        }
        for (span, end) in batch.spans().iter().zip(next) {
            assert_eq!(span.hi, end);
            let next = positions.entry(span.group).or_default();
            assert_eq!(*next, span.lo, "positions of a piece come in order");
            *next = span.hi;
        }
    }
    assert_eq!(
        positions.values().map(|rows| i64::from(*rows)).sum::<i64>(),
        1501
    );
}

/// Decoding speed and memory do not change the batches.
#[test]
fn the_same_pieces_give_the_same_batches() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = three_files(directory.path());
    let order = |threads, memory, seed, epoch| {
        let options = ReaderOptions {
            threads,
            memory,
            seed,
            ..options(300)
        };
        let mut reader = Reader::new(dataset.clone(), options).unwrap();
        reader.assign(epoch, all(&dataset)).unwrap();
        drain(&mut reader, 64)
            .iter()
            .flat_map(ids)
            .collect::<Vec<_>>()
    };
    let first = order(1, 1 << 30, 0, 0);
    assert_eq!(order(4, 0, 0, 0), first);
    assert_ne!(order(1, 1 << 30, 1, 0), first);
    assert_ne!(order(1, 1 << 30, 0, 1), first);
}

/// The next row group opens as soon as it fits, so the buffer lacks at most one row group.
#[test]
fn the_buffer_stays_full() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = three_files(directory.path());
    let mut reader = reader(&dataset, options(500));
    while let Some(batch) = reader.next_batch(10).unwrap() {
        let open: u32 = reader
            .cursors()
            .iter()
            .map(|cursor| cursor.piece.hi - cursor.next)
            .sum();
        assert!(open <= 500);
        if reader.rows_left() > u64::from(open) {
            assert!(
                open > 500 - 128 - 10,
                "{open} rows open after a batch of {}",
                batch.rows()
            );
        }
    }
}

/// A rollback does not read row groups that are still in memory: the files may be gone.
#[test]
fn a_rollback_reads_nothing_again() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = three_files(directory.path());
    let mut reader = reader(&dataset, options(100_000));
    let first: Vec<i64> = drain(&mut reader, 64).iter().flat_map(ids).collect();
    drop(directory);
    reader.assign(0, all(&dataset)).unwrap();
    let again: Vec<i64> = drain(&mut reader, 64).iter().flat_map(ids).collect();
    assert_eq!(again, first);
    // Row groups that are no longer assigned are dropped.
    reader
        .assign(
            0,
            [Piece {
                group: 0,
                lo: 0,
                hi: 1,
            }],
        )
        .unwrap();
    reader.assign(0, all(&dataset)).unwrap();
    assert!(reader.next_batch(1).is_err());
}

/// A minimal model of the ledger.
fn remaining(pieces: &[Piece], progress: &[Cursor]) -> Vec<Piece> {
    let next: HashMap<Piece, u32> = progress
        .iter()
        .map(|cursor| (cursor.piece, cursor.next))
        .collect();
    pieces
        .iter()
        .map(|piece| Piece {
            lo: next.get(piece).copied().unwrap_or(piece.lo),
            ..*piece
        })
        .filter(|piece| piece.rows() > 0)
        .collect()
}

/// Splits each piece at another point, and deals the parts to two workers.
fn deal(pieces: Vec<Piece>, cut: u32) -> [Vec<Piece>; 2] {
    let mut shares = [Vec::new(), Vec::new()];
    for (number, piece) in pieces.into_iter().enumerate() {
        let middle = piece.lo + piece.rows() * ((cut + number as u32) % 5) / 5;
        shares[0].push(Piece {
            hi: middle,
            ..piece
        });
        shares[1].push(Piece {
            lo: middle,
            ..piece
        });
    }
    shares
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Two workers read, commit, roll back to the commit, and divide the remaining rows anew.
    #[test]
    fn rows_are_committed_once_over_rollbacks_and_repartitions(
        steps in prop::collection::vec((1..90_usize, 0..4_u8, 0..5_u32), 1..40),
        shuffle_rows in 1..2000_usize,
        memory in prop::sample::select(vec![0, 40_000, 100 << 20]),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let dataset = three_files(directory.path());
        let mut readers: [Reader; 2] = std::array::from_fn(|_| {
            Reader::new(dataset.clone(), ReaderOptions { memory, ..options(shuffle_rows) }).unwrap()
        });
        let mut assigned = deal(all(&dataset), 0);
        let mut committed: Vec<i64> = Vec::new();
        for (reader, pieces) in readers.iter_mut().zip(&assigned) {
            reader.assign(0, pieces.clone()).unwrap();
        }
        let mut open: Vec<i64> = Vec::new();
        let mut progress: [Vec<Cursor>; 2] = Default::default();
        let end = (1501, 0, 0);
        for (rows, action, cut) in steps.into_iter().chain([end, end]) {
            for reader in &mut readers {
                if let Some(batch) = reader.next_batch(rows).unwrap() {
                    check_values(&batch);
                    open.extend(ids(&batch));
                }
            }
            match action {
                // Commit.
                0 | 1 => {
                    committed.append(&mut open);
                    for (reader, progress) in readers.iter_mut().zip(&mut progress) {
                        progress.extend(reader.progress());
                    }
                }
                // Roll back; with 3, divide the rows anew.
                _ => {
                    open.clear();
                    for (pieces, progress) in assigned.iter_mut().zip(&mut progress) {
                        *pieces = remaining(pieces, progress);
                        progress.clear();
                    }
                    if action == 3 {
                        assigned = deal(assigned.concat(), cut);
                    }
                    for (reader, pieces) in readers.iter_mut().zip(&assigned) {
                        reader.assign(0, pieces.clone()).unwrap();
                    }
                }
            }
        }
        for reader in &mut readers {
            prop_assert!(reader.next_batch(1).unwrap().is_none());
        }
        committed.sort_unstable();
        prop_assert_eq!(committed, (0..1501).collect::<Vec<_>>());
    }
}
