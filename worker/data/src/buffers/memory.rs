//! Bytes of a buffer: from the heap, or, if they are many, on huge pages.
//!
//! A buffer that is used for the first time is faulted in page by page, and rows are gathered from all over it. On pages of
//! 2 MiB there are fewer faults, and fewer addresses to translate. Systems that give no such pages give others.

use std::{
    io,
    ops::{Deref, DerefMut},
};

use memmap2::{Advice, MmapMut};

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;

/// See the module: `length` bytes, which may become up to `capacity`.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    place: Place,
    capacity: usize,
    length: usize,
}

#[derive(Debug)]
enum Place {
    Heap(Vec<u8>),
    /// From `start` on, where a huge page begins.
    Pages {
        map: MmapMut,
        start: usize,
    },
}

impl Default for Place {
    fn default() -> Self {
        Self::Heap(Vec::new())
    }
}

impl Memory {
    /// So many bytes, all 0.
    ///
    /// # Errors
    /// There are not so many.
    pub(super) fn new(capacity: usize) -> io::Result<Self> {
        let place = if capacity < HUGE {
            Vec::<u8>::new().try_reserve_exact(capacity)?;
            // As the system gives it, which is cleared.
            Place::Heap(vec![0; capacity])
        } else {
            let map = MmapMut::map_anon(capacity.saturating_add(HUGE))?;
            let start = map.as_ptr().align_offset(HUGE);
            // The rest is no whole huge page, and would take up one. Without huge pages all goes on as well.
            let whole = capacity - capacity % HUGE;
            let _ = map.advise_range(Advice::HugePage, start, whole);
            Place::Pages { map, start }
        };
        Ok(Self {
            place,
            capacity,
            length: capacity,
        })
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes it so long. Its content is arbitrary then.
    ///
    /// # Panics
    /// If that is more than its capacity.
    pub(super) fn set_length(&mut self, length: usize) {
        assert!(length <= self.capacity, "longer than its capacity");
        self.length = length;
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.place {
            Place::Heap(bytes) => &bytes[..self.length],
            Place::Pages { map, start } => &map[*start..*start + self.length],
        }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.place {
            Place::Heap(bytes) => &mut bytes[..self.length],
            Place::Pages { map, start } => &mut map[*start..*start + self.length],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_are_there_and_clear() {
        for capacity in [0, 1, HUGE - 1, HUGE, HUGE + 1, 3 * HUGE + 12_345] {
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
