//! The devices of this host that a worker may use alone.

use std::fs;

/// The number of NVIDIA GPUs of this host. `None` if there are none.
pub(crate) fn gpus() -> Option<u32> {
    let devices = fs::read_dir("/dev").into_iter().flatten().flatten();
    let is_gpu = |name: &str| {
        name.strip_prefix("nvidia")
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    };
    let gpus = devices
        .filter(|entry| entry.file_name().to_str().is_some_and(is_gpu))
        .count();
    u32::try_from(gpus).ok().filter(|gpus| *gpus > 0)
}
