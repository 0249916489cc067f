//! The identity of this worker in the ledger.

use std::{
    env, fs,
    hash::{BuildHasher, RandomState},
};

use elasticrun_ledger::Owner;
use xxhash_rust::xxh3::xxh3_64;

/// A unique id, and a hash of the host name: `ELASTICRUN_HOST` if the job sets it, or the name of the kernel.
pub(super) fn this_worker() -> Owner {
    let host = env::var("ELASTICRUN_HOST")
        .or_else(|_| fs::read_to_string("/proc/sys/kernel/hostname"))
        .unwrap_or_default();
    Owner {
        // The hasher has random keys from the system.
        id: RandomState::new().hash_one(std::process::id()).max(1),
        host: xxh3_64(host.trim().as_bytes()),
        zone: 0,
    }
}
