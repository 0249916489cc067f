//! The model: the committed state, and the checks that it is whole.

use std::io::{self, Write};

use elasticrun_worker::{Error, Session, State, World, state};

use super::{
    Journal,
    fault::{Asked, Faults},
    rows::Rows,
};
use crate::{Kind, Point};

/// A count of steps, the sum of their numbers, and bytes that are marked at both ends.
#[derive(Debug)]
pub(crate) struct Model {
    steps: u64,
    sum: u64,
    ballast: Vec<u8>,
    rows: Option<Rows>,
    /// In a cell, since a state is saved behind a shared reference.
    journal: std::cell::RefCell<Journal>,
    faults: Faults,
}

impl Model {
    pub(crate) fn new(
        ballast: usize,
        rows: Option<Rows>,
        journal: Journal,
        faults: Faults,
    ) -> Self {
        let mut model = Self {
            steps: 0,
            sum: 0,
            ballast: vec![0; ballast],
            rows,
            journal: journal.into(),
            faults,
        };
        model.mark();
        model
    }

    pub(crate) fn rows(&mut self) -> Option<&mut Rows> {
        self.rows.as_mut()
    }

    /// The epoch of the rows as text; empty if the plan has no rows.
    pub(crate) fn epoch(&self) -> String {
        let epoch = self.rows.as_ref().map(Rows::epoch);
        epoch.map_or_else(String::new, |epoch| epoch.to_string())
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    /// One step of training.
    pub(crate) fn step(&mut self) {
        self.steps += 1;
        self.sum += self.steps;
        self.mark();
    }

    /// The journal, with the current count of steps.
    pub(crate) fn journal(&mut self) -> &mut Journal {
        self.journal.get_mut().now.step = self.steps;
        self.journal.get_mut()
    }

    /// Applies the faults of this point.
    pub(crate) fn at(&self, point: Point) -> Result<(), Asked> {
        let mut journal = self.journal.borrow_mut();
        journal.now.step = self.steps;
        self.faults.at(point, &mut journal)
    }

    /// Sets the round of the events that follow.
    pub(crate) fn see(&mut self, world: &World) {
        let now = &mut self.journal.get_mut().now;
        (now.round, now.rank, now.size) = (world.round().0, world.rank(), world.size());
    }

    fn mark(&mut self) {
        let mark = self.steps.to_le_bytes();
        if self.ballast.len() >= 16 {
            let end = self.ballast.len() - 8;
            self.ballast[..8].copy_from_slice(&mark);
            self.ballast[end..].copy_from_slice(&mark);
        }
    }

    /// Fails if the parts are not of one step.
    fn check(&self) {
        assert_eq!(
            self.sum,
            self.steps * (self.steps + 1) / 2,
            "the state is torn at step {}",
            self.steps
        );
        if self.ballast.len() >= 16 {
            let end = self.ballast.len() - 8;
            assert_eq!(
                self.ballast[..8],
                self.steps.to_le_bytes(),
                "the state is torn at step {}",
                self.steps
            );
            assert_eq!(
                self.ballast[end..],
                self.steps.to_le_bytes(),
                "the state is torn at step {}",
                self.steps
            );
        }
    }
}

impl State for Model {
    fn save(&self, out: &mut dyn Write) -> io::Result<()> {
        self.at(Point::Save)
            .map_err(|asked| io::Error::other(asked.to_string()))?;
        self.steps.save(out)?;
        self.sum.save(out)?;
        self.ballast.save(out)?;
        self.rows.iter().try_for_each(|rows| rows.save(out))
    }

    fn restore(&mut self, from: &mut &[u8]) -> Result<(), state::Error> {
        self.steps.restore(from)?;
        self.sum.restore(from)?;
        self.ballast.restore(from)?;
        if let Some(rows) = &mut self.rows {
            rows.restore(from)?;
        }
        self.check();
        self.at(Point::Restore)
            .map_err(|asked| state::Error::other(asked.to_string()))
    }

    fn reset(&mut self, world: &World) {
        self.see(world);
        self.journal().write(Kind::Reset, "");
        // The callback has no way to fail.
        let _ = self.at(Point::Reset);
    }

    fn enter(&mut self, session: &mut Session<'_>) -> Result<(), Error> {
        self.rows
            .iter_mut()
            .try_for_each(|rows| rows.enter(session))
    }

    fn agree(&mut self, session: &mut Session<'_>) -> Result<(), Error> {
        self.rows
            .iter_mut()
            .try_for_each(|rows| rows.agree(session))
    }

    fn committed(&mut self) -> Result<(), Error> {
        self.rows.iter_mut().try_for_each(Rows::committed)
    }
}
