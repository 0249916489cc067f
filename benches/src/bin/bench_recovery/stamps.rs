//! Stamps of the workers in a file that all map: who is in which slot, and when it first committed in a round.
//!
//! The hot path of a worker is two stores; nothing is logged.

use std::{
    fs::OpenOptions,
    path::Path,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use anyhow::{Context, Result};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};

use crate::RANKS;

/// Rounds that are remembered; older ones are overwritten.
const ROUNDS: usize = 64;

/// The stamps of one slot. All zero = nobody was there yet.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) pid: AtomicU32,
    /// The round it trains in.
    pub(crate) round: AtomicU64,
    /// Size of that round.
    pub(crate) size: AtomicU32,
    /// Commits in that round.
    pub(crate) commits: AtomicU64,
    firsts: [First; ROUNDS],
}

#[repr(C)]
#[derive(Debug)]
struct First {
    round: AtomicU64,
    nanos: AtomicU64,
}

/// The mapped file; it stays mapped as long as the process lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamps(&'static [Slot; RANKS]);

impl Stamps {
    /// Maps the file, which is made if it is not there.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        let length = size_of::<[Slot; RANKS]>();
        file.set_len(length as u64)?;
        let length = length.try_into().context("the stamps have no length")?;
        let (read_write, shared) = (
            ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
            MapFlags::MAP_SHARED,
        );
        // SAFETY: a fresh mapping of the whole file at an address that the kernel chooses; it is never unmapped.
        let start = unsafe { mmap(None, length, read_write, shared, &file, 0)? };
        // SAFETY: page-aligned, long enough, and any bytes are valid atomics.
        Ok(Self(unsafe { start.cast::<[Slot; RANKS]>().as_ref() }))
    }

    /// The stamps of a slot.
    pub(crate) fn slot(&self, slot: usize) -> &'static Slot {
        &self.0[slot]
    }
}

impl Slot {
    /// A worker has committed.
    pub(crate) fn committed(&self, round: u64, size: u32) {
        if self.round.load(Ordering::Relaxed) == round {
            self.commits.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let first = &self.firsts[round as usize % ROUNDS];
        first.nanos.store(monotonic_nanos(), Ordering::Relaxed);
        first.round.store(round, Ordering::Release);
        self.commits.store(1, Ordering::Relaxed);
        self.size.store(size, Ordering::Relaxed);
        self.round.store(round, Ordering::Release);
    }

    /// When it first committed in a round after this one.
    pub(crate) fn first_after(&self, round: u64) -> Option<u64> {
        (self.firsts.iter())
            .filter(|first| first.round.load(Ordering::Acquire) > round)
            .map(|first| first.nanos.load(Ordering::Relaxed))
            .min()
    }
}

/// Now, by the clock that all processes of this machine share.
pub(crate) fn monotonic_nanos() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    now.map_or(0, |now| {
        now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
    })
}
