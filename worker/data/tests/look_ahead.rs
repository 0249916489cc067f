//! Steps that were read ahead are those that follow, and change neither position nor reports.

#![allow(clippy::unwrap_used)]

mod common;

use std::{num::NonZeroU32, sync::Arc};

use common::{ids, three_files};
use elasticrun_data::{
    Dataset, ReaderOptions,
    elastic::{Elastic, ElasticOptions},
};
use elasticrun_ledger::{ReadOrder, Split};
use proptest::prelude::*;

/// What a training script and its job may do.
#[derive(Clone, Copy, Debug)]
enum Call {
    LookAhead(usize),
    Step,
    Commit,
    Rollback,
    NewRound,
    NextEpoch,
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        3 => (0_usize..6).prop_map(Call::LookAhead),
        6 => Just(Call::Step),
        2 => Just(Call::Commit),
        1 => Just(Call::Rollback),
        1 => Just(Call::NewRound),
        1 => Just(Call::NextEpoch),
    ]
}

/// A worker that is alone in its rounds, with the position of its last commit.
struct Worker {
    data: Elastic,
    committed: Vec<u8>,
}

impl Worker {
    fn new(dataset: &Arc<Dataset>, order: ReadOrder) -> Self {
        let options = ElasticOptions {
            batch: NonZeroU32::new(96).unwrap(),
            weight: 1,
            order,
            reader: ReaderOptions {
                columns: Some(vec!["id".to_owned()]),
                shuffle_rows: 300,
                threads: 1,
                ..ReaderOptions::default()
            },
        };
        let mut data = Elastic::new(dataset.clone(), options).unwrap();
        data.enter_shard(0, 1).unwrap();
        let committed = data.position().save().to_vec();
        Self { data, committed }
    }

    /// The rows of a step; everything else returns none.
    fn call(&mut self, call: Call) -> Option<Vec<i64>> {
        match call {
            Call::LookAhead(_) => None,
            Call::Step => Some(
                self.data
                    .next_batch()
                    .unwrap()
                    .map_or_else(Vec::new, |batch| ids(&batch)),
            ),
            Call::Commit => {
                let report = self.data.report("commit").unwrap();
                self.data.agree_on(&[report]).unwrap();
                self.committed = self.data.position().save().to_vec();
                None
            }
            // A round begins with the rows of the last commit.
            Call::Rollback | Call::NewRound => {
                self.data.restore_position(&self.committed).unwrap();
                self.data.enter_shard(0, 1).unwrap();
                None
            }
            Call::NextEpoch => {
                self.data.next_epoch();
                None
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_was_read_ahead_follows(calls in prop::collection::vec(call(), 1..60), is_deterministic: bool) {
        let directory = tempfile::tempdir().unwrap();
        let dataset = three_files(directory.path());
        let order = match is_deterministic {
            true => ReadOrder::Deterministic(60),
            false => ReadOrder::Local(Split::Rows),
        };
        let (mut plain, mut ahead) = (Worker::new(&dataset, order), Worker::new(&dataset, order));
        // The steps that were seen before they were taken, with the number of the assignment.
        let mut seen: Vec<Vec<i64>> = Vec::new();
        let mut assigned = ahead.data.assignments();
        for call in calls {
            if let Call::LookAhead(steps) = call {
                let (before, is_ahead) = (ahead.data.position().steps(), ahead.data.is_ahead());
                let rows = ahead.data.look_ahead(steps).unwrap().map(ids);
                prop_assert_eq!(rows.is_some(), (steps as u64) < before);
                prop_assert_eq!((ahead.data.position().steps(), ahead.data.is_ahead()), (before, is_ahead));
                if std::mem::replace(&mut assigned, ahead.data.assignments()) != assigned {
                    seen.clear();
                }
                if let (Some(rows), true) = (rows, steps == seen.len()) {
                    seen.push(rows);
                }
            }
            let rows = ahead.call(call);
            prop_assert_eq!(&rows, &plain.call(call));
            prop_assert_eq!(ahead.data.position().save(), plain.data.position().save());
            prop_assert_eq!(ahead.data.position().report(), plain.data.position().report());
            if ahead.data.assignments() != assigned {
                seen.clear();
                assigned = ahead.data.assignments();
            }
            if let (Some(rows), false) = (rows, seen.is_empty()) {
                prop_assert_eq!(rows, seen.remove(0));
            }
        }
    }
}
