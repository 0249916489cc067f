//! The result of a pull: servers' answers are received straight into it.

use std::{
    collections::BTreeMap,
    mem::ManuallyDrop,
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
    /// The values, if their number is known: a vector in its parts.
    base: *mut T,
    len: usize,
    capacity: usize,
    /// By the position of the first key.
    parts: Mutex<BTreeMap<usize, Part<T>>>,
}

// SAFETY: the memory at `base` is owned by this value. Answers write disjoint slices of it, and it is read only when the
// value is taken apart.
unsafe impl<T: Send> Send for Destination<T> {}
// SAFETY: as above; `receive` writes only the slice of its server, and a server answers a request once (PS1, PS2).
unsafe impl<T: Send + Sync> Sync for Destination<T> {}

impl<T: Element> Destination<T> {
    /// A destination. `values` has the length of the result if this is known, and is empty otherwise.
    pub(crate) fn new(slices: Vec<Slice>, known: bool, values: Vec<T>) -> Self {
        let mut values = ManuallyDrop::new(values);
        Self {
            base: values.as_mut_ptr(),
            len: values.len(),
            capacity: values.capacity(),
            parts: Mutex::default(),
            slices,
            known,
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
            // SAFETY: slices are disjoint parts of the `len` values at `base`, and this thread alone receives this one. Any bytes are values of a plain type.
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
    pub(crate) fn take(self) -> Pulled<T> {
        if self.known {
            let this = ManuallyDrop::new(self);
            // SAFETY: these are the parts of the vector of `new`, and `this` is not dropped. Its other fields hold no memory
            // but two lists, which are read once and dropped here.
            let values = unsafe {
                drop(std::ptr::read(&this.slices));
                drop(std::ptr::read(&this.parts));
                Vec::from_raw_parts(this.base, this.len, this.capacity)
            };
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

impl<T> Drop for Destination<T> {
    fn drop(&mut self) {
        // SAFETY: these are the parts of the vector of `new`, which nothing else has taken.
        drop(unsafe { Vec::from_raw_parts(self.base, self.len, self.capacity) });
    }
}
