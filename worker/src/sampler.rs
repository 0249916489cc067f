//! Selects the samples of a worker, in an order that does not depend on the number of workers.
//!
//! An epoch is a permutation of all samples, drawn from seed and epoch. All workers advance along
//! it together. The state is therefore only the epoch and the number of samples processed in it,
//! whatever sizes the world had before. After a change, the remaining samples are divided among the
//! new members. The order takes no memory: it is computed index by index.
//!
//! There are two ways to iterate. In batches ([`next_batch`](ElasticSampler::next_batch)), each
//! step takes the next global batch and divides it. In turns ([`turns`](ElasticSampler::turns)),
//! for loaders that form batches by themselves, the samples that were left at the start of the
//! round are assigned round-robin.
//!
//! # Invariants
//! - S1 Over one epoch, for any sizes of the world and any batch sizes, each index comes exactly
//!   once. Turns with padding repeat at most `size - 1` of them.
//! - S2 All workers of a round have the same number of batches, so that all can call the same
//!   collectives. The last batches may have fewer samples or none. With padding, all workers have
//!   the same number of turns.

use std::{
    io::{self, Write},
    iter::FusedIterator,
    ops::Range,
};

pub use elasticrun_ledger::permutation::Permutation;

use crate::{State, World, state::Error};

/// The position of an elastic job in its data: a part of its [`State`].
///
/// ```
/// # use elasticrun_worker::{ElasticSampler, Error, run};
/// let mut sampler = ElasticSampler::new(1000, 42);
/// run(&mut sampler, |session, sampler| {
///     while sampler.epoch() < 3 {
///         while let Some(batch) = sampler.next_batch(session.world(), 32) {
///             for index in batch.indices() {
///                 // The gradient of sample `index`, summed; then the mean over `batch.global_len()` samples.
///                 assert!(index < 1000);
///             }
///             sampler.processed(&batch);
///             session.commit(sampler)?;
///         }
///         sampler.next_epoch();
///     }
///     Ok::<_, Error>(())
/// })?;
/// # Ok::<_, Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ElasticSampler {
    seed: u64,
    len: u64,
    epoch: u64,
    position: u64,
    /// Position at which the turns of this round began.
    start: u64,
    /// `None` keeps the order of the data set.
    order: Option<Permutation>,
}

impl ElasticSampler {
    /// Starts at epoch 0 of the samples `0..len`. All workers pass the same values.
    pub fn new(len: u64, seed: u64) -> Self {
        Self {
            seed,
            len,
            epoch: 0,
            position: 0,
            start: 0,
            order: Some(Permutation::new(len, seed, 0)),
        }
    }

    /// Like [`new`](Self::new), with the samples of each epoch in the order of the data set.
    pub fn unshuffled(len: u64) -> Self {
        Self {
            seed: 0,
            len,
            epoch: 0,
            position: 0,
            start: 0,
            order: None,
        }
    }

    /// Number of samples of an epoch.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The epoch, starting at 0.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Number of samples of this epoch that all workers together have processed.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Number of samples of this epoch that are left.
    pub fn left(&self) -> u64 {
        self.len - self.position
    }

    /// This worker's share of the next global batch, at most `max_batch` samples. `None` at the end
    /// of the epoch.
    ///
    /// When fewer than `size * max_batch` samples are left, they are divided evenly. A worker may
    /// get an empty batch and still takes part in the collectives of this step. The position does
    /// not move before [`ElasticSampler::processed`].
    ///
    /// # Panics
    /// If `max_batch` is 0.
    pub fn next_batch(&self, world: &World, max_batch: u32) -> Option<Batch> {
        self.batch_of(world.rank(), world.size(), max_batch)
    }

    /// [`next_batch`](Self::next_batch) for the worker with this rank.
    ///
    /// # Panics
    /// If `max_batch` is 0.
    pub fn batch_of(&self, rank: u32, size: u32, max_batch: u32) -> Option<Batch> {
        assert!(
            max_batch > 0,
            "a batch of no samples would never end the epoch"
        );
        let (rank, size) = (u64::from(rank), u64::from(size));
        let global = self.left().min(size * u64::from(max_batch));
        if global == 0 {
            return None;
        }
        // Both factors are at most a few times 2^32.
        let bound = |rank: u64| {
            self.position + (u128::from(global) * u128::from(rank) / u128::from(size)) as u64
        };
        Some(Batch {
            sampler: self.clone(),
            local: bound(rank)..bound(rank + 1),
            global: self.position..self.position + global,
        })
    }

    /// Advances past a batch whose step is done in all workers (its gradients are reduced).
    ///
    /// # Panics
    /// If it is not the next batch.
    pub fn processed(&mut self, batch: &Batch) {
        assert!(
            (batch.sampler.epoch, batch.global.start) == (self.epoch, self.position)
                && batch.global.end <= self.len,
            "a batch is processed once, and in order"
        );
        self.position = batch.global.end;
    }

    /// Records that all workers together have processed the next samples of the epoch.
    pub fn record_next(&mut self, samples: u64) {
        self.position += samples.min(self.left());
    }

    /// Goes to the start of the next epoch, which has another order.
    pub fn next_epoch(&mut self) {
        self.go_to(self.epoch + 1, 0);
    }

    /// Goes to a position of an epoch and divides the remaining samples from there.
    ///
    /// # Panics
    /// If `position` is beyond the number of samples.
    pub fn go_to(&mut self, epoch: u64, position: u64) {
        assert!(
            position <= self.len,
            "position {position} of {} samples",
            self.len
        );
        self.epoch = epoch;
        self.position = position;
        self.order = (self.order.take()).map(|_| Permutation::new(self.len, self.seed, epoch));
        self.share_out();
    }

    /// Divides the remaining samples of the epoch among the members of a new round: their turns
    /// begin at the position.
    pub fn share_out(&mut self) {
        self.start = self.position;
    }

    /// The turns of the worker with this rank. `padding` repeats the last samples, so that all
    /// workers have the same number of turns.
    ///
    /// # Panics
    /// If `size` is 0.
    pub fn turns(&self, rank: u32, size: u32, padding: bool) -> Turns<'_> {
        assert!(size > 0, "a world of no workers has no turns");
        let (rank, size) = (u64::from(rank), u64::from(size));
        Turns {
            sampler: self,
            rank,
            size,
            padding,
        }
    }

    /// Number of turns done since the remaining samples were divided.
    pub fn turns_done(&self, size: u32) -> u64 {
        (self.position - self.start).div_ceil(u64::from(size))
    }

    /// Records the number of turns that all workers have done since the remaining samples were
    /// divided.
    pub fn record_turns(&mut self, turns: u64, size: u32) {
        let reached = self.start.saturating_add(turns.saturating_mul(size.into()));
        self.position = self.position.max(reached.min(self.len));
    }

    /// The sample at an index of the order of this epoch.
    ///
    /// # Panics
    /// If `index` is not below the number of samples.
    pub fn at(&self, index: u64) -> u64 {
        match &self.order {
            Some(order) => order.at(index),
            None => index,
        }
    }
}

/// The samples of one worker for a loader that iterates: every `size`th of those that were left at
/// the start of the round.
#[derive(Clone, Copy, Debug)]
pub struct Turns<'a> {
    sampler: &'a ElasticSampler,
    rank: u64,
    size: u64,
    padding: bool,
}

impl Turns<'_> {
    /// Number of samples of this worker.
    pub fn len(&self) -> u64 {
        // Without padding, the first ranks get the remainder of the division.
        let rest = if self.padding { 0 } else { self.rank };
        (self.left() + self.size - 1).saturating_sub(rest) / self.size
    }

    /// Whether this worker has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of samples of all workers.
    pub fn len_of_all(&self) -> u64 {
        if self.padding {
            self.len() * self.size
        } else {
            self.left()
        }
    }

    /// The sample of a turn.
    ///
    /// # Panics
    /// If `turn` is not below [`len`](Self::len).
    pub fn at(&self, turn: u64) -> u64 {
        assert!(turn < self.len(), "turn {turn} of {}", self.len());
        // Beyond the last sample, the samples that were left at the start repeat.
        let index = (turn * self.size + self.rank) % self.left();
        self.sampler.at(self.sampler.start + index)
    }

    fn left(&self) -> u64 {
        self.sampler.len - self.sampler.start
    }
}

/// Epoch and position. The number of samples and the seed are compared, since another data set or
/// another order would repeat some samples and skip others.
impl State for ElasticSampler {
    fn save(&self, out: &mut dyn Write) -> io::Result<()> {
        (self.len, self.seed, self.epoch, self.position).save(out)
    }

    fn restore(&mut self, from: &mut &[u8]) -> Result<(), Error> {
        let (mut len, mut seed, mut epoch, mut position) = (0_u64, 0_u64, 0_u64, 0_u64);
        for value in [&mut len, &mut seed, &mut epoch, &mut position] {
            value.restore(from)?;
        }
        if (len, seed) != (self.len, self.seed) {
            return Err(Error::Invalid(format!(
                "the state is of {len} samples in the order of seed {seed}, this worker has {} and seed {}",
                self.len, self.seed
            )));
        }
        if position > len {
            return Err(Error::Invalid(format!(
                "position {position} is beyond {len} samples"
            )));
        }
        self.go_to(epoch, position);
        Ok(())
    }

    fn reset(&mut self, _: &World) {
        self.share_out();
    }
}

/// A worker's share of a global batch.
#[derive(Clone, Debug)]
pub struct Batch {
    sampler: ElasticSampler,
    local: Range<u64>,
    global: Range<u64>,
}

impl Batch {
    /// The samples of this worker, each below the number of samples.
    pub fn indices(&self) -> impl ExactSizeIterator<Item = u64> + FusedIterator + '_ {
        // A range that a caller iterates over fits into `usize`.
        let len = usize::try_from(self.local.end - self.local.start).unwrap_or(usize::MAX);
        (0..len).map(|offset| self.sampler.at(self.local.start + offset as u64))
    }

    /// Number of samples of this worker. It may be 0 at the end of an epoch.
    pub fn len(&self) -> usize {
        usize::try_from(self.local.end - self.local.start).unwrap_or(usize::MAX)
    }

    /// Whether this worker has none.
    pub fn is_empty(&self) -> bool {
        self.local.is_empty()
    }

    /// Number of samples of all workers in this step, at least 1. Divide sums over all workers by
    /// it.
    pub fn global_len(&self) -> u64 {
        self.global.end - self.global.start
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::state::restore_all;

    proptest! {
        /// S1 and S2, with lost steps: the world returns to the last commit, as after a failure.
        #[test]
        fn each_sample_once_through_any_changes_of_the_world(
            len in 0u64..300,
            seed: u64,
            steps in prop::collection::vec((1u32..9, 1u32..20, any::<bool>()), 1..40),
        ) {
            let mut sampler = ElasticSampler::new(len, seed);
            let mut times = vec![0; len as usize];
            let mut steps = steps.into_iter().cycle();
            let mut again = false;
            loop {
                let (size, max_batch, lost) = steps.next().unwrap();
                let shares: Vec<_> = (0..size).map(|rank| sampler.batch_of(rank, size, max_batch)).collect();
                let Some(first) = shares[0].clone() else {
                    prop_assert!(shares.iter().all(Option::is_none));
                    break;
                };
                let shares: Vec<_> = shares.into_iter().map(Option::unwrap).collect();
                prop_assert!(shares.iter().all(|share| share.global == first.global && share.len() <= max_batch as usize));
                let sizes = shares.iter().map(Batch::len);
                prop_assert_eq!(sizes.clone().sum::<usize>() as u64, first.global_len());
                prop_assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1);
                let mut bytes = Vec::new();
                sampler.save(&mut bytes).unwrap();
                sampler.processed(&first);
                // Not twice in a row, so that the epoch ends.
                again = lost && !again;
                if again {
                    restore_all(&mut sampler, &bytes).unwrap();
                    continue;
                }
                for index in shares.iter().flat_map(Batch::indices) {
                    times[index as usize] += 1;
                }
                // A new worker continues from here.
                let mut bytes = Vec::new();
                sampler.save(&mut bytes).unwrap();
                sampler = ElasticSampler::new(len, seed);
                restore_all(&mut sampler, &bytes).unwrap();
            }
            prop_assert!(times.iter().all(|times| *times == 1), "{:?}", times);
        }

        /// S1 and S2 of turns: steps of some turns, each followed by a change of the world.
        #[test]
        fn turns_give_each_sample_once_and_with_padding_all_workers_as_many(
            len in 0u64..300,
            seed: u64,
            shuffle: bool,
            padding: bool,
            rounds in prop::collection::vec((1u32..9, 1u64..40), 1..40),
        ) {
            let mut sampler = if shuffle {
                ElasticSampler::new(len, seed)
            } else {
                ElasticSampler::unshuffled(len)
            };
            let mut times = vec![0; len as usize];
            let mut again = 0;
            for (size, done) in rounds.into_iter().chain([(4, len)]) {
                sampler.share_out();
                let turns: Vec<_> = (0..size).map(|rank| sampler.turns(rank, size, padding)).collect();
                let lens = turns.iter().map(Turns::len);
                prop_assert_eq!(lens.clone().sum::<u64>(), turns[0].len_of_all());
                prop_assert!(lens.clone().max().unwrap() - lens.min().unwrap() <= u64::from(!padding));
                again += turns[0].len_of_all() - sampler.left();
                let given: Vec<u64> = (turns.iter())
                    .flat_map(|turns| (0..done.min(turns.len())).map(|turn| turns.at(turn)))
                    .collect();
                given.iter().for_each(|index| times[*index as usize] += 1);
                sampler.record_turns(done, size);
            }
            prop_assert_eq!(sampler.left(), 0);
            let repeats = times.iter().map(|times| times - 1).sum::<u64>();
            prop_assert!(times.iter().all(|times| *times >= 1));
            prop_assert!(if padding { repeats <= again } else { repeats == 0 }, "{:?}", times);
        }

        #[test]
        fn epochs_have_orders_of_their_own_and_a_seed_repeats_them(len in 50u64..500, seed: u64) {
            let order = |epoch| Permutation::new(len, seed, epoch);
            let all = |epoch| (0..len).map(|index| order(epoch).at(index)).collect::<Vec<_>>();
            prop_assert_eq!(all(3), all(3));
            prop_assert_ne!(all(3), all(4));
        }
    }

    #[test]
    fn a_state_of_other_data_is_refused() {
        let mut bytes = Vec::new();
        ElasticSampler::new(10, 1).save(&mut bytes).unwrap();
        for mut other in [ElasticSampler::new(11, 1), ElasticSampler::new(10, 2)] {
            let error = restore_all(&mut other, &bytes).unwrap_err();
            assert!(matches!(error, Error::Invalid(_)), "{error}");
        }
    }

    #[test]
    #[should_panic(expected = "processed once")]
    fn a_batch_is_not_processed_twice() {
        let mut sampler = ElasticSampler::new(10, 1);
        let batch = sampler.batch_of(0, 1, 3).unwrap();
        sampler.processed(&batch);
        sampler.processed(&batch);
    }
}
