//! The loops that reduce elements. Written so that the compiler vectorises them, and compiled a
//! second and third time for the wider vectors that the processor at hand may have.

pub(crate) mod half;
pub(crate) mod native;
pub(crate) mod stream;

/// Elements that are worked on at a time: what is accumulated stays in the first-level cache.
const BLOCK_BYTES: usize = 4096;

/// Calls `$body` compiled for the widest vectors of this processor.
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
