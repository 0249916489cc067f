//! A worker of the measured job: 1 MB of state, one allreduce and one commit a step.

use std::{
    hint::black_box,
    path::Path,
    process,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use elasticrun_worker::{Error, Op};

use crate::{
    stamps::Stamps,
    trials::{Kind, VICTIM},
};

const STEP: Duration = Duration::from_millis(1);

/// Trains until it is ended.
pub(crate) fn run(stamps: &Path, kind: Kind) -> Result<()> {
    let stamps = Stamps::open(stamps)?;
    let local_rank: usize = std::env::var("ELASTICRUN_LOCAL_RANK")?.parse()?;
    let slot = stamps.slot(local_rank);
    slot.pid.store(process::id(), Ordering::Release);
    // Touched, so that it is resident and the kernel has to give it back.
    let ballast = if kind == Kind::Large && local_rank == VICTIM {
        vec![1_u8; 1 << 30]
    } else {
        Vec::new()
    };
    black_box(&ballast);
    let mut weights = vec![0.0_f32; 250_000];
    run_elastic(&mut weights, slot, kind)?;
    Ok(())
}

fn run_elastic(
    weights: &mut Vec<f32>,
    slot: &crate::stamps::Slot,
    kind: Kind,
) -> Result<(), Error> {
    elasticrun_worker::run(weights, |session, weights: &mut Vec<f32>| {
        loop {
            let mut gradient = [1.0_f32; 256];
            match kind {
                Kind::Burn => burn(STEP),
                Kind::Wait | Kind::Large => thread::sleep(STEP),
            }
            session.allreduce(&mut gradient, Op::Average)?;
            for (weight, slope) in weights.iter_mut().zip(&gradient) {
                *weight += slope;
            }
            session.commit(weights)?;
            slot.committed(session.world().round().0, session.size());
        }
    })
}

/// Uses that much time of the processor, not of the clock: others may have the processor meanwhile.
fn burn(time: Duration) {
    use nix::time::{ClockId, clock_gettime};
    let used =
        || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from);
    let (began, until) = (Instant::now(), used() + time);
    while used() < until {
        black_box((0..1000_u32).fold(0, |sum: u32, n| sum.wrapping_add(black_box(n))));
        if began.elapsed() > time * 100 {
            return;
        }
    }
}
