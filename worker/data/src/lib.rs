//! Rows of Parquet data sets, shuffled and counted exactly, for training that changes its size.
//!
//! # Theory of operation
//!
//! A [`Dataset`] is a list of files, sorted by name. Its row groups are numbered across all files. In an epoch each
//! row group has a permutation, which only depends on seed, epoch and row group ([`GroupOrder`]). A [`Piece`] is a
//! range of positions in that permutation. The processed part of a piece is always a prefix, so a [`Cursor`] describes
//! the progress: no list of rows, no replay. The ledger (`elasticrun_ledger`) divides pieces among workers.
//!
//! A [`Reader`] is assigned pieces and opens them in that order:
//!
//! ```text
//! pieces -> queue -> prefetch: threads decode whole row groups into memory
//!             |
//!             v
//!         open pieces -> urn: the next row is the next one of a piece drawn
//!             |          in proportion to its remaining rows
//!             v
//!          batch: columns, copied once from the decoded pages, and the origin of each row
//! ```
//!
//! - **Shuffling.** The open pieces are the shuffle buffer. The next piece opens as soon as it fits into the row
//!   budget, so the buffer stays nearly full. The order of batches does not depend on the speed of the storage: the
//!   same pieces, seed and epoch give the same batches.
//! - **Counting.** A batch lists the positions that it processed, by piece ([`Batch::spans`]). These include rows that
//!   were dropped or skipped. The caller counts them as processed after the step.
//! - **The other order.** The module `stripes` reads the order that does not depend on the number of workers.
//! - **Changes.** After a repartition or a rollback the reader is assigned the remaining pieces. Row groups in memory
//!   that are still assigned are not read again. Finished row groups are kept for that as long as memory allows.
//! - **Memory.** One limit in bytes covers all row groups ([`ReaderOptions::memory`]). It is a soft limit: open row
//!   groups and the next one are always held, since their rows come in any order.
//! - **Speed.** A row of fixed width (numbers, tensors as lists or as bytes) is copied once, from the decompressed
//!   page to the batch; see the module `column`. Buffers are pooled.
//! - **Errors.** An [`Error`] names file, row group and column. A batch is drawn as a whole or not at all: after an
//!   error the reader is unchanged.
//!
//! Not promised: an order between the batches of two workers; detection of a file change that keeps size and
//! modification time.

#[cfg(any(test, fuzzing))]
pub mod any_input;
mod batch;
mod buffers;
mod caught_panic;
mod column;
mod cpu_cache;
mod dataset;
mod decode;
pub mod elastic;
mod error;
mod group_order;
mod image;
mod image_batch;
mod lookup;
mod ngram;
mod options;
pub mod parts;
mod piece;
mod predicate;
mod reader;
mod row_ranges;
mod storage;
mod stripes;
mod thrift;

pub use batch::{Batch, Origin, Span};
pub use column::Column;
pub use dataset::{Dataset, RowGroup};
pub use error::{Error, Location, Problem, Result};
pub use group_order::GroupOrder;
pub use image::Image;
pub use image_batch::{ImageSize, Images};
pub use ngram::NGram;
pub use options::{OnError, ReaderOptions};
pub use piece::{Cursor, Piece};
pub use predicate::{Comparison, Decimal, Predicate, Value};
pub use reader::{Reader, Skipped};
pub use storage::{DiskCache, StorageOptions};
