//! The bytes of a column chunk, page by page: from memory, or from a local file through a window.
//!
//! A file in the page cache must be copied in any case. With a window of one page, the data is decompressed while it
//! is still in the processor's cache, and only decompressed rows occupy memory. Each thread keeps one window.

use std::{cell::Cell, fs::File, io, os::unix::fs::FileExt};

use bytes::Bytes;

use super::header::{self, PageHeader};
use crate::error::{Error, Problem, Result};

thread_local! {
    /// The window of this thread while no chunk uses it.
    static WINDOW: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Minimum bytes of a read.
const SLAB: usize = 64 << 10;

/// Bytes in which a header is searched, one after the other. Most headers are far smaller than a kilobyte, but
/// statistics have any length. The last number is the limit of Arrow C++.
const HEADER_LIMITS: [usize; 3] = [1 << 10, 64 << 10, 16 << 20];

/// The bytes of a column chunk.
#[derive(Debug)]
pub(super) enum ChunkSource<'a> {
    Memory(Bytes),
    File(FileWindow<'a>),
}

/// A window on a column chunk in a file.
#[derive(Debug)]
pub(super) struct FileWindow<'a> {
    file: &'a File,
    /// The offset of the chunk in the file, and its length.
    start: u64,
    length: usize,
    /// `buffer[..filled]` holds the bytes of the chunk from `from` on.
    buffer: Vec<u8>,
    from: usize,
    filled: usize,
    /// Bytes that were read so far.
    bytes_read: u64,
}

impl<'a> ChunkSource<'a> {
    pub(super) fn file(file: &'a File, start: u64, length: usize) -> Self {
        Self::File(FileWindow {
            file,
            start,
            length,
            buffer: WINDOW.take(),
            from: 0,
            filled: 0,
            bytes_read: 0,
        })
    }

    /// Reads the header of the page at `pos`, and returns it with its length.
    ///
    /// # Errors
    /// If the bytes cannot be read, or are no header.
    pub(super) fn header(&mut self, pos: usize) -> Result<(PageHeader, usize)> {
        for wanted in HEADER_LIMITS {
            let bytes = self.get(pos, wanted).map_err(Problem::from)?;
            if let Some(read) = header::read(&bytes[..wanted.min(bytes.len())]) {
                return Ok(read);
            }
        }
        Err(Error::corrupt("a page header cannot be read"))
    }

    /// Bytes of the chunk.
    pub(super) fn length(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::File(window) => window.length,
        }
    }

    /// Bytes that were read from the file so far.
    pub(super) fn bytes_read(&self) -> u64 {
        match self {
            Self::Memory(_) => 0,
            Self::File(window) => window.bytes_read,
        }
    }

    /// The bytes from `pos` on: at least `wanted`, or as many as there are.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(super) fn get(&mut self, pos: usize, wanted: usize) -> io::Result<&[u8]> {
        match self {
            Self::Memory(bytes) => Ok(bytes.get(pos..).unwrap_or_default()),
            Self::File(window) => window.get(pos, wanted),
        }
    }
}

impl FileWindow<'_> {
    fn get(&mut self, pos: usize, wanted: usize) -> io::Result<&[u8]> {
        let end = pos.saturating_add(wanted).min(self.length);
        let is_there = self.from <= pos && end <= self.from + self.filled;
        if !is_there {
            // Keeps the wanted bytes that are in the buffer, so that no byte is read twice. For a large page, they stay
            // where they are.
            let skipped = pos.checked_sub(self.from);
            match skipped.filter(|skipped| *skipped < self.filled) {
                Some(_) if wanted > SLAB => {}
                Some(skipped) => {
                    self.buffer.copy_within(skipped..self.filled, 0);
                    (self.from, self.filled) = (pos, self.filled - skipped);
                }
                None => (self.from, self.filled) = (pos, 0),
            }
            let end = end.max(self.length.min(pos.saturating_add(SLAB)));
            let length = end.saturating_sub(self.from);
            if self.buffer.len() < length {
                let more = length - self.buffer.len();
                self.buffer.try_reserve_exact(more)?;
                self.buffer.resize(length, 0);
            }
            let missing = &mut self.buffer[self.filled..length.max(self.filled)];
            self.file
                .read_exact_at(missing, self.start + (self.from + self.filled) as u64)?;
            self.bytes_read += missing.len() as u64;
            self.filled = self.filled.max(length);
        }
        Ok(&self.buffer[pos.saturating_sub(self.from).min(self.filled)..self.filled])
    }
}

impl Drop for FileWindow<'_> {
    fn drop(&mut self) {
        WINDOW.set(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_are_those_of_the_file(asked in prop::collection::vec((0_usize..300_000, 0_usize..200_000), 1..20)) {
            let content: Vec<u8> = (0..250_000_u32).map(|at| (at * 7 % 251) as u8).collect();
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&content).unwrap();
            let chunk = &content[1000..];
            let mut source = ChunkSource::file(&file, 1000, chunk.len());
            for (at, wanted) in asked {
                let got = source.get(at, wanted).unwrap();
                let rest = chunk.get(at..).unwrap_or_default();
                prop_assert!(got.len() >= wanted.min(rest.len()));
                prop_assert_eq!(got, &rest[..got.len()]);
            }
        }
    }

    #[test]
    fn pages_that_follow_each_other_are_read_once() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 500_000]).unwrap();
        let mut source = ChunkSource::file(&file, 0, 500_000);
        let mut pos = 0;
        for page in [40_000, 3, 60_000, 200_000, 70_000, 129_997] {
            assert!(source.get(pos, 1024).unwrap().len() >= 1024.min(500_000 - pos));
            assert!(source.get(pos, page).unwrap().len() >= page);
            pos += page;
        }
        assert_eq!(source.bytes_read(), 500_000);
    }

    #[test]
    fn a_file_that_ends_too_early_is_an_error() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 100]).unwrap();
        let mut source = ChunkSource::file(&file, 50, 100);
        assert_eq!(
            source.get(0, 100).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }
}
