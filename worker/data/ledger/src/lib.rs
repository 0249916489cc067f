//! Elastic data: which worker reads which rows, so that each row of an epoch is used exactly once.
//!
//! An epoch lays the row groups of a data set, in an order of their own, end to end on a [`Line`] of rows. A row group
//! has a permutation of its own inside, so a stretch of the line is a random set of rows of the groups under it. All
//! that there is to know about a worker's work is then a [`Share`]: a list of ranges of the line, in the order in
//! which they are read. Its front moves as rows are processed; cutting it is cutting a range; what is left of an opened
//! row group is a range like any other. The [`Ledger`] is the shares of all workers at a commit. Its size grows with
//! the workers, not with the row groups.
//!
//! ```text
//! row groups   |---- 7 ----|------ 2 ------|--- 0 ---|-------- 5 --------|- 3 -|
//! line         0          12              28        38                  58    64
//! worker 0     . . . .####  ..####  .........                                      two opened groups, and what comes
//! worker 1                                           #############                 a cut: the rest of group 5 is 2's
//! worker 2                                                        ######  #####
//! ```
//!
//! A [`Position`] is what a worker keeps: the ledger of the last commit, and what it has processed since.
//! [`repartition()`] hands what is left to the workers of a new round, evenly and with the fewest rows moved.
//!
//! [`Stripes`] is the other order: the same global batches whatever the number of workers. Its ledger is one number. A ledger of
//! one [`Order`] opens as one of the other between two epochs.
//!
//! # Invariants
//! - **D1** the shares of a ledger are disjoint, and cover what is not processed: processed rows are each processed once.
//! - **D2** a share only loses rows between two repartitions, and no repartition makes or loses a row.
//! - **D3** everything here is a function of its input: all workers compute the same plan, and compare its digest.

mod encoding;
mod epoch_layout;
mod ledger;
mod order;
pub mod permutation;
mod plan_preview;
mod position;
mod quota;
mod repartition;
mod share;
mod stripes;

pub use encoding::Malformed;
pub use epoch_layout::{Line, Piece, Shuffle, Stretch};
pub use ledger::{Identity, Ledger, Midst, Owner, Refused};
pub use order::Order;
pub use plan_preview::{Flow, Forecast, Seat, forecast};
pub use position::{Disagreement, Introduction, Position, Unfit};
pub use repartition::{Former, Member, Plan, Split, repartition};
pub use share::Share;
pub use stripes::{STRIPES, Stripes, TooFew};
