//! The loops that reduce elements. They are written for auto-vectorisation and compiled up to three
//! times, for the vector widths that the processor may have.

pub(crate) mod half;
pub(crate) mod native;
pub(crate) mod stream;

/// Bytes that are processed at a time, so that the accumulator stays in the first-level cache.
const BLOCK_BYTES: usize = 4096;

/// Defines `$name`, which calls `$inner` compiled for the widest vectors of this processor.
macro_rules! widest {
    (<$($generic:ident: $bound:path),*> $name:ident($($arg:ident: $ty:ty),*) => $inner:ident) => {
        #[inline]
        unsafe fn $name<$($generic: $bound),*>($($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
                unsafe fn avx512<$($generic: $bound),*>($($arg: $ty),*) {
                    // SAFETY: the caller's promise is handed on.
                    unsafe { $inner($($arg),*) }
                }
                #[target_feature(enable = "avx2,fma")]
                unsafe fn avx2<$($generic: $bound),*>($($arg: $ty),*) {
                    // SAFETY: the caller's promise is handed on.
                    unsafe { $inner($($arg),*) }
                }
                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                {
                    // SAFETY: the features were just found; the caller's promise is handed on.
                    return unsafe { avx512($($arg),*) };
                }
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    // SAFETY: the features were just found; the caller's promise is handed on.
                    return unsafe { avx2($($arg),*) };
                }
            }
            // SAFETY: the caller's promise is handed on.
            unsafe { $inner($($arg),*) }
        }
    };
}

use widest;
