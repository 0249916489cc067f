//! The position of one worker in its data, across rounds, commits and epochs.

mod errors;
mod round_hello;
#[cfg(test)]
mod tests;

use std::{ops::Range, sync::Arc};

use xxhash_rust::xxh3::xxh3_64;

pub use self::{
    errors::{Disagreement, RestoreError},
    round_hello::RoundHello,
};
use super::{
    DatasetId, EpochLayout, Ledger, LedgerError, Malformed, Owner, ReadOrder, Share, Split,
    Stripes,
    encoding::{put, take, take_word},
    ledger::WITHOUT_FILES,
};
use elasticrun_core::mutant::{Mutant, planted};

/// The ledger of the last agreement, and what this worker has processed since then.
///
/// A state machine without I/O. The caller exchanges the output of [`Position::introduce`] and [`Position::report`]
/// among all workers of the round, and passes the messages of all ranks to [`Position::enter`] and
/// [`Position::agree`].
#[derive(Clone, Debug)]
pub struct Position {
    /// Rows of each row group.
    groups: Arc<[u32]>,
    order: ReadOrder,
    /// Whether the epoch ends with its last complete step.
    drop_last: bool,
    ledger: Ledger,
    /// The digest of the data set in ledgers of version 1.
    former_digest: Option<u64>,
    /// The encoded ledger and its hash.
    bytes: Vec<u8>,
    digest: u64,
    layout: EpochLayout,
    /// The workers of the round, by rank.
    workers: Vec<RoundHello>,
    rank: usize,
    /// What this worker has left, in order "local".
    share: Share,
    /// The next position, in order "deterministic".
    next: u64,
    /// Rows of each worker in the steps between the last two agreements, by rank.
    taken: Vec<u64>,
    /// Steps of this epoch that are left, the same in all workers.
    steps: u64,
}

impl Position {
    /// The start of epoch 0. `groups` are the numbers of rows of the row groups; `digest` is that of [`DatasetId`].
    ///
    /// # Panics
    /// If order "deterministic" has 0 stripes.
    pub fn new(
        groups: Arc<[u32]>,
        digest: u64,
        seed: Option<u64>,
        order: impl Into<ReadOrder>,
    ) -> Self {
        let identity = DatasetId {
            rows: groups.iter().copied().map(u64::from).sum(),
            groups: groups.len() as u32,
            digest,
        };
        let order = order.into();
        let ledger = match order {
            ReadOrder::Local(_) => Ledger::new(identity, seed),
            ReadOrder::Deterministic(stripes) => {
                assert!(stripes > 0, "an order has at least one stripe");
                Ledger::in_stripes(identity, seed, stripes)
            }
        };
        let mut position = Self {
            layout: EpochLayout::new(&groups, ledger.shuffle()),
            groups,
            order,
            drop_last: false,
            ledger,
            former_digest: None,
            bytes: Vec::new(),
            digest: 0,
            workers: Vec::new(),
            rank: 0,
            share: Share::EMPTY,
            next: 0,
            taken: Vec::new(),
            steps: 0,
        };
        position.refresh();
        position
    }

    /// Also takes positions of earlier releases, which gave the data set this digest.
    #[must_use]
    pub fn with_former_digest(mut self, digest: u64) -> Self {
        self.former_digest = Some(digest);
        self
    }

    /// Ends each epoch with its last complete step, in which every worker with a weight has all its rows. The rows behind it
    /// stay unprocessed. All workers do so. Called before the first round.
    pub fn drop_last(&mut self) {
        self.drop_last = true;
        self.count_steps();
    }

    /// The rows that this worker leaves out at the end of the epoch, since they are no complete step of all workers. Empty as
    /// long as there are steps.
    pub fn left_out(&self) -> Share {
        if !self.drop_last || self.steps > 0 || self.workers.is_empty() {
            return Share::EMPTY;
        }
        match self.stripes() {
            Some((stripes, rank, size)) => stripes
                .ahead(self.next, rank, size)
                .map(|(_, rest)| rest)
                .collect(),
            None => self.share.clone(),
        }
    }

    /// The rows of all workers that the epoch leaves out, if it has ended as of the last agreement.
    pub fn all_left_out(&self) -> u64 {
        match self.drop_last && self.steps == 0 && !self.workers.is_empty() {
            true => self.ledger.left(),
            false => 0,
        }
    }

    /// The ledger of the last agreement.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The encoded ledger, which a commit stores. The same in all workers.
    pub fn save(&self) -> &[u8] {
        &self.bytes
    }

    /// The layout of this epoch.
    pub fn layout(&self) -> &EpochLayout {
        &self.layout
    }

    /// What this worker has left, in order "local".
    pub fn share(&self) -> &Share {
        &self.share
    }

    /// In order "deterministic": the stripes of this epoch, the rank of this worker, and the number of workers.
    pub fn stripes(&self) -> Option<(Stripes, u32, u32)> {
        let (stripes, _) = self.ledger.stripes()?;
        let size = self.workers.len().max(1) as u32;
        Some((stripes, self.rank as u32, size))
    }

    /// Rows of this epoch that this worker has left.
    pub fn left(&self) -> u64 {
        match self.stripes() {
            Some((stripes, rank, size)) => stripes.left(self.next, rank, size),
            None => self.share.rows(),
        }
    }

    /// Rows that each worker has processed between the last two agreements, by rank. Empty after a change of the
    /// workers, after a rollback, and at the start of an epoch.
    pub fn taken(&self) -> &[u64] {
        &self.taken
    }

    /// Steps that remain until all workers have finished the epoch, the same in all of them. A worker without rows has
    /// empty steps, so that all workers call the same collectives.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Whether this worker has processed rows since the last agreement. A commit would not include them.
    pub fn is_ahead(&self) -> bool {
        match self.ledger.stripes() {
            Some((_, next)) => self.next != next,
            None => self.ledger.shares().get(self.rank) != Some(&self.share),
        }
    }

    /// The message of this worker at the start of a round.
    pub fn introduce(&self, this: &RoundHello) -> Vec<u8> {
        this.encode(self.digest, self.drop_last)
    }

    /// Enters a round as `rank` and divides the remaining rows anew. Returns the number of rows that move to another
    /// worker, which is 0 in order "deterministic".
    ///
    /// All workers must hold the ledger of the commit from which the round continues.
    ///
    /// # Errors
    /// If their ledgers differ, if a message does not decode, or if there are more workers than stripes. The position
    /// is then unchanged.
    pub fn enter<B: AsRef<[u8]>>(
        &mut self,
        rank: usize,
        hellos: &[B],
    ) -> Result<u64, Disagreement> {
        let workers = round_hello::decode_all(hellos, self.digest, self.order, self.drop_last)?;
        if let Some((stripes, _)) = self.ledger.stripes() {
            stripes.check(workers.len() as u32)?;
        }
        self.workers = workers;
        self.rank = rank;
        Ok(self.share_out())
    }

    /// In order "local": finishes a step, after which `left` is left. A step processes all rows of the worker, or as
    /// many as it announced.
    ///
    /// # Errors
    /// If it processed fewer rows, or if `left` contains rows that the worker did not have.
    pub fn step(&mut self, left: Share) -> Result<(), LedgerError> {
        if !left.is_subset_of(&self.share) {
            return Err(LedgerError::Foreign(self.rank));
        }
        let had = self.share.rows();
        let taken = had - left.rows();
        let step = had.min(self.batch());
        if taken < step {
            let rank = self.rank;
            return Err(LedgerError::Short { rank, taken, step });
        }
        self.share = left;
        self.steps = self.steps.saturating_sub(1);
        Ok(())
    }

    /// In order "local": takes all remaining steps at once, since no worker has a row left for them. All workers call it at the
    /// same step. Returns whether it could: this worker has no rows left.
    pub fn skip_empty_steps(&mut self) -> bool {
        let is_empty = matches!(self.order, ReadOrder::Local(_)) && self.share.rows() == 0;
        if is_empty {
            self.steps = 0;
        }
        is_empty
    }

    /// In order "deterministic": the positions of the next step, of all workers. [`Stripes::share`] selects those of
    /// one worker.
    pub fn next_step(&self) -> Range<u64> {
        self.later_step(0)
    }

    /// In order "deterministic": as [`next_step`](Self::next_step), for the step that follows so many others.
    pub fn later_step(&self, steps: u64) -> Range<u64> {
        let rows = self.layout.rows();
        let begin = self.next.saturating_add(self.batch().saturating_mul(steps));
        begin.min(rows)..begin.saturating_add(self.batch()).min(rows)
    }

    /// In order "deterministic": finishes the next step.
    pub fn step_stripes(&mut self) {
        self.next = self.next_step().end;
        self.steps = self.steps.saturating_sub(1);
    }

    /// The message of this worker before a commit.
    pub fn report(&self) -> Vec<u8> {
        let mut out = self.digest.to_le_bytes().to_vec();
        match self.order {
            ReadOrder::Local(_) => self.share.encode(&mut out),
            ReadOrder::Deterministic(_) => put(&mut out, self.next),
        }
        out
    }

    /// Takes the reports of all workers, by rank. The ledger is then that of the following commit.
    ///
    /// # Errors
    /// If they disagree. The position is then unchanged.
    pub fn agree<B: AsRef<[u8]>>(&mut self, reports: &[B]) -> Result<(), Disagreement> {
        let digest = self.digest;
        let mut ledger = self.ledger.clone();
        let mut taken = Vec::with_capacity(reports.len());
        for (rank, mut from) in reports.iter().map(AsRef::as_ref).enumerate() {
            let malformed = |why| Disagreement::Malformed { rank, why };
            if take_word(&mut from).map_err(malformed)? != digest {
                return Err(Disagreement::Diverged { rank });
            }
            if let Some((stripes, before)) = self.ledger.stripes() {
                let next = take(&mut from).map_err(malformed)?;
                if next != self.next {
                    return Err(Disagreement::Diverged { rank });
                }
                let (rank, size) = (rank as u32, reports.len() as u32);
                taken.push(stripes.left(before, rank, size) - stripes.left(next, rank, size));
            } else {
                let share = Share::decode(&mut from).map_err(malformed)?;
                let had = ledger.shares().get(rank).map_or(0, Share::rows);
                let has = share.rows();
                if rank != self.rank || !planted(Mutant::LedgerLacksOwn) {
                    ledger.record(rank, share)?;
                }
                taken.push(had - has);
            }
        }
        if ledger.stripes().is_some() {
            ledger.record_stripes(self.next)?;
        }
        self.ledger = ledger;
        if planted(Mutant::LedgerOfCommitBefore) {
            // The bytes remain those of the previous agreement.
            self.count_steps();
            return Ok(());
        }
        self.refresh();
        self.taken = taken;
        Ok(())
    }

    /// Goes to the start of the next epoch, in all workers at the same step. The rest of this epoch stays unread.
    pub fn next_epoch(&mut self) {
        self.ledger.begin(self.ledger.epoch() + 1);
        self.layout = EpochLayout::new(&self.groups, self.ledger.shuffle());
        if self.workers.is_empty() {
            self.refresh();
        } else {
            self.share_out();
        }
    }

    /// Takes the position of a commit, as [`Ledger::encode`] wrote it. After a commit of this round, training
    /// continues at once. Otherwise the worker must enter a new round first.
    ///
    /// # Errors
    /// If the bytes do not decode, belong to another data set, or have another order in the middle of an epoch. The
    /// position is then unchanged.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<(), RestoreError> {
        let current = self.ledger.identity();
        let (version, mut ledger) = Ledger::decode_versioned(bytes)?;
        let expected = match self.former_digest {
            Some(digest) if version == WITHOUT_FILES => DatasetId { digest, ..current },
            _ => current,
        };
        if ledger.identity() != expected {
            return Err(Malformed("it is of another data set").into());
        }
        if ledger.seed() != self.ledger.seed() {
            return Err(Malformed("its order has another seed").into());
        }
        ledger.set_identity(current);
        let ledger = ledger.in_order(self.order)?;
        if planted(Mutant::LedgerNotRestored) {
            return Ok(());
        }
        if ledger.epoch() != self.ledger.epoch() {
            self.layout = EpochLayout::new(&self.groups, ledger.shuffle());
        }
        self.ledger = ledger;
        self.refresh();
        if self.ledger.stripes().is_some() {
            return Ok(());
        }
        let same = (self.workers.iter().map(|worker| &worker.owner)).eq(self.ledger.owners());
        if same {
            self.share.clone_from(&self.ledger.shares()[self.rank]);
        } else {
            self.share = Share::EMPTY;
            self.steps = 0;
        }
        Ok(())
    }

    fn share_out(&mut self) -> u64 {
        let moved = match self.order {
            ReadOrder::Local(split) => self.share_out_rows(split),
            ReadOrder::Deterministic(_) => 0,
        };
        if planted(Mutant::StripeSkipped) && self.next > 0 {
            // At the end of the epoch there is nothing to skip.
            let _ = self.ledger.record_stripes(self.next + 1);
        }
        self.refresh();
        moved
    }

    fn share_out_rows(&mut self, split: Split) -> u64 {
        let weights: Vec<(Owner, u32)> = (self.workers.iter())
            .map(|worker| (worker.owner, worker.weight))
            .collect();
        let plan = self.ledger.share_out(&self.layout, &weights, split);
        self.ledger.plant_fault();
        self.share = self.ledger.shares()[self.rank].clone();
        plan.moved
    }

    /// Recomputes what depends on the ledger.
    fn refresh(&mut self) {
        self.bytes = self.ledger.encode();
        self.digest = xxh3_64(&self.bytes);
        self.taken.clear();
        self.count_steps();
    }

    fn count_steps(&mut self) {
        if let Some((_, next)) = self.ledger.stripes() {
            self.next = next;
            let batch = self.batch();
            self.steps = match (batch, self.drop_last) {
                (0, _) => 0,
                (_, true) => self.ledger.left() / batch,
                (_, false) => self.ledger.left().div_ceil(batch),
            };
            return;
        }
        let shares = self.ledger.shares().iter().zip(&self.workers);
        let steps = if self.drop_last {
            (shares.filter(|(_, worker)| worker.weight > 0))
                .map(|(share, worker)| share.rows() / u64::from(worker.batch))
                .min()
        } else {
            shares
                .map(|(share, worker)| share.rows().div_ceil(worker.batch.into()))
                .max()
        };
        self.steps = steps.unwrap_or(0);
    }

    /// Rows of a step: of this worker, or of all workers in order "deterministic". 0 before the first round.
    fn batch(&self) -> u64 {
        (self.workers.get(self.rank)).map_or(0, |this| this.batch.into())
    }
}
