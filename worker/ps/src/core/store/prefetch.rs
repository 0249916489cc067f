//! A hint to the processor.

/// Asks for the cache line of an element that will be read soon. A slice that ends before it is no mistake.
#[inline(always)]
pub(super) fn prefetch<N>(elements: &[N], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(element) = elements.get(index) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the address is that of an element, and every x86-64 processor has the instruction.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(element).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (elements, index);
}
