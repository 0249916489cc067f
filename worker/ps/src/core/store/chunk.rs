//! A part of a store on its way to another one: keys, values, and what an optimizer keeps for them.
//!
//! ```text
//! 4 magic, u8 type of values, u8 slots, u8 flags, u8 0 | u64 keys | u64 values | u64 values for each key
//! keys, u64 each | lens, u32 each, with flag 1 | values | slots, as many as values each | counts, u32 each, with flag 2
//! ```
//! Little-endian.

use elasticrun_collectives::Element;

use super::{
    columns::{Columns, MAX_SLOTS, StateShape},
    run::Run,
};
use crate::core::{
    keys::{self, Lens},
    ranges::KeyRange,
};

const MAGIC: [u8; 4] = *b"EPC1";
const HEADER: usize = 32;
const MIXED: u8 = 1;
const COUNTED: u8 = 2;

/// Keys of a store in ascending order, with all that belongs to them.
#[derive(Debug)]
pub struct Chunk<T> {
    pub(super) run: Run<T>,
    /// The first key of the range behind this chunk. `None` if it is the last one.
    pub next: Option<u64>,
}

/// Why bytes are no chunk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// The bytes do not begin as a chunk does, or are of another release.
    #[error("these bytes are no chunk of a store of this release")]
    NoChunk,
    /// The values have another type.
    #[error("the chunk has another type of values ({0})")]
    OtherType(u8),
    /// The numbers in the header do not fit the length, or keys and lens are wrong.
    #[error("the chunk is damaged")]
    Damaged,
}

impl<T: Element> Chunk<T> {
    /// The keys.
    pub fn keys(&self) -> &[u64] {
        &self.run.keys
    }

    /// The values, key by key.
    pub fn values(&self) -> &[T] {
        &self.run.columns.values
    }

    /// How many values the key at a position has.
    pub fn len_at(&self, position: usize) -> usize {
        self.run.len_at(position)
    }

    /// The bytes, without `next`.
    pub fn encode(&self) -> Vec<u8> {
        let (run, columns) = (&self.run, &self.run.columns);
        let shape = shape(run);
        let mixed = if run.uniform().is_none() { MIXED } else { 0 };
        let counted = if shape.counted { COUNTED } else { 0 };
        let slots = shape.slots as u8;
        let mut bytes = Vec::with_capacity(HEADER + self.bytes());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[T::DTYPE as u8, slots, mixed | counted, 0]);
        let (keys, values) = (run.len() as u64, columns.values.len() as u64);
        for number in [keys, values, run.uniform().unwrap_or(0) as u64] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(bytemuck::cast_slice(&run.keys));
        if mixed != 0 {
            let lens = (0..run.len()).map(|index| (run.len_at(index) as u32).to_le_bytes());
            lens.for_each(|len| bytes.extend_from_slice(&len));
        }
        bytes.extend_from_slice(bytemuck::cast_slice(&columns.values));
        for column in columns.state.iter().take(shape.slots) {
            bytes.extend_from_slice(bytemuck::cast_slice(column));
        }
        bytes.extend_from_slice(bytemuck::cast_slice(&columns.steps));
        bytes
    }

    /// The keys of these ranges, which ascend. `None` if it has none of them.
    pub(crate) fn within(self, ranges: &[KeyRange]) -> Option<Self> {
        let mut run = Run::default();
        for range in ranges {
            let keys = &self.run.keys;
            let first = keys.partition_point(|key| *key < range.first);
            let end = keys.partition_point(|key| *key <= range.last);
            if first == 0 && end == keys.len() && end > 0 {
                return Some(self);
            }
            if first < end {
                run.append(&self.run, first..end);
            }
        }
        (!run.keys.is_empty()).then_some(Self { run, next: None })
    }

    fn bytes(&self) -> usize {
        let columns = &self.run.columns;
        let values = columns.values.len() * size_of::<T>() * (1 + columns.slots());
        values + self.run.len() * 12 + columns.steps.len() * 4
    }

    /// Reads the bytes of [`encode`](Self::encode).
    ///
    /// # Errors
    /// They are no chunk, or one of other values.
    pub fn decode(bytes: &[u8]) -> Result<Self, ChunkError> {
        let (header, mut rest) = bytes.split_at_checked(HEADER).ok_or(ChunkError::NoChunk)?;
        let (dtype, slots, flags) = (header[4], usize::from(header[5]), header[6]);
        let known = slots <= MAX_SLOTS && flags & !(MIXED | COUNTED) == 0 && header[7] == 0;
        if header[..4] != MAGIC || !known {
            return Err(ChunkError::NoChunk);
        }
        if dtype != T::DTYPE as u8 {
            return Err(ChunkError::OtherType(dtype));
        }
        let number = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&header[at..at + 8]);
            usize::try_from(u64::from_le_bytes(word)).map_err(|_| ChunkError::Damaged)
        };
        let (count, values, per_key) = (number(8)?, number(16)?, number(24)?);
        let keys: Vec<u64> = take(&mut rest, count)?;
        if count > 0 && keys::check_keys(&keys).is_err() {
            return Err(ChunkError::Damaged);
        }
        // One form for each content.
        let bare = (values == 0 && slots > 0) || (count == 0 && flags & COUNTED != 0);
        if bare || (flags & MIXED != 0 && per_key != 0) {
            return Err(ChunkError::Damaged);
        }
        let mut run = Run::default();
        if flags & MIXED != 0 {
            let lens: Vec<u32> = take(&mut rest, count)?;
            let total: u64 = lens.iter().map(|&len| u64::from(len)).sum();
            if total != values as u64 {
                return Err(ChunkError::Damaged);
            }
            run.append_keys(&keys, Lens::Mixed(&lens));
        } else {
            if count.checked_mul(per_key) != Some(values) {
                return Err(ChunkError::Damaged);
            }
            run.append_keys(&keys, Lens::Uniform(per_key));
        }
        let mut columns = Columns::of_values(take(&mut rest, values)?);
        for column in columns.state.iter_mut().take(slots) {
            *column = take(&mut rest, values)?;
        }
        if flags & COUNTED != 0 {
            columns.steps = take(&mut rest, count)?;
        }
        run.columns = columns;
        match rest.is_empty() {
            true => Ok(Self { run, next: None }),
            false => Err(ChunkError::Damaged),
        }
    }
}

/// What the keys of a run take beside their values.
pub(super) fn shape<T: Element>(run: &Run<T>) -> StateShape<T> {
    StateShape {
        slots: run.columns.slots(),
        counted: !run.columns.steps.is_empty(),
        ..StateShape::default()
    }
}

/// The next elements. Memory is taken only for what is there.
fn take<N: bytemuck::Pod>(rest: &mut &[u8], count: usize) -> Result<Vec<N>, ChunkError> {
    let bytes = count.checked_mul(size_of::<N>());
    let (own, others) = bytes
        .and_then(|bytes| rest.split_at_checked(bytes))
        .ok_or(ChunkError::Damaged)?;
    *rest = others;
    let mut elements = vec![N::zeroed(); count];
    bytemuck::cast_slice_mut(&mut elements).copy_from_slice(own);
    Ok(elements)
}
