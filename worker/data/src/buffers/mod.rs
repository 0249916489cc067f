//! Memory that is used again.
//!
//! Decoding fills megabytes and frees them some batches later. Given back to the system, each of their pages
//! is faulted in anew, which costs more than all decoding of plain values. So freed buffers wait here.

mod memory;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

pub(crate) use memory::Memory;

/// See the module. A clone is another handle to the same buffers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffers(Arc<Mutex<Vec<Memory>>>);

/// Free buffers that are kept, and their size at most.
const KEPT: usize = 2;
const KEPT_BYTES: usize = 64 << 20;

/// A buffer has room for this part more than was asked for: chunks of a data set differ a little, and one serves for all.
const SPARE: usize = 64;

impl Buffers {
    /// A buffer of that length. Its content is arbitrary.
    ///
    /// # Errors
    /// There is not so much memory.
    pub(crate) fn take(&self, length: usize) -> std::io::Result<Memory> {
        let mut free = self.lock();
        let fits = |buffer: &Memory| {
            buffer.capacity() >= length && buffer.capacity() / 2 <= length.max(4096)
        };
        let best = (0..free.len())
            .filter(|place| fits(&free[*place]))
            .min_by_key(|place| free[*place].capacity());
        let found = best.map(|place| free.remove(place));
        drop(free);
        let mut buffer = match found {
            Some(buffer) => buffer,
            None => Memory::new(length.saturating_add(length / SPARE))?,
        };
        buffer.set_length(length);
        Ok(buffer)
    }

    /// Hands a buffer out for reading. It comes back when the last reader lets go.
    pub(crate) fn share(&self, buffer: Memory) -> Bytes {
        Bytes::from_owner(Lent {
            buffer,
            home: self.clone(),
        })
    }

    /// Keeps it in place of the one that has lain here longest: sizes that nobody wants any more do not stay.
    fn give_back(&self, buffer: Memory) {
        if buffer.capacity() > KEPT_BYTES {
            return;
        }
        let mut free = self.lock();
        free.push(buffer);
        let mut bytes = 0;
        let fits = |buffer: &&Memory| {
            bytes += buffer.capacity();
            bytes <= KEPT_BYTES
        };
        let kept = free.iter().rev().take(KEPT).take_while(fits).count();
        let given_up = free.len() - kept;
        let given_up: Vec<Memory> = free.drain(..given_up).collect();
        drop(free);
        drop(given_up);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Memory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A buffer that goes home when it is dropped.
struct Lent {
    buffer: Memory,
    home: Buffers,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.home.give_back(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_last_reader_is_gone() {
        let buffers = Buffers::default();
        let mut buffer = buffers.take(10_000).unwrap();
        buffer.fill(7);
        let address = buffer.as_ptr();
        let shared = buffers.share(buffer);
        let part = shared.slice(5..6);
        drop(shared);
        let other = buffers.take(10_000).unwrap();
        assert_ne!(other.as_ptr(), address);
        assert_eq!(&part[..], [7]);
        drop(part);
        let again = buffers.take(9_000).unwrap();
        assert_eq!((again.as_ptr(), again.len()), (address, 9_000));
    }

    #[test]
    fn a_buffer_that_is_far_too_large_stays_for_others() {
        let buffers = Buffers::default();
        drop(buffers.share(buffers.take(1 << 20).unwrap()));
        assert!(buffers.take(10_000).unwrap().capacity() < 1 << 20);
        assert!(buffers.take(1 << 20).unwrap().capacity() >= 1 << 20);
    }

    /// As footers come before chunks, and a large chunk among small ones.
    #[test]
    fn sizes_that_nobody_wants_do_not_stay() {
        let buffers = Buffers::default();
        for other in [10_000, 30 << 20] {
            let others: Vec<Bytes> = (0..KEPT)
                .map(|_| buffers.share(buffers.take(other).unwrap()))
                .collect();
            drop(others);
            let usual = buffers.take(1 << 20).unwrap();
            let address = usual.as_ptr();
            drop(buffers.share(usual));
            let again = buffers.take(1 << 20).unwrap();
            assert_eq!(again.as_ptr(), address, "after {other}");
        }
    }

    #[test]
    fn a_buffer_serves_for_a_little_more() {
        let buffers = Buffers::default();
        let buffer = buffers.take((1 << 20) - 100).unwrap();
        let address = buffer.as_ptr();
        drop(buffers.share(buffer));
        let again = buffers.take(1 << 20).unwrap();
        assert_eq!(again.as_ptr(), address);
    }

    #[test]
    fn absurd_lengths_are_an_error() {
        assert!(Buffers::default().take(usize::MAX / 2).is_err());
    }
}
