//! The position of one worker in its data, through rounds, commits and epochs.

mod errors;
mod round_hello;
#[cfg(test)]
mod tests;

use std::{ops::Range, sync::Arc};

use xxhash_rust::xxh3::xxh3_64;

pub use self::{
    errors::{Disagreement, Unfit},
    round_hello::Introduction,
};
use super::{
    Identity, Ledger, Line, Malformed, Order, Owner, Refused, Share, Split, Stripes,
    encoding::{put, take, take_word},
};
use elasticrun_core::mutant::{Mutant, planted};

/// The ledger of the last agreement, and what this worker has done since.
///
/// A machine without I/O: the shell brings what [`Position::introduce`] and [`Position::report`] give to all workers of the
/// round, and gives what all of them have said to [`Position::enter`] and [`Position::agree`].
#[derive(Clone, Debug)]
pub struct Position {
    /// Rows of each row group.
    groups: Arc<[u32]>,
    order: Order,
    ledger: Ledger,
    /// The ledger as bytes, and their hash.
    bytes: Vec<u8>,
    digest: u64,
    line: Line,
    /// The workers of the round, by rank.
    workers: Vec<Introduction>,
    rank: usize,
    /// What this worker has left, in order "local".
    share: Share,
    /// The next position, in order "deterministic".
    at: u64,
    /// Rows of each worker in the steps between the last two agreements, by rank.
    taken: Vec<u64>,
    /// Steps of this epoch that are left, the same in all workers.
    steps: u64,
}

impl Position {
    /// The start of epoch 0 of a data set whose row groups have so many rows. `digest` is that of [`Identity`].
    ///
    /// # Panics
    /// If there are no stripes in order "deterministic".
    pub fn new(
        groups: Arc<[u32]>,
        digest: u64,
        seed: Option<u64>,
        order: impl Into<Order>,
    ) -> Self {
        let identity = Identity {
            rows: groups.iter().copied().map(u64::from).sum(),
            groups: groups.len() as u32,
            digest,
        };
        let order = order.into();
        let ledger = match order {
            Order::Local(_) => Ledger::new(identity, seed),
            Order::Deterministic(stripes) => {
                assert!(stripes > 0, "an order has at least one stripe");
                Ledger::in_stripes(identity, seed, stripes)
            }
        };
        let mut position = Self {
            line: Line::new(&groups, ledger.shuffle()),
            groups,
            order,
            ledger,
            bytes: Vec::new(),
            digest: 0,
            workers: Vec::new(),
            rank: 0,
            share: Share::EMPTY,
            at: 0,
            taken: Vec::new(),
            steps: 0,
        };
        position.settle();
        position
    }

    /// The ledger of the last agreement.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The ledger as bytes: what a commit holds of the data. The same in all workers.
    pub fn save(&self) -> &[u8] {
        &self.bytes
    }

    /// The rows of this epoch.
    pub fn line(&self) -> &Line {
        &self.line
    }

    /// What this worker has left, in order "local".
    pub fn share(&self) -> &Share {
        &self.share
    }

    /// Order "deterministic": the stripes of this epoch, and the rank and the number of the workers of the round.
    pub fn stripes(&self) -> Option<(Stripes, u32, u32)> {
        let (stripes, _) = self.ledger.stripes()?;
        let size = self.workers.len().max(1) as u32;
        Some((stripes, self.rank as u32, size))
    }

    /// Rows of this epoch that this worker has left.
    pub fn left(&self) -> u64 {
        match self.stripes() {
            Some((stripes, rank, size)) => stripes.left(self.at, rank, size),
            None => self.share.rows(),
        }
    }

    /// Rows that each worker has processed in the steps between the last two agreements, by rank. Empty behind a change of the
    /// workers, a rollback and the start of an epoch.
    pub fn taken(&self) -> &[u64] {
        &self.taken
    }

    /// Steps that are left until all workers are through with the epoch. The same in all of them: who has no rows left any
    /// more has empty steps, so that all can make the same calls of collectives.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Whether rows were processed since the last agreement: a commit would not know of them.
    pub fn is_ahead(&self) -> bool {
        match self.ledger.stripes() {
            Some((_, at)) => self.at != at,
            None => self.ledger.shares().get(self.rank) != Some(&self.share),
        }
    }

    /// What the other workers of a round are to know when it begins.
    pub fn introduce(&self, this: &Introduction) -> Vec<u8> {
        this.encode(self.digest)
    }

    /// Enters a round as `rank`: what is left is handed out anew. Gives how many rows go to another worker; none in order
    /// "deterministic", where no worker has any.
    ///
    /// All workers must have the same ledger, that of the commit which the round goes on from.
    ///
    /// # Errors
    /// If they do not, or one of them said nonsense, or there are more of them than stripes; nothing has changed then.
    pub fn enter<B: AsRef<[u8]>>(
        &mut self,
        rank: usize,
        introductions: &[B],
    ) -> Result<u64, Disagreement> {
        let workers = round_hello::read_all(introductions, self.digest, self.order)?;
        if let Some((stripes, _)) = self.ledger.stripes() {
            stripes.check(workers.len() as u32)?;
        }
        self.workers = workers;
        self.rank = rank;
        Ok(self.share_out())
    }

    /// Order "local": this worker has processed the rows of a step, all that it has or as many as it said: this is what it
    /// has left. One step less is left.
    ///
    /// # Errors
    /// If it has processed fewer, or if there are rows left that it did not have.
    pub fn step(&mut self, left: Share) -> Result<(), Refused> {
        if !left.is_part_of(&self.share) {
            return Err(Refused::Foreign(self.rank));
        }
        let had = self.share.rows();
        let taken = had - left.rows();
        let step = had.min(self.batch());
        if taken < step {
            let rank = self.rank;
            return Err(Refused::Short { rank, taken, step });
        }
        self.share = left;
        self.steps = self.steps.saturating_sub(1);
        Ok(())
    }

    /// Order "deterministic": the positions of the next step, of all workers. [`Stripes::share`] says which are this one's.
    pub fn next_step(&self) -> Range<u64> {
        let rows = self.line.rows();
        self.at..self.at.saturating_add(self.batch()).min(rows)
    }

    /// Order "deterministic": this worker has processed its rows of the next step. One step less is left.
    pub fn step_stripes(&mut self) {
        self.at = self.next_step().end;
        self.steps = self.steps.saturating_sub(1);
    }

    /// What the other workers are to know before a commit.
    pub fn report(&self) -> Vec<u8> {
        let mut out = self.digest.to_le_bytes().to_vec();
        match self.order {
            Order::Local(_) => self.share.encode(&mut out),
            Order::Deterministic(_) => put(&mut out, self.at),
        }
        out
    }

    /// All workers have reported, by rank: from here on the ledger is that of the commit which follows.
    ///
    /// # Errors
    /// If they disagree; nothing has changed then.
    pub fn agree<B: AsRef<[u8]>>(&mut self, reports: &[B]) -> Result<(), Disagreement> {
        let own = self.digest;
        let mut ledger = self.ledger.clone();
        let mut taken = Vec::with_capacity(reports.len());
        for (rank, mut from) in reports.iter().map(AsRef::as_ref).enumerate() {
            let malformed = |why| Disagreement::Malformed { rank, why };
            if take_word(&mut from).map_err(malformed)? != own {
                return Err(Disagreement::Elsewhere { rank });
            }
            if let Some((stripes, before)) = self.ledger.stripes() {
                let at = take(&mut from).map_err(malformed)?;
                if at != self.at {
                    return Err(Disagreement::Elsewhere { rank });
                }
                let (rank, size) = (rank as u32, reports.len() as u32);
                taken.push(stripes.left(before, rank, size) - stripes.left(at, rank, size));
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
            ledger.record_stripes(self.at)?;
        }
        self.ledger = ledger;
        if planted(Mutant::LedgerOfCommitBefore) {
            // The bytes are those of the agreement before.
            self.count_steps();
            return Ok(());
        }
        self.settle();
        self.taken = taken;
        Ok(())
    }

    /// Goes to the start of the next epoch; all workers do so at the same step. What is left of this one stays unread.
    pub fn next_epoch(&mut self) {
        self.ledger.begin(self.ledger.epoch() + 1);
        self.line = Line::new(&self.groups, self.ledger.shuffle());
        if self.workers.is_empty() {
            self.settle();
        } else {
            self.share_out();
        }
    }

    /// Becomes the position of a commit, as [`Ledger::encode`] gave it. If it is one of this round, training goes on from
    /// there; else another round has to be entered before.
    ///
    /// # Errors
    /// If it is none, or one of another data set, or one of another order from the midst of an epoch; nothing has changed then.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<(), Unfit> {
        let ledger = Ledger::decode(bytes)?;
        if ledger.identity() != self.ledger.identity() {
            return Err(Malformed("it is of another data set").into());
        }
        if ledger.seed() != self.ledger.seed() {
            return Err(Malformed("its order has another seed").into());
        }
        let ledger = ledger.in_order(self.order)?;
        if planted(Mutant::LedgerNotRestored) {
            return Ok(());
        }
        if ledger.epoch() != self.ledger.epoch() {
            self.line = Line::new(&self.groups, ledger.shuffle());
        }
        self.ledger = ledger;
        self.settle();
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
            Order::Local(split) => self.share_out_rows(split),
            Order::Deterministic(_) => 0,
        };
        if planted(Mutant::LaneSkipped) && self.at > 0 {
            // At the end there is nothing to skip.
            let _ = self.ledger.record_stripes(self.at + 1);
        }
        self.settle();
        moved
    }

    fn share_out_rows(&mut self, split: Split) -> u64 {
        let weights: Vec<(Owner, u32)> = (self.workers.iter())
            .map(|worker| (worker.owner, worker.weight))
            .collect();
        let plan = self.ledger.share_out(&self.line, &weights, split);
        self.ledger.spoil();
        self.share = self.ledger.shares()[self.rank].clone();
        plan.moved
    }

    /// The ledger has changed.
    fn settle(&mut self) {
        self.bytes = self.ledger.encode();
        self.digest = xxh3_64(&self.bytes);
        self.taken.clear();
        self.count_steps();
    }

    fn count_steps(&mut self) {
        if let Some((_, at)) = self.ledger.stripes() {
            self.at = at;
            let batch = self.batch();
            self.steps = if batch == 0 {
                0
            } else {
                self.ledger.left().div_ceil(batch)
            };
            return;
        }
        let steps =
            |(share, worker): (&Share, &Introduction)| share.rows().div_ceil(worker.batch.into());
        self.steps = (self.ledger.shares().iter().zip(&self.workers))
            .map(steps)
            .max()
            .unwrap_or(0);
    }

    /// Rows of a step of this worker, or of all in order "deterministic"; 0 before the first round.
    fn batch(&self) -> u64 {
        (self.workers.get(self.rank)).map_or(0, |this| this.batch.into())
    }
}
