//! The worker: steps that wait, with one allreduce and one commit each.

use std::{
    env,
    io::{self, Write},
    path::PathBuf,
    thread,
    time::Duration,
};

use anyhow::Context;
use elasticrun_benches::SharedPage;
use elasticrun_worker::{Error, Op, Session, State, state};

/// Names the page. Without it, this process is the benchmark.
pub(crate) const PAGE: &str = "BENCH_NOTICE_PAGE";

/// Duration of a step without its allreduce.
pub(crate) const STEP: Duration = Duration::from_millis(1);

/// Elements of the gradient: 4 KiB.
const GRADIENT: usize = 1 << 10;

/// What the benchmark passed to this worker.
pub(crate) struct Options {
    page: PathBuf,
}

impl Options {
    /// `None` in the benchmark itself.
    pub(crate) fn from_environment() -> Option<Self> {
        let page = env::var_os(PAGE)?.into();
        Some(Self { page })
    }
}

/// The whole program.
pub(crate) fn main(options: &Options) -> anyhow::Result<()> {
    let shared_page = SharedPage::open(&options.page)?;
    let host = env::var("ELASTICRUN_HOST").context("ELASTICRUN_HOST")?;
    let number = host.strip_prefix('h').and_then(|text| text.parse().ok());
    let slot: u32 = number.with_context(|| format!("the host {host} is none of the bench's"))?;
    shared_page.enter(slot);
    let mut model = Model {
        weights: vec![0.0; GRADIENT],
    };
    let trained = elasticrun_worker::run(&mut model, |session, model| {
        let round = session.world().round().0;
        let trained = train(session, model, &shared_page, slot);
        if trained.is_err() {
            shared_page.leave(slot, round);
        }
        trained
    });
    match trained {
        // The worker's host was removed from the list.
        Ok(()) | Err(Error::Removed) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

struct Model {
    weights: Vec<f32>,
}

impl State for Model {
    fn save(&self, out: &mut dyn Write) -> io::Result<()> {
        self.weights.save(out)
    }

    fn restore(&mut self, from: &mut &[u8]) -> Result<(), state::Error> {
        self.weights.restore(from)
    }
}

/// Trains until the benchmark ends it, or the round is over.
fn train(
    session: &mut Session<'_>,
    model: &mut Model,
    shared_page: &SharedPage,
    slot: u32,
) -> Result<(), Error> {
    let round = session.world().round().0;
    let mut gradient = vec![0.0_f32; GRADIENT];
    shared_page.begin(slot, round, session.size());
    loop {
        thread::sleep(STEP);
        gradient.fill(1.0);
        gradient[0] = f32::from(u8::from(shared_page.should_stop()));
        session.allreduce(&mut gradient, Op::Sum)?;
        if gradient[0] > 0.0 {
            return Ok(());
        }
        for (weight, slope) in model.weights.iter_mut().zip(&gradient) {
            *weight += slope;
        }
        session.commit(model)?;
        shared_page.committed(slot, round);
    }
}
