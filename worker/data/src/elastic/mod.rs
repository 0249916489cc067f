//! A reader that keeps its place through any change of the workers: the core's [`Position`] around a [`Reader`](crate::Reader).
//!
//! It talks to nobody. What [`Elastic::introduce`] and [`Elastic::report`] give has to be brought to all workers of the round,
//! and what all have said is given to [`Elastic::enter_round`] and [`Elastic::agree_on`]. As part of a state it does so by
//! itself: see the `State` of it in `state.rs`.

mod audit;
mod error;
mod identity;
mod reading;
mod remaining;
mod state;
mod throughput;

use std::{num::NonZeroU32, path::Path, sync::Arc, time::Instant};

use arrow_schema::SchemaRef;
use elasticrun_ledger::{Introduction, Order, Owner, Position};
use xxhash_rust::xxh3::Xxh3;

pub use self::error::Error;
use self::{audit::Audit, identity::this_worker, reading::Reading, throughput::Pace};
use crate::{Batch, Dataset, ReaderOptions, Skipped};

/// How a data set is read elastically.
#[derive(Clone, Debug)]
pub struct ElasticOptions {
    /// Rows of this worker at each step; in order "deterministic" of all workers together.
    pub batch: NonZeroU32,
    /// How much this worker gets in proportion to the others; nothing in order "deterministic".
    pub weight: u32,
    /// The same in all workers.
    pub order: Order,
    /// How row groups are read. Its seed and whether it shuffles are the same in all workers.
    pub reader: ReaderOptions,
}

/// See the module.
#[derive(Debug)]
pub struct Elastic {
    dataset: Arc<Dataset>,
    options: ElasticOptions,
    reading: Reading,
    position: Position,
    owner: Owner,
    /// It is in a round, or was: rows are handed out then.
    entered: bool,
    /// Widths of the columns in the last batch.
    widths: Vec<Option<usize>>,
    /// The reader does not know yet what there is to read.
    stale: bool,
    pace: Pace,
    audit: Option<Audit>,
}

impl Elastic {
    /// The start of epoch 0.
    ///
    /// # Errors
    /// As [`Reader::new`](crate::Reader::new).
    pub fn new(dataset: Arc<Dataset>, options: ElasticOptions) -> crate::Result<Self> {
        let groups: Arc<[u32]> = dataset.groups().iter().map(|group| group.rows).collect();
        let seed = options.reader.shuffle.then_some(options.reader.seed);
        let position = Position::new(groups, digest(&dataset), seed, options.order);
        Ok(Self {
            reading: Reading::new(dataset.clone(), options.reader.clone(), options.order)?,
            dataset,
            options,
            position,
            owner: this_worker(),
            entered: false,
            widths: Vec::new(),
            stale: true,
            pace: Pace::default(),
            audit: None,
        })
    }

    /// Writes each committed row into a file of this process in `directory`; see the documentation of elastic data.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn audit(&mut self, directory: &Path) -> Result<(), Error> {
        self.audit = Some(Audit::create(directory).map_err(Error::Audit)?);
        Ok(())
    }

    /// The data set.
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// How it is read.
    pub fn options(&self) -> &ElasticOptions {
        &self.options
    }

    /// Names and types of the columns of a batch.
    pub fn schema(&self) -> &SchemaRef {
        self.reading.schema()
    }

    /// Bytes of rows in memory.
    pub fn memory(&self) -> u64 {
        self.reading.memory()
    }

    /// Bytes of row groups that were read so far, without footers.
    pub fn bytes_read(&self) -> u64 {
        self.reading.bytes_read()
    }

    /// How often a row group is decoded in an epoch, about: once, but in order "deterministic" more often if the memory
    /// does not hold a row group of each stripe of this worker.
    pub fn passes(&self) -> f64 {
        self.reading.passes()
    }

    /// The position in the data.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Rows of this epoch that this worker has left.
    pub fn left(&self) -> u64 {
        self.position.left()
    }

    /// Whether rows were processed of which the other workers were not told: a commit would not know of them.
    pub fn is_ahead(&self) -> bool {
        self.entered && self.position.is_ahead()
    }

    /// Rows a second by rank over the last ten seconds, of what commits hold; none before the first commit of a round.
    pub fn pace(&self) -> Vec<f64> {
        self.pace.per_second(Instant::now())
    }

    /// What could not be read.
    pub fn skipped(&self) -> &Skipped {
        self.reading.skipped()
    }

    /// What all workers of a round are to know of this one when it begins.
    pub fn introduce(&self) -> Vec<u8> {
        let owner = self.owner;
        let (weight, batch) = (self.options.weight, self.options.batch.get());
        self.position.introduce(&Introduction {
            owner,
            weight,
            batch,
        })
    }

    /// Enters a round as `rank`, of which all workers have said these. Gives how many rows went to another worker.
    ///
    /// # Errors
    /// [`Error::Disagreement`], and nothing has changed.
    pub fn enter_round<B: AsRef<[u8]>>(
        &mut self,
        rank: usize,
        introductions: &[B],
    ) -> Result<u64, Error> {
        let moved = self.position.enter(rank, introductions)?;
        self.stale = true;
        self.entered = true;
        self.pace.begin(Instant::now(), introductions.len());
        Ok(moved)
    }

    /// Without a job: reads shard `shard` of `count` of each epoch, as if there were a round of so many workers.
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
                self.position.introduce(&Introduction {
                    owner,
                    weight,
                    batch,
                })
            })
            .collect();
        self.enter_round(shard as usize, &all).map(drop)
    }

    /// The rows of the next step; `None` at the end of the epoch, which comes at the same step in all workers. Near it a
    /// batch may have fewer rows, or none: the collectives of the step are to be called all the same.
    ///
    /// # Errors
    /// [`Error::Read`] names file, row group and column; no row is lost, and the next call tries again.
    pub fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        if !self.entered {
            return Err(Error::Outside);
        }
        if self.position.steps() == 0 {
            return Ok(None);
        }
        if self.stale {
            self.reading.assign(&self.position)?;
            self.stale = false;
        }
        let rows = self.options.batch.get();
        let mut batch = match self.reading.step(&mut self.position, rows)? {
            Some(batch) => batch,
            None => Batch::empty(self.schema().clone(), &self.widths),
        };
        if batch.rows() > 0 {
            self.widths = batch.columns().iter().map(|column| column.width).collect();
        } else {
            batch.columns = Batch::empty(self.schema().clone(), &self.widths).columns;
        }
        if let Some(audit) = &mut self.audit {
            audit.read(self.position.ledger().epoch(), &batch);
        }
        Ok(Some(batch))
    }

    /// What all workers are to know of this one before a commit. `commit` is how the audit calls it.
    ///
    /// # Errors
    /// [`Error::Audit`]: what is not written down must not be committed.
    pub fn report(&mut self, commit: &str) -> Result<Vec<u8>, Error> {
        if let Some(audit) = &mut self.audit {
            audit.reported(commit).map_err(Error::Audit)?;
        }
        Ok(self.position.report())
    }

    /// All workers have reported, by rank: [`Position::save`] is what the commit that follows holds.
    ///
    /// # Errors
    /// [`Error::Disagreement`], and nothing has changed.
    pub fn agree_on<B: AsRef<[u8]>>(&mut self, reports: &[B]) -> Result<(), Error> {
        self.position.agree(reports)?;
        self.pace.processed(Instant::now(), self.position.taken());
        Ok(())
    }

    /// The commit of the last report is made.
    ///
    /// # Errors
    /// [`Error::Audit`].
    pub fn commit_made(&mut self) -> Result<(), Error> {
        match &mut self.audit {
            Some(audit) => audit.sealed().map_err(Error::Audit),
            None => Ok(()),
        }
    }

    /// The audit is to say that a round goes on from this commit.
    ///
    /// # Errors
    /// [`Error::Audit`].
    pub fn audit_round(&mut self, round: u64, base: Option<&str>) -> Result<(), Error> {
        match &mut self.audit {
            Some(audit) => audit.round(round, base).map_err(Error::Audit),
            None => Ok(()),
        }
    }

    /// Goes to the start of the next epoch, in all workers at the same step.
    pub fn next_epoch(&mut self) {
        self.position.next_epoch();
        self.stale = true;
    }

    /// Becomes the position of a commit. Row groups that are in memory stay there.
    ///
    /// # Errors
    /// [`Error::Unfit`], and nothing has changed.
    pub fn restore_position(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.position.restore(bytes)?;
        self.stale = true;
        if let Some(audit) = &mut self.audit {
            audit.rolled_back();
        }
        Ok(())
    }
}

/// What makes a data set the same one: names, sizes and row groups of its files, wherever they lie.
fn digest(dataset: &Dataset) -> u64 {
    let mut hash = Xxh3::new();
    for group in dataset.groups() {
        hash.update(&group.file.to_le_bytes());
        hash.update(&group.rows.to_le_bytes());
        hash.update(&group.bytes.to_le_bytes());
    }
    hash.digest()
}
