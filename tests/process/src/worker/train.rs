//! The training function.

use std::{path::Path, thread, time::Duration};

use elasticrun_worker::{Interrupt, Op, Session};

use super::{fault::Asked, meet, model::Model, rows::Rows};
use crate::{Kind, Plan, Point};

/// Why the training function ends early.
#[derive(Debug)]
pub(crate) enum Error {
    /// An error of the SDK.
    Sdk(elasticrun_worker::Error),
    /// A fault of the plan.
    Asked,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sdk(error) => {
                write!(f, "{error}")?;
                let mut source = std::error::Error::source(error);
                while let Some(cause) = source {
                    write!(f, ": {cause}")?;
                    source = cause.source();
                }
                Ok(())
            }
            Self::Asked => write!(f, "{Asked}"),
        }
    }
}

impl From<elasticrun_worker::Error> for Error {
    fn from(error: elasticrun_worker::Error) -> Self {
        Self::Sdk(error)
    }
}

impl From<Asked> for Error {
    fn from(_: Asked) -> Self {
        Self::Asked
    }
}

/// Trains until the plan's end, an interrupt or a fault.
pub(crate) fn train(
    session: &mut Session<'_>,
    model: &mut Model,
    plan: &Plan,
    directory: &Path,
) -> Result<(), Error> {
    model.see(session.world());
    let rounds = if plan.store {
        meet::at_start(session)?
    } else {
        String::new()
    };
    model.journal().write(Kind::Round, rounds);
    let result = steps(session, model, plan, directory);
    if let Err(error) = &result {
        let text = error.to_string();
        model.journal().write(Kind::Left, text);
    }
    result
}

fn steps(
    session: &mut Session<'_>,
    model: &mut Model,
    plan: &Plan,
    directory: &Path,
) -> Result<(), Error> {
    loop {
        model.at(Point::Step)?;
        thread::sleep(Duration::from_millis(plan.step_ms));
        if plan.store {
            meet::at_step(session, model.steps())?;
        }
        let over = plan.steps.map_or_else(
            || directory.join("finish").exists(),
            |steps| model.steps() >= steps,
        );
        // All workers end at the same step, and check that all members take part and are at that step.
        let (rows, numbers) = model.rows().map_or((0, 0), Rows::take);
        let over_here = f64::from(u8::from(over));
        let mut sums = [
            1.0,
            over_here,
            model.steps() as f64,
            rows as f64,
            numbers as f64,
        ];
        session.allreduce(&mut sums, Op::Sum)?;
        let size = f64::from(session.world().size());
        assert_eq!(
            sums[0],
            size,
            "a member is missing in the sum of step {}",
            model.steps()
        );
        assert_eq!(
            sums[2],
            size * model.steps() as f64,
            "not all are at step {}",
            model.steps()
        );
        if sums[1] > 0.0 {
            return Ok(());
        }
        model.step();
        if let Some(rows) = model.rows() {
            rows.learn(sums[3] as u64, sums[4] as u64);
        }
        let due = model.steps().is_multiple_of(plan.commit_every);
        if !due && !session.at_risk()? {
            session.check_host_updates(model)?;
            continue;
        }
        let committed = session.commit(model);
        // A commit at which all workers leave is made as well.
        let interrupt = committed
            .as_ref()
            .err()
            .and_then(elasticrun_worker::Error::interrupt);
        if committed.is_ok() || interrupt == Some(Interrupt::HostsUpdated) {
            let epoch = model.epoch();
            model.journal().write(Kind::Step, epoch);
        }
        committed?;
        model.at(Point::Committed)?;
    }
}
