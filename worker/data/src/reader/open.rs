//! Open pieces, and the draw of the next row among them.
//!
//! The urn holds one label for each remaining row of an open piece. The next row is the next one of the piece whose
//! label is drawn. So a piece is drawn with a probability proportional to its remaining rows. Since each piece is
//! permuted, this is the distribution of a shuffle buffer that holds all these rows and draws one. It costs one random
//! number a row.

use std::sync::Arc;

use arrow_buffer::BooleanBuffer;
use elasticrun_core::random::Random;

use crate::{decode::DecodedGroup, group_order::GroupOrder, piece::Piece};

/// A piece from which rows are drawn.
#[derive(Debug)]
pub(super) struct OpenPiece {
    pub(super) piece: Piece,
    /// The next position.
    pub(super) next: u32,
    /// `next` at the last report of progress.
    pub(super) reported: u32,
    pub(super) order: GroupOrder,
    pub(super) rows: Rows,
    /// Rows of the row group that the predicate keeps; `None` if all.
    pub(super) keep: Option<BooleanBuffer>,
}

/// Where the rows of an open piece are stored.
#[derive(Debug)]
pub(super) enum Rows {
    /// In the row group, in file order.
    Group(Arc<DecodedGroup>),
    /// In a copy, in the order of their positions from `from` on.
    Copied { group: Arc<DecodedGroup>, from: u32 },
}

impl OpenPiece {
    pub(super) fn left(&self) -> u32 {
        self.piece.hi - self.next
    }

    /// Rows of its row group in memory, or of its copy.
    pub(super) fn rows_held(&self) -> u32 {
        match &self.rows {
            Rows::Group(group) => group.rows,
            Rows::Copied { group, .. } => group.rows,
        }
    }

    pub(super) fn data(&self) -> &Arc<DecodedGroup> {
        match &self.rows {
            Rows::Group(group) | Rows::Copied { group, .. } => group,
        }
    }

    /// The row at a position and its index in [`Self::data`]; `None` if the predicate drops it.
    #[inline]
    pub(super) fn kept(&self, position: u32) -> Option<(u32, u32)> {
        let row = self.order.row(position);
        let kept = self
            .keep
            .as_ref()
            .is_none_or(|keep| keep.value(row as usize));
        kept.then(|| (row, self.data_index(row, position)))
    }

    /// The index in [`Self::data`] of the row at a position.
    #[inline]
    pub(super) fn data_index(&self, row: u32, position: u32) -> u32 {
        match &self.rows {
            Rows::Group(group) => group.row_index(row),
            Rows::Copied { from, .. } => position - from,
        }
    }
}

/// Open pieces by slot, and the urn; see the module.
#[derive(Debug)]
pub(super) struct OpenSet {
    slots: Vec<Option<OpenPiece>>,
    draw: Draw,
    /// Reused memory for the drawn labels.
    drawn: Vec<u32>,
}

#[derive(Debug)]
enum Draw {
    /// The label of each remaining row.
    Shuffled { urn: Vec<u32>, random: Random },
    /// The slots in the order in which they were opened. The first one is read to its end.
    InOrder { slots: Vec<u32> },
}

impl Draw {
    /// Draws `rows` labels. The caller must advance the pieces before the next draw.
    fn labels(&mut self, rows: usize, pieces: &[Option<OpenPiece>], drawn: &mut Vec<u32>) {
        match self {
            Self::Shuffled { urn, random } => drawn.extend((0..rows).map(|_| {
                let label = random.below(urn.len() as u64) as usize;
                urn.swap_remove(label)
            })),
            Self::InOrder { slots } => {
                for slot in slots {
                    let left = pieces[*slot as usize].as_ref().map_or(0, OpenPiece::left);
                    let taken = (left as usize).min(rows - drawn.len());
                    drawn.extend(std::iter::repeat_n(*slot, taken));
                }
                assert_eq!(drawn.len(), rows, "rows are left");
            }
        }
    }
}

/// Separates the random numbers of this module from other uses of the same key.
const PURPOSE: u64 = 0x6472_6177;

impl OpenSet {
    /// Draws at random. The draws depend on seed, epoch and `first`, which differs between workers.
    pub(super) fn shuffled(seed: u64, epoch: u64, first: Option<&Piece>) -> Self {
        let (group, lo) = first.map_or((0, 0), |piece| (piece.group, piece.lo));
        let random = Random::keyed(&[PURPOSE, seed, epoch, group.into(), lo.into()]);
        Self {
            slots: Vec::new(),
            draw: Draw::Shuffled {
                urn: Vec::new(),
                random,
            },
            drawn: Vec::new(),
        }
    }

    /// Draws the pieces one after the other, in the order in which they were opened.
    pub(super) fn in_order() -> Self {
        Self {
            slots: Vec::new(),
            draw: Draw::InOrder { slots: Vec::new() },
            drawn: Vec::new(),
        }
    }

    /// Remaining rows of all open pieces.
    pub(super) fn left(&self) -> usize {
        match &self.draw {
            Draw::Shuffled { urn, .. } => urn.len(),
            Draw::InOrder { .. } => self.iter().map(|open| open.left() as usize).sum(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &OpenPiece> {
        self.slots.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut OpenPiece> {
        self.slots.iter_mut().flatten()
    }

    /// Number of slots, including free ones.
    pub(super) fn number_of_slots(&self) -> usize {
        self.slots.len()
    }

    /// # Panics
    /// If the slot is free.
    pub(super) fn get(&self, slot: u32) -> &OpenPiece {
        self.slots[slot as usize].as_ref().expect("an open slot")
    }

    pub(super) fn add(&mut self, open: OpenPiece) {
        let slot = match self.slots.iter().position(Option::is_none) {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                self.slots.len() - 1
            }
        };
        let left = open.left() as usize;
        self.slots[slot] = Some(open);
        match &mut self.draw {
            Draw::Shuffled { urn, .. } => urn.extend(std::iter::repeat_n(slot as u32, left)),
            Draw::InOrder { slots } => slots.push(slot as u32),
        }
    }

    /// Draws rows and advances their pieces. Calls `emit` with the slot, the position and the piece of each row.
    ///
    /// # Panics
    /// If fewer rows are left.
    #[inline]
    pub(super) fn draw(&mut self, rows: usize, mut emit: impl FnMut(u32, u32, &OpenPiece)) {
        // Labels are drawn first, in a short loop that the processor executes in parallel.
        let mut drawn = std::mem::take(&mut self.drawn);
        self.draw.labels(rows, &self.slots, &mut drawn);
        for slot in drawn.drain(..) {
            let open = self.slots[slot as usize].as_mut().expect("an open slot");
            let position = open.next;
            open.next += 1;
            emit(slot, position, open);
        }
        self.drawn = drawn;
    }

    /// Undoes the last `rows` draws of a slot.
    pub(super) fn undo(&mut self, slot: u32, rows: u32) {
        if let Some(open) = &mut self.slots[slot as usize] {
            open.next -= rows;
        }
        if let Draw::Shuffled { urn, .. } = &mut self.draw {
            urn.extend(std::iter::repeat_n(slot, rows as usize));
        }
    }

    /// Removes the piece of a slot if it has no rows left.
    pub(super) fn remove_done(&mut self, slot: u32) -> Option<OpenPiece> {
        let done = self.slots[slot as usize].take_if(|open| open.left() == 0)?;
        if let Draw::InOrder { slots } = &mut self.draw {
            slots.retain(|open| *open != slot);
        }
        Some(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(set: &mut OpenSet, group: u32, rows: u32) {
        set.add(OpenPiece {
            piece: Piece {
                group,
                lo: 0,
                hi: rows,
            },
            next: 0,
            reported: 0,
            order: GroupOrder::Identity,
            rows: Rows::Group(Arc::new(DecodedGroup::new(Vec::new(), rows))),
            keep: None,
        });
    }

    /// Draws rows, and returns the slot and the position of each.
    fn drawn(set: &mut OpenSet, rows: usize) -> Vec<(u32, u32)> {
        let mut drawn = Vec::new();
        set.draw(rows, |slot, position, _| drawn.push((slot, position)));
        drawn
    }

    /// With pieces of 1, 2 and 3 rows, each of the 60 sequences of labels is equally likely. The statistic is
    /// chi-square with 59 degrees of freedom. A fair draw exceeds 110 less than once in 10^4, and the seeds are fixed.
    #[test]
    fn draws_have_the_law_of_a_shuffle_buffer() {
        const SEEDS: u64 = 30_000;
        let mut counts = std::collections::BTreeMap::<Vec<u32>, u32>::new();
        for seed in 0..SEEDS {
            let mut set = OpenSet::shuffled(seed, 0, None);
            (1..=3).for_each(|rows| open(&mut set, rows, rows));
            let sequence = drawn(&mut set, 6).iter().map(|(slot, _)| *slot).collect();
            *counts.entry(sequence).or_default() += 1;
        }
        assert_eq!(counts.len(), 60);
        let expected = SEEDS as f64 / 60.0;
        let chi: f64 = counts
            .values()
            .map(|count| (f64::from(*count) - expected).powi(2) / expected)
            .sum();
        assert!(chi < 110.0, "{chi}");
    }

    #[test]
    fn what_is_undone_is_drawn_again() {
        for mut set in [OpenSet::shuffled(0, 0, None), OpenSet::in_order()] {
            open(&mut set, 7, 10);
            open(&mut set, 8, 10);
            let first = drawn(&mut set, 15);
            for slot in [0, 1] {
                let rows = first.iter().filter(|(drawn, _)| *drawn == slot).count();
                set.undo(slot, rows as u32);
            }
            assert_eq!(set.left(), 20);
            let mut again = drawn(&mut set, 20);
            again.sort_unstable();
            let all: Vec<(u32, u32)> = (0..2)
                .flat_map(|slot| (0..10).map(move |at| (slot, at)))
                .collect();
            assert_eq!(again, all);
            assert!(set.remove_done(0).is_some() && set.remove_done(0).is_none());
        }
    }
}
