//! Each row once, whatever is drawn, assigned again or taken away.

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

/// The columns of each row are those of its number.
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

/// Provenance names the row of the file, whatever the order.
#[test]
fn a_row_knows_where_it_came_from() {
    let directory = tempfile::tempdir().unwrap();
    let dataset = three_files(directory.path());
    // The first row of each group, as rows are numbered through.
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
        let mut at: Vec<u32> = batch.spans().iter().map(|span| span.lo).collect();
        for (origin, id) in batch.origins().iter().zip(ids(&batch)) {
            let span = batch.spans()[origin.span as usize];
            assert_eq!(firsts[span.group as usize] + i64::from(origin.row), id);
            let rows = dataset.groups()[span.group as usize].rows;
            let order = GroupOrder::shuffled(0, 0, span.group, rows);
            assert_eq!(order.row(at[origin.span as usize]), origin.row);
            at[origin.span as usize] += 1;
        }
        for (span, end) in batch.spans().iter().zip(at) {
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

/// What the ledger does with cursors, as simply as can be.
fn remaining(pieces: &[Piece], progress: &[Cursor]) -> Vec<Piece> {
    let at: HashMap<Piece, u32> = progress
        .iter()
        .map(|cursor| (cursor.piece, cursor.at))
        .collect();
    pieces
        .iter()
        .map(|piece| Piece {
            lo: at.get(piece).copied().unwrap_or(piece.lo),
            ..*piece
        })
        .filter(|piece| piece.rows() > 0)
        .collect()
}

/// Cuts each piece at a place of its own, and deals the halves to two workers.
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

    /// Two workers read, commit now and then, roll back to the commit, and are dealt what is left anew.
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
                // Roll back; with 3, deal anew.
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
