//! The code that a user writes: the state, one step, and the loop.

use std::{
    io::{self, Write},
    thread,
    time::Duration,
};

use elasticrun_worker::{ElasticSampler, Error, Op, Session, State, sampler::Batch, state};

use crate::{
    audit::Journal,
    data::{Digit, Digits},
    network,
};

/// The settings of the training.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Passes over the data.
    pub epochs: u64,
    /// Maximum number of samples of one worker in a step.
    pub batch: u32,
    /// Learning rate of the steps.
    pub learning_rate: f32,
    /// Makes each step longer, to watch what happens.
    pub step_delay: Duration,
}

const MOMENTUM: f32 = 0.9;

/// Seed of the network's initial parameters and of the order of the samples.
const SEED: u64 = 1998;

/// The state: the network, its momentum, and the position in the data.
#[derive(Clone, Debug)]
pub struct Training {
    parameters: Vec<f32>,
    velocity: Vec<f32>,
    sampler: ElasticSampler,
    /// Sum of the losses of this epoch, over all workers.
    loss: f64,
}

impl Training {
    /// The initial state, the same in all workers.
    pub fn new(samples: usize) -> Self {
        Self {
            parameters: network::initial(SEED),
            velocity: vec![0.0; network::PARAMETERS],
            sampler: ElasticSampler::new(samples as u64, SEED),
            loss: 0.0,
        }
    }

    /// The share of `digits` that the network classifies correctly.
    pub fn accuracy(&self, digits: &[Digit]) -> f64 {
        network::accuracy(&self.parameters, digits)
    }

    /// Trains to the end. Called once for each round. It continues from any state.
    ///
    /// # Errors
    /// Errors of the session, and of the journal.
    pub fn run(
        &mut self,
        session: &mut Session<'_>,
        digits: &[Digit],
        settings: &Settings,
        journal: &mut Journal,
    ) -> anyhow::Result<()> {
        journal.started(session)?;
        while self.sampler.epoch() < settings.epochs {
            while let Some(batch) = self.sampler.next_batch(session.world(), settings.batch) {
                // Recorded before any peer can have the gradients of these rows.
                journal.uses(session.next_commit(), self.sampler.epoch(), batch.indices())?;
                self.step(session, digits, &batch, settings)?;
                self.sampler.processed(&batch);
                session.commit(self)?;
            }
            if session.rank() == 0 {
                self.report(session.size());
            }
            self.sampler.next_epoch();
            self.loss = 0.0;
        }
        Ok(())
    }

    /// One step of gradient descent, over all workers.
    fn step(
        &mut self,
        session: &mut Session<'_>,
        digits: &[Digit],
        batch: &Batch,
        settings: &Settings,
    ) -> Result<(), Error> {
        // The loss is reduced together with the gradient, as the last element.
        let mut sums = vec![0.0; network::PARAMETERS + 1];
        if let Some((loss, gradient)) = sums.split_last_mut() {
            for index in batch.indices() {
                *loss += network::add_gradient(&self.parameters, &digits[index as usize], gradient);
            }
        }
        thread::sleep(settings.step_delay);
        session.allreduce(&mut sums, Op::Sum)?;
        let scale = settings.learning_rate / batch.global_len() as f32;
        let numbers = self.parameters.iter_mut().zip(&mut self.velocity);
        for ((parameter, velocity), slope) in numbers.zip(&sums) {
            *velocity = MOMENTUM * *velocity - scale * slope;
            *parameter += *velocity;
        }
        self.loss += sums.last().copied().map_or(0.0, f64::from);
        Ok(())
    }

    fn report(&self, size: u32) {
        let epoch = self.sampler.epoch() + 1;
        let loss = self.loss / self.sampler.len() as f64;
        println!("epoch {epoch}: loss {loss:.4}, {size} workers");
    }
}

impl State for Training {
    fn save(&self, out: &mut dyn Write) -> io::Result<()> {
        self.parameters.save(out)?;
        self.velocity.save(out)?;
        self.sampler.save(out)?;
        self.loss.save(out)
    }

    fn restore(&mut self, from: &mut &[u8]) -> Result<(), state::Error> {
        self.parameters.restore(from)?;
        self.velocity.restore(from)?;
        self.sampler.restore(from)?;
        self.loss.restore(from)
    }
}

/// Trains in the world of this process. On rank 0, returns the share of test digits classified
/// correctly.
///
/// # Errors
/// Errors of [`elasticrun_worker::run`].
pub fn train(
    digits: &Digits,
    settings: &Settings,
    journal: &mut Journal,
) -> anyhow::Result<Option<f64>> {
    let mut training = Training::new(digits.train.len());
    elasticrun_worker::run(&mut training, |session, training| {
        training.run(session, &digits.train, settings, journal)?;
        Ok((session.rank() == 0).then(|| training.accuracy(&digits.test)))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_world_of_one_learns_to_read() {
        let digits =
            Digits::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("data/digits.parquet"))
                .unwrap();
        let settings = Settings {
            epochs: 8,
            batch: 32,
            learning_rate: 0.05,
            step_delay: Duration::ZERO,
        };
        let accuracy = train(&digits, &settings, &mut Journal::none())
            .unwrap()
            .unwrap();
        assert!(accuracy >= 0.9, "{accuracy}");
    }
}
