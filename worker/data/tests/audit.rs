//! The audit log of one worker: what it tells of rows that could not be read.

#![allow(clippy::unwrap_used)]

mod common;

use std::{fs, num::NonZeroU32, path::Path, sync::Arc};

use common::three_files;
use elasticrun_data::{
    Dataset, OnError, ReaderOptions,
    elastic::{Elastic, ElasticOptions},
};
use elasticrun_ledger::{ReadOrder, Split};

/// Rows of the file that cannot be read.
const UNREADABLE: u64 = 500;

fn worker(dataset: &Arc<Dataset>, order: ReadOrder, audit: &Path) -> Elastic {
    let options = ElasticOptions {
        batch: NonZeroU32::new(96).unwrap(),
        weight: 1,
        order,
        reader: ReaderOptions {
            on_error: OnError::Skip,
            threads: 1,
            ..ReaderOptions::default()
        },
    };
    let mut worker = Elastic::new(dataset.clone(), options).unwrap();
    worker.audit(audit).unwrap();
    worker
}

fn enter(worker: &mut Elastic, round: u64) {
    let hello = worker.introduce();
    worker.enter_round(0, &[hello]).unwrap();
    worker.audit_round(round, None).unwrap();
}

fn commit(worker: &mut Elastic, name: &str) {
    let report = worker.report(name).unwrap();
    worker.agree_on(&[report]).unwrap();
    worker.commit_made().unwrap();
}

/// Unreadable rows by commit and epoch, such as `"1.1.1","epoch":0`.
fn skipped(audit: &Path) -> Vec<(String, u64)> {
    let file = fs::read_dir(audit).unwrap().next().unwrap().unwrap().path();
    let log = fs::read_to_string(file).unwrap();
    (log.lines())
        .filter_map(|line| line.strip_prefix("{\"commit\":"))
        .map(|line| {
            let (place, _) = line.split_once(",\"rows\"").unwrap();
            let (_, skipped) = line.rsplit_once("\"skipped\":").unwrap();
            let skipped = skipped.trim_end_matches('}').parse().unwrap();
            (place.to_owned(), skipped)
        })
        .collect()
}

#[test]
fn rows_that_could_not_be_read_count_once_in_spite_of_a_rollback() {
    for order in [ReadOrder::Local(Split::Rows), ReadOrder::Deterministic(60)] {
        for steps in [1, 5, usize::MAX] {
            let directory = tempfile::tempdir().unwrap();
            let dataset = three_files(directory.path());
            fs::remove_file(directory.path().join("c.parquet")).unwrap();
            let audit = directory.path().join("audit");
            let mut worker = worker(&dataset, order, &audit);
            let start = worker.position().save().to_vec();
            enter(&mut worker, 1);
            for _ in 0..steps {
                if worker.next_batch().unwrap().is_none() {
                    break;
                }
            }
            worker.restore_position(&start).unwrap();
            enter(&mut worker, 2);
            while worker.next_batch().unwrap().is_some() {}
            worker.next_epoch();
            while worker.next_batch().unwrap().is_some() {}
            commit(&mut worker, "1.2.1");
            let epoch = |epoch| (format!("\"1.2.1\",\"epoch\":{epoch}"), UNREADABLE);
            assert_eq!(skipped(&audit), [epoch(0), epoch(1)], "{order:?} {steps}");
        }
    }
}
