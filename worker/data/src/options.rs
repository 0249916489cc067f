//! How a reader reads.

use crate::{ngram::Windows, predicate::Predicate};

/// What a reader does with a row group that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The error is returned; asking again tries again.
    #[default]
    Raise,
    /// The rest of its pieces counts as processed, and as skipped; see [`Reader::skipped`](crate::Reader::skipped).
    Skip,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct ReaderOptions {
    /// The columns to read, in the order in which batches hold them; all columns of the first file if not given.
    pub columns: Option<Vec<String>>,
    /// The rows to keep; all if not given. Others are processed, and are in no batch.
    pub predicate: Option<Predicate>,
    /// Windows of rows instead of rows, whose columns take the place of `columns`. Not together with a predicate.
    pub windows: Option<Windows>,
    /// Rows from which the next one is drawn. 0 or 1: a row group after the other, each in its own order.
    pub shuffle_rows: usize,
    /// Whether rows are shuffled at all. Else pieces come in the order of the queue, rows in that of the file.
    pub shuffle: bool,
    /// Key of all orders. Workers of one job share it.
    pub seed: u64,
    /// Memory for row groups that are read ahead, open, or kept for a rollback, in bytes. The open ones
    /// and the next one are held even if they need more.
    pub memory: u64,
    /// Threads that read and decode.
    pub threads: usize,
    pub on_error: OnError,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            columns: None,
            predicate: None,
            windows: None,
            shuffle_rows: 16_384,
            shuffle: true,
            seed: 0,
            memory: 256 << 20,
            threads: cores.clamp(1, 4),
            on_error: OnError::Raise,
        }
    }
}
