//! The order of a row group's rows in one epoch: which row stands at a permuted position.
//!
//! A group is in memory as a whole when its rows are handed out, so its order may be too: a table of four
//! bytes a row, shuffled after Fisher and Yates. Against a permutation that computes each place (as the
//! sampler's, which must hold 100 M rows in constant memory) this is exactly uniform over all orders that
//! the key can tell apart, and costs 2 to 3 ns a row instead of 15.
//!
//! The order depends on seed, epoch and group alone, and never on the reader: it is the same for each
//! worker that a piece comes to, today and in later versions.

use elasticrun_core::random::Random;

use crate::cache::{LINE, ask_for};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupOrder {
    /// Position p holds row p.
    Identity,
    /// Position p holds row `table[p]`.
    Table(Box<[u32]>),
}

/// So many positions before it is read a part of a table is asked for: what a line of the cache holds.
const AHEAD: usize = LINE / size_of::<u32>();

/// Tells this use of a key from others.
const PURPOSE: u64 = 0x726f_7773;

impl GroupOrder {
    /// The shuffled order of a group of `rows` rows.
    pub fn shuffled(seed: u64, epoch: u64, group: u32, rows: u32) -> Self {
        let mut table: Box<[u32]> = (0..rows).collect();
        Random::keyed(&[PURPOSE, seed, epoch, group.into()]).shuffle(&mut table);
        Self::Table(table)
    }

    /// The row, within its group, at `position`, which is below the group's number of rows.
    #[inline]
    pub fn row(&self, position: u32) -> u32 {
        match self {
            Self::Identity => position,
            Self::Table(table) => {
                // Between two rows of a group come those of others, which leave nothing of its table in the cache.
                if let Some(later) = table.get(position as usize + AHEAD) {
                    ask_for(later);
                }
                table[position as usize]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_one_position() {
        for rows in [0_u32, 1, 2, 3, 100, 4096] {
            let order = GroupOrder::shuffled(7, 1, 3, rows);
            let mut seen: Vec<u32> = (0..rows).map(|position| order.row(position)).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..rows).collect::<Vec<_>>());
        }
    }

    /// These numbers may never change: checkpoints of older versions mean them.
    #[test]
    fn the_order_is_the_same_in_every_version() {
        let rows = |seed, epoch, group| {
            let order = GroupOrder::shuffled(seed, epoch, group, 8);
            (0..8)
                .map(|position| order.row(position))
                .collect::<Vec<_>>()
        };
        assert_eq!(rows(0, 0, 0), PINNED[0]);
        assert_eq!(rows(1, 0, 0), PINNED[1]);
        assert_eq!(rows(0, 1, 0), PINNED[2]);
        assert_eq!(rows(0, 0, 1), PINNED[3]);
    }

    /// Computed by a second implementation, in Python.
    const PINNED: [[u32; 8]; 4] = [
        [3, 2, 4, 1, 5, 0, 7, 6],
        [6, 2, 7, 1, 0, 4, 5, 3],
        [6, 4, 5, 1, 0, 2, 7, 3],
        [2, 5, 3, 1, 6, 0, 7, 4],
    ];

    /// Over many groups each row is equally often at each position: chi-square of 49 degrees of freedom,
    /// which a fair order exceeds 100 at less than once in 10^4; the keys are fixed.
    #[test]
    fn positions_are_fair() {
        const ROWS: usize = 8;
        const GROUPS: u32 = 40_000;
        let mut counts = [[0_u32; ROWS]; ROWS];
        for group in 0..GROUPS {
            let order = GroupOrder::shuffled(5, 0, group, ROWS as u32);
            for (position, row) in counts.iter_mut().enumerate() {
                row[order.row(position as u32) as usize] += 1;
            }
        }
        let expected = f64::from(GROUPS) / ROWS as f64;
        let chi: f64 = counts
            .as_flattened()
            .iter()
            .map(|count| (f64::from(*count) - expected).powi(2) / expected)
            .sum();
        assert!(chi < 100.0, "{chi}");
    }
}
