//! Copies of more memory than caches hold.
//!
//! An ordinary store reads the line that it writes into the cache, so a copy moves three bytes for each one. Stores that bypass the
//! caches move two. Several processes of a host that copy at once, which the bandwidth of memory limits, are then about
//! twice as fast.

use std::ptr;

/// From so many bytes on, what is written will not be read from a cache.
#[cfg(any(test, target_arch = "x86_64"))]
const LARGE: usize = 1 << 20;

/// Copies bytes.
///
/// # Panics
/// If there are not as many bytes in both.
pub fn copy(from: &[u8], to: &mut [u8]) {
    assert_eq!(from.len(), to.len());
    // SAFETY: both are valid for as many bytes, and an exclusive reference overlaps no other one.
    unsafe { copy_bytes(from.as_ptr(), to.as_mut_ptr(), from.len()) }
}

/// As [`copy`], for memory by address.
///
/// # Safety
/// `from` is valid for reads of `len` bytes and `to` for writes, and they do not overlap.
pub unsafe fn copy_bytes(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= LARGE && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: as the caller promises, and the processor has the instructions.
        return unsafe { streaming::copy(from, to, len) };
    }
    // SAFETY: as the caller promises.
    unsafe { ptr::copy_nonoverlapping(from, to, len) }
}

#[cfg(target_arch = "x86_64")]
mod streaming {
    use std::{
        arch::x86_64::{
            __m256i, _MM_HINT_NTA, _mm_prefetch, _mm_sfence, _mm256_loadu_si256,
            _mm256_stream_si256,
        },
        ptr,
    };

    /// Bytes of a vector.
    const VECTOR: usize = size_of::<__m256i>();

    /// Bytes that are copied in one turn of the loop.
    const STEP: usize = 4 * VECTOR;

    /// How far ahead of its use memory is asked for.
    const AHEAD: usize = 1024;

    /// Copies with stores that bypass the caches.
    ///
    /// # Safety
    /// As for [`copy_bytes`](super::copy_bytes).
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
        // Such stores are aligned.
        let head = to.align_offset(VECTOR).min(len);
        let body = (len - head) / STEP * STEP;
        // SAFETY: head, body and tail are the parts of what the caller vouches for. A prefetch may have any address.
        unsafe {
            ptr::copy_nonoverlapping(from, to, head);
            let (source, target) = (from.add(head), to.add(head));
            for pos in (0..body).step_by(STEP) {
                let source = source.add(pos);
                _mm_prefetch::<_MM_HINT_NTA>(source.wrapping_add(AHEAD).cast());
                _mm_prefetch::<_MM_HINT_NTA>(source.wrapping_add(AHEAD + STEP / 2).cast());
                let (source, target) =
                    (source.cast::<__m256i>(), target.add(pos).cast::<__m256i>());
                let vectors = [
                    _mm256_loadu_si256(source),
                    _mm256_loadu_si256(source.add(1)),
                    _mm256_loadu_si256(source.add(2)),
                    _mm256_loadu_si256(source.add(3)),
                ];
                _mm256_stream_si256(target, vectors[0]);
                _mm256_stream_si256(target.add(1), vectors[1]);
                _mm256_stream_si256(target.add(2), vectors[2]);
                _mm256_stream_si256(target.add(3), vectors[3]);
            }
            // Other threads and processes see the stores before any that follow, such as a seal.
            _mm_sfence();
            let done = head + body;
            ptr::copy_nonoverlapping(from.add(done), to.add(done), len - done);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_any_place_and_number_are_copied_and_no_others() {
        let from: Vec<u8> = (0..3 * LARGE).map(|pos| (pos % 251) as u8).collect();
        for len in [
            0,
            1,
            1000,
            LARGE - 1,
            LARGE,
            LARGE + 1,
            LARGE + 127,
            2 * LARGE + 31,
        ] {
            for (source, target) in [(0, 0), (1, 0), (0, 1), (31, 17), (64, 33)] {
                let mut to = vec![255; target + len + 100];
                copy(&from[source..source + len], &mut to[target..target + len]);
                assert_eq!(to[target..target + len], from[source..source + len]);
                let others = to[..target].iter().chain(&to[target + len..]);
                assert!(others.into_iter().all(|byte| *byte == 255), "{len} bytes");
            }
        }
    }
}
