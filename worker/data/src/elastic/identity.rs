//! Who this worker is among those that read a data set.

use std::{
    env, fs,
    hash::{BuildHasher, RandomState},
};

use elasticrun_ledger::Owner;
use xxhash_rust::xxh3::xxh3_64;

/// A number that no other process has, and the host by the name that the job gives it (`ELASTICRUN_HOST`), or its own.
pub(super) fn this_worker() -> Owner {
    let host = env::var("ELASTICRUN_HOST")
        .or_else(|_| fs::read_to_string("/proc/sys/kernel/hostname"))
        .unwrap_or_default();
    Owner {
        // Its keys are random, from the system.
        id: RandomState::new().hash_one(std::process::id()).max(1),
        host: xxh3_64(host.trim().as_bytes()),
        zone: 0,
    }
}
