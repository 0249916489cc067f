//! The number of processes in each state.

use super::{Life, Live};

/// The number of processes in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Not yet at `run()`.
    pub starting: usize,
    /// At `run()`, in no round.
    pub waiting: usize,
    /// In the round that trains, or that is being left.
    pub training: usize,
    /// Expected at `run()`.
    pub returning: usize,
    /// Asked to stop.
    pub stopping: usize,
}

impl Census {
    /// The processes that count towards the size of the job.
    pub fn staying(&self) -> usize {
        self.starting + self.waiting + self.training + self.returning
    }

    /// Whether no process is left; processes that are not reaped count.
    pub fn is_empty(&self) -> bool {
        self.staying() + self.stopping == 0
    }

    /// Gives a process another state. Returns whether its record changes: only whether it is stopping is recorded.
    pub(super) fn turn(&mut self, live: &mut Live, life: Life) -> bool {
        let before = std::mem::replace(&mut live.life, life);
        *self.count(before) -= 1;
        *self.count(life) += 1;
        (before == Life::Stopping) != (life == Life::Stopping)
    }

    pub(super) fn count(&mut self, life: Life) -> &mut usize {
        match life {
            Life::Starting { .. } => &mut self.starting,
            Life::Waiting => &mut self.waiting,
            Life::Training { .. } => &mut self.training,
            Life::Returning { .. } => &mut self.returning,
            Life::Stopping => &mut self.stopping,
        }
    }
}
