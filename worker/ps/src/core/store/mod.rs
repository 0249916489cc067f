//! What a server keeps: values by key.

mod chunk;
mod columns;
mod dense;
mod init;
mod prefetch;
mod run;
mod sparse;
#[cfg(test)]
mod transfer_tests;

pub use chunk::{Chunk, ChunkError};
pub use columns::{Cells, MAX_SLOTS, StateShape};
pub use dense::DenseStore;
use elasticrun_collectives::Element;
pub use init::Init;
pub use sparse::SparseStore;

use super::{
    keys::{KeyError, Lens},
    ranges::KeyRange,
};

/// Why a store refuses a request. It is unchanged then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A key has another number of values.
    #[error("key {key} has {stored} values here, not {given}")]
    LenDiffers {
        /// The key.
        key: u64,
        /// Number of values in the store.
        stored: usize,
        /// Number of values in the request.
        given: usize,
    },
    /// A pull of a key that was never pushed, without a length.
    #[error("key {key} was never pushed: say how many values it has to get zeros")]
    UnknownKey {
        /// The key.
        key: u64,
    },
    /// The key is not in the range of a dense store.
    #[error("key {key} is not in the range {}..={} of this store", range.first, range.last)]
    OutOfRange {
        /// The key.
        key: u64,
        /// The range.
        range: KeyRange,
    },
    /// The arrays of the request do not belong together.
    #[error(transparent)]
    Keys(#[from] KeyError),
}

/// How many values a pull expects for each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected<'a> {
    /// The store knows.
    Unknown,
    /// So many. A key that was never pushed has so many zeros.
    Known(Lens<'a>),
}

impl Expected<'_> {
    fn len_at(self, position: usize) -> Option<usize> {
        match self {
            Self::Unknown => None,
            Self::Known(lens) => Some(lens.len_at(position)),
        }
    }
}

/// What a pull found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found<T> {
    /// The values, key by key.
    pub values: Vec<T>,
    /// How many values each key has, if they differ.
    pub lens: Option<Vec<u32>>,
}

/// How pushed values change stored ones. A function of stored and pushed values of the same keys is one, such as `add`.
pub trait Combine<T: Element> {
    /// What it keeps beside the values. The store creates it with the first push.
    fn state(&self) -> StateShape<T> {
        StateShape::default()
    }

    /// Changes the values of neighbouring keys.
    fn combine(&self, cells: Cells<'_, T>);
}

impl<T: Element, F: Fn(&mut [T], &[T])> Combine<T> for F {
    fn combine(&self, cells: Cells<'_, T>) {
        self(cells.values, cells.pushed);
    }
}

/// A store of one server.
pub trait Store<T: Element>: Send {
    /// Applies a push. Keys are strictly ascending. A key that is new begins as the store was told.
    ///
    /// # Errors
    /// A key has another number of values, or cannot be here.
    fn push(
        &mut self,
        keys: &[u64],
        lens: Lens<'_>,
        values: &[T],
        combine: impl Combine<T>,
    ) -> Result<(), StoreError>
    where
        Self: Sized;

    /// Reads values into memory that is used again. Keys are strictly ascending.
    ///
    /// # Errors
    /// A key is unknown, or has another number of values.
    fn pull_into(
        &self,
        keys: &[u64],
        expected: Expected<'_>,
        memory: Vec<T>,
    ) -> Result<Found<T>, StoreError>;

    /// [`pull_into`](Self::pull_into) new memory.
    ///
    /// # Errors
    /// A key is unknown, or has another number of values.
    fn pull(&self, keys: &[u64], expected: Expected<'_>) -> Result<Found<T>, StoreError> {
        self.pull_into(keys, expected, Vec::new())
    }

    /// Copies the first keys of a range, with all that belongs to them, in ascending order: as many as fit into so many bytes,
    /// and at least one. [`Chunk::next`] says where to go on.
    fn export(&self, range: KeyRange, max_bytes: usize) -> Chunk<T>;

    /// Puts the keys of a chunk in place of what is here under these keys.
    ///
    /// # Errors
    /// A key has another number of values, or cannot be here.
    fn import(&mut self, chunk: Chunk<T>) -> Result<(), StoreError>;

    /// Forgets the keys of a range.
    fn remove(&mut self, range: KeyRange);
}
