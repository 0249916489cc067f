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

/// A search among three buffers, of which at most one is pinned at any instant. A pin may move during the search, so that
/// each buffer is pinned when the search looks at it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Search {
    refused: [bool; MAX_BUFFERS],
    /// How often the search may still start again.
    again: u16,
}

impl Search {
    /// Starts a search that may start again so many times.
    pub(super) fn new(again: u16) -> Self {
        Self {
            refused: [false; MAX_BUFFERS],
            again,
        }
    }

    /// The next step. `newest` is the buffer with the newest commit, which is never opened.
    pub(super) fn next(&mut self, newest: Option<usize>) -> Step {
        if let Some(buffer) = choose(MAX_BUFFERS, newest, |buffer| self.refused[buffer]) {
            return Step::Try(buffer);
        }
        if self.again == 0 {
            return Step::Force(choose(MAX_BUFFERS, newest, |_| false).unwrap_or(0));
        }
        *self = Self::new(self.again - 1);
        Step::Again
    }

    /// The buffer of the last step is pinned.
    pub(super) fn refuse(&mut self, buffer: usize) {
        self.refused[buffer] = true;
    }
}

/// The first buffer that neither holds the newest commit nor is refused. So the third buffer gets no memory until one of
/// the others is pinned.
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
        let mut search = Search::new(2);
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
}
