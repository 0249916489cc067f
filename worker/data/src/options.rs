//! Options of a reader.

use crate::{ngram::NGram, predicate::Predicate};

/// The reaction to a row group that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Returns the error. The next call tries again.
    #[default]
    Raise,
    /// Counts the rest of its pieces as processed and as skipped; see [`Reader::skipped`](crate::Reader::skipped).
    Skip,
}

/// Options of a reader.
#[derive(Clone, Debug)]
pub struct ReaderOptions {
    /// The columns to read, in the order of the batch; by default all columns of the first file.
    pub columns: Option<Vec<String>>,
    /// The rows to keep; by default all. Dropped rows count as processed and are in no batch.
    pub predicate: Option<Predicate>,
    /// Reads windows in place of rows. Its columns replace `columns`. Cannot be combined with a predicate.
    pub ngram: Option<NGram>,
    /// Size of the shuffle buffer in rows. 0 or 1 reads one row group after the other, each in its own permutation.
    pub shuffle_rows: usize,
    /// Whether rows are shuffled. Otherwise pieces are read in the order of the queue, and rows in file order.
    pub shuffle: bool,
    /// Key of all permutations, the same in all workers of a job.
    pub seed: u64,
    /// Memory for row groups that are prefetched, open, or kept for a rollback, in bytes. The open ones and the next
    /// one are held even beyond it.
    pub memory: u64,
    /// Number of threads that read and decode.
    pub threads: usize,
    /// Whether a row group that cannot be read is an error, which is the default, or is skipped.
    pub on_error: OnError,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            columns: None,
            predicate: None,
            ngram: None,
            shuffle_rows: 16_384,
            shuffle: true,
            seed: 0,
            memory: 256 << 20,
            threads: cores.clamp(1, 4),
            on_error: OnError::Raise,
        }
    }
}
