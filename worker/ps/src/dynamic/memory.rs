//! Elements of one type at an address.

use std::{any::Any, fmt};

use elasticrun_collectives::Element;

use crate::{array::Array, pull::Memory};

/// Elements to read.
pub struct Elements {
    address: *const u8,
    count: usize,
    owner: Box<dyn Any + Send + Sync>,
}

/// Elements to write.
pub struct MutElements {
    address: *mut u8,
    count: usize,
    owner: Box<dyn Any + Send + Sync>,
}

impl fmt::Debug for Elements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Elements").field(&self.count).finish()
    }
}

impl fmt::Debug for MutElements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MutElements").field(&self.count).finish()
    }
}

impl Elements {
    /// `count` elements at an address, which stay there until the owner is dropped, on any thread.
    ///
    /// # Safety
    /// The address is aligned and has so many elements of the type of the worker to which they are given. Until the request is
    /// completed nothing writes them.
    pub unsafe fn new(address: *const u8, count: usize, owner: impl Any + Send + Sync) -> Self {
        let owner = Box::new(owner);
        Self {
            address,
            count,
            owner,
        }
    }

    /// # Safety
    /// `T` is the type that the maker of this value has promised.
    pub(super) unsafe fn into_array<T: Element>(self) -> Array<T> {
        match self.count {
            0 => Vec::new().into(),
            // SAFETY: as promised to `new`.
            count => unsafe { Array::from_foreign(self.address.cast(), count, self.owner) },
        }
    }
}

impl MutElements {
    /// `count` elements at an address, which stay there until the owner is dropped, on any thread.
    ///
    /// # Safety
    /// The address is aligned and has so many elements of the type of the worker to which they are given. Until the request is
    /// completed, nothing else reads or writes them. If it has failed, they may be written until the owner is dropped.
    pub unsafe fn new(address: *mut u8, count: usize, owner: impl Any + Send + Sync) -> Self {
        let owner = Box::new(owner);
        Self {
            address,
            count,
            owner,
        }
    }

    /// # Safety
    /// `T` is the type that the maker of this value has promised.
    pub(super) unsafe fn into_memory<T: Element>(self) -> Memory<T> {
        let address = match self.count {
            0 => std::ptr::NonNull::<T>::dangling().as_ptr(),
            _ => self.address.cast(),
        };
        // SAFETY: as promised to `new`.
        unsafe { Memory::from_foreign(address, self.count, self.owner) }
    }
}

// SAFETY: the memory is used by the request alone, on any thread, as promised to `new`.
unsafe impl Send for Elements {}
// SAFETY: as above; a shared reference gives no access to it.
unsafe impl Sync for Elements {}
// SAFETY: as for `Elements`.
unsafe impl Send for MutElements {}
// SAFETY: as for `Elements`.
unsafe impl Sync for MutElements {}
