//! The bytes of a column chunk, page by page: from memory, or from a file of this host through a window.
//!
//! A file that is in the page cache is copied from there in any case. Through a window of one page it is
//! decompressed while it is still in the processor's cache, and only the decompressed rows take up memory. Each
//! thread has one window and keeps it. A chunk that may stay as it is (`zero_copy`) is read as a whole instead.

use std::{cell::Cell, fs::File, io, os::unix::fs::FileExt};

use bytes::Bytes;

thread_local! {
    /// The window of this thread, while no chunk uses it.
    static WINDOW: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// So much is read at least.
const SLAB: usize = 64 << 10;

/// See the module.
#[derive(Debug)]
pub(super) enum Source<'a> {
    Memory(Bytes),
    File(Window<'a>),
}

/// Part of a chunk in a file.
#[derive(Debug)]
pub(super) struct Window<'a> {
    file: &'a File,
    /// Where the chunk begins in the file, and how long it is.
    start: u64,
    length: usize,
    /// What was read: `buffer[..filled]` are the bytes of the chunk from `from` on.
    buffer: Vec<u8>,
    from: usize,
    filled: usize,
}

impl<'a> Source<'a> {
    pub(super) fn file(file: &'a File, start: u64, length: usize) -> Self {
        Self::File(Window {
            file,
            start,
            length,
            buffer: WINDOW.take(),
            from: 0,
            filled: 0,
        })
    }

    /// Bytes of the chunk.
    pub(super) fn length(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::File(window) => window.length,
        }
    }

    /// The bytes from `at` on: at least `wanted`, or as many as there are.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn get(&mut self, at: usize, wanted: usize) -> io::Result<&[u8]> {
        match self {
            Self::Memory(bytes) => Ok(bytes.get(at..).unwrap_or_default()),
            Self::File(window) => window.get(at, wanted),
        }
    }
}

impl Window<'_> {
    fn get(&mut self, at: usize, wanted: usize) -> io::Result<&[u8]> {
        let end = at.saturating_add(wanted).min(self.length);
        let is_there = self.from <= at && end <= self.from + self.filled;
        if !is_there {
            // What is there already of the wanted bytes stays, unless little of it is.
            if at < self.from || at >= self.from + self.filled || wanted <= SLAB {
                (self.from, self.filled) = (at, 0);
            }
            let end = end.max(self.length.min(at.saturating_add(SLAB)));
            let length = end.saturating_sub(self.from);
            if self.buffer.len() < length {
                let more = length - self.buffer.len();
                self.buffer.try_reserve_exact(more)?;
                self.buffer.resize(length, 0);
            }
            let missing = &mut self.buffer[self.filled..length.max(self.filled)];
            self.file
                .read_exact_at(missing, self.start + (self.from + self.filled) as u64)?;
            self.filled = self.filled.max(length);
        }
        Ok(&self.buffer[at.saturating_sub(self.from).min(self.filled)..self.filled])
    }
}

impl Drop for Window<'_> {
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
            let mut source = Source::file(&file, 1000, chunk.len());
            for (at, wanted) in asked {
                let got = source.get(at, wanted).unwrap();
                let rest = chunk.get(at..).unwrap_or_default();
                prop_assert!(got.len() >= wanted.min(rest.len()));
                prop_assert_eq!(got, &rest[..got.len()]);
            }
        }
    }

    #[test]
    fn a_file_that_ends_too_early_is_an_error() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[1; 100]).unwrap();
        let mut source = Source::file(&file, 50, 100);
        assert_eq!(
            source.get(0, 100).unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }
}
