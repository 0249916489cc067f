//! The page that workers and benchmark share: the round of each worker, and the times of its steps.

use std::{
    fs::File,
    num::NonZeroUsize,
    path::Path,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use nix::{
    sys::{
        mman::{MapFlags, ProtFlags, mmap},
        signal::{Signal, kill},
    },
    time::{ClockId, clock_gettime},
    unistd::Pid,
};

use crate::job::Job;

/// Maximum number of slots.
const SLOTS: usize = 64;

/// Number of recent rounds that are kept.
const ROUNDS: usize = 64;

/// Timeout of each wait.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Steps in a round before it counts as steady.
const STEADY_STEPS: u64 = 5;

#[derive(Debug)]
#[repr(C)]
struct Layout {
    slots: AtomicU32,
    stop: AtomicU32,
    slot: [Slot; SLOTS],
}

#[derive(Debug)]
#[repr(C)]
struct Slot {
    pid: AtomicU32,
    /// When the process started.
    entered: AtomicU64,
    size: AtomicU32,
    round: AtomicU64,
    /// Steps committed in the round.
    steps: AtomicU64,
    /// By round: when the worker left it, began it, and committed its first step.
    left: [Stamp; ROUNDS],
    begun: [Stamp; ROUNDS],
    first: [Stamp; ROUNDS],
}

/// The time of an event in a round.
#[derive(Debug)]
#[repr(C)]
struct Stamp {
    round: AtomicU64,
    nanos: AtomicU64,
}

impl Stamp {
    fn set(&self, round: u64) {
        self.nanos.store(now(), Ordering::Relaxed);
        self.round.store(round, Ordering::Release);
    }

    fn get(&self, round: u64) -> Option<u64> {
        (self.round.load(Ordering::Acquire) == round).then(|| self.nanos.load(Ordering::Relaxed))
    }
}

/// When the last survivor reached each stage after a kill, by CLOCK_MONOTONIC in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct RecoveryTimes {
    /// It left the round, so it knew of the death.
    pub left: u64,
    /// It had the state and began to train.
    pub begun: u64,
    /// It had committed a step.
    pub committed: u64,
}

/// A handle on the page. The page stays mapped until the process ends.
#[derive(Debug)]
pub struct SharedPage(&'static Layout);

impl SharedPage {
    /// Creates the page in an empty file.
    ///
    /// # Errors
    /// The file cannot be sized or mapped.
    pub fn create(file: &File, slots: u32) -> anyhow::Result<Self> {
        file.set_len(size_of::<Layout>() as u64)?;
        let page = Self::map(file)?;
        page.0.slots.store(slots, Ordering::Relaxed);
        Ok(page)
    }

    /// Opens the page of a benchmark.
    ///
    /// # Errors
    /// There is none, or it cannot be mapped.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        Self::map(&file).with_context(|| path.display().to_string())
    }

    fn map(file: &File) -> anyhow::Result<Self> {
        let length = NonZeroUsize::new(size_of::<Layout>()).context("an empty page")?;
        // SAFETY: a fresh shared mapping of a file of this length; never unmapped.
        let start = unsafe {
            let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
            mmap(None, length, protection, MapFlags::MAP_SHARED, file, 0)?
        };
        // SAFETY: it is aligned to a page, as long as `Layout`, made of atomics only, and zeros are
        // valid.
        Ok(Self(unsafe { start.cast::<Layout>().as_ref() }))
    }

    // Worker's side.

    /// Registers this process as the worker of a slot.
    pub fn enter(&self, slot: u32) {
        let slot = self.slot(slot);
        slot.entered.store(now(), Ordering::Relaxed);
        slot.pid.store(std::process::id(), Ordering::Release);
    }

    /// Records that a worker begins a round.
    pub fn begin(&self, slot: u32, round: u64, size: u32) {
        let slot = self.slot(slot);
        slot.steps.store(0, Ordering::Relaxed);
        slot.size.store(size, Ordering::Relaxed);
        slot.begun[round as usize % ROUNDS].set(round);
        slot.round.store(round, Ordering::Release);
    }

    /// Records a committed step.
    pub fn committed(&self, slot: u32, round: u64) {
        let slot = self.slot(slot);
        if slot.steps.fetch_add(1, Ordering::Release) == 0 {
            slot.first[round as usize % ROUNDS].set(round);
        }
    }

    /// Records that a worker leaves a round that is over.
    pub fn leave(&self, slot: u32, round: u64) {
        self.slot(slot).left[round as usize % ROUNDS].set(round);
    }

    /// Whether the benchmark ends the job.
    pub fn should_stop(&self) -> bool {
        self.0.stop.load(Ordering::Relaxed) != 0
    }

    // Benchmark's side.

    /// Ends the job.
    pub fn stop(&self) {
        self.0.stop.store(1, Ordering::Relaxed);
    }

    /// The round, if all slots train in one round and have done so for some steps.
    pub fn steady(&self) -> Option<u64> {
        let slots: Vec<_> = (0..self.0.slots.load(Ordering::Relaxed)).collect();
        self.training(&slots)
    }

    fn training(&self, slots: &[u32]) -> Option<u64> {
        let round = self.slot(*slots.first()?).round.load(Ordering::Acquire);
        let trains = |number: &u32| {
            let slot = self.slot(*number);
            slot.steps.load(Ordering::Acquire) >= STEADY_STEPS
                && slot.round.load(Ordering::Acquire) == round
                && slot.size.load(Ordering::Relaxed) as usize == slots.len()
        };
        slots.iter().all(trains).then_some(round)
    }

    /// Waits until all slots train in one round.
    ///
    /// # Errors
    /// The job has ended, or the timeout has passed.
    pub fn wait_steady(&self, job: &Job) -> anyhow::Result<u64> {
        wait(job, || self.steady())
    }

    /// Kills the worker of a slot. Returns the time at which kill(2) returned.
    ///
    /// # Errors
    /// There is no such process.
    pub fn kill(&self, slot: u32) -> anyhow::Result<u64> {
        let pid = self.slot(slot).pid.load(Ordering::Acquire);
        kill(Pid::from_raw(pid as i32), Signal::SIGKILL)?;
        Ok(now())
    }

    /// Waits until all workers but the victim have committed a step in a round after this one.
    /// Returns when the last of them reached each stage.
    ///
    /// # Errors
    /// As [`SharedPage::wait_steady`].
    pub fn wait_survivors(
        &self,
        round: u64,
        victim: u32,
        job: &Job,
    ) -> anyhow::Result<RecoveryTimes> {
        let slots = self.0.slots.load(Ordering::Relaxed);
        let survivors: Vec<_> = (0..slots).filter(|slot| *slot != victim).collect();
        wait(job, || {
            let times: Option<Vec<_>> = survivors
                .iter()
                .map(|slot| self.recovery_times(*slot, round))
                .collect();
            times?.into_iter().reduce(|one, other| RecoveryTimes {
                left: one.left.max(other.left),
                begun: one.begun.max(other.begun),
                committed: one.committed.max(other.committed),
            })
        })
    }

    /// Waits until these slots have left this round at its common commit. Returns when the last of
    /// them had.
    ///
    /// # Errors
    /// As [`SharedPage::wait_steady`].
    pub fn wait_left(&self, round: u64, slots: &[u32], job: &Job) -> anyhow::Result<u64> {
        wait(job, || {
            let left = |slot: &u32| self.slot(*slot).left[round as usize % ROUNDS].get(round);
            let left: Option<Vec<_>> = slots.iter().map(left).collect();
            left?.into_iter().max()
        })
    }

    /// Waits until these slots, and no others, have made some steps in one round. Returns the
    /// round.
    ///
    /// # Errors
    /// As [`SharedPage::wait_steady`].
    pub fn wait_training(&self, slots: &[u32], job: &Job) -> anyhow::Result<u64> {
        wait(job, || self.training(slots))
    }

    /// When the process of a slot started, by CLOCK_MONOTONIC in nanoseconds.
    pub fn entered(&self, slot: u32) -> u64 {
        self.slot(slot).entered.load(Ordering::Relaxed)
    }

    /// The times of a slot on the way to the first round after this one in which it committed a
    /// step.
    fn recovery_times(&self, slot: u32, round: u64) -> Option<RecoveryTimes> {
        let slot = self.slot(slot);
        let index = |round: u64| round as usize % ROUNDS;
        (round + 1..round + ROUNDS as u64).find_map(|later| {
            Some(RecoveryTimes {
                left: slot.left[index(round)].get(round)?,
                begun: slot.begun[index(later)].get(later)?,
                committed: slot.first[index(later)].get(later)?,
            })
        })
    }

    fn slot(&self, number: u32) -> &Slot {
        &self.0.slot[number as usize]
    }
}

/// Waits for a condition and leaves the processor to the measured processes.
fn wait<T>(job: &Job, mut condition: impl FnMut() -> Option<T>) -> anyhow::Result<T> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = condition() {
            return Ok(value);
        }
        if Instant::now() > deadline {
            bail!("nothing happened for {TIMEOUT:?}\n{}", job.output_tail());
        }
        job.check()?;
        thread::sleep(Duration::from_millis(2));
    }
}

/// CLOCK_MONOTONIC in nanoseconds: the same in all processes.
pub fn now() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| {
        time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
    })
}
