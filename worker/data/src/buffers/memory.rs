//! The memory of a buffer: on the heap or, if it is large, on huge pages.
//!
//! A new buffer is faulted in page by page, and rows are gathered from all over it. Pages of 2 MiB reduce the page
//! faults and the TLB misses. Without huge pages the system uses normal ones.

use std::{
    io,
    ops::{Deref, DerefMut},
};

use memmap2::{Advice, MmapMut};

/// Bytes of a huge page.
const HUGE_PAGE: usize = 2 << 20;

/// `length` bytes, which may grow to `capacity`.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    backing: Backing,
    capacity: usize,
    length: usize,
}

/// Whether the process can get this much memory now: by its limit, and by the system's rule for overcommitment. Nothing
/// stays reserved.
pub(crate) fn can_allocate(bytes: u64) -> bool {
    usize::try_from(bytes).is_ok_and(|bytes| MmapMut::map_anon(bytes).is_ok())
}

#[derive(Debug)]
enum Backing {
    Heap(Vec<u8>),
    /// From `start` on, which is aligned to a huge page.
    HugePages {
        map: MmapMut,
        start: usize,
    },
}

impl Default for Backing {
    fn default() -> Self {
        Self::Heap(Vec::new())
    }
}

impl Memory {
    /// Allocates zeroed memory.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(super) fn new(capacity: usize) -> io::Result<Self> {
        let backing = if capacity < HUGE_PAGE {
            Vec::<u8>::new().try_reserve_exact(capacity)?;
            // The system returns cleared memory.
            Backing::Heap(vec![0; capacity])
        } else {
            let map = MmapMut::map_anon(capacity.saturating_add(HUGE_PAGE))?;
            let start = map.as_ptr().align_offset(HUGE_PAGE);
            // The rest is less than a huge page, and would occupy a whole one. A failure has no consequences but
            // speed.
            let whole = capacity - capacity % HUGE_PAGE;
            let _ = map.advise_range(Advice::HugePage, start, whole);
            Backing::HugePages { map, start }
        };
        Ok(Self {
            backing,
            capacity,
            length: capacity,
        })
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Sets the length. The content is then arbitrary.
    ///
    /// # Panics
    /// If it exceeds the capacity.
    pub(super) fn set_length(&mut self, length: usize) {
        assert!(length <= self.capacity, "longer than its capacity");
        self.length = length;
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.backing {
            Backing::Heap(bytes) => &bytes[..self.length],
            Backing::HugePages { map, start } => &map[*start..*start + self.length],
        }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.backing {
            Backing::Heap(bytes) => &mut bytes[..self.length],
            Backing::HugePages { map, start } => &mut map[*start..*start + self.length],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_no_system_has_cannot_be_allocated() {
        assert!(can_allocate(0) && can_allocate(1 << 20));
        assert!(!can_allocate(1 << 62) && !can_allocate(u64::MAX));
    }

    #[test]
    fn all_bytes_are_there_and_clear() {
        for capacity in [
            0,
            1,
            HUGE_PAGE - 1,
            HUGE_PAGE,
            HUGE_PAGE + 1,
            3 * HUGE_PAGE + 12_345,
        ] {
            let mut memory = Memory::new(capacity).unwrap();
            assert_eq!((memory.len(), memory.capacity()), (capacity, capacity));
            assert!(memory.iter().all(|byte| *byte == 0));
            memory.fill(7);
            memory.set_length(capacity / 2);
            assert_eq!(memory.len(), capacity / 2);
            memory.set_length(capacity);
            assert!(memory.iter().all(|byte| *byte == 7));
        }
    }
}
