//! The result of a pull: servers' answers are received straight into it.

use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    mem::ManuallyDrop,
    ptr::NonNull,
    sync::{Mutex, PoisonError},
};

use elasticrun_collectives::Element;

use crate::{
    array::Array,
    core::{frame::Header, node::NodeId, slicer::Slice},
    net::{ReceiveError, Receiver, Scratch},
};

/// How many values a pull expects.
#[derive(Clone, Debug)]
pub enum Expect {
    /// The servers know. Their answers are put together at the end, which copies them once.
    Unknown,
    /// So many for each key. Keys that were never pushed are zeros.
    PerKey(usize),
    /// One number for each key.
    Lens(Array<u32>),
}

/// Where the values of a pull go.
pub struct Memory<T>(Place<T>);

enum Place<T> {
    Own(Vec<T>),
    Foreign {
        first: *mut T,
        len: usize,
        owner: Box<dyn Any + Send + Sync>,
    },
}

impl<T> fmt::Debug for Memory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

/// A vector is taken over, and returned with the result. It gets the length of the result.
impl<T> From<Vec<T>> for Memory<T> {
    fn from(memory: Vec<T>) -> Self {
        Self(Place::Own(memory))
    }
}

impl<T> Memory<T> {
    /// The elements at an address. [`Pulled::values`] is empty then. The owner is dropped, on any thread, when nothing is
    /// received any more.
    ///
    /// # Safety
    /// `first` is aligned and the address of `len` elements. They stay there until the owner is dropped. Until the request is
    /// completed, nothing else reads or writes them. If it has failed, they may be written until the owner is dropped.
    pub unsafe fn from_foreign(first: *mut T, len: usize, owner: impl Any + Send + Sync) -> Self {
        Self(Place::Foreign {
            first,
            len,
            owner: Box::new(owner),
        })
    }

    /// The number of elements, if it cannot change.
    pub(crate) fn fixed_len(&self) -> Option<usize> {
        match &self.0 {
            Place::Own(_) => None,
            Place::Foreign { len, .. } => Some(*len),
        }
    }
}

/// What a pull got.
#[derive(Clone, Debug, PartialEq)]
pub struct Pulled<T> {
    /// The values, key by key.
    pub values: Vec<T>,
    /// How many values each key has, if the pull did not say and they differ.
    pub lens: Option<Vec<u32>>,
}

/// What the servers have answered: values and lens, if these were not known.
type Part<T> = (Vec<T>, Vec<u32>);

/// Where the answers to a pull go.
#[derive(Debug)]
pub(crate) struct Destination<T> {
    slices: Vec<Slice>,
    known: bool,
    /// The values, if their number is known.
    base: *mut T,
    len: usize,
    owner: Owner,
    /// By the position of the first key.
    parts: Mutex<BTreeMap<usize, Part<T>>>,
}

/// What keeps the values alive.
enum Owner {
    /// They are a vector of this capacity, in its parts.
    Vector { capacity: usize },
    /// They belong to another one.
    Other(#[allow(dead_code, reason = "it is there to be dropped")] Box<dyn Any + Send + Sync>),
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vector { .. } => "Vector",
            Self::Other(_) => "Other",
        })
    }
}

// SAFETY: the memory at `base` is owned by this value, or kept alive by its owner for this value alone. Answers write disjoint
// slices of it, and it is read only when the value is taken apart.
unsafe impl<T: Send> Send for Destination<T> {}
// SAFETY: as above; `receive` writes only the slice of its server, and a server answers a request once (PS1, PS2).
unsafe impl<T: Send + Sync> Sync for Destination<T> {}

impl<T: Element> Destination<T> {
    /// A destination for so many values. Without a number, the answers say it.
    pub(crate) fn new(slices: Vec<Slice>, total: Option<usize>, memory: Memory<T>) -> Self {
        let (base, len, owner) = match memory.0 {
            Place::Own(mut values) => {
                values.resize(total.unwrap_or(0), T::zeroed());
                let mut values = ManuallyDrop::new(values);
                let capacity = values.capacity();
                let owner = Owner::Vector { capacity };
                (values.as_mut_ptr(), values.len(), owner)
            }
            Place::Foreign { first, len, owner } => (first, len, Owner::Other(owner)),
        };
        assert!(total.is_none_or(|total| total == len), "{len} values");
        Self {
            base,
            len,
            owner,
            parts: Mutex::default(),
            slices,
            known: total.is_some(),
        }
    }

    /// Receives the values of an answer. The caller has checked that the server owes one, and no other thread receives an
    /// answer of this server. Returns what does not fit.
    pub(crate) fn receive(
        &self,
        from: NodeId,
        header: &Header,
        receiver: &mut Receiver,
        scratch: &mut Scratch,
    ) -> Result<Result<(), String>, ReceiveError> {
        let found = self.slices.iter().find(|slice| slice.server == from);
        let Some(slice) = found.copied() else {
            receiver.skip(header.payload())?;
            return Ok(Err("it was not asked".to_owned()));
        };
        self.receive_slice(slice, header, receiver, scratch)
    }

    /// Receives the values of a slice of the result. No other thread receives any of them, and the slice is within the result if
    /// its length is known.
    pub(crate) fn receive_slice(
        &self,
        slice: Slice,
        header: &Header,
        receiver: &mut Receiver,
        scratch: &mut Scratch,
    ) -> Result<Result<(), String>, ReceiveError> {
        let (keys, count) = (
            slice.keys_end - slice.keys_first,
            slice.values_end - slice.values_first,
        );
        if header.dtype != T::DTYPE as u8 {
            receiver.skip(header.payload())?;
            let name = elasticrun_collectives::DType::name(header.dtype);
            return Ok(Err(format!("its values are {name}")));
        }
        if self.known {
            assert!(slice.values_first <= slice.values_end && slice.values_end <= self.len);
            let bytes = count * size_of::<T>();
            if header.keys != 0 || header.lens != 0 || header.value_bytes != bytes as u64 {
                receiver.skip(header.payload())?;
                return Ok(Err(format!(
                    "it has {} bytes and not {bytes}",
                    header.value_bytes
                )));
            }
            // SAFETY: slices are disjoint parts of the `len` values at `base`, and this thread alone receives this one. Any bytes
            // are values of a plain type.
            let values =
                unsafe { std::slice::from_raw_parts_mut(self.base.add(slice.values_first), count) };
            receiver.read(&mut [bytemuck::cast_slice_mut(values)])?;
            return Ok(Ok(()));
        }
        let payload = receiver.payload(header, scratch)?;
        let lens = match payload.lens {
            [] => vec![header.per_key; keys],
            lens => lens.to_vec(),
        };
        let total: u64 = lens.iter().map(|&len| u64::from(len)).sum();
        if lens.len() != keys
            || total.checked_mul(size_of::<T>() as u64) != Some(header.value_bytes)
        {
            return Ok(Err("its lens do not add up".to_owned()));
        }
        let values = bytemuck::cast_slice(payload.values).to_vec();
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.insert(slice.keys_first, (values, lens));
        Ok(Ok(()))
    }

    /// The result, once all servers have answered.
    pub(crate) fn take(mut self) -> Pulled<T> {
        if self.known {
            let values = self.take_vector();
            return Pulled { values, lens: None };
        }
        let mut values = Vec::new();
        let mut lens = Vec::new();
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        for (part, part_lens) in std::mem::take(&mut *parts).into_values() {
            values.extend_from_slice(&part);
            lens.extend_from_slice(&part_lens);
        }
        drop(parts);
        let mixed = lens.windows(2).any(|pair| pair[0] != pair[1]);
        Pulled {
            values,
            lens: mixed.then_some(lens),
        }
    }
}

impl<T> Destination<T> {
    /// Takes the vector away. It is empty if the values belong to another owner.
    fn take_vector(&mut self) -> Vec<T> {
        let Owner::Vector { capacity } = self.owner else {
            return Vec::new();
        };
        // SAFETY: these are the parts of the vector of `new`, or of an empty one after the first call.
        let values = unsafe { Vec::from_raw_parts(self.base, self.len, capacity) };
        self.base = NonNull::dangling().as_ptr();
        self.len = 0;
        self.owner = Owner::Vector { capacity: 0 };
        values
    }
}

impl<T> Drop for Destination<T> {
    fn drop(&mut self) {
        drop(self.take_vector());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_vector_comes_back_with_the_length_of_the_result() {
        let memory = Memory::from(vec![1.0f32, 2.0]);
        let destination = Destination::new(Vec::new(), Some(3), memory);
        assert_eq!(destination.take().values, [1.0, 2.0, 0.0]);
        let memory = Memory::from(vec![1.0f32, 2.0]);
        drop(Destination::new(Vec::new(), None, memory));
    }

    #[test]
    fn foreign_memory_is_left_to_its_owner() {
        let mut space = [1.0f32, 2.0];
        let owner = Arc::new(());
        // SAFETY: the array outlives the destination, and nothing uses it meanwhile.
        let memory = unsafe { Memory::from_foreign(space.as_mut_ptr(), 2, Arc::clone(&owner)) };
        assert_eq!(memory.fixed_len(), Some(2));
        let destination = Destination::new(Vec::new(), Some(2), memory);
        assert_eq!(Arc::strong_count(&owner), 2);
        assert!(destination.take().values.is_empty());
        assert_eq!(Arc::strong_count(&owner), 1);
        assert_eq!(space, [1.0, 2.0]);
    }
}
