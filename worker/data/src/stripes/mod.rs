//! Reads the stripes of a worker: the order that does not depend on the number of workers; see
//! [`elasticrun_ledger::Stripes`].
//!
//! A stripe is a contiguous part of the line of an epoch, and gives one row in each turn. So a worker has as many row groups
//! open as it has stripes, which may be far more than memory holds. Therefore no row group is held: a thread decodes it, takes
//! out the next rows of the stripes that are in it ([`Chunk`]), and lets go of it.
//!
//! ```text
//! stripe 3   ... | chunk in use | chunk ahead | asked for .....        each a part of one row group
//! stripe 7          ... | chunk in use .......... | asked for ..
//!                      ^ the turn
//! ```
//!
//! # What it costs
//! The memory budget is shared out among the stripes. If a stripe's share holds the rest of a row group, each row group is
//! decoded once. Else it is decoded once for each chunk ([`StripeReader::passes`]): more memory, more workers or fewer stripes
//! make that fewer. It is never more than [`plan::MOST_PASSES`] times; there the budget gives way.
//!
//! # Invariants
//! - **L1** the parts of a stripe are disjoint, in order, without a gap, and all rows of the stripe that are to come and are
//!   planned are in one.
//! - **L2** what a step gives depends on its positions alone: neither on memory nor on which row group is decoded first.

mod chunk;
mod gather;
mod plan;
mod prefetch;
mod stripe;

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use arrow_schema::SchemaRef;
use elasticrun_ledger::{Line, Stripes};

use self::{
    chunk::{Chunk, Visit},
    plan::Plan,
    stripe::Stripe,
};
use crate::{
    batch::Batch,
    dataset::Dataset,
    decode::Decoder,
    error::{Problem, Result},
    options::ReaderOptions,
    reader::{Skipped, pool::Pool},
};

/// See the module.
#[derive(Debug)]
pub(crate) struct StripeReader {
    decoder: Arc<Decoder>,
    options: ReaderOptions,
    pool: Pool<Visit, Vec<Chunk>>,
    epoch: u64,
    order: Stripes,
    rank: u32,
    size: u32,
    /// Those of this worker, the lowest first.
    stripes: Vec<Stripe>,
    /// Visits that stripes wait for, by number.
    asked: HashMap<u64, Visit>,
    /// The number of the next one.
    next_visit: u64,
    plan: Plan,
    skipped: Skipped,
}

impl StripeReader {
    /// A reader with nothing to read yet; see [`Self::assign`].
    ///
    /// # Errors
    /// As [`crate::Reader::new`].
    pub(crate) fn new(dataset: Arc<Dataset>, options: ReaderOptions) -> Result<Self> {
        if options.windows.is_some() {
            let why = "windows are for order local: a step of order deterministic is so many rows";
            return Err(Problem::BadOption(why.to_owned()).into());
        }
        let decoder = Arc::new(Decoder::new(dataset, &options)?);
        let threads = decoder.clone();
        let seed = options.shuffle.then_some(options.seed);
        let pool = Pool::new(options.threads, move |visit: &Visit| {
            visit.chunks(&threads, seed)
        })
        .map_err(Problem::Io)?;
        Ok(Self {
            plan: Plan::new(&decoder, options.memory),
            decoder,
            options,
            pool,
            epoch: 0,
            order: Stripes::new(0, 1),
            rank: 0,
            size: 1,
            stripes: Vec::new(),
            asked: HashMap::new(),
            next_visit: 0,
            skipped: Skipped::default(),
        })
    }

    /// Names and types of the columns of a batch.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.decoder.selection.schema
    }

    /// Bytes of row groups that were read so far.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.decoder.bytes_read()
    }

    /// What could not be read, if options say to skip it.
    pub(crate) fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// Bytes of rows in memory, with those that are asked for.
    pub(crate) fn memory(&self) -> u64 {
        self.plan.bytes()
    }

    /// How often a row group is decoded in an epoch, about: 1 at best.
    pub(crate) fn passes(&self) -> f64 {
        self.plan.passes(self.stripes.len())
    }

    /// From now on reads the stripes of `rank` of so many workers, from a position of this epoch on: at the start of an epoch, after
    /// a change of the workers, after a rollback. Rows that are in memory and still to come stay there.
    pub(crate) fn assign(&mut self, epoch: u64, order: Stripes, rank: u32, size: u32, at: u64) {
        let former = std::mem::take(&mut self.stripes);
        let same = (epoch, order) == (self.epoch, self.order);
        let mut former = former.into_iter().filter(|_| same).peekable();
        for (number, rest) in order.ahead(at, rank, size) {
            while former.next_if(|stripe| stripe.number < number).is_some() {}
            let stripe = match former.next_if(|stripe| stripe.number == number) {
                Some(former) => former.starting(rest.start),
                None => Stripe::new(&order, number, rest),
            };
            self.stripes.push(stripe);
        }
        (self.epoch, self.order, self.rank, self.size) = (epoch, order, rank, size);
        let wanted: HashSet<u64> = self.stripes.iter().flat_map(Stripe::visits).collect();
        self.asked.retain(|number, _| wanted.contains(number));
        self.pool.retain(|visit| wanted.contains(&visit.number));
        self.plan.begin();
        for (place, stripe) in self.stripes.iter().enumerate() {
            self.plan.holds(stripe.bytes());
            self.plan
                .add(stripe.needs_at(stripe.planned(), order.stripes()), place);
        }
    }

    /// The rows of this worker at the positions `step` of the epoch, in their order. Steps follow each other.
    ///
    /// With a predicate a batch has fewer rows than positions. Waits for what is not decoded yet.
    ///
    /// # Errors
    /// A row group that cannot be read, by the name of file, row group and column. Nothing has changed then: no row is lost,
    /// and calling again tries again.
    pub(crate) fn next_batch(&mut self, line: &Line, step: Range<u64>) -> Result<Batch> {
        self.ask(line);
        let own: Vec<(usize, u64)> = (self.order.share(step, self.rank, self.size))
            .map(|position| self.find(position))
            .collect();
        for (place, row) in &own {
            self.wait_for(line, *place, *row)?;
        }
        let batch = self.gather(&own);
        for (place, row) in own {
            let stripe = &mut self.stripes[place];
            stripe.mark = None;
            if batch.is_ok() {
                self.plan.gone(stripe.pass(row + 1));
            }
        }
        self.ask(line);
        batch
    }

    /// Where the row at a position is: the place of its stripe among those of this worker, and the row on the line.
    fn find(&self, position: u64) -> (usize, u64) {
        let stripe = position % self.order.stripes();
        let place = (stripe - u64::from(self.rank)) / u64::from(self.size);
        (place as usize, self.order.row(position))
    }
}
