//! The words of the hold and what they mean: pure, so that the model checks what the page runs.

use elasticrun_protocol::{Boundary, Round};

const COUNT_BITS: u32 = 44;
const VALUE: u64 = (1 << COUNT_BITS) - 1;
const HELD: u64 = VALUE;

/// The largest count; one below the largest K, which is one below the mark of a hold.
pub(super) const LAST: u64 = VALUE - 2;

fn tag(round: Round) -> u64 {
    round.0 << COUNT_BITS
}

fn value(word: u64, round: Round) -> Option<u64> {
    ((word ^ tag(round)) & !VALUE == 0).then_some(word & VALUE)
}

/// The word `count` of a worker at a boundary of a round.
pub(super) fn count_word(round: Round, count: u64) -> u64 {
    tag(round) | count.min(LAST)
}

/// The boundary in a word `count`; 0 if it is of another round.
pub(super) fn count_in(word: u64, round: Round) -> Boundary {
    Boundary(value(word, round).unwrap_or(0))
}

/// The word `hold` while K is not known.
pub(super) fn held(round: Round) -> u64 {
    tag(round) | HELD
}

/// The word `hold` once K is known; `None` if no boundary has that number.
pub(super) fn leave_at(round: Round, boundary: Boundary) -> Option<u64> {
    (1..HELD)
        .contains(&boundary.0)
        .then_some(tag(round) | boundary.0)
}

/// The word `hold` of a round without one.
pub(super) fn withdrawn(round: Round) -> u64 {
    tag(round)
}

/// Whether a word `hold` speaks of a round and is not withdrawn.
pub(super) fn concerns(word: u64, round: Round) -> bool {
    value(word, round).is_some_and(|value| value != 0)
}

/// What a worker does at a boundary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Continue,
    Wait,
    Leave,
}

/// What the word `hold` says to a worker that has written its count.
pub(super) fn judge(hold: u64, round: Round, count: u64) -> Verdict {
    match value(hold, round) {
        None | Some(0) => Verdict::Continue,
        Some(HELD) => Verdict::Wait,
        Some(leave_at) if count < leave_at => Verdict::Continue,
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
            assert_eq!(judge(held(other), R, 1), Verdict::Continue);
            assert_eq!(
                judge(leave_at(other, Boundary(1)).unwrap(), R, 1),
                Verdict::Continue
            );
            assert_eq!(count_in(count_word(other, 5), R), Boundary(0));
            assert!(!concerns(held(other), R));
        }
    }

    #[test]
    fn a_fresh_page_holds_nobody() {
        assert_eq!(judge(0, Round(0), 1), Verdict::Continue);
        assert_eq!(judge(0, R, 1), Verdict::Continue);
        assert_eq!(count_in(0, Round(0)), Boundary(0));
    }

    #[test]
    fn k_stops_at_k_only() {
        let word = leave_at(R, Boundary(5)).unwrap();
        assert_eq!(judge(word, R, 4), Verdict::Continue);
        assert_eq!(judge(word, R, 5), Verdict::Leave);
        assert_eq!(judge(word, R, 6), Verdict::Leave);
        assert_eq!(judge(held(R), R, 5), Verdict::Wait);
        assert_eq!(judge(withdrawn(R), R, 5), Verdict::Continue);
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
