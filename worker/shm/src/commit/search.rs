//! The search for the buffer of the next commit.

use super::layout::MAX_BUFFERS;

/// A step of a search.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Step {
    /// Open this buffer unless it is pinned. If it is, [`Search::refuse`] it.
    Try(usize),
    /// All buffers were pinned when the search looked at them. The pin has moved meanwhile, so look again.
    Again,
    /// Open this buffer although it is pinned. More than one pin at a time is damage, which must not end the training.
    Force(usize),
}

/// A search among three or four buffers, of which at most one is pinned at any instant. A pin may move during the search, so
/// that each buffer is pinned when the search looks at it. Buffers with a commit that is kept are not tried.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Search {
    count: usize,
    kept: [bool; MAX_BUFFERS],
    refused: [bool; MAX_BUFFERS],
    /// How often the search may still start again.
    again: u16,
}

impl Search {
    /// Starts a search among so many buffers that may start again so many times.
    pub(super) fn new(count: usize, kept: [bool; MAX_BUFFERS], again: u16) -> Self {
        Self {
            count,
            kept,
            refused: [false; MAX_BUFFERS],
            again,
        }
    }

    /// The next step. `newest` is the buffer with the newest commit, which is never opened.
    pub(super) fn next(&mut self, newest: Option<usize>) -> Step {
        let is_out = |buffer: usize| self.refused[buffer] || self.kept[buffer];
        if let Some(buffer) = choose(self.count, newest, is_out) {
            return Step::Try(buffer);
        }
        if self.again == 0 {
            let unkept = choose(self.count, newest, |buffer| self.kept[buffer]);
            let any = || choose(self.count, newest, |_| false);
            return Step::Force(unkept.or_else(any).unwrap_or(0));
        }
        // With three buffers, two of them kept, no look finds another one.
        let all_kept = choose(self.count, newest, |buffer| self.kept[buffer]).is_none();
        let again = if all_kept { 0 } else { self.again - 1 };
        *self = Self::new(self.count, self.kept, again);
        Step::Again
    }

    /// The buffer of the last step is pinned.
    pub(super) fn refuse(&mut self, buffer: usize) {
        self.refused[buffer] = true;
    }
}

/// The first buffer that neither holds the newest commit nor is refused. So further buffers get no memory until one of
/// the first two is pinned or kept.
pub(super) fn choose(
    count: usize,
    newest: Option<usize>,
    refused: impl Fn(usize) -> bool,
) -> Option<usize> {
    (0..count).find(|buffer| Some(*buffer) != newest && !refused(*buffer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_starts_again_before_it_forces_a_buffer() {
        let mut search = Search::new(3, [false; MAX_BUFFERS], 2);
        for again in [true, true, false] {
            for buffer in [0, 2] {
                assert_eq!(search.next(Some(1)), Step::Try(buffer));
                search.refuse(buffer);
            }
            if again {
                assert_eq!(search.next(Some(1)), Step::Again);
            }
        }
        assert_eq!(search.next(Some(1)), Step::Force(0));
    }

    #[test]
    fn kept_buffers_are_not_tried() {
        let mut search = Search::new(4, [true, false, true, false], 2);
        assert_eq!(search.next(Some(1)), Step::Try(3));
        search.refuse(3);
        assert_eq!(search.next(Some(1)), Step::Again);
        assert_eq!(search.next(Some(1)), Step::Try(3));
        search.refuse(3);
        assert_eq!(search.next(Some(1)), Step::Again);
        assert_eq!(search.next(Some(1)), Step::Try(3));
        search.refuse(3);
        // The pinned one, whose reader notices.
        assert_eq!(search.next(Some(1)), Step::Force(3));
    }

    #[test]
    fn a_kept_buffer_is_taken_if_there_is_no_other() {
        let mut search = Search::new(3, [true, false, true, false], 100);
        assert_eq!(search.next(Some(1)), Step::Again);
        assert_eq!(search.next(Some(1)), Step::Force(0));
    }
}
