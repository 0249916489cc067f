//! The rows of the training: the workers check that each row occurs once in an epoch.

use std::{num::NonZeroU32, path::Path, sync::Arc};

use elasticrun_data::{
    Dataset, ReaderOptions,
    elastic::{Elastic, ElasticOptions},
};
use elasticrun_worker::{Error, State, state};

/// A data set with one column of row numbers, and the rows of the epoch that all workers have trained on.
#[derive(Debug)]
pub(crate) struct Rows {
    data: Elastic,
    total: u64,
    /// Number of rows that the model has seen in this epoch, and the sum of their numbers: the same in all
    /// workers.
    seen: u64,
    sum: u64,
}

impl Rows {
    /// Opens the file that the harness wrote.
    pub(crate) fn open(path: &Path) -> Self {
        let dataset = Dataset::open_local([path]).expect("the harness wrote a data set");
        let total = dataset.rows();
        let options = ElasticOptions {
            batch: NonZeroU32::new(7).expect("it is not zero"),
            weight: 1,
            order: Default::default(),
            reader: ReaderOptions {
                shuffle_rows: 100,
                seed: 1,
                threads: 1,
                ..ReaderOptions::default()
            },
        };
        let data = Elastic::new(Arc::new(dataset), options).expect("it can be read");
        Self {
            data,
            total,
            seen: 0,
            sum: 0,
        }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.data.position().ledger().epoch()
    }

    /// Number of rows of this worker in the next step, and the sum of their numbers.
    pub(crate) fn take(&mut self) -> (u64, u64) {
        let batch = match self.data.next_batch().expect("the data set is whole") {
            Some(batch) => batch,
            None => {
                let all = (self.total, self.total * (self.total - 1) / 2);
                assert_eq!(
                    (self.seen, self.sum),
                    all,
                    "rows and their sum in epoch {}",
                    self.epoch()
                );
                (self.seen, self.sum) = (0, 0);
                self.data.next_epoch();
                let first = self.data.next_batch().expect("the data set is whole");
                first.expect("an epoch begins with a step")
            }
        };
        let numbers = batch.column("row").expect("the harness wrote it");
        let numbers = numbers.array.to_data();
        let sum = numbers.buffers()[0].typed_data::<u64>()[numbers.offset()..][..numbers.len()]
            .iter()
            .sum();
        (batch.rows() as u64, sum)
    }

    /// Adds the rows that all workers have trained on in this step.
    pub(crate) fn learn(&mut self, rows: u64, sum: u64) {
        self.seen += rows;
        self.sum += sum;
    }
}

/// Counters and position are of one commit.
impl State for Rows {
    fn save(&self, out: &mut dyn std::io::Write) -> std::io::Result<()> {
        self.seen.save(out)?;
        self.sum.save(out)?;
        self.data.save(out)
    }

    fn restore(&mut self, from: &mut &[u8]) -> Result<(), state::Error> {
        self.seen.restore(from)?;
        self.sum.restore(from)?;
        self.data.restore(from)
    }

    fn enter(&mut self, session: &mut elasticrun_worker::Session<'_>) -> Result<(), Error> {
        self.data.enter(session)
    }

    fn agree(&mut self, session: &mut elasticrun_worker::Session<'_>) -> Result<(), Error> {
        self.data.agree(session)
    }

    fn committed(&mut self) -> Result<(), Error> {
        self.data.committed()
    }
}
