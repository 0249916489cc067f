//! Prefetching into the processor's cache, to hide the latency of memory.

/// Bytes of a cache line.
pub(crate) const CACHE_LINE: usize = 64;

/// Prefetches the cache line in which a value begins.
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: A prefetch does not access memory, and the address is that of a value.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
