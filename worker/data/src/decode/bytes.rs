//! Parts of a file in memory, from which decoders slice what they need.

use std::{ops::Range, sync::Arc};

use bytes::{Buf, Bytes, buf::Reader};
use parquet::{
    errors::{ParquetError, Result as ParquetResult},
    file::{
        metadata::ColumnChunkMetaData,
        reader::{ChunkReader, Length},
    },
};

use crate::{
    error::{Error, Result},
    storage::{FileInfo, Storage},
};

/// Parts of a file. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct GroupBytes {
    /// Length of the whole file.
    size: u64,
    /// The offset of each part in the file and its bytes, sorted.
    parts: Arc<[(u64, Bytes)]>,
}

impl GroupBytes {
    /// Reads ranges of a file.
    ///
    /// # Errors
    /// If a range is not within the file, or if it cannot be read.
    pub(super) fn read(
        storage: &dyn Storage,
        file: &FileInfo,
        ranges: Vec<Range<u64>>,
    ) -> Result<Self> {
        let is_inside = |range: &Range<u64>| range.start <= range.end && range.end <= file.size;
        if !ranges.iter().all(is_inside) {
            let why = "a part of it is placed outside of the file";
            return Err(Error::corrupt(why));
        }
        let ranges = merged(ranges, storage.coalesce_gap());
        let parts = storage.read(file, &ranges)?;
        Ok(Self {
            size: file.size,
            parts: ranges.iter().map(|range| range.start).zip(parts).collect(),
        })
    }

    /// A file that consists of these bytes.
    #[cfg(any(test, fuzzing))]
    pub(super) fn from_memory(bytes: Bytes) -> Self {
        Self {
            size: bytes.len() as u64,
            parts: [(0, bytes)].into(),
        }
    }

    /// Bytes that were read.
    pub(super) fn total(&self) -> u64 {
        self.parts.iter().map(|(_, bytes)| bytes.len() as u64).sum()
    }

    /// The bytes of a range that was read.
    pub(super) fn get(&self, range: Range<u64>) -> ParquetResult<Bytes> {
        self.get_bytes(range.start, (range.end - range.start) as usize)
    }

    /// The bytes of a column chunk.
    pub(super) fn chunk(&self, chunk: &ColumnChunkMetaData) -> Result<Bytes> {
        let (start, length) = chunk.byte_range();
        self.get_bytes(start, length as usize)
            .map_err(|error| Error::corrupt(error.to_string()))
    }

    /// The bytes from `start` to the end of their part.
    fn from(&self, start: u64) -> ParquetResult<Bytes> {
        let after = self.parts.partition_point(|(first, _)| *first <= start);
        let part = after.checked_sub(1).map(|part| &self.parts[part]);
        part.filter(|(first, bytes)| start - first <= bytes.len() as u64)
            .map(|(first, bytes)| bytes.slice((start - first) as usize..))
            .ok_or_else(|| ParquetError::EOF(format!("byte {start} is outside of its column")))
    }
}

/// Sorts ranges, and merges those that are at most `gap` apart.
fn merged(mut ranges: Vec<Range<u64>>, gap: u64) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end + gap => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

impl Length for GroupBytes {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for GroupBytes {
    type T = Reader<Bytes>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let bytes = self.from(start)?;
        if bytes.len() < length {
            let end = start + length as u64;
            return Err(ParquetError::EOF(format!(
                "byte {end} is outside of its column"
            )));
        }
        Ok(bytes.slice(..length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_ranges_are_read_as_one() {
        let merged = |ranges| merged(ranges, 100);
        assert_eq!(merged(vec![]), vec![]);
        assert_eq!(merged(vec![30..40, 0..10, 10..30]), vec![0..40]);
        assert_eq!(
            merged(vec![0..10, 110..120, 221..222]),
            vec![0..120, 221..222]
        );
        assert_eq!(merged(vec![0..100, 10..20]), vec![0..100]);
    }

    #[test]
    fn bytes_outside_of_all_parts_are_an_error() {
        let bytes = GroupBytes {
            size: 100,
            parts: vec![
                (10, Bytes::from_static(b"abcd")),
                (50, Bytes::from_static(b"xy")),
            ]
            .into(),
        };
        assert_eq!(&bytes.get_bytes(11, 3).unwrap()[..], b"bcd");
        assert_eq!(&bytes.get_bytes(50, 2).unwrap()[..], b"xy");
        for (start, length) in [(0, 1), (11, 4), (20, 1), (51, 2), (53, 1)] {
            assert!(bytes.get_bytes(start, length).is_err(), "{start} {length}");
        }
    }
}
