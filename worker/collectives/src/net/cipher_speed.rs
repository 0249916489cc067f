//! Whether this processor computes the tags of messages fast.
//!
//! The cipher needs the AES instructions. Without them it is a hundred times slower, and slower than most networks. Its tags
//! are the same, so hosts with and without these instructions form rounds together.

use std::sync::atomic::{AtomicBool, Ordering};

/// Logs one warning for this process if its processor has no AES instructions. Call it when a connection between hosts is
/// made.
pub(super) fn warn_if_slow() {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if is_first_slow(has_aes_instructions(), &WARNED) {
        tracing::warn!(
            "this processor has no AES instructions: each core authenticates about 0.27 GB/s between hosts, not 20 GB/s or more; \
             in a virtual machine, pass the instructions through (for example -cpu host)"
        );
    }
}

fn is_first_slow(is_fast: bool, warned: &AtomicBool) -> bool {
    !is_fast && !warned.swap(true, Ordering::Relaxed)
}

/// Whether the cipher uses the processor's instructions.
fn has_aes_instructions() -> bool {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    {
        is_x86_feature_detected!("aes") && is_x86_feature_detected!("avx")
    }
    #[cfg(target_arch = "aarch64")]
    {
        std::arch::is_aarch64_feature_detected!("aes")
    }
    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
    {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_processor_is_named_once() {
        let warned = AtomicBool::new(false);
        assert!(!is_first_slow(true, &warned));
        assert!(is_first_slow(false, &warned));
        assert!(!is_first_slow(false, &warned));
    }
}
