//! Rows of Parquet data sets, shuffled and counted exactly, for training that changes its size.
//!
//! # Theory of operation
//!
//! A [`Dataset`] is files in the order of their names; the row groups in them are numbered through. In an
//! epoch each row group has an order of its own, which depends on seed, epoch and group alone
//! ([`GroupOrder`]). A [`Piece`] is a range of positions in that order. What is processed of a piece is
//! always a prefix, so a [`Cursor`] says all: no list of rows, no replay. Who divides pieces among workers
//! is the ledger's affair and none of this crate.
//!
//! A [`Reader`] is assigned pieces and opens them in that order:
//!
//! ```text
//! pieces -> queue -> read ahead: threads decode whole row groups into memory
//!             |
//!             v
//!         open pieces -> urn: the next row is the next one of a piece drawn
//!             |          in proportion to what is left of it
//!             v
//!          batch: columns, copied once from the decoded pages, and where each row came from
//! ```
//!
//! - **Shuffling.** The open pieces are the shuffle buffer. The next piece opens as soon as it fits whole into
//!   the row budget, so the buffer stays nearly full, and the order of batches never depends on how fast
//!   storage is: a reader with the same pieces, seed and epoch gives the same batches.
//! - **Counting.** A batch names the positions that it processed, piece by piece ([`Batch::spans`]), with
//!   those of rows that were dropped or skipped. Whoever trains on it counts these.
//! - **The other order.** `stripes` reads the order that does not depend on the number of workers; see its header.
//! - **Change.** After a repartition or a rollback the reader is assigned what is left. Row groups that are in
//!   memory and still assigned are not read again; those just finished are kept for that while memory allows.
//! - **Memory.** One budget in bytes for all that ([`ReaderOptions::memory`]). It is no hard limit: the open
//!   groups and the next one are held in any case, since rows of a group come in any order.
//! - **Speed.** A row whose size is known (numbers, tensors as lists or as bytes) goes from the decompressed
//!   page to the batch in one copy; see the module `column`. Buffers are used again.
//! - **Errors.** An [`Error`] names file, row group and column. A batch is drawn whole or not at all: after an
//!   error nothing has moved.
//!
//! Not promised: that two workers' batches are in any order to each other; that a reader notices a change of
//! a file that leaves its size and time of modification as they were.

mod batch;
mod buffers;
mod cache;
mod column;
mod dataset;
mod decode;
pub mod elastic;
mod error;
mod image;
mod ngram;
mod options;
mod order;
mod piece;
mod predicate;
mod reader;
mod rows;
mod storage;
mod stripes;
mod thrift;

pub use batch::{Batch, Origin, Span};
pub use column::Column;
pub use dataset::{Dataset, RowGroup};
pub use error::{Error, Place, Problem, Result};
pub use image::Image;
pub use ngram::Windows;
pub use options::{OnError, ReaderOptions};
pub use order::GroupOrder;
pub use piece::{Cursor, Piece};
pub use predicate::{Comparison, Predicate, Value};
pub use reader::{Reader, Skipped};
pub use storage::DiskCache;
