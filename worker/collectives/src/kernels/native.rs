//! Reductions of types that accumulate in their own type.

use super::{BLOCK_BYTES, widest};
use crate::reduction::{Finish, Op};

/// The arithmetic of one type.
pub(crate) trait Arith: Copy {
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    fn divided_by(self, count: u32) -> Self;
    fn bit_and(self, other: Self) -> Self;
    fn bit_or(self, other: Self) -> Self;
    fn bit_xor(self, other: Self) -> Self;
}

macro_rules! integer {
    ($wide:ty: $($ty:ty)*) => {$(
        impl Arith for $ty {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                Ord::min(self, other)
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                Ord::max(self, other)
            }
            #[inline(always)]
            fn divided_by(self, count: u32) -> Self {
                (self as $wide / <$wide>::from(count)) as Self
            }
            #[inline(always)]
            fn bit_and(self, other: Self) -> Self {
                self & other
            }
            #[inline(always)]
            fn bit_or(self, other: Self) -> Self {
                self | other
            }
            #[inline(always)]
            fn bit_xor(self, other: Self) -> Self {
                self ^ other
            }
        }
    )*};
}

integer!(u64: u8 u16 u32 u64);
integer!(i64: i8 i16 i32 i64);

macro_rules! float {
    ($($ty:ty)*) => {$(
        impl Arith for $ty {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn product(self, other: Self) -> Self {
                self * other
            }
            // NaN on either side yields NaN, so that a diverged gradient stays visible.
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                if self < other || self.is_nan() { self } else { other }
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                if self > other || self.is_nan() { self } else { other }
            }
            #[inline(always)]
            fn divided_by(self, count: u32) -> Self {
                self / count as Self
            }
            // The group refuses these for floats.
            #[inline(always)]
            fn bit_and(self, other: Self) -> Self {
                Self::from_bits(self.to_bits() & other.to_bits())
            }
            #[inline(always)]
            fn bit_or(self, other: Self) -> Self {
                Self::from_bits(self.to_bits() | other.to_bits())
            }
            #[inline(always)]
            fn bit_xor(self, other: Self) -> Self {
                Self::from_bits(self.to_bits() ^ other.to_bits())
            }
        }
    )*};
}

float!(f32 f64);

/// Computes `dst = sources[0] op sources[1] ...` in this order, then `finish`.
///
/// # Safety
/// As for `Reduce::reduce`.
pub(crate) unsafe fn reduce<T: Arith>(op: Op, dst: &mut [T], sources: &[*const T], finish: Finish) {
    // SAFETY: the caller's promise is handed on.
    unsafe { reduce_widest::<T>(op, dst, sources, finish) }
}

widest!(<T: Arith> reduce_widest(op: Op, dst: &mut [T], sources: &[*const T], finish: Finish) => reduce_with);

#[inline(always)]
unsafe fn reduce_with<T: Arith>(op: Op, dst: &mut [T], sources: &[*const T], finish: Finish) {
    // SAFETY: the caller's promise is handed on.
    unsafe {
        match op {
            Op::Sum | Op::Average => fold(dst, sources, finish, T::sum),
            Op::Min => fold(dst, sources, finish, T::min),
            Op::Max => fold(dst, sources, finish, T::max),
            Op::Product => fold(dst, sources, finish, T::product),
            Op::BitAnd => fold(dst, sources, finish, T::bit_and),
            Op::BitOr => fold(dst, sources, finish, T::bit_or),
            Op::BitXor => fold(dst, sources, finish, T::bit_xor),
        }
    }
}

/// Reads up to four sources in one pass over a block of `dst`, to store it less often.
#[inline(always)]
unsafe fn fold<T: Arith>(
    dst: &mut [T],
    sources: &[*const T],
    finish: Finish,
    f: impl Fn(T, T) -> T + Copy,
) {
    let block = BLOCK_BYTES / size_of::<T>();
    for (number, out) in dst.chunks_mut(block).enumerate() {
        let (start, len) = (number * block, out.len());
        let source = |index: usize| {
            // SAFETY: the caller promises `dst.len()` readable elements at each source, not written
            // meanwhile and not overlapping `dst`; `start + len` is within that.
            unsafe { std::slice::from_raw_parts(sources[index].add(start), len) }
        };
        let mut taken = match sources.len() {
            1 => {
                out.copy_from_slice(source(0));
                1
            }
            2 => {
                let (a, b) = (source(0), source(1));
                for (i, o) in out.iter_mut().enumerate() {
                    *o = f(a[i], b[i]);
                }
                2
            }
            3 => {
                let (a, b, c) = (source(0), source(1), source(2));
                for (i, o) in out.iter_mut().enumerate() {
                    *o = f(f(a[i], b[i]), c[i]);
                }
                3
            }
            _ => {
                let (a, b, c, d) = (source(0), source(1), source(2), source(3));
                for (i, o) in out.iter_mut().enumerate() {
                    *o = f(f(f(a[i], b[i]), c[i]), d[i]);
                }
                4
            }
        };
        while sources.len() - taken >= 4 {
            let (a, b, c, d) = (
                source(taken),
                source(taken + 1),
                source(taken + 2),
                source(taken + 3),
            );
            for (i, o) in out.iter_mut().enumerate() {
                *o = f(f(f(f(*o, a[i]), b[i]), c[i]), d[i]);
            }
            taken += 4;
        }
        while taken < sources.len() {
            let a = source(taken);
            for (o, a) in out.iter_mut().zip(a) {
                *o = f(*o, *a);
            }
            taken += 1;
        }
        finish_block(out, finish);
    }
}

/// Computes `dst = dst op other`, then `finish`.
pub(crate) fn combine<T: Arith>(op: Op, dst: &mut [T], other: &[T], finish: Finish) {
    assert_eq!(dst.len(), other.len());
    // SAFETY: no pointers are involved; the promise of the callee is empty.
    unsafe { combine_widest::<T>(op, dst, other, finish) }
}

widest!(<T: Arith> combine_widest(op: Op, dst: &mut [T], other: &[T], finish: Finish) => combine_with);

#[inline(always)]
unsafe fn combine_with<T: Arith>(op: Op, dst: &mut [T], other: &[T], finish: Finish) {
    match op {
        Op::Sum | Op::Average => zip(dst, other, finish, T::sum),
        Op::Min => zip(dst, other, finish, T::min),
        Op::Max => zip(dst, other, finish, T::max),
        Op::Product => zip(dst, other, finish, T::product),
        Op::BitAnd => zip(dst, other, finish, T::bit_and),
        Op::BitOr => zip(dst, other, finish, T::bit_or),
        Op::BitXor => zip(dst, other, finish, T::bit_xor),
    }
}

#[inline(always)]
fn zip<T: Arith>(dst: &mut [T], other: &[T], finish: Finish, f: impl Fn(T, T) -> T) {
    let block = BLOCK_BYTES / size_of::<T>();
    for (dst, other) in dst.chunks_mut(block).zip(other.chunks(block)) {
        for (d, o) in dst.iter_mut().zip(other) {
            *d = f(*d, *o);
        }
        finish_block(dst, finish);
    }
}

/// Computes `dst = dst op other`. Inlined into loops over blocks.
#[inline(always)]
pub(super) fn combine_block<T: Arith>(op: Op, dst: &mut [T], other: &[T]) {
    // SAFETY: no pointers are involved; the promise of the callee is empty.
    unsafe { combine_with(op, dst, other, Finish::Keep) }
}

/// Applies `finish` in place.
pub(crate) fn finish<T: Arith>(dst: &mut [T], finish: Finish) {
    finish_block(dst, finish);
}

#[inline(always)]
fn finish_block<T: Arith>(dst: &mut [T], finish: Finish) {
    if let Finish::Divide(count) = finish {
        for d in dst {
            *d = d.divided_by(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_sources_in_order() {
        for count in 1..14usize {
            let sources: Vec<Vec<f64>> = (0..count)
                .map(|s| (0..3000).map(|i| (i * 7 + s * 13) as f64 / 3.0).collect())
                .collect();
            let pointers: Vec<*const f64> = sources.iter().map(|s| s.as_ptr()).collect();
            for op in [Op::Sum, Op::Min, Op::Max, Op::Product] {
                let mut dst = vec![0.0; 3000];
                // SAFETY: each source holds 3000 elements of its own.
                unsafe { reduce(op, &mut dst, &pointers, Finish::Divide(3)) };
                for i in 0..3000 {
                    let expected = sources[1..].iter().fold(sources[0][i], |a, s| match op {
                        Op::Min => a.min(s[i]),
                        Op::Max => a.max(s[i]),
                        Op::Product => a * s[i],
                        _ => a + s[i],
                    }) / 3.0;
                    assert_eq!(dst[i], expected, "{op:?} of {count} at {i}");
                }
            }
        }
    }

    #[test]
    fn average_of_small_integers_by_a_large_count() {
        let mut values = [200u8, 255];
        finish(&mut values, Finish::Divide(256));
        assert_eq!(values, [0, 0]);
        let mut values = [-128i8, 127];
        finish(&mut values, Finish::Divide(2));
        assert_eq!(values, [-64, 63]);
    }

    #[test]
    fn nan_is_kept_by_min_and_max() {
        for (a, b) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
            for op in [Op::Min, Op::Max] {
                let mut dst = [a];
                combine(op, &mut dst, &[b], Finish::Keep);
                assert!(dst[0].is_nan());
            }
        }
    }
}
