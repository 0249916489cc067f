//! The order that does not depend on the number of workers.
//!
//! The epoch layout is cut into stripes of equal length, and rows are taken from the stripes round-robin. With C
//! stripes, position i of the epoch is the next row of stripe i mod C. A step takes the next global batch of
//! positions, and each worker reads those of its stripes. So one number describes the progress of the job. The batch
//! of a step is the same set of rows in every history of world sizes. No memory grows with the data set.
//!
//! Rank `s mod size` reads stripe s. So the positions of a step are divided to within two rows, and evenly to the row
//! if the size divides the number of stripes. Each stripe has one open row group: the job reads from as many row
//! groups at a time as there are stripes. So there must be at least one stripe for each worker, and fewer stripes cost
//! less.

use std::ops::Range;

/// The default number of stripes. It is divisible by 1 to 10, 12, 14, 15 and 16, so shares are even to the row for
/// most sizes.
pub const STRIPES: u32 = 5040;

/// The stripes of an epoch; see the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stripes {
    rows: u64,
    stripes: u64,
}

/// There are more workers than stripes, so some workers would have no rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{workers} workers share {stripes} stripes: set stripes to {enough}, which changes the order"
)]
pub struct TooFewStripes {
    /// Workers of the round.
    pub workers: u32,
    /// Number of stripes.
    pub stripes: u64,
    /// A sufficient number of stripes, which stays even for many sizes.
    pub enough: u64,
}

impl Stripes {
    /// The stripes of an epoch with `rows` rows.
    ///
    /// # Panics
    /// If `stripes` is 0.
    pub fn new(rows: u64, stripes: u32) -> Self {
        assert!(stripes > 0, "an order has at least one stripe");
        let stripes = stripes.into();
        Self { rows, stripes }
    }

    /// Fails unless each worker has a stripe.
    ///
    /// # Errors
    /// With a sufficient number of stripes.
    pub fn check(&self, workers: u32) -> Result<(), TooFewStripes> {
        let needed = u64::from(workers);
        if needed <= self.stripes {
            return Ok(());
        }
        let unit = u64::from(STRIPES);
        let (stripes, enough) = (self.stripes, needed.div_ceil(unit) * unit);
        Err(TooFewStripes {
            workers,
            stripes,
            enough,
        })
    }

    /// Number of stripes.
    pub fn stripes(&self) -> u64 {
        self.stripes
    }

    /// The range of the epoch layout that belongs to a stripe.
    pub fn stripe(&self, stripe: u64) -> Range<u64> {
        let (each, more) = (self.rows / self.stripes, self.rows % self.stripes);
        let start = |stripe: u64| stripe * each + stripe.min(more);
        start(stripe)..start(stripe + 1)
    }

    /// The row at a position of the epoch, as an index into the epoch layout.
    ///
    /// # Panics
    /// If the position is not below the number of rows.
    pub fn row(&self, position: u64) -> u64 {
        assert!(position < self.rows, "position {position} of {}", self.rows);
        // The first stripes are the longer ones, and the last, incomplete turn only visits those.
        self.stripe(position % self.stripes).start + position / self.stripes
    }

    /// The positions of a step that a worker reads, in order.
    pub fn share(
        &self,
        step: Range<u64>,
        rank: u32,
        size: u32,
    ) -> impl Iterator<Item = u64> + use<> {
        let (stripes, rank, size) = (self.stripes, u64::from(rank), u64::from(size));
        let turns = step.start / stripes..step.end.div_ceil(stripes);
        turns.flat_map(move |turn| {
            let first = turn * stripes;
            let from = step.start.saturating_sub(first);
            let to = (step.end - first).min(stripes);
            // The first stripe of this rank at `from` or after it.
            let first_stripe = from + (rank + size - from % size) % size;
            (first_stripe..to)
                .step_by(size as usize)
                .map(move |stripe| first + stripe)
        })
    }

    /// Number of positions that a worker reads from `position` to the end of the epoch.
    pub fn left(&self, position: u64, rank: u32, size: u32) -> u64 {
        let (rank, size) = (u64::from(rank), u64::from(size));
        let below = |stripe: u64| (stripe + size - 1 - rank) / size;
        let before = |position: u64| {
            position / self.stripes * below(self.stripes) + below(position % self.stripes)
        };
        before(self.rows) - before(position.min(self.rows))
    }

    /// The stripes of a worker, each with its remaining range of the epoch layout from `position` on.
    pub fn ahead(
        &self,
        position: u64,
        rank: u32,
        size: u32,
    ) -> impl Iterator<Item = (u64, Range<u64>)> + use<> {
        let stripes = *self;
        let (turn, done) = (position / self.stripes, position % self.stripes);
        (u64::from(rank)..self.stripes)
            .step_by(size as usize)
            .map(move |index| {
                let stripe = stripes.stripe(index);
                // Stripes before `done` have already had this turn.
                let start = stripe.start + turn + u64::from(index < done);
                (index, start.min(stripe.end)..stripe.end)
            })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_row_has_one_position(rows in 0_u64..500, stripes in 1_u32..60) {
            let order = Stripes::new(rows, stripes);
            let mut seen: Vec<u64> = (0..rows).map(|position| order.row(position)).collect();
            seen.sort_unstable();
            prop_assert!(seen.into_iter().eq(0..rows));
        }

        #[test]
        fn a_step_is_shared_out_evenly(from in 0_u64..10_000, batch in 1_u64..300, stripes in 1_u32..60, size in 1_u32..20) {
            let order = Stripes::new(1 << 40, stripes.max(size));
            let mut all = Vec::new();
            let mut extremes = (usize::MAX, 0);
            for rank in 0..size {
                let share: Vec<u64> = order.share(from..from + batch, rank, size).collect();
                extremes = (extremes.0.min(share.len()), extremes.1.max(share.len()));
                all.extend(share);
            }
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(from..from + batch));
            // One for each return to the first stripe.
            let turns = batch.div_ceil(u64::from(stripes.max(size))) as usize + 1;
            let max_difference = if stripes.max(size).is_multiple_of(size) { 1 } else { 1 + turns };
            prop_assert!(extremes.1 - extremes.0 <= max_difference, "{extremes:?}");
        }

        #[test]
        fn what_a_worker_has_left_is_counted(rows in 0_u64..3000, stripes in 1_u32..60, size in 1_u32..20, position in 0_u64..3000) {
            let (order, position) = (Stripes::new(rows, stripes.max(size)), position.min(rows));
            for rank in 0..size {
                prop_assert_eq!(order.left(position, rank, size), order.share(position..rows, rank, size).count() as u64);
            }
        }

        #[test]
        fn what_is_ahead_is_what_will_be_read(rows in 0_u64..300, stripes in 1_u32..20, size in 1_u32..6, done in 0_u64..300) {
            let order = Stripes::new(rows, stripes.max(size));
            let done = done.min(rows);
            for rank in 0..size {
                let mut expected: Vec<u64> = order.share(done..rows, rank, size).map(|position| order.row(position)).collect();
                expected.sort_unstable();
                prop_assert!(order.ahead(done, rank, size).flat_map(|(_, rest)| rest).eq(expected));
            }
        }
    }

    /// 1,000 histories of world sizes: at each step the members together read the same rows.
    #[test]
    fn the_rows_of_a_step_do_not_depend_on_the_sizes_of_the_world() {
        const BATCH: u64 = 96;
        let order = Stripes::new(10_007, 60);
        let mut random = elasticrun_core::random::Random::from_seed(1);
        let mut expected: Option<Vec<u64>> = None;
        for _ in 0..1000 {
            let mut hashes = Vec::new();
            let (mut done, mut size) = (0, 1 + random.below(60) as u32);
            while done < 10_007 {
                if random.below(4) == 0 {
                    size = 1 + random.below(60) as u32;
                }
                let step = done..(done + BATCH).min(10_007);
                let mut rows: Vec<u64> = (0..size)
                    .flat_map(|rank| order.share(step.clone(), rank, size))
                    .map(|position| order.row(position))
                    .collect();
                rows.sort_unstable();
                let bytes: Vec<u8> = rows.iter().flat_map(|row| row.to_le_bytes()).collect();
                hashes.push(xxhash_rust::xxh3::xxh3_64(&bytes));
                done = step.end;
            }
            assert_eq!(expected.get_or_insert_with(|| hashes.clone()), &hashes);
        }
    }

    #[test]
    fn too_many_workers_are_told_what_would_do() {
        let stripes = Stripes::new(1 << 40, STRIPES);
        assert_eq!(stripes.check(5040), Ok(()));
        let few = stripes.check(5041).unwrap_err();
        assert_eq!(
            few.to_string(),
            "5041 workers share 5040 stripes: set stripes to 10080, which changes the order"
        );
    }
}
