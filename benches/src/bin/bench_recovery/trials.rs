//! The job and its victims.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;

use crate::{
    RANKS,
    stamps::{Stamps, monotonic_nanos},
};

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// It waits 1 ms.
    Wait,
    /// It burns 1 ms of CPU.
    Burn,
    /// It waits 1 ms, and the victim has 1 GiB of resident memory.
    Large,
}

impl Kind {
    /// Kills of this kind. A new gibibyte takes seconds to touch each time, where memory is virtual.
    pub(crate) fn trials(self, wanted: usize) -> usize {
        match self {
            Self::Large => wanted.min(50),
            Self::Wait | Self::Burn => wanted,
        }
    }
}

/// Slot of the victim with 1 GiB.
pub(crate) const VICTIM: usize = RANKS - 1;

/// How long the survivors, or a replacement, may take before the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A job that trains.
pub(crate) struct Job {
    driver: Child,
    stamps: Stamps,
    kind: Kind,
    _directory: TempDir,
}

impl Job {
    /// Starts a job and waits until it trains with all workers.
    pub(crate) fn start(driver: &Path, kind: Kind) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("stamps");
        let stamps = Stamps::open(&path)?;
        let name = match kind {
            Kind::Wait => "wait",
            Kind::Burn => "burn",
            Kind::Large => "large",
        };
        let mut command = Command::new(driver);
        command
            .args([
                "-np",
                "8",
                "--min-np",
                "2",
                "--max-np",
                "8",
                "-H",
                "localhost:8",
            ])
            .args([
                "--failure-domain",
                "slot",
                "--blacklist-cooldown-range",
                "0",
                "0",
            ])
            .args(["--max-host-failures", "0", "--quiet", "--"])
            .arg(std::env::current_exe()?)
            .args(["worker", "--kind", name, "--stamps"])
            .arg(&path)
            .stdin(Stdio::null());
        println!("{command:?}");
        let driver = command.spawn().context("cannot start elasticrun")?;
        let mut job = Self {
            driver,
            stamps,
            kind,
            _directory: directory,
        };
        job.wait_until_whole(0)?;
        Ok(job)
    }

    /// Kills a worker at a random moment. Gives the time to the last survivor's next commit.
    pub(crate) fn kill_one(&mut self) -> Result<Duration> {
        let round = self.wait_until_whole(20)?;
        thread::sleep(Duration::from_micros(random(10_000)?));
        let victim = match self.kind {
            Kind::Large => VICTIM,
            _ => random(RANKS as u64)? as usize,
        };
        let pid = self.stamps.slot(victim).pid.load(Ordering::Acquire);
        kill(Pid::from_raw(pid.try_into()?), Signal::SIGKILL)?;
        let killed = monotonic_nanos();
        let until = Instant::now() + PATIENCE;
        loop {
            // Coarse, so that looking takes nothing from those who are looked at; the stamps are exact.
            thread::sleep(Duration::from_millis(2));
            let firsts: Option<Vec<u64>> = (0..RANKS)
                .filter(|slot| *slot != victim)
                .map(|slot| self.stamps.slot(slot).first_after(round))
                .collect();
            if let Some(last) = firsts.and_then(|firsts| firsts.into_iter().max()) {
                return Ok(Duration::from_nanos(last.saturating_sub(killed)));
            }
            self.still_runs()?;
            ensure!(
                Instant::now() < until,
                "the survivors did not go on within {PATIENCE:?}"
            );
        }
    }

    /// Waits until all workers are in one round and have committed so often; gives the round.
    fn wait_until_whole(&mut self, commits: u64) -> Result<u64> {
        let until = Instant::now() + PATIENCE;
        loop {
            let slots = || (0..RANKS).map(|slot| self.stamps.slot(slot));
            let round = self.stamps.slot(0).round.load(Ordering::Acquire);
            let whole = slots().all(|slot| {
                slot.round.load(Ordering::Acquire) == round
                    && slot.size.load(Ordering::Relaxed) as usize == RANKS
                    && slot.commits.load(Ordering::Relaxed) > commits
            });
            if whole && round > 0 {
                return Ok(round);
            }
            self.still_runs()?;
            ensure!(
                Instant::now() < until,
                "not all workers train within {PATIENCE:?}"
            );
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn still_runs(&mut self) -> Result<()> {
        let ended = self.driver.try_wait()?;
        ensure!(ended.is_none(), "elasticrun ended: {ended:?}");
        Ok(())
    }

    /// Ends the job.
    pub(crate) fn stop(mut self) -> Result<()> {
        kill(Pid::from_raw(self.driver.id().try_into()?), Signal::SIGINT)?;
        self.driver.wait()?;
        Ok(())
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Its agent ends the workers when the driver is gone.
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn random(below: u64) -> Result<u64> {
    let number = getrandom::u64().map_err(|error| anyhow::anyhow!("no randomness: {error}"))?;
    Ok(number % below)
}
