//! Mistakes to plant into the passing on of parts of a commit.
//!
//! They exist only with the feature `mutants`, as those of [`crate::mutant`]. The tests of the machine must detect each one.

use crate::mutant::mutants;

mutants! {
    /// Parts are kept when the round is over or its first commit is complete.
    KeptBeyondRound: "V1",
    /// An agent asks itself, and a request waits for whatever transfer has its parts, also one that waits for it.
    ForwardedInACircle: "V2",
    /// An agent that failed is asked again for the same parts.
    FailedAskedAgain: "V3",
    /// Parts that nobody will ask for stay until the round ends.
    AnsweredKept: "V4",
}
