//! The values of keys, and beside them what an optimizer keeps for each value or key.

use std::ops::Range;

use elasticrun_collectives::Element;

use crate::core::keys::Lens;

/// Most numbers that a rule keeps for a value.
pub const MAX_SLOTS: usize = 2;

/// What a rule keeps beside the values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateShape<T> {
    /// How many numbers for each value.
    pub slots: usize,
    /// With what each of them begins.
    pub initial: [T; MAX_SLOTS],
    /// Whether it counts the pushes of each key.
    pub counted: bool,
}

impl<T: Element> Default for StateShape<T> {
    fn default() -> Self {
        Self {
            slots: 0,
            initial: [T::zeroed(); MAX_SLOTS],
            counted: false,
        }
    }
}

impl<T: Element> StateShape<T> {
    /// Bytes that a key with so many values takes, with its state, itself and its length.
    pub(super) fn key_bytes(&self, values: usize) -> usize {
        let counter = if self.counted { 4 } else { 0 };
        values * size_of::<T>() * (1 + self.slots) + counter + 12
    }

    /// Adds what another rule keeps.
    pub(super) fn extend(&mut self, other: Self) {
        for slot in self.slots..other.slots {
            self.initial[slot] = other.initial[slot];
        }
        self.slots = self.slots.max(other.slots);
        self.counted |= other.counted;
    }
}

/// Neighbouring keys of a store, and what is pushed to them.
#[derive(Debug)]
pub struct Cells<'a, T> {
    /// The stored values.
    pub values: &'a mut [T],
    /// What the rule keeps for each value. A slot that it does not have is empty.
    pub state: [&'a mut [T]; MAX_SLOTS],
    /// How often each key was pushed before. Empty if the rule does not count.
    pub steps: &'a mut [u32],
    /// How many values each key has.
    pub lens: Lens<'a>,
    /// The pushed values.
    pub pushed: &'a [T],
}

/// Values with their state. All columns are equally long or empty.
#[derive(Debug)]
pub(super) struct Columns<T> {
    pub(super) values: Vec<T>,
    pub(super) state: [Vec<T>; MAX_SLOTS],
    pub(super) steps: Vec<u32>,
}

impl<T> Default for Columns<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            state: Default::default(),
            steps: Vec::new(),
        }
    }
}

/// A part of columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a, T> {
    pub(super) values: &'a [T],
    pub(super) state: [&'a [T]; MAX_SLOTS],
    pub(super) steps: &'a [u32],
}

impl<T: Element> Columns<T> {
    /// Columns of values alone.
    pub(super) fn of_values(values: Vec<T>) -> Self {
        Self {
            values,
            ..Self::default()
        }
    }

    /// Creates the state that is missing, for so many keys.
    pub(super) fn conform(&mut self, shape: &StateShape<T>, keys: usize) {
        let len = self.values.len();
        for (slot, column) in self.state.iter_mut().enumerate().take(shape.slots) {
            match column.is_empty() {
                // Zeros take no memory before they are written.
                true => *column = vec![shape.initial[slot]; len],
                false => column.resize(len, shape.initial[slot]),
            }
        }
        if shape.counted {
            self.steps.resize(keys, 0);
        }
    }

    pub(super) fn reserve(&mut self, values: usize, keys: usize, shape: &StateShape<T>) {
        self.values.reserve(values);
        for column in self.state.iter_mut().take(shape.slots) {
            column.reserve(values);
        }
        if shape.counted {
            self.steps.reserve(keys);
        }
    }

    pub(super) fn part(&self, values: Range<usize>, keys: Range<usize>) -> Part<'_, T> {
        let slot = |column: &'_ [T]| !column.is_empty();
        Part {
            values: &self.values[values.clone()],
            state: [0, 1].map(|index| match slot(&self.state[index]) {
                true => &self.state[index][values.clone()],
                false => &[],
            }),
            steps: match self.steps.is_empty() {
                true => &[],
                false => &self.steps[keys],
            },
        }
    }

    pub(super) fn cells<'a>(
        &'a mut self,
        values: Range<usize>,
        keys: Range<usize>,
        lens: Lens<'a>,
        pushed: &'a [T],
    ) -> Cells<'a, T> {
        let [first, second] = &mut self.state;
        let slot = |column: &'a mut Vec<T>| match column.is_empty() {
            true => Default::default(),
            false => &mut column[values.clone()],
        };
        Cells {
            state: [slot(first), slot(second)],
            values: &mut self.values[values],
            steps: match self.steps.is_empty() {
                true => Default::default(),
                false => &mut self.steps[keys],
            },
            lens,
            pushed,
        }
    }

    /// Adds a part of other columns at the end. Both have the same state.
    pub(super) fn append(&mut self, part: Part<'_, T>) {
        self.values.extend_from_slice(part.values);
        for (column, part) in self.state.iter_mut().zip(part.state) {
            column.extend_from_slice(part);
        }
        self.steps.extend_from_slice(part.steps);
    }

    /// Writes a part of other columns over these. Both have the same state.
    pub(super) fn replace(&mut self, values: usize, keys: usize, part: Part<'_, T>) {
        self.values[values..values + part.values.len()].copy_from_slice(part.values);
        for (column, part) in self.state.iter_mut().zip(part.state) {
            if !part.is_empty() {
                column[values..values + part.len()].copy_from_slice(part);
            }
        }
        if !part.steps.is_empty() {
            self.steps[keys..keys + part.steps.len()].copy_from_slice(part.steps);
        }
    }

    /// Takes values and keys out.
    pub(super) fn remove(&mut self, values: Range<usize>, keys: Range<usize>) {
        for column in self.state.iter_mut().filter(|column| !column.is_empty()) {
            column.drain(values.clone());
        }
        self.values.drain(values);
        if !self.steps.is_empty() {
            self.steps.drain(keys);
        }
    }

    /// The numbers of slots, and whether keys are counted.
    pub(super) fn slots(&self) -> usize {
        self.state
            .iter()
            .filter(|column| !column.is_empty())
            .count()
    }
}
