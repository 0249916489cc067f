//! Elastic data: which worker reads which rows, so that each row of an epoch is used exactly once.
//!
//! An [`EpochLayout`] places the row groups of a data set end to end, in an order drawn for the epoch. Each row group
//! has its own permutation. So a range of the layout is a random set of rows of the row groups that it covers.
//!
//! A [`Share`] describes the remaining work of one worker: a list of ranges of the layout, in reading order. Its front
//! advances as rows are processed. The rest of an opened row group is a range like any other. The [`Ledger`] holds the
//! shares of all workers as of a commit. Its size grows with the number of workers, and not with the number of row
//! groups.
//!
//! ```text
//! row groups   |---- 7 ----|------ 2 ------|--- 0 ---|-------- 5 --------|- 3 -|
//! layout       0          12              28        38                  58    64
//! worker 0     . . . .####  ..####  .........                                      two opened groups, then unopened ones
//! worker 1                                           #############                 a split: worker 2 has the rest of group 5
//! worker 2                                                        ######  #####
//! ```
//!
//! A [`Position`] is the state of one worker: the ledger of the last commit, and the rows processed since then.
//! [`repartition()`] divides the remaining rows among the workers of a new round, evenly and with the fewest moves.
//!
//! [`Stripes`] is the other order: the same global batches for any number of workers. Its ledger is one number.
//! Between two epochs, a ledger of one [`ReadOrder`] can be opened in the other.
//!
//! # Invariants
//! - **D1** The shares of a ledger are disjoint and cover all unprocessed rows, so no row is processed twice.
//! - **D2** Between two repartitions a share only loses rows. A repartition neither adds nor loses rows.
//! - **D3** Everything here is a function of its input. All workers compute the same plan, and compare its digest.

#![forbid(unsafe_code)]

mod encoding;
mod epoch_layout;
mod ledger;
pub mod permutation;
mod plan_preview;
mod position;
mod quota;
mod read_order;
mod repartition;
mod share;
mod stripes;

pub use encoding::Malformed;
pub use epoch_layout::{EpochLayout, Piece, Segment, Shuffle};
pub use ledger::{DatasetId, Ledger, LedgerError, MidEpoch, Owner};
pub use plan_preview::{Flow, PlanPreview, WorkerSlot, preview_plan};
pub use position::{Disagreement, Position, RestoreError, RoundHello};
pub use read_order::ReadOrder;
pub use repartition::{FormerMember, Member, Plan, Split, repartition};
pub use share::Share;
pub use stripes::{STRIPES, Stripes, TooFewStripes};
