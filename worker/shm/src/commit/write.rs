//! A commit while it is written.

use std::io::{self, Write};

use elasticrun_protocol::Shard;

use super::{
    CommitWriter, Error,
    buffer::Buffer,
    layout::{BODY, Info},
};
use crate::copy;

/// A commit that is being written: `write` to it, or fill the bytes of [`CommitWrite::append`], then call
/// [`CommitWrite::seal`].
#[derive(Debug)]
#[must_use = "a commit counts once it is sealed"]
pub struct CommitWrite<'a> {
    pub(super) writer: &'a mut CommitWriter,
    pub(super) target: usize,
    pub(super) info: Info,
    pub(super) len: usize,
}

impl CommitWrite<'_> {
    /// Allocates memory for `len` more bytes, if their number is known in advance.
    pub fn reserve(&mut self, len: usize) -> Result<(), Error> {
        let end = self.len.saturating_add(len);
        if end > self.buffer().allocated - BODY {
            if let Some(pinned) = self.writer.instead_of_third(self.target, end) {
                self.move_to(pinned)?;
            }
            self.writer.ensure_allocated(self.target, end)?;
        }
        Ok(())
    }

    /// Goes on in a pinned buffer, whose readers notice, and frees the buffer that was chosen. On error, nothing is changed
    /// but that the pinned commit is gone.
    #[cold]
    fn move_to(&mut self, pinned: usize) -> Result<(), Error> {
        let (from, len) = (self.target, self.len);
        let buffers = &mut self.writer.buffers;
        buffers[pinned].header().open_despite_pins();
        buffers[pinned].ensure_allocated(len, BODY + len)?;
        if let Ok([old, new]) = buffers.get_disjoint_mut([from, pinned]) {
            new.body(0, len).copy_from_slice(old.body(0, len));
        }
        buffers[from].free()?;
        self.target = pinned;
        tracing::debug!(
            "a commit that was being copied is overwritten: three exceed --commit-memory"
        );
        Ok(())
    }

    /// Names the part of the state that the commit is. Without a call, it is the only one.
    pub fn set_shard(&mut self, shard: Shard) {
        self.info.shard = shard;
    }

    /// Appends `len` bytes for the caller to fill. They hold bytes of older commits before.
    pub fn append(&mut self, len: usize) -> Result<&mut [u8], Error> {
        let from = self.len;
        self.reserve(len)?;
        self.len = from + len;
        Ok(self.writer.buffers[self.target].body(from, len))
    }

    fn buffer(&self) -> &Buffer {
        &self.writer.buffers[self.target]
    }

    /// The number of bytes so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the commit has no bytes yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes so far, for a digest.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: as in `Buffer::body`, and shared.
        unsafe { std::slice::from_raw_parts(self.buffer().mapping.as_ptr().add(BODY), self.len) }
    }

    /// Completes the commit. From now on it is the newest.
    pub fn seal(mut self, digest: Option<u64>) -> Info {
        self.info.len = self.len as u64;
        self.info.digest = digest;
        self.buffer().header().close(&self.info);
        self.info
    }

    /// Leaves the commit as it is, to be sealed by [`CommitWriter::seal`]. Until then the newest commit is the one before.
    pub fn leave_open(mut self) -> OpenCommit {
        self.info.len = self.len as u64;
        OpenCommit {
            number: self.writer.begun,
            target: self.target,
            info: self.info,
        }
    }
}

impl Write for CommitWrite<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        copy(bytes, self.append(bytes.len()).map_err(io::Error::other)?);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A commit that is written and not sealed, until the next one is begun. See [`CommitWrite::leave_open`].
#[derive(Clone, Copy, Debug)]
#[must_use = "a commit counts once it is sealed"]
pub struct OpenCommit {
    /// Which of the commits that were begun it is.
    pub(super) number: u64,
    pub(super) target: usize,
    pub(super) info: Info,
}

/// Where the bytes of an open commit are in the memory of its writer, until the next commit is begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The address of the first byte.
    pub address: usize,
    /// The number of bytes.
    pub len: usize,
    /// The buffer that they are a part of.
    pub buffer: BufferPlace,
}

/// A buffer in the memory of its writer. As long as it is equal, its pages are the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferPlace {
    /// Which of the buffers.
    pub index: usize,
    /// The address of its first page.
    pub address: usize,
    /// The bytes that are allocated there.
    pub allocated: usize,
    /// How often its pages have changed.
    pub version: u64,
}
