//! Arrays that are shared and not copied.

use std::{any::Any, fmt, ops::Range, sync::Arc};

use bytemuck::Pod;
use bytes::Bytes;

/// A part of a shared array. Cloning and slicing copy no element.
pub struct Array<T> {
    all: Arc<Elements<T>>,
    range: Range<usize>,
}

enum Elements<T> {
    Own(Vec<T>),
    Foreign(Foreign<T>),
}

/// Elements that belong to the owner, such as an object of another language.
struct Foreign<T> {
    first: *const T,
    len: usize,
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: the memory is only read, and its owner, which keeps it alive, may be used by any thread.
unsafe impl<T: Sync> Send for Foreign<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Foreign<T> {}

impl<T> Elements<T> {
    fn get(&self) -> &[T] {
        match self {
            Self::Own(all) => all,
            // SAFETY: as the caller of `from_foreign` has promised.
            Self::Foreign(all) => unsafe { std::slice::from_raw_parts(all.first, all.len) },
        }
    }
}

impl<T> Array<T> {
    /// The elements in the range.
    ///
    /// # Panics
    /// The range ends behind the array.
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.range.len());
        Self {
            all: Arc::clone(&self.all),
            range: self.range.start + range.start..self.range.start + range.end,
        }
    }
}

impl<T> Array<T> {
    /// The elements at an address, without a copy. The owner is dropped, on any thread, when the last share of the array is: for
    /// a request, when it is completed or the node has ended.
    ///
    /// # Safety
    /// `first` is aligned and the address of `len` initialised elements. They stay there until the owner is dropped. Until the
    /// request is completed nothing writes them.
    pub unsafe fn from_foreign(first: *const T, len: usize, owner: impl Any + Send + Sync) -> Self {
        let foreign = Foreign {
            first,
            len,
            _owner: Box::new(owner),
        };
        Self {
            all: Arc::new(Elements::Foreign(foreign)),
            range: 0..len,
        }
    }

    /// The array, with elements that nobody writes after the end of the request either: a copy, if they belong to another owner.
    pub(crate) fn owned(&self) -> Self
    where
        T: Clone,
    {
        match &*self.all {
            Elements::Own(_) => self.clone(),
            Elements::Foreign(_) => self.to_vec().into(),
        }
    }

    /// The vector, if nobody shares it.
    pub(crate) fn into_vec(self) -> Result<Vec<T>, Self> {
        let range = self.range;
        match Arc::try_unwrap(self.all) {
            Ok(Elements::Own(all)) => Ok(all),
            Ok(foreign) => Err(Self {
                all: Arc::new(foreign),
                range,
            }),
            Err(all) => Err(Self { all, range }),
        }
    }
}

impl<T: Pod + Send + Sync> Array<T> {
    /// The elements as bytes, shared.
    pub(crate) fn bytes(&self) -> Bytes {
        match self.is_empty() {
            true => Bytes::new(),
            false => Bytes::from_owner(AsBytes(self.clone())),
        }
    }
}

struct AsBytes<T>(Array<T>);

impl<T: Pod> AsRef<[u8]> for AsBytes<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

impl<T> Clone for Array<T> {
    fn clone(&self) -> Self {
        Self {
            all: Arc::clone(&self.all),
            range: self.range.clone(),
        }
    }
}

impl<T> std::ops::Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.all.get()[self.range.clone()]
    }
}

impl<T: fmt::Debug> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Takes the elements over: nothing is copied.
impl<T> From<Vec<T>> for Array<T> {
    fn from(all: Vec<T>) -> Self {
        let range = 0..all.len();
        Self {
            all: Arc::new(Elements::Own(all)),
            range,
        }
    }
}

/// Copies the elements.
impl<T: Clone> From<&[T]> for Array<T> {
    fn from(elements: &[T]) -> Self {
        elements.to_vec().into()
    }
}

/// Copies the elements.
impl<T: Clone, const N: usize> From<[T; N]> for Array<T> {
    fn from(elements: [T; N]) -> Self {
        Self::from(elements.to_vec())
    }
}

impl<T> From<&Array<T>> for Array<T> {
    fn from(array: &Array<T>) -> Self {
        array.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_share_their_elements() {
        let array = Array::from(vec![1u32, 2, 3, 4]);
        let part = array.slice(1..4).slice(1..3);
        assert_eq!(*part, [3, 4]);
        assert!(std::ptr::eq(&array[2], &part[0]));
        assert_eq!(part.bytes().as_ptr(), part.as_ptr().cast());
        assert!(array.slice(2..2).bytes().is_empty());
        let array = array.into_vec().unwrap_err();
        drop(part);
        assert_eq!(array.into_vec().unwrap(), [1, 2, 3, 4]);
    }

    #[test]
    fn foreign_elements_are_shared_until_the_last_part_is_gone() {
        let owner = Arc::new(vec![1u64, 2, 3]);
        // SAFETY: a clone of the owner keeps the elements alive, and nothing writes them.
        let array = unsafe { Array::from_foreign(owner.as_ptr(), 3, Arc::clone(&owner)) };
        let part = array.slice(1..3).bytes();
        assert_eq!(part.as_ptr(), owner[1..].as_ptr().cast());
        let array = array.into_vec().unwrap_err();
        drop(array);
        assert_eq!(Arc::strong_count(&owner), 2);
        drop(part);
        assert_eq!(Arc::strong_count(&owner), 1);
    }
}
