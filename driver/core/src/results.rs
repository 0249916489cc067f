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
    /// Too few workers for longer than the elastic timeout, or enough whose rounds came to nothing.
    TimedOut {
        /// Workers that were there at the end.
        workers: u32,
        /// Usable slots at the end.
        usable: u32,
        /// Workers needed.
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
    /// Workers ended by themselves wherever they ran, in rounds without a commit, and no restart is left.
    FailsEverywhere,
    /// A worker of a group failed and no restart is left.
    NoRestartLeft {
        /// Restarts allowed.
        allowed: u32,
    },
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
    /// The first since the last round started, or the job began again; a member of that round before others.
    recent: Option<Failure>,
    failures: u32,
    outcome: Option<Outcome>,
}

impl Results {
    /// A worker or host failed.
    pub fn failed(&mut self, failure: Failure) {
        self.failures += 1;
        if planted(Mutant::LastNamed) {
            (self.first, self.recent) = (None, None);
        }
        let earlier = self.recent.as_ref();
        if earlier.is_none_or(|earlier| earlier.member.is_none() && failure.member.is_some()) {
            self.recent = Some(failure.clone());
        }
        self.first.get_or_insert(failure);
    }

    /// A round has started, or the job begins again: what failed before has not ended it.
    pub fn went_on(&mut self) {
        self.recent = None;
    }

    /// How a process ended has become known; completes the failure that may be named if it is that one.
    pub fn exited(&mut self, host: &HostId, process: Process, exit: &Exit, tail: &[String]) {
        for failure in [&mut self.first, &mut self.recent].into_iter().flatten() {
            if failure.host == *host
                && (failure.process == Some(process) || planted(Mutant::ExitOfAnother))
                && failure.exit.is_none()
                && !planted(Mutant::FailureWithoutExit)
            {
                failure.exit = Some(exit.clone());
                failure.tail = tail.to_vec();
            }
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

    /// The failure to name as the reason of the outcome. Where all workers failed by themselves it is the first one of the
    /// round that they failed in: the job went on from earlier ones.
    pub fn named_failure(&self) -> Option<&Failure> {
        let all = matches!(
            self.outcome,
            Some(Outcome::WorkerFailed(
                Reason::AllFailed | Reason::FailsEverywhere
            ))
        );
        let recent = self.recent.as_ref().filter(|_| all);
        recent.or(self.first.as_ref())
    }

    /// How many failures there were.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}
