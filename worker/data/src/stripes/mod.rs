//! Reads the stripes of a worker: the order that does not depend on the number of workers; see
//! [`elasticrun_ledger::Stripes`].
//!
//! A stripe is a contiguous range of the epoch layout, and gives one row in each turn. So a worker has as many open
//! row groups as stripes, which may be far more than memory holds. Therefore no row group stays in memory: a thread
//! decodes it, extracts the next rows of its stripes ([`StripeChunk`]), and frees it.
//!
//! ```text
//! stripe 3   ... | chunk in use | chunk ahead | requested .....        each a part of one row group
//! stripe 7          ... | chunk in use .......... | requested ..
//!                      ^ the turn
//! ```
//!
//! # Cost
//! The stripes divide the memory budget. If the part of a stripe holds the rest of a row group, each row group is
//! decoded once. Otherwise it is decoded once for each chunk ([`StripeReader::passes`]). More memory, more workers or
//! fewer stripes reduce the number of passes. Beyond [`prefetch_plan::MAX_PASSES`] passes the memory limit is exceeded
//! instead.
//!
//! # Invariants
//! - **L1** The parts of a stripe are disjoint, sorted and without gaps. They contain all planned rows of the stripe
//!   that are not processed.
//! - **L2** The rows of a step only depend on its positions: neither on memory nor on the order in which row groups
//!   are decoded.

mod gather;
mod prefetch;
mod prefetch_plan;
mod stripe;
mod stripe_chunk;

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use arrow_schema::SchemaRef;
use elasticrun_ledger::{EpochLayout, Stripes};

use self::{
    prefetch_plan::PrefetchPlan,
    stripe::Stripe,
    stripe_chunk::{DecodeJob, StripeChunk},
};
use crate::{
    batch::Batch,
    dataset::Dataset,
    decode::Decoder,
    error::{Problem, Result},
    options::ReaderOptions,
    reader::{Skipped, pool::Pool},
};

/// Reads the stripes of one worker; see the module.
#[derive(Debug)]
pub(crate) struct StripeReader {
    decoder: Arc<Decoder>,
    options: ReaderOptions,
    pool: Pool<DecodeJob, Vec<StripeChunk>>,
    epoch: u64,
    order: Stripes,
    rank: u32,
    size: u32,
    /// The stripes of this worker, lowest number first.
    stripes: Vec<Stripe>,
    /// Jobs that stripes wait for, by number.
    requested: HashMap<u64, DecodeJob>,
    /// The number of the next job.
    next_job: u64,
    plan: PrefetchPlan,
    skipped: Skipped,
}

impl StripeReader {
    /// A reader without stripes; see [`Self::assign`].
    ///
    /// # Errors
    /// As [`crate::Reader::new`].
    pub(crate) fn new(dataset: Arc<Dataset>, options: ReaderOptions) -> Result<Self> {
        if options.ngram.is_some() {
            let why = "windows are for order local: a step of order deterministic is so many rows";
            return Err(Problem::BadOption(why.to_owned()).into());
        }
        let decoder = Arc::new(Decoder::new(dataset, &options)?);
        let threads = decoder.clone();
        let seed = options.shuffle.then_some(options.seed);
        let pool = Pool::new(options.threads, move |job: &DecodeJob| {
            job.chunks(&threads, seed)
        })
        .map_err(Problem::Io)?;
        Ok(Self {
            plan: PrefetchPlan::new(&decoder, options.memory),
            decoder,
            options,
            pool,
            epoch: 0,
            order: Stripes::new(0, 1),
            rank: 0,
            size: 1,
            stripes: Vec::new(),
            requested: HashMap::new(),
            next_job: 0,
            skipped: Skipped::default(),
        })
    }

    /// Names and types of the columns of a batch.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.decoder.selection.schema
    }

    /// See [`Reader::widths`](crate::Reader::widths).
    pub(crate) fn widths(&self) -> &[Option<usize>] {
        self.decoder.widths()
    }

    /// Bytes of row groups that were read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.decoder.bytes_read()
    }

    /// What was skipped under [`OnError::Skip`](crate::OnError::Skip).
    pub(crate) fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// Bytes of rows in memory, including requested ones.
    pub(crate) fn memory(&self) -> u64 {
        self.plan.bytes()
    }

    /// Approximate number of times that a row group is decoded in an epoch, at least 1.
    pub(crate) fn passes(&self) -> f64 {
        self.plan.passes(self.stripes.len())
    }

    /// Assigns the stripes of `rank` of `size` workers, from a position of this epoch on. Called at the start of an
    /// epoch, after a change of the workers, and after a rollback. Rows in memory that are still to come stay there.
    pub(crate) fn assign(
        &mut self,
        epoch: u64,
        order: Stripes,
        rank: u32,
        size: u32,
        position: u64,
    ) {
        let former = std::mem::take(&mut self.stripes);
        let same = (epoch, order) == (self.epoch, self.order);
        let mut former = former.into_iter().filter(|_| same).peekable();
        for (number, rest) in order.ahead(position, rank, size) {
            while former.next_if(|stripe| stripe.number < number).is_some() {}
            let stripe = match former.next_if(|stripe| stripe.number == number) {
                Some(former) => former.resumed_at(rest.start),
                None => Stripe::new(&order, number, rest),
            };
            self.stripes.push(stripe);
        }
        (self.epoch, self.order, self.rank, self.size) = (epoch, order, rank, size);
        let wanted: HashSet<u64> = self.stripes.iter().flat_map(Stripe::jobs).collect();
        self.requested.retain(|number, _| wanted.contains(number));
        self.pool.retain(|job| wanted.contains(&job.number));
        self.plan.begin();
        for (index, stripe) in self.stripes.iter().enumerate() {
            self.plan.reserve(stripe.bytes());
            self.plan.push(
                stripe.needed_at(stripe.planned_end(), order.stripes()),
                index,
            );
        }
    }

    /// The rows of this worker at the positions `step` of the epoch, in order. Steps must be consecutive.
    ///
    /// With a predicate a batch has fewer rows than positions. Waits for rows that are not decoded yet.
    ///
    /// # Errors
    /// A row group cannot be read; the error names file, row group and column. The reader is then unchanged, and the
    /// next call tries again.
    pub(crate) fn next_batch(&mut self, layout: &EpochLayout, step: Range<u64>) -> Result<Batch> {
        self.prefetch(layout);
        let local: Vec<(usize, u64)> = (self.order.share(step, self.rank, self.size))
            .map(|position| self.find(position))
            .collect();
        for (index, row) in &local {
            self.wait_for(layout, *index, *row)?;
        }
        let batch = self.gather(&local);
        for (index, row) in local {
            let stripe = &mut self.stripes[index];
            stripe.gathered = None;
            if batch.is_ok() {
                self.plan.release(stripe.advance_to(row + 1));
            }
        }
        self.prefetch(layout);
        batch
    }

    /// The row at a position: the index of its stripe among those of this worker, and the row of the epoch layout.
    fn find(&self, position: u64) -> (usize, u64) {
        let stripe = position % self.order.stripes();
        let index = (stripe - u64::from(self.rank)) / u64::from(self.size);
        (index as usize, self.order.row(position))
    }
}
