//! Pages of this process that are used again at other addresses.
//!
//! The kernel clears each page of fresh memory and charges it to the process, which takes many times as long as a copy of its
//! bytes: about 1.5 us, where to move a page that is there takes 20 ns. So memory that is about to be freed gives its pages to a
//! pool, and memory that was just allocated takes them. What the pool provides in time asks for huge pages, which take a seventh
//! of the time for each byte where the system has them, and many times as long where a hypervisor must provide them first.
//!
//! # Invariants
//! - Each address that is valid before a call is valid after it. Memory whose pages have moved away reads as zeroes.
//! - Only whole pages move. Bytes before and after a range stay as they are.
//! - A page belongs to one range at any time, so a pool needs no memory beyond that of its ranges.
//!
//! # Not promised
//! That anything moves. Kernels before 5.7 and memory that is no private anonymous memory move nothing, and small ranges are
//! left alone.

use std::{
    io,
    ops::Range,
    ptr::{self, NonNull},
    sync::atomic::Ordering,
};

use rustix::mm::{
    Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mremap_fixed, munmap,
};

use crate::{ahead::Ahead, available_memory, memfd::PAGE};

/// Ranges with fewer bytes of whole pages are left alone. Each moved range is a mapping of its own, of which a process may have
/// about 65,000.
const MIN: usize = 1 << 20;

/// The largest number of ranges that a pool takes, and that it gives pages to.
const MAX_RANGES: usize = 1024;

/// Bytes that are provided at once ahead of need.
const BLOCK: usize = 4 << 20;

/// Bytes between two looks at what the system has left.
const LOOK: usize = 16 * BLOCK;

/// Memory that belongs to the pool.
#[derive(Debug)]
struct Piece {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the piece owns its memory, which is tied to no thread.
unsafe impl Send for Piece {}

impl Drop for Piece {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: the memory is the pool's alone. An error would leave it mapped.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

impl Piece {
    /// Fresh memory, without pages yet.
    fn new(len: usize) -> Option<Self> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), len, prot, flags) }.ok()?;
        let start = NonNull::new(start.cast())?;
        Some(Self { start, len })
    }

    /// Lets pages that come later be huge ones where the system has them. Others serve as well.
    fn advise_huge(&self) {
        // SAFETY: the piece owns its memory, and the advice changes no byte.
        let _ = unsafe { madvise(self.start.as_ptr().cast(), self.len, Advice::LinuxHugepage) };
    }

    /// Cuts the first `len` bytes off, whose mapping the caller has moved away.
    fn forget_first(&mut self, len: usize) {
        self.len -= len;
        // SAFETY: within the piece, or at its end.
        self.start = unsafe { self.start.add(len) };
    }
}

/// What a thread has provided.
#[derive(Debug)]
struct Provided {
    piece: Piece,
    /// The bytes from its start that have pages.
    len: usize,
}

/// Pages between two uses. Those that are left are freed when it is dropped, or before by [`PagePool::keep`].
#[derive(Debug, Default)]
pub struct PagePool {
    pieces: Vec<Piece>,
    ahead: Option<Ahead<Provided>>,
    taken: usize,
    given: usize,
}

impl PagePool {
    /// A pool without pages.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the pages of a range. Returns the number of bytes.
    ///
    /// # Safety
    /// `len` bytes from `start` are valid memory of the caller, who needs its values no more, and no other code uses them
    /// during the call.
    pub unsafe fn take(&mut self, start: *mut u8, len: usize) -> usize {
        let Some((start, len)) = whole_pages(start, len) else {
            return 0;
        };
        if self.taken >= MAX_RANGES {
            return 0;
        }
        let Some(piece) = Piece::new(len) else {
            return 0;
        };
        let flags = MremapFlags::MAYMOVE | MremapFlags::DONTUNMAP;
        let to = piece.start.as_ptr().cast();
        // SAFETY: the first range is the caller's, and stays mapped. The second one is the pool's.
        if unsafe { mremap_fixed(start.cast(), len, len, flags, to) }.is_err() {
            // Another thread may have memory there now. Otherwise this is address space without pages.
            std::mem::forget(piece);
            return 0;
        }
        self.taken += 1;
        self.pieces.push(piece);
        len
    }

    /// Provides pages for `len` bytes in a thread of its own, until they are needed, or the system has less left than twice of
    /// what is missing.
    pub fn provide(&mut self, len: usize) {
        self.settle();
        if let Some(piece) = Piece::new(len.next_multiple_of(PAGE).max(PAGE)) {
            self.provide_in(piece);
        }
    }

    fn provide_in(&mut self, piece: Piece) {
        self.ahead = Ahead::start(move |stopped| {
            let mut provided = 0;
            for from in (0..piece.len).step_by(BLOCK) {
                if from.is_multiple_of(LOOK) && is_scarce(piece.len - from) {
                    break;
                }
                let len = BLOCK.min(piece.len - from);
                // SAFETY: within the piece; populating changes no byte.
                let populated = unsafe {
                    let start = piece.start.as_ptr().add(from).cast();
                    madvise(start, len, Advice::LinuxPopulateWrite)
                };
                if populated.is_err() || stopped.load(Ordering::Relaxed) {
                    break;
                }
                provided = from + len;
            }
            Provided {
                piece,
                len: provided,
            }
        });
    }

    /// Stops providing pages. Those that are there belong to the pool.
    fn settle(&mut self) {
        let Some(Provided { mut piece, len }) = self.ahead.take().and_then(Ahead::stop) else {
            return;
        };
        if len > 0 {
            let start = piece.start;
            piece.forget_first(len);
            self.pieces.push(Piece { start, len });
        }
    }

    /// Frees pages beyond `most` bytes, and provides what is missing to `least` in a thread of its own. Frees all if the system
    /// has less left than four times of what the pool would have. Then the pool is as a new one with these pages.
    pub fn keep(&mut self, least: usize, most: usize) {
        self.settle();
        (self.taken, self.given) = (0, 0);
        let all: usize = self.pieces.iter().map(|piece| piece.len).sum();
        let kept = most.max(least).min(all) / PAGE * PAGE;
        let is_scarce = is_scarce(2 * kept.max(least));
        let mut beyond = if is_scarce { all } else { all - kept };
        if !is_scarce
            && least > kept
            && let Some(piece) = Piece::new((least - kept).next_multiple_of(PAGE))
        {
            piece.advise_huge();
            self.provide_in(piece);
        }
        while let Some(piece) = self.pieces.last_mut()
            && beyond > 0
        {
            let freed = beyond.min(piece.len);
            beyond -= freed;
            if freed == piece.len {
                self.pieces.pop();
                continue;
            }
            let start = piece.start;
            piece.forget_first(freed);
            drop(Piece { start, len: freed });
        }
    }

    /// Gives pages to those parts of a range that have none, as long as the pool has some. These have any values then, and the
    /// others keep theirs. Returns the number of bytes.
    ///
    /// # Errors
    /// The range is not mapped any more. The kernel checks all that may fail before it gets there.
    ///
    /// # Safety
    /// `len` bytes from `start` are valid private memory of the caller, who does not need its values, and no other code uses
    /// them during the call.
    pub unsafe fn give(&mut self, start: *mut u8, len: usize) -> io::Result<usize> {
        self.settle();
        let Some((start, len)) = whole_pages(start, len) else {
            return Ok(0);
        };
        let mut given = 0;
        for hole in holes(start, len) {
            // SAFETY: within the range.
            given += unsafe { self.fill(start.add(hole.start), hole.len())? };
        }
        Ok(given)
    }

    /// Gives pages to a range of whole pages.
    ///
    /// # Safety
    /// As for [`give`](Self::give).
    unsafe fn fill(&mut self, mut start: *mut u8, len: usize) -> io::Result<usize> {
        let mut left = len;
        while let Some(piece) = self.pieces.last_mut()
            && left > 0
            && self.given < MAX_RANGES
        {
            let moved = left.min(piece.len);
            let from = piece.start.as_ptr().cast();
            let flags = MremapFlags::MAYMOVE;
            // SAFETY: the first range is the pool's and the second one the caller's.
            let done = unsafe { mremap_fixed(from, moved, moved, flags, start.cast()) };
            if done.is_err() {
                // SAFETY: the range is the caller's, and may have no mapping.
                unsafe { map_again(start, moved) }?;
                break;
            }
            self.given += 1;
            piece.forget_first(moved);
            if piece.len == 0 {
                self.pieces.pop();
            }
            // SAFETY: within the range, or at its end.
            start = unsafe { start.add(moved) };
            left -= moved;
        }
        Ok(len - left)
    }
}

impl Drop for PagePool {
    fn drop(&mut self) {
        self.settle();
    }
}

/// Whether the system has too little left for so many bytes ahead of need.
fn is_scarce(len: usize) -> bool {
    available_memory().is_some_and(|available| available / 2 < len as u64)
}

/// Maps fresh memory at a range of the caller whose mapping may be gone.
///
/// # Safety
/// The range is the caller's.
unsafe fn map_again(start: *mut u8, len: usize) -> io::Result<()> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    // SAFETY: as the caller promises.
    unsafe { mmap_anonymous(start.cast(), len, prot, flags) }?;
    Ok(())
}

/// The parts of a range of whole pages that have no pages, but for small ones. The allocator may have given memory that was in
/// use before.
fn holes(start: *mut u8, len: usize) -> Vec<Range<usize>> {
    let mut resident = vec![0_u8; len / PAGE];
    // SAFETY: one byte for each page, and a question changes no memory.
    if unsafe { libc::mincore(start.cast(), len, resident.as_mut_ptr()) } != 0 {
        return Vec::new();
    }
    let mut holes = Vec::new();
    let mut pos = 0;
    for run in resident.chunk_by(|one, other| one & 1 == other & 1) {
        let end = pos + run.len() * PAGE;
        if run[0] & 1 == 0 && end - pos >= MIN {
            holes.push(pos..end);
        }
        pos = end;
    }
    holes
}

/// The whole pages in a range, unless they are too few to move.
fn whole_pages(start: *mut u8, len: usize) -> Option<(*mut u8, usize)> {
    let skipped = start.align_offset(PAGE);
    let len = len.checked_sub(skipped)? / PAGE * PAGE;
    // SAFETY: within the range.
    (len >= MIN).then(|| (unsafe { start.add(skipped) }, len))
}

#[cfg(test)]
mod tests;
