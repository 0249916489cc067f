//! Results: the outcome of a job, and the first worker that failed.
//!
//! A job ends in exactly one [`Outcome`] (invariant R10); the shell maps it to the exit code.

use std::time::Duration;

use elasticrun_protocol::{HostId, Process, Rank, Round, control::Exit};

use serde::{Deserialize, Serialize};

use crate::{
    journal::FailuresEntry,
    mutant::{Mutant, planted},
};

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All members of the last started round ended with code 0.
    Succeeded,
    /// A worker failed the job.
    WorkerFailed(Reason),
    /// Workers were too few for longer than the elastic timeout, or enough but fruitless.
    TimedOut {
        /// Workers present at the end.
        workers: u32,
        /// Usable slots at the end.
        usable: u32,
        /// Workers needed.
        needed: u32,
        /// How long the job waited.
        waited: Duration,
    },
    /// One more round would exceed the reset limit.
    ResetLimit {
        /// Resets that the user allowed.
        limit: u32,
    },
    /// The first discovery failed and trying again cannot help.
    DiscoveryFailed {
        /// A message for the operator.
        why: String,
    },
    /// Workers have trained, but no reachable process holds a commit.
    NoStateLeft,
    /// The job is to continue from a former run, and no durable commit can be used.
    NothingToResume {
        /// The id of that run; none for the latest run.
        run: Option<String>,
    },
    /// Parameter servers failed one after the other.
    ServersFailed {
        /// How many.
        failures: u32,
    },
    /// The user ended the job.
    Stopped {
        /// The signal that carried the request.
        signal: i32,
    },
}

/// Why the failure of a worker ended the job.
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
        /// Restarts that the user allowed.
        allowed: u32,
    },
    /// Every known host is out for good.
    AllHostsOut,
    /// Some workers succeeded and others did not.
    NotAllSucceeded,
    /// The other workers did not end within the exit timeout after the first success.
    ExitTimeout,
}

/// A worker or a host that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The host that failed, or on which the worker ran.
    pub host: HostId,
    /// Slot and start; `None` for a whole host.
    pub process: Option<Process>,
    /// Its rank and round, if it was a member of one.
    pub member: Option<(Rank, Round)>,
    /// How it ended, if that is known.
    pub exit: Option<Exit>,
    /// Its last lines of output.
    pub tail: Vec<String>,
    /// An explanation, for a host.
    pub why: Option<String>,
}

/// The failures and the outcome of a job.
#[derive(Clone, Debug, Default)]
pub struct Results {
    first: Option<Failure>,
    /// The first failure since the last start of a round or restart of the job. A member of that round takes precedence.
    recent: Option<Failure>,
    failures: u32,
    outcome: Option<Outcome>,
    /// The failures have changed since they were saved last.
    changed: bool,
}

impl Results {
    /// Records the failure of a worker or host.
    pub fn failed(&mut self, failure: Failure) {
        self.failures += 1;
        self.changed = true;
        if planted(Mutant::LastNamed) {
            (self.first, self.recent) = (None, None);
        }
        let earlier = self.recent.as_ref();
        if earlier.is_none_or(|earlier| earlier.member.is_none() && failure.member.is_some()) {
            self.recent = Some(failure.clone());
        }
        self.first.get_or_insert(failure);
    }

    /// Records the failure that ends the job, whatever failed before. [`Self::end`] follows.
    pub(crate) fn failed_last(&mut self, failure: Failure) {
        self.failures += 1;
        self.changed = true;
        self.recent = Some(failure);
    }

    /// Marks earlier failures as survived: a round has started, or the job begins again.
    pub fn went_on(&mut self) {
        self.changed |= self.recent.take().is_some();
    }

    /// Adds the exit of a process to the recorded failures of that process.
    pub fn exited(&mut self, host: &HostId, process: Process, exit: &Exit, tail: &[String]) {
        for failure in [&mut self.first, &mut self.recent].into_iter().flatten() {
            if failure.host == *host
                && (failure.process == Some(process) || planted(Mutant::ExitOfAnother))
                && failure.exit.is_none()
                && !planted(Mutant::FailureWithoutExit)
            {
                failure.exit = Some(exit.clone());
                failure.tail = tail.to_vec();
                self.changed = true;
            }
        }
    }

    /// Records the outcome; only the first one counts (invariant R10). Returns whether it was the first.
    pub fn end(&mut self, outcome: Outcome) -> bool {
        let first = self.outcome.is_none();
        self.outcome.get_or_insert(outcome);
        first
    }

    /// Takes the failures, if they have changed since the last call.
    pub(crate) fn take_changed(&mut self) -> Option<FailuresEntry> {
        std::mem::take(&mut self.changed).then(|| FailuresEntry {
            count: self.failures,
            first: self.first.clone(),
            recent: self.recent.clone(),
        })
    }

    /// Continues with the failures of an earlier driver.
    pub(crate) fn restore(failures: FailuresEntry) -> Self {
        Self {
            first: failures.first,
            recent: failures.recent,
            failures: failures.count,
            ..Self::default()
        }
    }

    /// The outcome, once there is one.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// The first failure of the job.
    pub fn first_failure(&self) -> Option<&Failure> {
        self.first.as_ref()
    }

    /// The failure that is named as the reason of the outcome. If parameter servers failed, it is the last one of them. If all workers failed by themselves, it is the first
    /// failure of that round, since the job continued after the earlier ones.
    pub fn named_failure(&self) -> Option<&Failure> {
        let all = matches!(
            self.outcome,
            Some(
                Outcome::WorkerFailed(Reason::AllFailed | Reason::FailsEverywhere)
                    | Outcome::ServersFailed { .. }
            )
        );
        let recent = self.recent.as_ref().filter(|_| all);
        recent.or(self.first.as_ref())
    }

    /// The number of failures.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}
