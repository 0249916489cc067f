//! What waits to be sent on a connection: by priority, and in order among equals.

use std::collections::BTreeMap;

/// A queue in which higher priorities come first.
#[derive(Debug)]
pub(crate) struct SendQueue<M> {
    /// By descending priority and ascending arrival.
    messages: BTreeMap<(std::cmp::Reverse<i32>, u64), (M, usize)>,
    arrivals: u64,
    bytes: usize,
}

impl<M> Default for SendQueue<M> {
    fn default() -> Self {
        Self {
            messages: BTreeMap::new(),
            arrivals: 0,
            bytes: 0,
        }
    }
}

impl<M> SendQueue<M> {
    /// Adds a message of so many bytes.
    pub(crate) fn push(&mut self, priority: i32, message: M, bytes: usize) {
        self.arrivals += 1;
        self.bytes += bytes;
        let key = (std::cmp::Reverse(priority), self.arrivals);
        self.messages.insert(key, (message, bytes));
    }

    /// Takes the message to send next.
    pub(crate) fn pop(&mut self) -> Option<M> {
        let (_, (message, bytes)) = self.messages.pop_first()?;
        self.bytes -= bytes;
        Some(message)
    }

    /// The sum of the bytes of all messages.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.messages.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[test]
    fn higher_priorities_come_first_and_equals_in_order() {
        let mut queue = SendQueue::default();
        for (priority, message) in [(0, "a"), (-1, "late"), (0, "b"), (5, "first"), (0, "c")] {
            queue.push(priority, message, 10);
        }
        assert_eq!(queue.bytes(), 50);
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, ["first", "a", "b", "c", "late"]);
        assert_eq!(queue.bytes(), 0);
    }

    proptest! {
        #[test]
        fn it_is_a_stable_sort(priorities in vec(-3i32..3, 0..50)) {
            let mut queue = SendQueue::default();
            for (index, &priority) in priorities.iter().enumerate() {
                queue.push(priority, (priority, index), index);
            }
            let mut expected: Vec<_> = priorities.into_iter().zip(0..).collect();
            expected.sort_by_key(|(priority, _)| std::cmp::Reverse(*priority));
            let order: Vec<(i32, usize)> = std::iter::from_fn(|| queue.pop()).collect();
            prop_assert_eq!(order, expected);
            prop_assert_eq!(queue.bytes(), 0);
        }
    }
}
