//! Which samples a worker trains on, in an order that does not depend on the number of workers.
//!
//! An epoch is a permutation of all samples, drawn from seed and epoch. All workers walk along it together. So all that is
//! kept is the epoch and the number of samples processed in it, whatever sizes the world had on the way; after a change the
//! rest is shared out over the new world. The order takes no memory: it is computed index by index.
//!
//! There are two ways along it. In batches ([`next_batch`](ElasticSampler::next_batch)), each step takes the next global batch
//! and shares it out. In turns ([`turns`](ElasticSampler::turns)), as a loader iterates that makes batches by itself, the
//! samples that were left when the round began are dealt out in turn.
//!
//! # Invariants
//! - S1 over one epoch, for any sizes of the world and any size of batches, each index comes exactly once. Turns with
//!   padding give at most `size - 1` of them again.
//! - S2 all workers of a round have the same number of batches, the last ones perhaps with fewer samples or
//!   none, so that all can call the same collectives. With padding they have as many turns.

use std::{
    io::{self, Write},
    iter::FusedIterator,
    ops::Range,
};

pub use elasticrun_ledger::permutation::Permutation;

use crate::{State, World, state::Error};

/// The position in the data of an elastic job: part of its [`State`].
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
    /// Where the turns of this round began.
    start: u64,
    /// None: the samples come in the order of the data set.
    order: Option<Permutation>,
}

impl ElasticSampler {
    /// The start of epoch 0 of samples `0..len`. All workers pass the same values.
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

    /// As [`new`](Self::new), with the samples of each epoch in the order of the data set.
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

    /// Samples of an epoch.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The epoch, from 0.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Samples of this epoch that all workers together have processed.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Samples of this epoch that are left.
    pub fn left(&self) -> u64 {
        self.len - self.position
    }

    /// This worker's share of the next global batch, at most `most` samples; `None` at the end of the epoch.
    ///
    /// When fewer than `size * most` samples are left they are shared out evenly, and a worker may get none: it
    /// gets an empty batch and joins the collectives of this step all the same. The position does not move
    /// before [`ElasticSampler::processed`].
    ///
    /// # Panics
    /// If `most` is 0.
    pub fn next_batch(&self, world: &World, most: u32) -> Option<Batch> {
        self.batch_of(world.rank(), world.size(), most)
    }

    /// [`next_batch`](Self::next_batch) of the worker of a rank.
    ///
    /// # Panics
    /// If `most` is 0.
    pub fn batch_of(&self, rank: u32, size: u32, most: u32) -> Option<Batch> {
        assert!(most > 0, "a batch of no samples would never end the epoch");
        let (rank, size) = (u64::from(rank), u64::from(size));
        let global = self.left().min(size * u64::from(most));
        if global == 0 {
            return None;
        }
        // Both factors are at most a few times 2^32.
        let bound = |rank: u64| {
            self.position + (u128::from(global) * u128::from(rank) / u128::from(size)) as u64
        };
        Some(Batch {
            sampler: self.clone(),
            own: bound(rank)..bound(rank + 1),
            all: self.position..self.position + global,
        })
    }

    /// The step with this batch is done in all workers (its gradients are reduced): go past it.
    ///
    /// # Panics
    /// If it is not the next batch.
    pub fn processed(&mut self, batch: &Batch) {
        assert!(
            (batch.sampler.epoch, batch.all.start) == (self.epoch, self.position)
                && batch.all.end <= self.len,
            "a batch is processed once, and in order"
        );
        self.position = batch.all.end;
    }

    /// The next samples of the epoch are processed, by all workers together.
    pub fn record_next(&mut self, samples: u64) {
        self.position += samples.min(self.left());
    }

    /// Goes to the start of the next epoch, which has an order of its own.
    pub fn next_epoch(&mut self) {
        self.go_to(self.epoch + 1, 0);
    }

    /// Goes to a position of an epoch, and shares out what is left from there.
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

    /// Shares out what is left of the epoch among the members of a new round: their turns begin at the position.
    pub fn share_out(&mut self) {
        self.start = self.position;
    }

    /// The turns of the worker of a rank. `padding` gives the last samples again, so that all workers have as many turns.
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

    /// Turns that are done since what was left was shared out.
    pub fn turns_done(&self, size: u32) -> u64 {
        (self.position - self.start).div_ceil(u64::from(size))
    }

    /// All workers have done so many turns since what is left was shared out.
    pub fn record_turns(&mut self, turns: u64, size: u32) {
        let reached = self.start.saturating_add(turns.saturating_mul(size.into()));
        self.position = self.position.max(reached.min(self.len));
    }

    /// The sample at a place of the order of this epoch.
    ///
    /// # Panics
    /// If `place` is not below the number of samples.
    pub fn at(&self, place: u64) -> u64 {
        match &self.order {
            Some(order) => order.at(place),
            None => place,
        }
    }
}

/// What a loader that iterates gives one worker: every `size`th of the samples that were left when the round began.
#[derive(Clone, Copy, Debug)]
pub struct Turns<'a> {
    sampler: &'a ElasticSampler,
    rank: u64,
    size: u64,
    padding: bool,
}

impl Turns<'_> {
    /// Samples of this worker.
    pub fn len(&self) -> u64 {
        // Without padding the first ranks get the samples that do not divide.
        let rest = if self.padding { 0 } else { self.rank };
        (self.left() + self.size - 1).saturating_sub(rest) / self.size
    }

    /// Whether this worker has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Samples of all workers.
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
        // Beyond the last sample, those that were left at the start come again.
        let place = (turn * self.size + self.rank) % self.left();
        self.sampler.at(self.sampler.start + place)
    }

    fn left(&self) -> u64 {
        self.sampler.len - self.sampler.start
    }
}

/// Epoch and position. The number of samples and the seed are compared, since another data set or another
/// order would repeat some samples and leave others out.
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
    own: Range<u64>,
    all: Range<u64>,
}

impl Batch {
    /// The samples of this worker, each below the number of samples.
    pub fn indices(&self) -> impl ExactSizeIterator<Item = u64> + FusedIterator + '_ {
        // A slice of the range fits into memory if anybody wants to iterate over it.
        let len = usize::try_from(self.own.end - self.own.start).unwrap_or(usize::MAX);
        (0..len).map(|offset| self.sampler.at(self.own.start + offset as u64))
    }

    /// Samples of this worker; may be 0 at the end of an epoch.
    pub fn len(&self) -> usize {
        usize::try_from(self.own.end - self.own.start).unwrap_or(usize::MAX)
    }

    /// Whether this worker has none.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    /// Samples of all workers in this step, at least 1: what a sum over all is to be divided by.
    pub fn global_len(&self) -> u64 {
        self.all.end - self.all.start
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::state::restore_all;

    proptest! {
        /// S1 and S2, with steps that are lost: the world goes back to what was committed, as after a failure.
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
                let (size, most, lost) = steps.next().unwrap();
                let shares: Vec<_> = (0..size).map(|rank| sampler.batch_of(rank, size, most)).collect();
                let Some(first) = shares[0].clone() else {
                    prop_assert!(shares.iter().all(Option::is_none));
                    break;
                };
                let shares: Vec<_> = shares.into_iter().map(Option::unwrap).collect();
                prop_assert!(shares.iter().all(|share| share.all == first.all && share.len() <= most as usize));
                let sizes = shares.iter().map(Batch::len);
                prop_assert_eq!(sizes.clone().sum::<usize>() as u64, first.global_len());
                prop_assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1);
                let mut bytes = Vec::new();
                sampler.save(&mut bytes).unwrap();
                sampler.processed(&first);
                // Not twice in a row, or the epoch might not end.
                again = lost && !again;
                if again {
                    restore_all(&mut sampler, &bytes).unwrap();
                    continue;
                }
                for index in shares.iter().flat_map(Batch::indices) {
                    times[index as usize] += 1;
                }
                // A newcomer takes over from here.
                let mut bytes = Vec::new();
                sampler.save(&mut bytes).unwrap();
                sampler = ElasticSampler::new(len, seed);
                restore_all(&mut sampler, &bytes).unwrap();
            }
            prop_assert!(times.iter().all(|times| *times == 1), "{:?}", times);
        }

        /// S1 and S2 of turns: steps of some turns, and a change of the world behind each.
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
            let most = times.iter().map(|times| times - 1).sum::<u64>();
            prop_assert!(times.iter().all(|times| *times >= 1));
            prop_assert!(if padding { most <= again } else { most == 0 }, "{:?}", times);
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
