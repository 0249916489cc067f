//! Copies from the shards of a base that are in memory of this host.

use elasticrun_reshard::{Body, Fetch};
use elasticrun_worker::{DividedBase, copy};

use crate::dtype::Memory;

/// Bytes for which the start of a thread is worth its time.
const THREAD_BYTES: u64 = 16 << 20;

/// The shards of a base that this host has.
#[derive(Debug)]
pub(crate) struct LocalShards {
    pub(crate) base: DividedBase,
    /// Each shard, and where its parts are.
    pub(crate) bodies: Vec<(u32, Body)>,
}

/// What is copied of a tensor from a shard of this host.
#[derive(Debug)]
pub(crate) struct LocalPart {
    /// By index in [`LocalShards::bodies`].
    pub(crate) holder: usize,
    pub(crate) fetch: Fetch,
}

impl LocalShards {
    /// The bytes of a shard.
    pub(crate) fn bytes(&self, holder: usize) -> &[u8] {
        let shard = self.bodies[holder].0;
        self.base.bytes(shard).unwrap_or_default()
    }

    /// Copies parts to tensors, in several threads if that is worth their start. Returns the number of bytes. `own` is a shard
    /// that this process has mapped for its commits: its pages need not be mapped again.
    pub(crate) fn copy(
        &self,
        own: Option<(u32, &[u8])>,
        parts: &[LocalPart],
        targets: &[Memory],
        threads: usize,
    ) -> u64 {
        let bytes = parts.iter().map(|part| part.fetch.bytes()).sum::<u64>();
        let threads = (threads as u64).clamp(1, (bytes / THREAD_BYTES).max(1));
        let copy = |parts: &[LocalPart]| {
            for part in parts {
                let own = own.filter(|(shard, _)| *shard == self.bodies[part.holder].0);
                let source = own.map_or_else(|| self.bytes(part.holder), |(_, bytes)| bytes);
                self.copy_part(source, part, targets);
            }
        };
        let mut left = parts;
        std::thread::scope(|scope| {
            for _ in 1..threads {
                let mut share = 0;
                let count = left.iter().take_while(|part| {
                    share += part.fetch.bytes();
                    share <= bytes / threads
                });
                let (own, rest) = left.split_at(count.count());
                left = rest;
                scope.spawn(move || copy(own));
            }
            copy(left);
        });
        bytes
    }

    fn copy_part(&self, source: &[u8], part: &LocalPart, targets: &[Memory]) {
        let range = self.bodies[part.holder].1.tensors()[part.fetch.old_tensor as usize].clone();
        let target = targets[part.fetch.tensor as usize];
        for run in part.fetch.runs() {
            let (to, len) = (run.target as usize, run.len as usize);
            let from = range.start + run.source as usize;
            assert!(from + len <= range.end, "a run is within its tensor");
            // SAFETY: Python keeps the tensors alive and does not use them during the call. No two fetches write the same byte
            // (P1 of `elasticrun_reshard`).
            let to = unsafe { target.part_mut(to, len) };
            copy(&source[from..from + len], to);
        }
    }
}
