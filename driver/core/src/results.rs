//! Results: the outcome of a job, and the first worker that failed.
//!
//! A job ends in exactly one [`Outcome`] (invariant R10); the shell turns it into the exit code.

use std::time::Duration;

use elasticrun_protocol::{HostId, Process, Rank, Round, control::Exit};

use crate::mutant::{Mutant, planted};

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All members of the last started round ended with code 0.
    Succeeded,
    /// A worker failed the job.
    WorkerFailed(Reason),
    /// Too few slots for longer than the elastic time-out.
    TimedOut {
        /// Usable slots at the end.
        usable: u32,
        /// Slots needed.
        needed: u32,
        /// How long the job waited.
        waited: Duration,
    },
    /// One more round would pass the reset limit.
    ResetLimit {
        /// The limit.
        limit: u32,
    },
    /// The first discovery failed and trying again cannot help.
    DiscoveryFailed {
        /// For a person.
        why: String,
    },
    /// Workers had trained, and nobody holds what they committed.
    NoStateLeft,
    /// The user ended it.
    Stopped {
        /// The signal that said so.
        signal: i32,
    },
}

/// Why a worker's failure ended the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The job is not elastic.
    Standard,
    /// All workers ended by themselves and no restart is left.
    AllFailed,
    /// Every known host is out for good.
    AllHostsOut,
    /// Some workers succeeded and others did not.
    NotAllSucceeded,
    /// Others did not end in time after the first success.
    ExitTimeout,
}

/// A worker that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its host.
    pub host: HostId,
    /// Slot and start; none for a whole host.
    pub process: Option<Process>,
    /// Its rank and round, if it was in one.
    pub member: Option<(Rank, Round)>,
    /// How it ended, once that is known.
    pub exit: Option<Exit>,
    /// Its last lines of output.
    pub tail: Vec<String>,
    /// What else there is to say, for a host.
    pub why: Option<String>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Results {
    first: Option<Failure>,
    failures: u32,
    outcome: Option<Outcome>,
}

impl Results {
    /// A worker or host failed.
    pub fn failed(&mut self, failure: Failure) {
        self.failures += 1;
        if planted(Mutant::LastNamed) {
            self.first = None;
        }
        self.first.get_or_insert(failure);
    }

    /// How a process ended has become known; completes the first failure if it is that one.
    pub fn exited(&mut self, host: &HostId, process: Process, exit: &Exit, tail: &[String]) {
        if let Some(first) = &mut self.first
            && first.host == *host
            && (first.process == Some(process) || planted(Mutant::ExitOfAnother))
            && first.exit.is_none()
            && !planted(Mutant::FailureWithoutExit)
        {
            first.exit = Some(exit.clone());
            first.tail = tail.to_vec();
        }
    }

    /// The job has ended; only the first outcome counts (invariant R10). Gives whether it was the first.
    pub fn end(&mut self, outcome: Outcome) -> bool {
        let first = self.outcome.is_none();
        self.outcome.get_or_insert(outcome);
        first
    }

    /// The outcome, once there is one.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// The first failure of the job.
    pub fn first_failure(&self) -> Option<&Failure> {
        self.first.as_ref()
    }

    /// How many failures there were.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}
