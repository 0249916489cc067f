//! The worker: steps with one allreduce, a state of 1 MiB, a commit a step.

use std::{env, hint::black_box, path::PathBuf, thread, time::Duration};

use anyhow::Context;
use elasticrun_worker::{Op, Session};
use nix::time::{ClockId, clock_gettime};

use crate::{Mode, board::Board};

/// Names the page; without it this process is the bench.
pub(crate) const PAGE: &str = "BENCH_RECOVERY_PAGE";

/// Names the mode.
pub(crate) const MODE: &str = "BENCH_RECOVERY_MODE";

/// Slots whose workers have 1 GiB of memory in mode `rss`.
pub(crate) const HEAVY: [u32; 2] = [0, 5];

/// Numbers of the model: 1 MiB.
const WEIGHTS: usize = 1 << 18;

/// Numbers of the gradient: 4 KiB.
const GRADIENT: usize = 1 << 10;

const STEP: Duration = Duration::from_millis(1);

/// What the bench told this worker.
pub(crate) struct Options {
    page: PathBuf,
    mode: Mode,
}

impl Options {
    /// None in the bench itself.
    pub(crate) fn from_environment() -> anyhow::Result<Option<Self>> {
        let Some(page) = env::var_os(PAGE) else {
            return Ok(None);
        };
        let mode = match env::var(MODE)?.as_str() {
            "wait" => Mode::Wait,
            "burn" => Mode::Burn,
            _ => Mode::Rss,
        };
        Ok(Some(Self {
            page: page.into(),
            mode,
        }))
    }
}

/// The whole program.
pub(crate) fn main(options: &Options) -> anyhow::Result<()> {
    let board = Board::open(&options.page)?;
    let slot: u32 = env::var("LOCAL_RANK").context("LOCAL_RANK")?.parse()?;
    let heavy = options.mode == Mode::Rss && HEAVY.contains(&slot);
    let ballast = heavy.then(|| vec![1_u8; 1 << 30]);
    board.enter(slot);
    let mut model = vec![0.0_f32; WEIGHTS];
    elasticrun_worker::run(&mut model, |session, model| {
        let round = session.world().round().0;
        let trained = train(session, model, &board, slot, options.mode);
        if trained.is_err() {
            board.leave(slot, round);
        }
        trained
    })?;
    black_box(&ballast);
    Ok(())
}

/// Trains until the bench wants the end, or the round is over.
fn train(
    session: &mut Session<'_>,
    model: &mut Vec<f32>,
    board: &Board,
    slot: u32,
    mode: Mode,
) -> Result<(), elasticrun_worker::Error> {
    let round = session.world().round().0;
    let share = 1.0 / session.size() as f32;
    let mut gradient = vec![0.0_f32; GRADIENT];
    board.begin(slot, round, session.size());
    loop {
        match mode {
            Mode::Wait | Mode::Rss => thread::sleep(STEP),
            Mode::Burn => burn(STEP),
        }
        gradient.fill(1.0);
        gradient[0] = f32::from(u8::from(board.stops()));
        session.allreduce(&mut gradient, Op::Sum)?;
        if gradient[0] > 0.0 {
            return Ok(());
        }
        for weights in model.chunks_mut(GRADIENT) {
            for (weight, slope) in weights.iter_mut().zip(&gradient) {
                *weight += share * slope;
            }
        }
        session.commit(model)?;
        board.committed(slot, round);
    }
}

/// Takes so much of the processor's own time, however often it is taken away.
fn burn(time: Duration) {
    let spent = || {
        let used = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
        used.map_or(Duration::MAX, Duration::from)
    };
    let end = spent() + time;
    while spent() < end {
        black_box((0..1000_u64).fold(0, |sum: u64, n| sum.wrapping_mul(31) ^ n));
    }
}
