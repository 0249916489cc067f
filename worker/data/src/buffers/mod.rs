//! Buffer pool.
//!
//! Decoding fills megabytes and frees them some batches later. If they were returned to the system, each page would be
//! faulted in again. That costs more than decoding plain values. So freed buffers are kept for reuse.

mod memory;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::error::Problem;
pub(crate) use memory::{Memory, can_allocate};

/// A pool of buffers. A clone shares the pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct BufferPool(Arc<Mutex<Vec<Memory>>>);

/// Maximum number and size of free buffers.
const MAX_FREE: usize = 2;
const MAX_FREE_BYTES: usize = 64 << 20;

/// A new buffer gets this fraction of its length in addition. Chunks of a data set differ a little in size, and one
/// buffer then fits all.
const HEADROOM: usize = 64;

impl BufferPool {
    /// A buffer of this length with arbitrary content.
    ///
    /// # Errors
    /// [`Problem::OutOfMemory`].
    pub(crate) fn take(&self, length: usize) -> Result<Memory, Problem> {
        let mut free = self.lock();
        let fits = |buffer: &Memory| {
            buffer.capacity() >= length && buffer.capacity() / 2 <= length.max(4096)
        };
        let best = (0..free.len())
            .filter(|index| fits(&free[*index]))
            .min_by_key(|index| free[*index].capacity());
        let found = best.map(|index| free.remove(index));
        drop(free);
        let mut buffer = match found {
            Some(buffer) => buffer,
            None => Memory::new(length.saturating_add(length / HEADROOM)).map_err(|_| {
                let bytes = length as u64;
                Problem::OutOfMemory { bytes }
            })?,
        };
        buffer.set_length(length);
        Ok(buffer)
    }

    /// Makes a buffer read-only and shared. It returns to the pool with its last reader.
    pub(crate) fn share(&self, buffer: Memory) -> Bytes {
        Bytes::from_owner(PooledBuffer {
            buffer,
            pool: self.clone(),
        })
    }

    /// Adds a free buffer and evicts the oldest ones, so that unused sizes do not stay.
    fn recycle(&self, buffer: Memory) {
        if buffer.capacity() > MAX_FREE_BYTES {
            return;
        }
        let mut free = self.lock();
        free.push(buffer);
        let mut bytes = 0;
        let fits = |buffer: &&Memory| {
            bytes += buffer.capacity();
            bytes <= MAX_FREE_BYTES
        };
        let kept = free.iter().rev().take(MAX_FREE).take_while(fits).count();
        let evicted = free.len() - kept;
        let evicted: Vec<Memory> = free.drain(..evicted).collect();
        drop(free);
        drop(evicted);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Memory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A buffer that returns to its pool when it is dropped.
struct PooledBuffer {
    buffer: Memory,
    pool: BufferPool,
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        self.pool.recycle(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_when_its_last_reader_is_gone() {
        let buffers = BufferPool::default();
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
        let buffers = BufferPool::default();
        drop(buffers.share(buffers.take(1 << 20).unwrap()));
        assert!(buffers.take(10_000).unwrap().capacity() < 1 << 20);
        assert!(buffers.take(1 << 20).unwrap().capacity() >= 1 << 20);
    }

    /// Like footers before chunks, or a large chunk among small ones.
    #[test]
    fn sizes_that_nobody_wants_do_not_stay() {
        let buffers = BufferPool::default();
        for other in [10_000, 30 << 20] {
            let others: Vec<Bytes> = (0..MAX_FREE)
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
        let buffers = BufferPool::default();
        let buffer = buffers.take((1 << 20) - 100).unwrap();
        let address = buffer.as_ptr();
        drop(buffers.share(buffer));
        let again = buffers.take(1 << 20).unwrap();
        assert_eq!(again.as_ptr(), address);
    }

    #[test]
    fn absurd_lengths_are_an_error() {
        assert!(BufferPool::default().take(usize::MAX / 2).is_err());
    }
}
