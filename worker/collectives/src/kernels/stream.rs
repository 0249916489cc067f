//! Copying out of shared memory past the caches.

/// Messages from this size on are not expected to be in a cache when they are used next.
pub(crate) const LARGE: usize = 8 << 20;

/// Copies `len` bytes; if `large`, with stores that do not read the target's lines first and leave the
/// caches to what is shared.
///
/// # Safety
/// As for `std::ptr::copy_nonoverlapping`.
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize, large: bool) {
    #[cfg(target_arch = "x86_64")]
    if large && len >= 4096 && is_x86_feature_detected!("avx2") {
        // SAFETY: the feature was just found; the caller's promise is handed on.
        unsafe { streaming(from, to, len) };
        return;
    }
    // SAFETY: the caller's promise is handed on.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn streaming(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};
    const STEP: usize = 128;
    // SAFETY: all offsets are below `len`, for which the caller promises both pointers; the streaming
    // stores are aligned, since they begin at the first multiple of 64 in the target.
    unsafe {
        let head = to.align_offset(64).min(len);
        std::ptr::copy_nonoverlapping(from, to, head);
        let steps = (len - head) / STEP;
        for step in 0..steps {
            let from = from.add(head + step * STEP).cast::<__m256i>();
            let to = to.add(head + step * STEP).cast::<__m256i>();
            let lines = [
                _mm256_loadu_si256(from),
                _mm256_loadu_si256(from.add(1)),
                _mm256_loadu_si256(from.add(2)),
                _mm256_loadu_si256(from.add(3)),
            ];
            for (index, line) in lines.into_iter().enumerate() {
                _mm256_stream_si256(to.add(index), line);
            }
        }
        // Streaming stores are ordered by nothing else.
        _mm_sfence();
        let done = head + steps * STEP;
        std::ptr::copy_nonoverlapping(from.add(done), to.add(done), len - done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_any_length_from_and_to_any_place() {
        let from: Vec<u8> = (0..20_000u32).map(|i| (i * 31 % 251) as u8).collect();
        for (skip_from, skip_to) in [(0, 0), (1, 0), (0, 1), (63, 17), (5, 64)] {
            for len in [0, 1, 100, 4095, 4096, 4097, 8192, 10_001] {
                let mut to = vec![0; 20_000];
                // SAFETY: both places and `len` bytes after them are within their vectors.
                unsafe {
                    copy(
                        from.as_ptr().add(skip_from),
                        to.as_mut_ptr().add(skip_to),
                        len,
                        true,
                    );
                }
                assert!(to[skip_to..skip_to + len] == from[skip_from..skip_from + len]);
                assert!(to[..skip_to].iter().all(|&byte| byte == 0));
                assert!(to[skip_to + len..].iter().all(|&byte| byte == 0));
            }
        }
    }
}
