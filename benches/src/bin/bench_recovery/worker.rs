//! The worker: a state of 1 MiB, and steps with one allreduce and one commit each.

use std::{
    env,
    hint::black_box,
    io::{self, Write},
    path::PathBuf,
    thread,
    time::Duration,
};

use anyhow::Context;
use elasticrun_worker::{Op, Session, State, state};
use nix::time::{ClockId, clock_gettime};

use elasticrun_benches::SharedPage;

use crate::Mode;

/// Names the page. Without it, this process is the benchmark.
pub(crate) const PAGE: &str = "BENCH_RECOVERY_PAGE";

/// Names the mode.
pub(crate) const MODE: &str = "BENCH_RECOVERY_MODE";

/// Slots whose workers have 1 GiB of memory in mode `rss`.
pub(crate) const HEAVY: [u32; 2] = [0, 5];

/// Elements of the model: 1 MiB.
const WEIGHTS: usize = 1 << 18;

/// Elements of the gradient: 4 KiB.
const GRADIENT: usize = 1 << 10;

const STEP: Duration = Duration::from_millis(1);

/// What the benchmark passed to this worker.
pub(crate) struct Options {
    page: PathBuf,
    mode: Mode,
}

impl Options {
    /// `None` in the benchmark itself.
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
    let shared_page = SharedPage::open(&options.page)?;
    let slot: u32 = env::var("LOCAL_RANK").context("LOCAL_RANK")?.parse()?;
    let heavy = options.mode == Mode::Rss && HEAVY.contains(&slot);
    let ballast = heavy.then(|| vec![1_u8; 1 << 30]);
    shared_page.enter(slot);
    let mut model = Model {
        weights: vec![0.0; WEIGHTS],
        shared_page,
        slot,
        round: None,
    };
    elasticrun_worker::run(&mut model, |session, model| {
        let round = session.world().round().0;
        model.round = Some(round);
        let trained = train(session, model, options.mode);
        model.round = None;
        if trained.is_err() {
            model.shared_page.leave(slot, round);
        }
        trained
    })?;
    black_box(&ballast);
    Ok(())
}

/// The state. It records a commit as soon as all of it is written, without waiting until the thread
/// gets the processor back.
struct Model {
    weights: Vec<f32>,
    shared_page: SharedPage,
    slot: u32,
    /// The round, while it trains.
    round: Option<u64>,
}

impl State for Model {
    fn save(&self, out: &mut dyn Write) -> io::Result<()> {
        self.weights.save(out)?;
        if let Some(round) = self.round {
            self.shared_page.committed(self.slot, round);
        }
        Ok(())
    }

    fn restore(&mut self, from: &mut &[u8]) -> Result<(), state::Error> {
        self.weights.restore(from)
    }
}

/// Trains until the benchmark ends it, or the round is over.
fn train(
    session: &mut Session<'_>,
    model: &mut Model,
    mode: Mode,
) -> Result<(), elasticrun_worker::Error> {
    let round = session.world().round().0;
    let share = 1.0 / session.size() as f32;
    let mut gradient = vec![0.0_f32; GRADIENT];
    model.shared_page.begin(model.slot, round, session.size());
    loop {
        match mode {
            Mode::Wait | Mode::Rss => thread::sleep(STEP),
            Mode::Burn => burn(STEP),
        }
        gradient.fill(1.0);
        gradient[0] = f32::from(u8::from(model.shared_page.should_stop()));
        session.allreduce(&mut gradient, Op::Sum)?;
        if gradient[0] > 0.0 {
            return Ok(());
        }
        for weights in model.weights.chunks_mut(GRADIENT) {
            for (weight, slope) in weights.iter_mut().zip(&gradient) {
                *weight += share * slope;
            }
        }
        session.commit(model)?;
    }
}

/// Uses this much processor time of the thread, however often the thread is preempted.
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
