//! One buffer as the worker has it: its memory, which grows.

use std::{io, os::fd::OwnedFd};

use super::{
    Error,
    layout::{BODY, Header},
};
use crate::memfd::{self, Mapping, PAGE};

/// The unit in which files grow.
const GROWTH_STEP: usize = 2 << 20;

/// The limit of the memory that is allocated ahead, which is an eighth of the need.
const MAX_AHEAD: usize = 16 << 20;

#[derive(Debug)]
pub(super) struct Buffer {
    pub(super) fd: OwnedFd,
    pub(super) mapping: Mapping,
    /// Bytes from the start that are mapped and allocated, so that a write there cannot fail.
    pub(super) allocated: usize,
}

impl Buffer {
    pub(super) fn open(fd: OwnedFd) -> Result<Self, Error> {
        let len = memfd::len(&fd).unwrap_or(0).max(PAGE as u64);
        let len = usize::try_from(len).unwrap_or(PAGE);
        let mapping = Mapping::new(&fd, len)?;
        Header::in_mapping(&mapping).validate()?;
        Ok(Self {
            fd,
            mapping,
            allocated: PAGE,
        })
    }

    pub(super) fn header(&self) -> &Header {
        Header::in_mapping(&self.mapping)
    }

    /// Allocates memory for a body of `len` bytes, and at most `max` bytes in all. Existing bytes stay, also on error.
    pub(super) fn ensure_allocated(&mut self, len: usize, max: usize) -> Result<(), Error> {
        let too_long = || memfd::Error::Grow {
            len: len as u64,
            source: io::ErrorKind::FileTooLarge.into(),
        };
        let need = BODY.checked_add(len).ok_or_else(too_long)?;
        if need <= self.allocated {
            return Ok(());
        }
        if need > self.mapping.len() {
            let ample = (need + need / 8).max(2 * self.mapping.len());
            let ample = ample
                .checked_next_multiple_of(GROWTH_STEP)
                .ok_or_else(too_long)?;
            // Memory beyond the need costs address space only. If that is limited, map the need only.
            if self.extend(ample).is_err() {
                self.extend(need)?;
            }
        }
        let ahead = need + (need / 8).min(MAX_AHEAD);
        let ahead = ahead.next_multiple_of(PAGE).min(self.mapping.len());
        let ahead = ahead.min(max).max(need);
        self.allocated = match self.allocate(ahead) {
            Ok(()) => ahead,
            Err(_) => self.allocate(need).map(|()| need)?,
        };
        Ok(())
    }

    /// Gives the memory of an open buffer back to the system. Its address space stays.
    pub(super) fn free(&mut self) -> Result<(), Error> {
        self.mapping.free(BODY..self.allocated)?;
        self.allocated = PAGE;
        Ok(())
    }

    fn extend(&mut self, len: usize) -> Result<(), memfd::Error> {
        memfd::grow(&self.fd, len as u64)?;
        self.mapping.extend(&self.fd, len)
    }

    fn allocate(&self, end: usize) -> Result<(), memfd::Error> {
        self.mapping
            .populate(&self.fd, self.allocated..end)
            .map_err(|source| memfd::Error::Grow {
                len: end as u64,
                source,
            })
    }

    /// The bytes of the body in an allocated range.
    pub(super) fn body(&mut self, from: usize, len: usize) -> &mut [u8] {
        debug_assert!(BODY + from + len <= self.allocated);
        // SAFETY: allocated bytes are mapped; the buffer is open, so that no reader takes them for a commit, and the
        // exclusive borrow excludes other uses in this process.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.as_ptr().add(BODY + from), len) }
    }
}
