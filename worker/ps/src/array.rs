//! Arrays that are shared and not copied.

use std::{fmt, ops::Range, sync::Arc};

use bytemuck::Pod;
use bytes::Bytes;

/// A part of a shared array. Cloning and slicing copy no element.
pub struct Array<T> {
    all: Arc<Vec<T>>,
    range: Range<usize>,
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
    /// The vector, if nobody shares it.
    pub(crate) fn into_vec(self) -> Result<Vec<T>, Self> {
        let range = self.range;
        Arc::try_unwrap(self.all).map_err(|all| Self { all, range })
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
        &self.all[self.range.clone()]
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
            all: Arc::new(all),
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
}
