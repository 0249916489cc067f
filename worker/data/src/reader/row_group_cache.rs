//! The cache of decoded row groups: those with readers, those kept for a rollback, and those being prefetched.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use super::pool::Pool;
use crate::{decode::DecodedGroup, error::Result};

/// Decoded row groups by index; see the module.
#[derive(Debug)]
pub(super) struct RowGroupCache {
    pool: Pool<u32, DecodedGroup>,
    held: HashMap<u32, CachedGroup>,
    /// Cached row groups without a reader, the one idle for longest first.
    idle: VecDeque<u32>,
    /// Row groups that are prefetched and not acquired yet, with their estimated bytes.
    pending: HashMap<u32, u64>,
}

#[derive(Debug)]
struct CachedGroup {
    group: Arc<DecodedGroup>,
    /// Number of open pieces that read from it.
    readers: u32,
}

impl RowGroupCache {
    pub(super) fn new(pool: Pool<u32, DecodedGroup>) -> Self {
        Self {
            pool,
            held: HashMap::new(),
            idle: VecDeque::new(),
            pending: HashMap::new(),
        }
    }

    /// Bytes in memory, including the estimated bytes of prefetched row groups.
    pub(super) fn bytes(&self) -> u64 {
        let held: u64 = self.held.values().map(|held| held.group.bytes as u64).sum();
        held + self.pending_bytes()
    }

    /// Estimated bytes of prefetched row groups.
    pub(super) fn pending_bytes(&self) -> u64 {
        self.pending.values().sum()
    }

    /// Whether a row group is cached or being prefetched.
    pub(super) fn contains(&self, group: u32) -> bool {
        self.held.contains_key(&group) || self.pending.contains_key(&group)
    }

    /// Prefetches a row group with its estimated bytes.
    pub(super) fn prefetch(&mut self, group: u32, bytes: u64) {
        self.pool.prefetch(group);
        self.pending.insert(group, bytes);
    }

    /// Adds a reader to a row group, and waits until it is decoded.
    ///
    /// # Errors
    /// As decoding. The next call decodes again.
    pub(super) fn acquire(&mut self, group: u32) -> Result<Arc<DecodedGroup>> {
        if let Some(held) = self.held.get_mut(&group) {
            if held.readers == 0 {
                self.idle.retain(|idle| *idle != group);
            }
            held.readers += 1;
            return Ok(held.group.clone());
        }
        self.pending.remove(&group);
        let decoded = Arc::new(self.pool.wait(&group)?);
        let held = CachedGroup {
            group: decoded.clone(),
            readers: 1,
        };
        self.held.insert(group, held);
        Ok(decoded)
    }

    /// Removes a reader. The row group stays cached until memory is needed.
    pub(super) fn release(&mut self, group: u32) {
        if let Some(held) = self.held.get_mut(&group) {
            held.readers -= 1;
            if held.readers == 0 {
                self.idle.push_back(group);
            }
        }
    }

    /// Removes a reader that has copied its remaining rows. Evicts the row group if it has no other reader. Returns
    /// the freed bytes.
    pub(super) fn release_and_evict(&mut self, group: u32) -> u64 {
        let Some(held) = self.held.get_mut(&group) else {
            return 0;
        };
        held.readers -= 1;
        if held.readers > 0 {
            return 0;
        }
        self.held
            .remove(&group)
            .map_or(0, |held| held.group.bytes as u64)
    }

    /// Evicts row groups without a reader, the one idle for longest first, until at most `limit` bytes are held.
    pub(super) fn evict_to(&mut self, limit: u64) {
        let mut bytes = self.bytes();
        while bytes > limit {
            let Some(group) = self.idle.pop_front() else {
                return;
            };
            if let Some(held) = self.held.remove(&group) {
                bytes -= held.group.bytes as u64;
            }
        }
    }

    /// Evicts all row groups except those to keep. No row group may have a reader.
    pub(super) fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        self.pool.retain(|group| keep(*group));
        self.held.retain(|group, _| keep(*group));
        self.idle.retain(|group| keep(*group));
        self.pending.retain(|group, _| keep(*group));
    }
}
