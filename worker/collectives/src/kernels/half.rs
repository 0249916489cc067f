//! Reductions of 16-bit floats: all sources of a step are accumulated in f32 and rounded once.

use half::{bf16, f16, slice::HalfFloatSliceExt};

use super::{native, widest};
use crate::reduction::{Finish, Op};

/// Elements of an f32 accumulator, 2 KiB.
const BLOCK: usize = 512;

/// A 16-bit float with block conversions.
pub(crate) trait Half: Copy {
    fn widen(from: &[Self], to: &mut [f32]);
    fn narrow(from: &[f32], to: &mut [Self]);
}

impl Half for f16 {
    #[inline(always)]
    fn widen(from: &[Self], to: &mut [f32]) {
        from.convert_to_f32_slice(to);
    }
    #[inline(always)]
    fn narrow(from: &[f32], to: &mut [Self]) {
        to.convert_from_f32_slice(from);
    }
}

impl Half for bf16 {
    #[inline(always)]
    fn widen(from: &[Self], to: &mut [f32]) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = f32::from_bits(u32::from(from.to_bits()) << 16);
        }
    }
    /// Rounds to nearest, ties to even. Written without a branch, so that the compiler vectorises
    /// it.
    #[inline(always)]
    fn narrow(from: &[f32], to: &mut [Self]) {
        for (to, from) in to.iter_mut().zip(from) {
            let bits = from.to_bits();
            let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
            let quiet = bits >> 16 | 0x40;
            *to = Self::from_bits(if from.is_nan() { quiet } else { rounded } as u16);
        }
    }
}

/// Computes `dst = sources[0] op sources[1] ...` in this order in f32, then `finish`, then rounds
/// once.
///
/// # Safety
/// As for `Reduce::reduce`.
pub(crate) unsafe fn reduce<T: Half>(op: Op, dst: &mut [T], sources: &[*const T], finish: Finish) {
    // SAFETY: the caller's promise is handed on.
    unsafe { reduce_widest::<T>(op, dst, sources, finish) }
}

widest!(<T: Half> reduce_widest(op: Op, dst: &mut [T], sources: &[*const T], finish: Finish) => reduce_with);

#[inline(always)]
unsafe fn reduce_with<T: Half>(op: Op, dst: &mut [T], sources: &[*const T], finish: Finish) {
    for (block, out) in dst.chunks_mut(BLOCK).enumerate() {
        let len = out.len();
        let source = |index: usize| {
            // SAFETY: the caller promises `dst.len()` readable elements at each source, not written
            // meanwhile and not overlapping `dst`; this block is within that.
            unsafe { std::slice::from_raw_parts(sources[index].add(block * BLOCK), len) }
        };
        let mut sum = [0f32; BLOCK];
        let mut next = [0f32; BLOCK];
        let (sum, next) = (&mut sum[..out.len()], &mut next[..out.len()]);
        T::widen(source(0), sum);
        for index in 1..sources.len() {
            T::widen(source(index), next);
            native::combine_block(op, sum, next);
        }
        scale(sum, finish);
        T::narrow(sum, out);
    }
}

/// Computes `dst = dst op other` in f32, then `finish`, then rounds once.
pub(crate) fn combine<T: Half>(op: Op, dst: &mut [T], other: &[T], finish: Finish) {
    assert_eq!(dst.len(), other.len());
    // SAFETY: no pointers are involved; the promise of the callee is empty.
    unsafe { combine_widest::<T>(op, dst, other, finish) }
}

widest!(<T: Half> combine_widest(op: Op, dst: &mut [T], other: &[T], finish: Finish) => combine_with);

#[inline(always)]
unsafe fn combine_with<T: Half>(op: Op, dst: &mut [T], other: &[T], finish: Finish) {
    for (dst, other) in dst.chunks_mut(BLOCK).zip(other.chunks(BLOCK)) {
        let mut sum = [0f32; BLOCK];
        let mut next = [0f32; BLOCK];
        let (sum, next) = (&mut sum[..dst.len()], &mut next[..dst.len()]);
        T::widen(dst, sum);
        T::widen(other, next);
        native::combine_block(op, sum, next);
        scale(sum, finish);
        T::narrow(sum, dst);
    }
}

/// Applies `finish` in place.
pub(crate) fn finish<T: Half>(dst: &mut [T], finish: Finish) {
    if finish == Finish::Keep {
        return;
    }
    for dst in dst.chunks_mut(BLOCK) {
        let mut wide = [0f32; BLOCK];
        let wide = &mut wide[..dst.len()];
        T::widen(dst, wide);
        scale(wide, finish);
        T::narrow(wide, dst);
    }
}

#[inline(always)]
fn scale(values: &mut [f32], finish: Finish) {
    match finish {
        Finish::Keep => {}
        Finish::Divide(count) => values.iter_mut().for_each(|v| *v /= count as f32),
        Finish::Multiply(factor) => values.iter_mut().for_each(|v| *v *= factor),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_rounds_as_the_half_crate_does() {
        let bits = (0..=u16::MAX).step_by(7).flat_map(|high| {
            [0u32, 1, 0x7fff, 0x8000, 0x8001, 0xffff].map(|low| u32::from(high) << 16 | low)
        });
        let wide: Vec<f32> = bits.map(f32::from_bits).collect();
        let mut narrow = vec![bf16::ZERO; wide.len()];
        bf16::narrow(&wide, &mut narrow);
        for (wide, narrow) in wide.iter().zip(&narrow) {
            assert_eq!(
                narrow.to_bits(),
                bf16::from_f32(*wide).to_bits(),
                "{wide:e}"
            );
        }
    }

    #[test]
    fn rounds_once_for_all_sources() {
        // 2048 + 1 is not an f16; 2048 + 1 + 1 is.
        let values = [[f16::from_f32(2048.0)], [f16::ONE], [f16::ONE]];
        let pointers: Vec<*const f16> = values.iter().map(|v| v.as_ptr()).collect();
        let mut dst = [f16::ZERO];
        // SAFETY: each source holds one element of its own.
        unsafe { reduce(Op::Sum, &mut dst, &pointers, Finish::Keep) };
        assert_eq!(dst[0].to_f32(), 2050.0);
    }

    #[test]
    fn average_does_not_overflow() {
        let value = [f16::MAX];
        let mut dst = [f16::ZERO];
        // SAFETY: each source holds one element; sources are only read.
        unsafe {
            reduce(
                Op::Average,
                &mut dst,
                &[value.as_ptr(); 8],
                Finish::Divide(8),
            )
        };
        assert_eq!(dst, value);
    }
}
