//! Memory that both ends of a connection on one host have, for payloads.
//!
//! A payload goes into the memory of its direction before its header goes into the socket, and the header says where it is. So a
//! frame that has come is whole, nobody waits for memory, and the socket alone tells the end of a connection. If there is no room,
//! the payload goes through the socket.
//!
//! ```text
//! offset 64    u64 payloads that were read of those from the end that dialled
//! offset 128   u64 the same, of those from the end that accepted
//! offset 192   u32 1 once the end that accepted has the memory
//! offset 4096  payloads from the end that dialled, then those from the other one
//! ```
//! The end that dials makes the memory and sends its descriptor. The kernel gives it pages as they are written.
//!
//! # Invariants
//! - SM1 The sender writes to a place only while it is not taken: before its header is sent, and after it was read.
//! - SM2 The receiver reads a place only after its header has come, and before it says so.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering, fence},
    },
};

use bytes::Bytes;
use elasticrun_shm::{
    fds,
    memfd::{self, Mapping, PAGE},
};
use rustix::{
    fs::{SealFlags, fcntl_get_seals},
    process::{Resource, getrlimit},
};

use super::stream::Stream;
use crate::core::{
    frame::{FrameError, Header},
    slots::{ALIGN, Layout, Slots},
};

/// The most bytes of a direction.
pub(crate) const MAX_SHARED: usize = 1 << 40;
/// Where the end that accepts says that it has the memory.
const ACCEPTED: usize = 192;

fn is_truncated(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(|inner| inner.is::<fds::Truncated>())
}

/// Which end of the connection this process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Dialled,
    Accepted,
}

impl End {
    fn other(self) -> Self {
        match self {
            Self::Dialled => Self::Accepted,
            Self::Accepted => Self::Dialled,
        }
    }
}

/// The mapped memory.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    mapping: Mapping,
    /// Bytes of each direction.
    len: usize,
}

impl SharedMemory {
    /// New memory with so many bytes for each direction, and its descriptor.
    pub(crate) fn create(len: usize) -> io::Result<(Arc<Self>, OwnedFd)> {
        let len = len.next_multiple_of(PAGE);
        let total = PAGE as u64 + 2 * len as u64;
        // A larger file would end the process by a signal.
        if getrlimit(Resource::Fsize)
            .current
            .is_some_and(|limit| limit < total)
        {
            return Err(io::Error::other("ulimit -f is less than its size"));
        }
        let fd = memfd::create("elasticrun-ps", total).map_err(io::Error::other)?;
        Ok((Self::map(&fd, len)?, fd))
    }

    fn map(fd: &OwnedFd, len: usize) -> io::Result<Arc<Self>> {
        let mapping = Mapping::new(fd, PAGE + 2 * len).map_err(io::Error::other)?;
        Ok(Arc::new(Self { mapping, len }))
    }

    /// Sends the descriptor of new memory to the other end. The inner error is that the system sends no descriptor: the connection
    /// does without.
    pub(crate) fn send(&self, fd: &OwnedFd, stream: &Stream) -> io::Result<io::Result<()>> {
        let len = (self.len as u64).to_le_bytes();
        let Err(error) = fds::send_all(stream, &len, &[std::os::fd::AsFd::as_fd(fd)]) else {
            return Ok(Ok(()));
        };
        fds::send_all(stream, &0u64.to_le_bytes(), &[])?;
        Ok(Err(error))
    }

    /// Receives the memory of the end that has dialled. The inner error is one of mapping it: the connection does without.
    pub(crate) fn receive(stream: &Stream) -> io::Result<io::Result<Arc<Self>>> {
        let (mut bytes, mut have, mut descriptors) = ([0; 8], 0, Vec::new());
        while have < bytes.len() {
            let received = match fds::recv(stream, &mut bytes[have..], &mut descriptors) {
                // No descriptor is left. The bytes came with it, in one message.
                Err(error) if is_truncated(&error) => return Ok(Err(error)),
                received => received?,
            };
            match received {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => have += more,
            }
        }
        let len = u64::from_le_bytes(bytes);
        if len == 0 {
            return Ok(Err(io::Error::other("the other end could not send it")));
        }
        let fd = descriptors.pop().filter(|_| len <= MAX_SHARED as u64);
        let fd = fd.ok_or(io::ErrorKind::InvalidData)?;
        // Without the seal, the other end could shrink it and so end this process.
        let mapped = match fcntl_get_seals(&fd) {
            Ok(seals) if seals.contains(SealFlags::SHRINK) => Self::map(&fd, len as usize),
            _ => Err(io::ErrorKind::InvalidData.into()),
        };
        if let Ok(memory) = &mapped {
            memory.accepted().store(1, Ordering::Release);
        }
        Ok(mapped)
    }

    /// What one end writes with and reads with.
    pub(crate) fn halves(self: Arc<Self>, end: End) -> (Writer, Reader) {
        let writer = Writer {
            slots: Slots::new(self.len),
            released: 0,
            memory: Arc::clone(&self),
            end,
        };
        let from = end.other();
        let reader = Reader { memory: self, from };
        (writer, reader)
    }

    fn accepted(&self) -> &AtomicU32 {
        self.mapping
            .get(ACCEPTED)
            .expect("the first page is mapped")
    }

    /// How many payloads of an end were read.
    fn released(&self, of: End) -> &AtomicU64 {
        let at = match of {
            End::Dialled => 64,
            End::Accepted => 128,
        };
        self.mapping.get(at).expect("the first page is mapped")
    }

    /// The first byte of the payloads of an end.
    fn payloads(&self, of: End) -> *mut u8 {
        let at = match of {
            End::Dialled => PAGE,
            End::Accepted => PAGE + self.len,
        };
        // SAFETY: the mapping has a page and twice `len` bytes.
        unsafe { self.mapping.as_ptr().add(at) }
    }
}

/// The sending half.
#[derive(Debug)]
pub(crate) struct Writer {
    memory: Arc<SharedMemory>,
    end: End,
    slots: Slots,
    /// How many places were given back to `slots`.
    released: u64,
}

impl Writer {
    /// Copies a payload into the memory, if there is room, and returns its position. The header is sent next.
    pub(super) fn put(&mut self, parts: &[Bytes; 3]) -> Option<u64> {
        let accepted = || self.memory.accepted().load(Ordering::Acquire) == 1;
        if self.end == End::Dialled && !accepted() {
            return None;
        }
        let layout = Layout::new([0, 1, 2].map(|part: usize| parts[part].len()))?;
        // Acquire: what the receiver has read of the places it has read before they are written again.
        let released = self.memory.released(self.end).load(Ordering::Acquire);
        self.slots
            .release(released.wrapping_sub(self.released) as usize);
        self.released = released;
        let position = self.slots.take(layout.len)?;
        for (part, (at, len)) in parts.iter().zip(layout.parts) {
            // SAFETY: the place is within the memory of this direction, and nobody else uses it (SM1, SM2).
            unsafe {
                let to = self.memory.payloads(self.end).add(position + at);
                to.copy_from_nonoverlapping(part.as_ptr(), len);
            }
        }
        fence(Ordering::Release);
        Some(position as u64)
    }
}

/// The receiving half.
#[derive(Debug)]
pub(crate) struct Reader {
    memory: Arc<SharedMemory>,
    from: End,
}

impl Reader {
    /// The payload of a header, which says that it is there.
    pub(super) fn open(&self, position: u64, header: &Header) -> Result<Slot, FrameError> {
        fence(Ordering::Acquire);
        let bytes = [
            u64::from(header.keys) * 8,
            u64::from(header.lens) * 4,
            header.value_bytes,
        ];
        let layout = Layout::new(bytes.map(|count| usize::try_from(count).unwrap_or(usize::MAX)));
        let start = usize::try_from(position).unwrap_or(usize::MAX);
        let fits = |layout: &Layout| {
            start.is_multiple_of(ALIGN)
                && (start.checked_add(layout.len)).is_some_and(|end| end <= self.memory.len)
        };
        match layout.filter(fits) {
            Some(layout) => Ok(Slot {
                start,
                layout,
                part: 0,
                read: 0,
            }),
            None => Err(FrameError::OutOfMemory {
                position,
                bytes: header.payload(),
            }),
        }
    }

    /// Gives the place of the oldest payload back to the sender.
    pub(super) fn release(&self) {
        // Release: all reads of the place come before.
        let released = self.memory.released(self.from);
        released.fetch_add(1, Ordering::Release);
    }

    /// Copies the next bytes of a payload, as many as there are.
    pub(super) fn copy(&self, slot: &mut Slot, into: &mut [u8]) -> usize {
        let mut copied = 0;
        while copied < into.len() && slot.part < slot.layout.parts.len() {
            let (at, len) = slot.layout.parts[slot.part];
            let count = (len - slot.read).min(into.len() - copied);
            // SAFETY: `open` has checked that the payload is within the memory, and the sender leaves it alone (SM1).
            unsafe {
                let from = self
                    .memory
                    .payloads(self.from)
                    .add(slot.start + at + slot.read);
                from.copy_to_nonoverlapping(into[copied..].as_mut_ptr(), count);
            }
            copied += count;
            slot.read += count;
            if slot.read == len {
                (slot.part, slot.read) = (slot.part + 1, 0);
            }
        }
        copied
    }

    /// The values of a payload, where they are.
    pub(super) fn values(&self, slot: &Slot) -> &[u8] {
        let (at, len) = slot.layout.parts[2];
        // SAFETY: as in `copy`. The place is given back by `release`, after this borrow: the receiver calls it with the exclusive
        // borrow of what holds this reader. A sender that writes meanwhile changes its own values, of a plain type.
        unsafe {
            std::slice::from_raw_parts(self.memory.payloads(self.from).add(slot.start + at), len)
        }
    }
}

/// A payload in the memory, of which a part may have been read.
#[derive(Debug)]
pub(crate) struct Slot {
    start: usize,
    layout: Layout,
    part: usize,
    read: usize,
}

#[cfg(test)]
mod tests;
