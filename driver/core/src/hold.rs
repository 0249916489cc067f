//! The words of a hold in the page that an agent shares with a worker, and their meaning at a boundary.
//!
//! The page (`elasticrun_shm::page`) stores and loads the words, in an order that its model checks. The simulation does
//! the same. Both use this module to interpret them.

use elasticrun_protocol::{Boundary, Round};

use crate::mutant::{Mutant, planted};

const COUNT_BITS: u32 = 44;
const VALUE: u64 = (1 << COUNT_BITS) - 1;
const HELD: u64 = VALUE;

/// The largest count. It is one below the largest K, which is one below the mark of a hold.
pub const LAST: u64 = VALUE - 2;

fn tag(round: Round) -> u64 {
    round.0 << COUNT_BITS
}

fn value(word: u64, round: Round) -> Option<u64> {
    ((word ^ tag(round)) & !VALUE == 0).then_some(word & VALUE)
}

/// The word `count` of a worker at a boundary of a round.
pub fn count_word(round: Round, count: u64) -> u64 {
    tag(round) | count.min(LAST)
}

/// The boundary in a word `count`; 0 if the word is of another round.
pub fn count_in(word: u64, round: Round) -> Boundary {
    Boundary(value(word, round).unwrap_or(0))
}

/// The word `hold` while K is not known.
pub fn held(round: Round) -> u64 {
    tag(round) | HELD
}

/// The word `hold` once K is known; `None` if K is out of range.
pub fn leave_at(round: Round, boundary: Boundary) -> Option<u64> {
    (1..HELD)
        .contains(&boundary.0)
        .then_some(tag(round) | boundary.0)
}

/// The word `hold` of a round without one.
pub fn withdrawn(round: Round) -> u64 {
    tag(round)
}

/// The word `hold` after a hold of the round; `None` if the word stays, since the round is held or its K is known.
pub fn after_hold(word: u64, round: Round) -> Option<u64> {
    (!concerns(word, round)).then(|| held(round))
}

/// The word `hold` after the hold of a round is withdrawn; `None` if the word stays, since the round is not held.
pub fn after_withdrawal(word: u64, round: Round) -> Option<u64> {
    concerns(word, round).then(|| withdrawn(round))
}

/// Whether a word `hold` is of this round and not withdrawn.
pub fn concerns(word: u64, round: Round) -> bool {
    value(word, round).is_some_and(|value| value != 0)
}

/// What a worker has read at a boundary, after it stored its own count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// The word `hold`.
    pub hold: u64,
    /// Whether the round was aborted.
    pub aborted: bool,
    /// Whether the lease is still valid.
    pub leased: bool,
}

impl Look {
    /// A look in which only the word `hold` can stop the worker.
    pub fn at(hold: u64) -> Self {
        Self {
            hold,
            aborted: false,
            leased: true,
        }
    }
}

/// What a worker does at a boundary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Continue training.
    Continue,
    /// Look again when the words change.
    Wait,
    /// Look again when the lease may have changed.
    AwaitLease,
    /// The boundary is K: commit, and leave the round.
    Leave,
    /// Leave the round at once.
    Abort,
}

/// Decides for a worker that has stored its count and then looked.
pub fn judge(look: Look, round: Round, count: u64) -> Verdict {
    if look.aborted {
        return Verdict::Abort;
    }
    if !look.leased && !planted(Mutant::LeasePassed) {
        return Verdict::AwaitLease;
    }
    match value(look.hold, round) {
        None | Some(0) => Verdict::Continue,
        Some(HELD) if planted(Mutant::HoldPassed) => Verdict::Continue,
        Some(HELD) => Verdict::Wait,
        Some(leave_at) if count < leave_at && !planted(Mutant::LeaveEarly) => Verdict::Continue,
        Some(_) => Verdict::Leave,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const R: Round = Round(7);

    #[test]
    fn words_of_another_round_say_nothing() {
        for other in [Round(6), Round(8), Round(0)] {
            assert_eq!(judge(Look::at(held(other)), R, 1), Verdict::Continue);
            assert_eq!(
                judge(Look::at(leave_at(other, Boundary(1)).unwrap()), R, 1),
                Verdict::Continue
            );
            assert_eq!(count_in(count_word(other, 5), R), Boundary(0));
            assert!(!concerns(held(other), R));
        }
    }

    #[test]
    fn a_fresh_page_holds_nobody() {
        assert_eq!(judge(Look::at(0), Round(0), 1), Verdict::Continue);
        assert_eq!(judge(Look::at(0), R, 1), Verdict::Continue);
        assert_eq!(count_in(0, Round(0)), Boundary(0));
    }

    #[test]
    fn k_stops_at_k_only() {
        let word = leave_at(R, Boundary(5)).unwrap();
        assert_eq!(judge(Look::at(word), R, 4), Verdict::Continue);
        assert_eq!(judge(Look::at(word), R, 5), Verdict::Leave);
        assert_eq!(judge(Look::at(word), R, 6), Verdict::Leave);
        assert_eq!(judge(Look::at(held(R)), R, 5), Verdict::Wait);
        assert_eq!(judge(Look::at(withdrawn(R)), R, 5), Verdict::Continue);
    }

    #[test]
    fn an_abort_comes_before_the_lease_and_the_lease_before_the_hold() {
        let look = Look {
            hold: held(R),
            aborted: true,
            leased: false,
        };
        assert_eq!(judge(look, R, 1), Verdict::Abort);
        let look = Look {
            aborted: false,
            ..look
        };
        assert_eq!(judge(look, R, 1), Verdict::AwaitLease);
    }

    #[test]
    fn a_hold_and_its_withdrawal_are_made_once() {
        let word = after_hold(withdrawn(Round(6)), R).unwrap();
        assert_eq!((word, after_hold(word, R)), (held(R), None));
        let known = leave_at(R, Boundary(5)).unwrap();
        assert_eq!(after_hold(known, R), None, "K stays");
        assert_eq!(after_withdrawal(known, R), Some(withdrawn(R)));
        assert_eq!(after_withdrawal(withdrawn(R), R), None);
        assert_eq!(after_withdrawal(held(Round(8)), R), None);
    }

    #[test]
    fn the_ends_of_the_range_do_not_meet() {
        assert_eq!(count_in(count_word(R, u64::MAX), R), Boundary(LAST));
        let last = leave_at(R, Boundary(LAST + 1)).unwrap();
        assert_ne!(last, held(R));
        assert_eq!(leave_at(R, Boundary(LAST + 2)), None);
        assert_eq!(leave_at(R, Boundary(0)), None);
    }
}
