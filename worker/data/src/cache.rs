//! The processor's cache: memory is asked for before it is read, so that nobody waits for it.

/// Bytes of a line of it.
pub(crate) const LINE: usize = 64;

/// Asks for the line that a value begins in.
#[inline]
pub(crate) fn ask_for<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: A prefetch reads nothing; the address is that of a value.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
