//! A reader that keeps its position through any change of the workers: the ledger's [`Position`] around a
//! [`Reader`](crate::Reader).
//!
//! It does no communication. The caller exchanges the output of [`Elastic::introduce`] and [`Elastic::report`] among
//! all workers of the round, and passes the messages of all ranks to [`Elastic::enter_round`] and
//! [`Elastic::agree_on`]. As a part of a worker state it does so itself: see its `State` in `state.rs`.

mod audit;
mod epoch_reader;
mod error;
mod identity;
mod remaining;
mod state;
mod throughput;

use std::{collections::VecDeque, num::NonZeroU32, path::Path, sync::Arc, time::Instant};

use arrow_schema::SchemaRef;
use elasticrun_ledger::{Owner, Position, ReadOrder, RoundHello, Share};

pub use self::error::Error;
use self::{
    audit::{Audit, EpochPosition},
    epoch_reader::EpochReader,
    identity::this_worker,
    throughput::Throughput,
};
use crate::{Batch, Dataset, ReaderOptions, Skipped, decode::Decoder, lookup};

/// Options of elastic reading.
#[derive(Clone, Debug)]
pub struct ElasticOptions {
    /// Rows of each step: of this worker or, in order "deterministic", of all workers.
    pub batch: NonZeroU32,
    /// The share of this worker in proportion to the others. Ignored in order "deterministic".
    pub weight: u32,
    /// The same in all workers.
    pub order: ReadOrder,
    /// How row groups are read. `seed` and `shuffle` must be the same in all workers.
    pub reader: ReaderOptions,
}

/// An elastic reader; see the module.
#[derive(Debug)]
pub struct Elastic {
    dataset: Arc<Dataset>,
    options: ElasticOptions,
    reader: EpochReader,
    position: Position,
    owner: Owner,
    /// Decodes single rows, beside the reader.
    lookup: Option<Decoder>,
    /// Whether it has entered a round. Only then it returns rows.
    entered: bool,
    /// Widths of the columns in the last batch with rows; empty before it.
    widths: Vec<Option<usize>>,
    /// Whether the position has changed since the reader was assigned its rows.
    stale: bool,
    /// How often the reader was assigned rows.
    assignments: u64,
    /// The next steps, which were read ahead. They count as processed once they are handed over.
    ahead: VecDeque<DrawnStep>,
    throughput: Throughput,
    audit: Option<Audit>,
    /// The position of the commit of the last report, which may be sealed when training has gone on.
    agreed_at: Option<EpochPosition>,
    /// Whether the rows of this process count in the audit. Of several workers that read the same rows, those of one do.
    is_counted: bool,
}

/// The rows of a step that do not count as processed yet.
#[derive(Debug)]
struct DrawnStep {
    batch: Batch,
    /// In order "local", what is left of the share after the step.
    left: Option<Share>,
}

impl Elastic {
    /// The start of epoch 0.
    ///
    /// # Errors
    /// As [`Reader::new`](crate::Reader::new).
    pub fn new(dataset: Arc<Dataset>, options: ElasticOptions) -> crate::Result<Self> {
        let groups: Arc<[u32]> = dataset.groups().iter().map(|group| group.rows).collect();
        let seed = options.reader.shuffle.then_some(options.reader.seed);
        let position = Position::new(groups, dataset.identity(), seed, options.order)
            .with_former_digest(dataset.shape());
        Ok(Self {
            reader: EpochReader::new(dataset.clone(), options.reader.clone(), options.order)?,
            dataset,
            options,
            position,
            owner: this_worker(),
            lookup: None,
            entered: false,
            widths: Vec::new(),
            stale: true,
            assignments: 0,
            ahead: VecDeque::new(),
            throughput: Throughput::default(),
            audit: None,
            agreed_at: None,
            is_counted: true,
        })
    }

    /// Writes each committed row to a file of this process in `directory`; see the module `audit`.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn audit(&mut self, directory: &Path) -> Result<(), Error> {
        let audit = Audit::create(directory, &self.dataset, &self.options.reader);
        self.audit = Some(audit.map_err(Error::Audit)?);
        Ok(())
    }

    /// Ends each epoch with its last complete step, in which each worker with a weight has the rows of a step. The rows behind it
    /// are left out and stay unprocessed. All workers do so. Rows that a predicate drops, or that cannot be read, are missing in
    /// the last steps nevertheless.
    ///
    /// # Errors
    /// [`Error::Late`] once the worker has entered a round.
    pub fn drop_last(&mut self) -> Result<(), Error> {
        if self.entered {
            return Err(Error::Late);
        }
        self.position.drop_last();
        Ok(())
    }

    /// The data set.
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// The options.
    pub fn options(&self) -> &ElasticOptions {
        &self.options
    }

    /// Names and types of the columns of a batch.
    pub fn schema(&self) -> &SchemaRef {
        self.reader.schema()
    }

    /// Bytes of rows in memory.
    pub fn memory(&self) -> u64 {
        self.reader.memory()
    }

    /// Bytes of row groups that were read so far, without footers.
    pub fn bytes_read(&self) -> u64 {
        self.reader.bytes_read()
    }

    /// Approximate number of times that a row group is decoded in an epoch. In order "deterministic" it is more than
    /// once if the memory does not hold one row group for each stripe of this worker.
    pub fn passes(&self) -> f64 {
        self.reader.passes()
    }

    /// Identifies the data set as read, wherever it is stored.
    pub fn digest(&self) -> u64 {
        self.dataset.identity()
    }

    /// The position in the data.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Rows of this epoch that this worker has left.
    pub fn left(&self) -> u64 {
        self.position.left()
    }

    /// Whether this worker has processed rows that no agreement includes yet. A commit would not include them.
    pub fn is_ahead(&self) -> bool {
        self.entered && self.position.is_ahead()
    }

    /// Rows a second by rank over the last ten seconds, as of commits. Empty before the first commit of a round.
    pub fn throughput(&self) -> Vec<f64> {
        self.throughput.per_second(Instant::now())
    }

    /// What was skipped because it could not be read. Includes what was skipped again after a rollback.
    pub fn skipped(&self) -> &Skipped {
        self.reader.skipped()
    }

    /// The message of this worker at the start of a round.
    pub fn introduce(&self) -> Vec<u8> {
        let owner = self.owner;
        let (weight, batch) = (self.options.weight, self.options.batch.get());
        self.position.introduce(&RoundHello {
            owner,
            weight,
            batch,
        })
    }

    /// Enters a round as `rank` with the messages of all workers. Returns the number of rows that move to another
    /// worker.
    ///
    /// # Errors
    /// [`Error::Disagreement`], and nothing has changed.
    pub fn enter_round<B: AsRef<[u8]>>(&mut self, rank: usize, hellos: &[B]) -> Result<u64, Error> {
        let moved = self.position.enter(rank, hellos)?;
        self.stale = true;
        self.entered = true;
        self.throughput.begin(Instant::now(), hellos.len());
        Ok(moved)
    }

    /// Whether the rows that this process reads from now on count in the audit: not if another worker with a lower rank reads
    /// the same ones. Call it before [`Elastic::enter_round`].
    pub fn count_rows(&mut self, is_counted: bool) {
        self.is_counted = is_counted;
    }

    /// Without a job: reads shard `shard` of `count` of each epoch, like one rank of a round with `count` workers.
    ///
    /// # Errors
    /// As [`Elastic::enter_round`].
    pub fn enter_shard(&mut self, shard: u32, count: u32) -> Result<(), Error> {
        let (weight, batch) = (1, self.options.batch.get());
        let all: Vec<Vec<u8>> = (0..count)
            .map(|shard| {
                let owner = Owner {
                    id: u64::from(shard) + 1,
                    host: 0,
                    zone: 0,
                };
                self.position.introduce(&RoundHello {
                    owner,
                    weight,
                    batch,
                })
            })
            .collect();
        self.enter_round(shard as usize, &all).map(drop)
    }

    /// The rows of the next step; `None` at the end of the epoch, which is at the same step in all workers. Near the
    /// end a batch may have fewer rows, or none. The collectives of the step must be called in any case.
    ///
    /// # Errors
    /// [`Error::Read`] names file, row group and column. No row is lost, and the next call tries again.
    pub fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        if !self.draw(0)? {
            return Ok(None);
        }
        let Some(DrawnStep { batch, left }) = self.ahead.pop_front() else {
            return Ok(None);
        };
        match left {
            Some(left) => self.position.step(left)?,
            None => self.position.step_stripes(),
        }
        if let Some(audit) = self.audit.as_mut().filter(|_| self.is_counted) {
            audit.read(self.position.ledger().epoch(), &batch);
        }
        Ok(Some(batch))
    }

    /// The rows of the step that follows `steps` others, before these are taken by [`Elastic::next_batch`]. `None` if the epoch
    /// has no such step. Rows do not count as processed. Where the position changes, what was read ahead is dropped, and
    /// [`Elastic::assignments`] grows.
    ///
    /// # Errors
    /// As [`Elastic::next_batch`].
    pub fn look_ahead(&mut self, steps: usize) -> Result<Option<&Batch>, Error> {
        match self.draw(steps)? {
            true => Ok(self.ahead.get(steps).map(|drawn| &drawn.batch)),
            false => Ok(None),
        }
    }

    /// The rows with these numbers, in this order, whether they are of this worker or not. Rows are numbered from 0 in the order of
    /// the files and within them, before any predicate. No row counts as processed, and no worker needs to have entered a round.
    ///
    /// # Errors
    /// [`Error::Read`] if there is no such row, or if a row group cannot be read.
    pub fn rows_at(&mut self, numbers: &[u64]) -> Result<Batch, Error> {
        let decoder = match self.lookup.take() {
            Some(decoder) => decoder,
            None => {
                let options = ReaderOptions {
                    predicate: None,
                    ngram: None,
                    ..self.options.reader.clone()
                };
                Decoder::new(self.dataset.clone(), &options)?
            }
        };
        let decoder = self.lookup.insert(decoder);
        Ok(lookup::rows_at(&self.dataset, decoder, numbers)?)
    }

    /// How often rows were assigned to this reader. What [`Elastic::look_ahead`] returned holds as long as the number stays the
    /// same.
    pub fn assignments(&self) -> u64 {
        self.assignments + u64::from(self.stale)
    }

    /// In order "local": ends the epoch, since no worker has a row left for the steps that remain. A predicate has dropped rows
    /// for which there are steps. All workers call it at the same step. Returns whether this worker has no rows left; otherwise
    /// nothing has changed.
    pub fn skip_empty_steps(&mut self) -> bool {
        let has_ended = self.position.skip_empty_steps();
        if has_ended {
            self.ahead.clear();
        }
        has_ended
    }

    /// Reads the next steps, up to the one that follows `steps` others. Returns whether there is one.
    fn draw(&mut self, steps: usize) -> Result<bool, Error> {
        if !self.entered {
            return Err(Error::Outside);
        }
        if self.stale {
            self.ahead.clear();
        }
        if self.position.steps() <= steps as u64 {
            return Ok(false);
        }
        if self.stale {
            self.reader.assign(&self.position)?;
            self.assignments += 1;
            self.stale = false;
        }
        while self.ahead.len() <= steps {
            let (ahead, rows) = (self.ahead.len() as u64, self.options.batch.get());
            let (batch, left) = self.reader.draw(&self.position, ahead, rows)?;
            let mut batch = batch.unwrap_or_else(|| Batch::empty(self.schema().clone(), &[]));
            if batch.rows() > 0 {
                self.widths = batch.columns().iter().map(|column| column.width).collect();
            } else {
                if self.widths.is_empty() {
                    self.widths = self.reader.widths().to_vec();
                }
                batch.columns = Batch::empty(self.schema().clone(), &self.widths).columns;
            }
            self.ahead.push_back(DrawnStep { batch, left });
        }
        Ok(true)
    }

    /// The message of this worker before a commit. `commit` is its name in the audit log.
    ///
    /// # Errors
    /// [`Error::Audit`]: rows that are not logged must not be committed.
    pub fn report(&mut self, commit: &str) -> Result<Vec<u8>, Error> {
        if let Some(audit) = self.audit.as_mut().filter(|_| self.is_counted) {
            audit.reported(commit).map_err(Error::Audit)?;
        }
        Ok(self.position.report())
    }

    /// Takes the reports of all workers, by rank. [`Position::save`] is then part of the following commit.
    ///
    /// # Errors
    /// [`Error::Disagreement`], and nothing has changed.
    pub fn agree_on<B: AsRef<[u8]>>(&mut self, reports: &[B]) -> Result<(), Error> {
        self.position.agree(reports)?;
        self.agreed_at = Some(epoch_position(&self.position));
        self.throughput
            .processed(Instant::now(), self.position.taken());
        Ok(())
    }

    /// Without other workers: the rows that were returned count as of a commit, so that the position can be saved.
    ///
    /// # Errors
    /// [`Error::Disagreement`] if there are other workers, and nothing has changed.
    pub fn agree_alone(&mut self) -> Result<(), Error> {
        let report = self.position.report();
        self.position.agree(&[report])?;
        self.agreed_at = Some(epoch_position(&self.position));
        Ok(())
    }

    /// Logs that the commit of the last report is sealed.
    ///
    /// # Errors
    /// [`Error::Audit`].
    pub fn commit_made(&mut self) -> Result<(), Error> {
        match self.audit.as_mut().filter(|_| self.is_counted) {
            Some(audit) => {
                let at = self.agreed_at.take();
                let at = at.unwrap_or_else(|| epoch_position(&self.position));
                audit.sealed(at).map_err(Error::Audit)
            }
            None => Ok(()),
        }
    }

    /// Logs that a round continues from a commit.
    ///
    /// # Errors
    /// [`Error::Audit`].
    pub fn audit_round(&mut self, round: u64, base: Option<&str>) -> Result<(), Error> {
        match self.audit.as_mut().filter(|_| self.is_counted) {
            Some(audit) => {
                let at = epoch_position(&self.position);
                audit.round(round, base, at).map_err(Error::Audit)
            }
            None => Ok(()),
        }
    }

    /// Goes to the start of the next epoch, in all workers at the same step.
    pub fn next_epoch(&mut self) {
        if let Some(audit) = self.audit.as_mut().filter(|_| self.is_counted) {
            let position = &self.position;
            let segments = position.left_out().segments(position.layout());
            audit.left_out(position.ledger().epoch(), segments);
        }
        self.position.next_epoch();
        self.stale = true;
    }

    /// Takes the position of a commit. Row groups in memory stay there.
    ///
    /// # Errors
    /// [`Error::Restore`], and nothing has changed.
    pub fn restore_position(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.position.restore(bytes)?;
        self.stale = true;
        if let Some(audit) = self.audit.as_mut().filter(|_| self.is_counted) {
            audit.rolled_back();
        }
        Ok(())
    }
}

fn epoch_position(position: &Position) -> EpochPosition {
    EpochPosition {
        epoch: position.ledger().epoch(),
        left: position.ledger().left(),
        left_out: position.all_left_out(),
    }
}
