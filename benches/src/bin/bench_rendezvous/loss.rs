//! The loss of many hosts at once: time and processor time of the driver until the survivors are in their next round.

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicU64},
    time::Instant,
};

use anyhow::{Context, Result, ensure};
use tokio::sync::{Semaphore, mpsc};

use crate::{agent::Agent, driver::Driver};

/// Figures of one loss.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    /// From the first reset to the last start of the next round, in seconds.
    pub(crate) wall: f64,
    /// Of the driver, in the same time, in seconds.
    pub(crate) cpu: f64,
    /// Rounds that were planned with a survivor in this time, as it saw them.
    pub(crate) plans: u32,
}

/// Brings `hosts` hosts into a round, resets the connections of `lost` of them, and waits for the round of the others.
pub(crate) async fn trial(
    binary: &Path,
    (hosts, lost, workers): (u32, u32, u32),
    restart_mode: Option<&str>,
) -> Result<Loss> {
    ensure!(lost < hosts, "no host would be left");
    let left = hosts - lost;
    // Workers of a script without the SDK end with their round, so the mode has to be one of the others.
    let mode = restart_mode.unwrap_or("in-process");
    let driver = Driver::start(binary, hosts * workers, left * workers, Some(mode)).await?;
    let bytes = Arc::new(AtomicU64::new(0));
    let permits = Arc::new(Semaphore::new(256));
    let (started_in, mut started) = mpsc::unbounded_channel();
    for number in 0..hosts {
        let permit = permits.clone().acquire_owned().await?;
        let (address, token) = (driver.address, driver.token.clone());
        let (bytes, started) = (bytes.clone(), started_in.clone());
        tokio::spawn(async move {
            let agent = async {
                let mut agent = Agent::connect(number, workers, address, &token, bytes).await?;
                drop(permit);
                let size = agent.until_started().await?;
                ensure!(size == hosts * workers, "a round of {size}");
                anyhow::Ok((number, agent))
            };
            let _ = started.send(agent.await);
        });
    }
    let (mut losers, mut survivors) = (Vec::new(), Vec::new());
    for _ in 0..hosts {
        let (number, agent) = started.recv().await.context("agents are gone")??;
        // Spread over all hosts.
        let is_lost = u64::from(number) * u64::from(lost) % u64::from(hosts) < u64::from(lost);
        if is_lost { &mut losers } else { &mut survivors }.push(agent);
    }
    ensure!(losers.len() == lost as usize, "{} are lost", losers.len());
    let (again_in, mut again) = mpsc::unbounded_channel();
    for mut agent in survivors {
        let again = again_in.clone();
        tokio::spawn(async move {
            let before = agent.plans;
            let size = agent.until_started().await;
            let _ = again.send(size.map(|size| (size, agent.plans - before, agent)));
        });
    }
    let (began, cpu) = (Instant::now(), driver.cpu_seconds()?);
    for agent in losers {
        agent.reset()?;
    }
    let (mut plans, mut agents) = (0, Vec::new());
    for _ in 0..left {
        let (size, planned, agent) = again.recv().await.context("agents are gone")??;
        ensure!(size == left * workers, "a round of {size}");
        plans = plans.max(planned);
        agents.push(agent);
    }
    Ok(Loss {
        wall: began.elapsed().as_secs_f64(),
        cpu: driver.cpu_seconds()? - cpu,
        plans,
    })
}
