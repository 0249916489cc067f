//! Memory files (memfd): the agent makes them and passes them to workers, and both map them.
//!
//! A seal of the kernel keeps these files from shrinking. So no process can make another one fault by truncating a file
//! that it has mapped.

use std::{
    io,
    ops::Range,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    ptr::{self, NonNull},
    sync::atomic::{AtomicU32, AtomicU64},
};

use rustix::{
    fs::{
        FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fstat, ftruncate,
        memfd_create,
    },
    io::{Errno, retry_on_intr},
    mm::{Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap, mremap, munmap},
};

/// An error of shared memory.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The memory cannot be created.
    #[error(
        "cannot create {len} bytes of shared memory; check the memory limit and open files of this host"
    )]
    Create {
        /// Bytes asked for.
        len: u64,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The memory cannot grow; its content is unchanged.
    #[error(
        "cannot grow shared memory to {len} bytes; check the memory limit of this host or container"
    )]
    Grow {
        /// Bytes asked for.
        len: u64,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The memory cannot be mapped.
    #[error("cannot map {len} bytes of shared memory")]
    Map {
        /// Bytes asked for.
        len: u64,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The file is shorter than needed.
    #[error(
        "shared memory has {len} bytes where {need} are needed; it is not what its sender says"
    )]
    Short {
        /// Bytes of the file.
        len: u64,
        /// Bytes needed.
        need: u64,
    },
}

/// The page size that layouts assume.
pub const PAGE: usize = 4096;

/// Makes zeroed memory of `len` bytes that can grow but never shrink. `name` is visible in `/proc` only.
///
/// Pages are allocated when they are touched. The descriptor is closed on exec.
pub fn create(name: &str, len: u64) -> Result<OwnedFd, Error> {
    let fail = |source: Errno| Error::Create {
        len,
        source: source.into(),
    };
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know `NOEXEC_SEAL`. Later ones can be configured to require it.
    let fd = memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| memfd_create(name, flags))
        .map_err(fail)?;
    set_len(&fd, len).map_err(fail)?;
    fcntl_add_seals(&fd, SealFlags::SHRINK).map_err(fail)?;
    Ok(fd)
}

/// Fixes the size of memory for ever.
pub fn seal_size(fd: &impl AsFd) -> io::Result<()> {
    Ok(fcntl_add_seals(fd, SealFlags::SHRINK | SealFlags::GROW)?)
}

/// Opens another descriptor of the same memory, without the right to write.
pub fn read_only(fd: &impl AsFd) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    std::fs::File::open(path).map(OwnedFd::from)
}

/// The length of the memory in bytes.
pub fn len(fd: &impl AsFd) -> io::Result<u64> {
    Ok(u64::try_from(fstat(fd)?.st_size).unwrap_or(0))
}

/// The bytes of the memory that have pages.
pub fn allocated(fd: &impl AsFd) -> io::Result<u64> {
    Ok(u64::try_from(fstat(fd)?.st_blocks).unwrap_or(0) * 512)
}

/// Grows memory to at least `to` bytes. New bytes are zero and not yet allocated. Never shrinks.
pub fn grow(fd: &impl AsFd, to: u64) -> Result<(), Error> {
    let fail = |source| Error::Grow { len: to, source };
    if len(fd).map_err(fail)? < to {
        set_len(fd, to).map_err(|error| fail(error.into()))?;
    }
    Ok(())
}

fn set_len(fd: &impl AsFd, len: u64) -> Result<(), Errno> {
    if i64::try_from(len).is_err() {
        return Err(Errno::FBIG);
    }
    ftruncate(fd, len)
}

/// Allocates the pages of a range of a file, within its size.
fn allocate(fd: &impl AsFd, range: Range<usize>) -> io::Result<()> {
    let (start, len) = (range.start as u64, (range.end - range.start) as u64);
    match retry_on_intr(|| fallocate(fd, FallocateFlags::KEEP_SIZE, start, len)) {
        // The kernel cannot allocate ahead. A lack of memory then shows when a page is touched.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        result => Ok(result?),
    }
}

/// Types that may be in memory that other processes write at any time.
///
/// # Safety
/// Every bit pattern is a valid value, and every field is an atomic or an array of such types.
pub unsafe trait Shared {}

// SAFETY: an atomic of any bits.
unsafe impl Shared for AtomicU32 {}
// SAFETY: an atomic of any bits.
unsafe impl Shared for AtomicU64 {}

/// A shared mapping, from the first byte of the file; unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is not tied to a thread; access goes through atomics or through raw pointers
// whose users state why that is sound.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes to read and write.
    pub fn new(fd: &impl AsFd, len: usize) -> Result<Self, Error> {
        Self::with(
            fd,
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED,
        )
    }

    /// Maps the first `len` bytes to read. Existing pages are mapped at once. A write through the mapping ends the process
    /// by SIGSEGV.
    pub fn read_only(fd: &impl AsFd, len: usize) -> Result<Self, Error> {
        Self::with(
            fd,
            len,
            ProtFlags::READ,
            MapFlags::SHARED | MapFlags::POPULATE,
        )
    }

    /// As [`read_only`](Self::read_only). Pages are mapped when they are read: for a reader of parts.
    pub fn read_only_in_parts(fd: &impl AsFd, len: usize) -> Result<Self, Error> {
        Self::with(fd, len, ProtFlags::READ, MapFlags::SHARED)
    }

    fn with(fd: &impl AsFd, len: usize, prot: ProtFlags, flags: MapFlags) -> Result<Self, Error> {
        let fail = |source| Error::Map {
            len: len as u64,
            source,
        };
        let file = self::len(fd).map_err(fail)?;
        if file < len as u64 {
            return Err(Error::Short {
                len: file,
                need: len as u64,
            });
        }
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe { mmap(ptr::null_mut(), len, prot, flags, fd, 0) };
        let start = start.map_err(|error| fail(error.into()))?;
        let start = NonNull::new(start.cast()).ok_or_else(|| fail(io::ErrorKind::Other.into()))?;
        Ok(Self { start, len })
    }

    /// Extends the mapping to `len` bytes, which the file must have. The mapping may move. On error it is unchanged.
    pub fn extend(&mut self, fd: &impl AsFd, len: usize) -> Result<(), Error> {
        let fail = |source| Error::Map {
            len: len as u64,
            source,
        };
        let file = self::len(fd).map_err(fail)?;
        if file < len as u64 {
            return Err(Error::Short {
                len: file,
                need: len as u64,
            });
        }
        if len <= self.len {
            return Ok(());
        }
        let old = self.start.as_ptr().cast();
        // SAFETY: the old range is ours, and the exclusive borrow says that nothing points into it.
        let start = unsafe { mremap(old, self.len, len, MremapFlags::MAYMOVE) };
        let start = start.map_err(|error| fail(error.into()))?;
        self.start = NonNull::new(start.cast()).unwrap_or(self.start);
        self.len = len;
        Ok(())
    }

    /// Allocates and maps the pages of a range, so that a write there neither faults nor fails. A lack of memory is an
    /// error. `fd` is the mapped file.
    pub fn populate(&self, fd: &impl AsFd, range: Range<usize>) -> io::Result<()> {
        let from = range.start / PAGE * PAGE;
        let to = range.end.min(self.len);
        if from >= to {
            return Ok(());
        }
        let populated = retry_on_intr(|| {
            // SAFETY: the range lies in our mapping; populating changes no byte.
            unsafe {
                let start = self.start.as_ptr().add(from).cast();
                madvise(start, to - from, Advice::LinuxPopulateWrite)
            }
        });
        match populated {
            // Kernels before 5.14: the pages are at least allocated, and mapped as they are touched.
            Err(Errno::INVAL | Errno::NOSYS) => allocate(fd, from..to),
            result => Ok(result?),
        }
    }

    /// Gives the memory of a range back to the system. Its pages read as zeroes, and are allocated again when they are
    /// written.
    pub fn free(&self, range: Range<usize>) -> Result<(), Error> {
        let from = range.start.next_multiple_of(PAGE);
        let to = range.end.min(self.len) / PAGE * PAGE;
        if from >= to {
            return Ok(());
        }
        // SAFETY: the range lies in our mapping; any bytes are valid in shared memory.
        let freed = unsafe {
            let start = self.start.as_ptr().add(from).cast();
            madvise(start, to - from, Advice::LinuxRemove)
        };
        freed.map_err(|error| Error::Map {
            len: (to - from) as u64,
            source: error.into(),
        })
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Bytes mapped.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the mapping is empty. It never is, since the kernel does not allow it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value at `offset`, if it fits there and is aligned.
    pub fn get<T: Shared>(&self, offset: usize) -> Option<&T> {
        let end = offset.checked_add(size_of::<T>())?;
        if end > self.len || !offset.is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: in bounds and aligned (the mapping starts at a page), and `Shared` says that any bits
        // are valid and that others may write. It lives as long as the borrow of the mapping.
        Some(unsafe { &*self.start.as_ptr().add(offset).cast::<T>() })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and no borrow outlives this value. An error would leave it mapped.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn two_mappings_see_one_memory() {
        let fd = create("test", PAGE as u64).unwrap();
        let one = Mapping::new(&fd, PAGE).unwrap();
        let two = Mapping::read_only(&fd, PAGE).unwrap();
        one.get::<AtomicU64>(8).unwrap().store(7, Ordering::Release);
        assert_eq!(two.get::<AtomicU64>(8).unwrap().load(Ordering::Acquire), 7);
    }

    #[test]
    fn memory_never_shrinks() {
        let fd = create("test", 2 * PAGE as u64).unwrap();
        assert_eq!(set_len(&fd, PAGE as u64), Err(Errno::PERM));
        grow(&fd, PAGE as u64).unwrap();
        assert_eq!(len(&fd).unwrap(), 2 * PAGE as u64);
    }

    #[test]
    fn a_mapping_is_not_longer_than_its_file() {
        let fd = create("test", PAGE as u64).unwrap();
        let error = Mapping::new(&fd, PAGE + 1).unwrap_err();
        assert!(matches!(
            error,
            Error::Short {
                len: 4096,
                need: 4097
            }
        ));
        let mut mapping = Mapping::new(&fd, PAGE).unwrap();
        assert!(mapping.extend(&fd, 2 * PAGE).is_err());
        assert!(mapping.get::<AtomicU64>(PAGE - 7).is_none());
        assert!(mapping.get::<AtomicU64>(usize::MAX - 3).is_none());
    }

    #[test]
    fn growth_keeps_the_bytes() {
        let fd = create("test", PAGE as u64).unwrap();
        let mut mapping = Mapping::new(&fd, PAGE).unwrap();
        mapping
            .get::<AtomicU32>(0)
            .unwrap()
            .store(9, Ordering::Relaxed);
        grow(&fd, 64 * PAGE as u64).unwrap();
        mapping.extend(&fd, 64 * PAGE).unwrap();
        mapping.populate(&fd, PAGE..64 * PAGE).unwrap();
        assert_eq!(
            mapping.get::<AtomicU32>(0).unwrap().load(Ordering::Relaxed),
            9
        );
        assert_eq!(
            mapping
                .get::<AtomicU32>(63 * PAGE)
                .unwrap()
                .load(Ordering::Relaxed),
            0
        );
    }

    #[test]
    fn allocation_keeps_bytes_and_size() {
        let fd = create("test", 4 * PAGE as u64).unwrap();
        let mapping = Mapping::new(&fd, PAGE).unwrap();
        let word = mapping.get::<AtomicU32>(0).unwrap();
        word.store(9, Ordering::Relaxed);
        allocate(&fd, 0..4 * PAGE).unwrap();
        assert_eq!(word.load(Ordering::Relaxed), 9);
        assert_eq!(len(&fd).unwrap(), 4 * PAGE as u64);
        // An empty range is none.
        assert!(allocate(&fd, 0..0).is_err());
    }

    #[test]
    fn a_read_only_descriptor_cannot_be_mapped_to_write() {
        let fd = create("test", PAGE as u64).unwrap();
        let reader = read_only(&fd).unwrap();
        assert!(Mapping::new(&reader, PAGE).is_err());
        Mapping::read_only(&reader, PAGE).unwrap();
    }
}
