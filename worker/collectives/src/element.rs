//! Element types, and the reductions of each.

use bytemuck::Pod;
use half::{bf16, f16};

use crate::{
    kernels,
    reduction::{Finish, Op},
};

/// Element types. The values are part of the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DType {
    /// Unsigned, 8 bits.
    U8 = 1,
    /// Signed, 8 bits.
    I8 = 2,
    /// Unsigned, 16 bits.
    U16 = 3,
    /// Signed, 16 bits.
    I16 = 4,
    /// Unsigned, 32 bits.
    U32 = 5,
    /// Signed, 32 bits.
    I32 = 6,
    /// Unsigned, 64 bits.
    U64 = 7,
    /// Signed, 64 bits.
    I64 = 8,
    /// IEEE 754 half precision. Accumulates in `f32`.
    F16 = 9,
    /// bfloat16: the upper half of an `f32`. Accumulates in `f32`.
    Bf16 = 10,
    /// IEEE 754 single precision.
    F32 = 11,
    /// IEEE 754 double precision.
    F64 = 12,
}

impl DType {
    pub(crate) fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::F32 | Self::F64)
    }

    /// The name of the type with this code of the wire format.
    pub fn name(code: u8) -> &'static str {
        match code {
            0 => "byte",
            1 => "u8",
            2 => "i8",
            3 => "u16",
            4 => "i16",
            5 => "u32",
            6 => "i32",
            7 => "u64",
            8 => "i64",
            9 => "f16",
            10 => "bf16",
            11 => "f32",
            12 => "f64",
            _ => "unknown type",
        }
    }
}

mod sealed {
    use super::{Finish, Op};

    /// The reductions of one element type.
    pub trait Reduce: Sized {
        /// Computes `dst = sources[0] op sources[1] op ...`, then `finish`.
        ///
        /// # Safety
        /// Each source must be readable for `dst.len()` elements and must not be written during the
        /// call. No source may overlap `dst`. There must be at least one source.
        unsafe fn reduce(op: Op, dst: &mut [Self], sources: &[*const Self], finish: Finish);

        /// Computes `dst = dst op other`, then `finish`. Types that accumulate in f32 are rounded
        /// once.
        fn combine(op: Op, dst: &mut [Self], other: &[Self], finish: Finish);

        /// Applies `finish` in place.
        fn finish(dst: &mut [Self], finish: Finish);

        /// Whether the sum of an average may overflow although its result does not. A sum between
        /// hosts that overflows is then repeated with values that are scaled down first.
        const SCALED_AVERAGE: bool = false;

        /// Whether no value is infinite or NaN.
        fn all_finite(_: &[Self]) -> bool {
            true
        }
    }
}

pub(crate) use sealed::Reduce;

/// An element type of the collectives. Sealed: the wire format lists each type.
pub trait Element: Pod + Send + Sync + PartialEq + std::fmt::Debug + sealed::Reduce {
    /// The type in the wire format.
    const DTYPE: DType;
}

/// Adds `other` to `dst`, element by element. Integers wrap around; 16-bit floats are added in `f32` and rounded once.
///
/// # Panics
/// The lengths differ.
pub fn add<T: Element>(dst: &mut [T], other: &[T]) {
    T::combine(Op::Sum, dst, other, Finish::Keep);
}

macro_rules! native {
    ($($ty:ty => $dtype:ident;)*) => {$(
        impl Element for $ty {
            const DTYPE: DType = DType::$dtype;
        }

        impl Reduce for $ty {
            unsafe fn reduce(op: Op, dst: &mut [Self], sources: &[*const Self], finish: Finish) {
                // SAFETY: the caller's promise is the callee's condition.
                unsafe { kernels::native::reduce(op, dst, sources, finish) };
            }

            fn combine(op: Op, dst: &mut [Self], other: &[Self], finish: Finish) {
                kernels::native::combine(op, dst, other, finish);
            }

            fn finish(dst: &mut [Self], finish: Finish) {
                kernels::native::finish(dst, finish);
            }
        }
    )*};
}

native! {
    u8 => U8;
    i8 => I8;
    u16 => U16;
    i16 => I16;
    u32 => U32;
    i32 => I32;
    u64 => U64;
    i64 => I64;
    f32 => F32;
    f64 => F64;
}

macro_rules! half_float {
    ($($ty:ty => $dtype:ident, $scaled:literal;)*) => {$(
        impl Element for $ty {
            const DTYPE: DType = DType::$dtype;
        }

        impl Reduce for $ty {
            const SCALED_AVERAGE: bool = $scaled;

            fn all_finite(values: &[Self]) -> bool {
                // Without an early return, so that the compiler vectorises it.
                values.iter().fold(true, |all, value| all & value.is_finite())
            }

            unsafe fn reduce(op: Op, dst: &mut [Self], sources: &[*const Self], finish: Finish) {
                // SAFETY: the caller's promise is the callee's condition.
                unsafe { kernels::half::reduce(op, dst, sources, finish) };
            }

            fn combine(op: Op, dst: &mut [Self], other: &[Self], finish: Finish) {
                kernels::half::combine(op, dst, other, finish);
            }

            fn finish(dst: &mut [Self], finish: Finish) {
                kernels::half::finish(dst, finish);
            }
        }
    )*};
}

half_float! {
    f16 => F16, true;
    bf16 => Bf16, false;
}
