//! Copies out of shared memory past the caches.

/// Messages from this size on are not expected to be in a cache when they are used next.
pub(crate) const LARGE: usize = 8 << 20;

/// Copies `len` bytes. If `large`, uses streaming stores, which do not read the lines of `dst`
/// first and leave the caches to shared data.
///
/// # Safety
/// As for `std::ptr::copy_nonoverlapping`.
pub(crate) unsafe fn copy(src: *const u8, dst: *mut u8, len: usize, large: bool) {
    #[cfg(target_arch = "x86_64")]
    if large && len >= 4096 && is_x86_feature_detected!("avx2") {
        // SAFETY: the feature was just found; the caller's promise is handed on.
        unsafe { streaming(src, dst, len) };
        return;
    }
    // SAFETY: the caller's promise is handed on.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, len) };
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn streaming(src: *const u8, dst: *mut u8, len: usize) {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};
    const STEP: usize = 128;
    // SAFETY: all offsets are below `len`, for which the caller promises both pointers; the
    // streaming stores are aligned, since they begin at the first multiple of 64 in `dst`.
    unsafe {
        let head = dst.align_offset(64).min(len);
        std::ptr::copy_nonoverlapping(src, dst, head);
        let steps = (len - head) / STEP;
        for step in 0..steps {
            let src = src.add(head + step * STEP).cast::<__m256i>();
            let dst = dst.add(head + step * STEP).cast::<__m256i>();
            let lines = [
                _mm256_loadu_si256(src),
                _mm256_loadu_si256(src.add(1)),
                _mm256_loadu_si256(src.add(2)),
                _mm256_loadu_si256(src.add(3)),
            ];
            for (index, line) in lines.into_iter().enumerate() {
                _mm256_stream_si256(dst.add(index), line);
            }
        }
        // Only a fence orders streaming stores.
        _mm_sfence();
        let done = head + steps * STEP;
        std::ptr::copy_nonoverlapping(src.add(done), dst.add(done), len - done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_any_length_between_any_offsets() {
        let src: Vec<u8> = (0..20_000u32).map(|i| (i * 31 % 251) as u8).collect();
        for (skip_from, skip_to) in [(0, 0), (1, 0), (0, 1), (63, 17), (5, 64)] {
            for len in [0, 1, 100, 4095, 4096, 4097, 8192, 10_001] {
                let mut dst = vec![0; 20_000];
                // SAFETY: both positions and the `len` bytes after them are within their vectors.
                unsafe {
                    copy(
                        src.as_ptr().add(skip_from),
                        dst.as_mut_ptr().add(skip_to),
                        len,
                        true,
                    );
                }
                assert!(dst[skip_to..skip_to + len] == src[skip_from..skip_from + len]);
                assert!(dst[..skip_to].iter().all(|&byte| byte == 0));
                assert!(dst[skip_to + len..].iter().all(|&byte| byte == 0));
            }
        }
    }
}
