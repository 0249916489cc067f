//! Element types and reductions by name, and memory by address.

use elasticrun_worker::{DType, Element, Op};
use half::{bf16, f16};
use pyo3::{exceptions::PyValueError, prelude::*};

/// The element type with a name that Python passes.
pub(crate) fn dtype(name: &str) -> PyResult<DType> {
    Ok(match name {
        "u8" => DType::U8,
        "i8" => DType::I8,
        "u16" => DType::U16,
        "i16" => DType::I16,
        "u32" => DType::U32,
        "i32" => DType::I32,
        "u64" => DType::U64,
        "i64" => DType::I64,
        "f16" => DType::F16,
        "bf16" => DType::Bf16,
        "f32" => DType::F32,
        "f64" => DType::F64,
        _ => {
            return Err(PyValueError::new_err(format!(
                "element type {name:?}: one of u8 i8 u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64"
            )));
        }
    })
}

/// The reduction with a name that Python passes.
pub(crate) fn op(name: &str) -> PyResult<Op> {
    Ok(match name {
        "sum" => Op::Sum,
        "average" => Op::Average,
        "min" => Op::Min,
        "max" => Op::Max,
        "product" => Op::Product,
        "band" => Op::BitAnd,
        "bor" => Op::BitOr,
        "bxor" => Op::BitXor,
        _ => {
            return Err(PyValueError::new_err(format!(
                "reduction {name:?}: one of sum average min max product band bor bxor"
            )));
        }
    })
}

/// Calls a generic function with the element type that a [`DType`] names.
macro_rules! with_element {
    ($dtype:expr, $name:ident => $body:expr) => {
        match $dtype {
            elasticrun_worker::DType::U8 => {
                type $name = u8;
                $body
            }
            elasticrun_worker::DType::I8 => {
                type $name = i8;
                $body
            }
            elasticrun_worker::DType::U16 => {
                type $name = u16;
                $body
            }
            elasticrun_worker::DType::I16 => {
                type $name = i16;
                $body
            }
            elasticrun_worker::DType::U32 => {
                type $name = u32;
                $body
            }
            elasticrun_worker::DType::I32 => {
                type $name = i32;
                $body
            }
            elasticrun_worker::DType::U64 => {
                type $name = u64;
                $body
            }
            elasticrun_worker::DType::I64 => {
                type $name = i64;
                $body
            }
            elasticrun_worker::DType::F16 => {
                type $name = half::f16;
                $body
            }
            elasticrun_worker::DType::Bf16 => {
                type $name = half::bf16;
                $body
            }
            elasticrun_worker::DType::F32 => {
                type $name = f32;
                $body
            }
            elasticrun_worker::DType::F64 => {
                type $name = f64;
                $body
            }
        }
    };
}
pub(crate) use with_element;

/// Elements that can be multiplied by a factor.
pub(crate) trait Scale: Element {
    /// `self * factor`, rounded once to the type; integers towards zero.
    fn scale(self, factor: f64) -> Self;
}

macro_rules! scale {
    ($($type:ty),*) => {
        $(impl Scale for $type {
            fn scale(self, factor: f64) -> Self {
                (self as f64 * factor) as $type
            }
        })*
    };
}
scale!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

impl Scale for f16 {
    fn scale(self, factor: f64) -> Self {
        Self::from_f64(self.to_f64() * factor)
    }
}

impl Scale for bf16 {
    fn scale(self, factor: f64) -> Self {
        Self::from_f64(self.to_f64() * factor)
    }
}

/// Memory of a Python object, which the caller keeps alive: whole elements of one type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    address: usize,
    len: usize,
}

impl Memory {
    /// No bytes.
    pub(crate) const EMPTY: Self = Self { address: 0, len: 0 };

    /// The elements of type `T` in the `nbytes` at `address`. Nothing beyond them is read or written.
    pub(crate) fn from_address<T>((address, nbytes): (usize, usize)) -> PyResult<Self> {
        let size = size_of::<T>();
        if !nbytes.is_multiple_of(size) {
            return Err(PyValueError::new_err(format!(
                "{nbytes} bytes are not a multiple of an element of {size} bytes"
            )));
        }
        if nbytes > 0 && (address == 0 || !address.is_multiple_of(align_of::<T>())) {
            return Err(PyValueError::new_err(format!(
                "{nbytes} bytes at {address:#x}: not an address of elements of {size} bytes"
            )));
        }
        Ok(Self {
            address,
            len: nbytes / size,
        })
    }

    /// Number of elements.
    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// The elements to write.
    ///
    /// # Safety
    /// `T` is the type that the memory was created with, the memory is alive, and no other code uses it for `'a`.
    pub(crate) unsafe fn as_mut<'a, T: Element>(self) -> &'a mut [T] {
        if self.len == 0 {
            return &mut [];
        }
        let pointer = std::ptr::with_exposed_provenance_mut(self.address);
        // SAFETY: as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(pointer, self.len) }
    }

    /// Copies bytes to an offset of memory that was created as bytes.
    ///
    /// # Safety
    /// The memory is alive, and no other code uses the bytes from the offset on meanwhile, as many as are copied. Other threads
    /// may use other bytes.
    ///
    /// # Panics
    /// If the bytes do not fit.
    pub(crate) unsafe fn write_at(self, offset: usize, bytes: &[u8]) {
        // SAFETY: as the caller promises.
        unsafe { self.part_mut(offset, bytes.len()) }.copy_from_slice(bytes);
    }

    /// A part of the memory.
    ///
    /// # Safety
    /// As [`write_at`](Self::write_at), for as long as the part is used.
    ///
    /// # Panics
    /// If it is not within the memory.
    pub(crate) unsafe fn part_mut<'a>(self, offset: usize, len: usize) -> &'a mut [u8] {
        let end = offset.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.len),
            "{offset} of {}",
            self.len
        );
        if len == 0 {
            return &mut [];
        }
        let start = std::ptr::with_exposed_provenance_mut::<u8>(self.address + offset);
        // SAFETY: within the memory, as was checked; the rest is as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(start, len) }
    }

    /// The elements to read.
    ///
    /// # Safety
    /// `T` is the type that the memory was created with, the memory is alive, and no other code writes it for `'a`.
    pub(crate) unsafe fn as_ref<'a, T: Element>(self) -> &'a [T] {
        if self.len == 0 {
            return &[];
        }
        let pointer = std::ptr::with_exposed_provenance(self.address);
        // SAFETY: as the caller promises.
        unsafe { std::slice::from_raw_parts(pointer, self.len) }
    }
}
