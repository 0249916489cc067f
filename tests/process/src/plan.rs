//! The behaviour of the workers of a run. The test writes it, and every worker reads it at its start.

use serde::{Deserialize, Serialize};

/// Names the control directory of the run to the workers: plan, event log, control files.
pub const DIRECTORY: &str = "PROCESS_TEST_DIR";

/// The behaviour of the workers of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Steps to train; none: train until the file `finish` is there.
    pub steps: Option<u64>,
    /// Duration of one step without its allreduce.
    pub step_ms: u64,
    /// Steps from one commit to the next, as long as no host is at risk. A step without a commit checks for host
    /// updates.
    pub commit_every: u64,
    /// How long a process takes before it uses the SDK, as imports would.
    pub import_ms: u64,
    /// Whether workers use the key-value store: once at the start of a round, then before each step.
    pub store: bool,
    /// Bytes of the model in addition to its counters.
    pub ballast: usize,
    /// Rows of the data set that the workers train on; 0 is none.
    pub rows: u64,
    /// The faults.
    pub faults: Vec<Fault>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            steps: None,
            step_ms: 2,
            commit_every: 1,
            import_ms: 0,
            store: false,
            ballast: 0,
            rows: 0,
            faults: Vec::new(),
        }
    }
}

/// A fault, once per run unless [`Fault::always`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// Where in the program.
    pub point: Point,
    /// The condition, all given parts of which must hold.
    pub when: When,
    /// The effect.
    pub what: What,
    /// The fault happens each time and in each process, not only in the first that meets the condition.
    pub always: bool,
}

impl Fault {
    /// A fault of the first process that reaches a point under a condition.
    pub fn new(point: Point, when: When, what: What) -> Self {
        Self {
            point,
            when,
            what,
            always: false,
        }
    }

    /// The fault happens each time.
    #[must_use]
    pub fn always(mut self) -> Self {
        self.always = true;
        self
    }
}

/// A place in the worker's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// The process has begun; the SDK is not used yet.
    Begin,
    /// Before the allreduce of a step; the step counts from 0.
    Step,
    /// After the commit of a step; the step counts from 1.
    Committed,
    /// In the reset callback of a round.
    Reset,
    /// While the state is saved for a commit or for other workers.
    Save,
    /// While the state is restored.
    Restore,
    /// `run()` has returned; the process has not ended yet.
    Trained,
}

/// A condition. Parts that are not given always hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct When {
    /// The rank in the round.
    pub rank: Option<u32>,
    /// The host's name.
    pub host: Option<String>,
    /// The slot.
    pub local_rank: Option<u32>,
    /// The number of the slot's start, from 1.
    pub generation: Option<u32>,
    /// The number of the round.
    pub round: Option<u64>,
    /// The size of the round.
    pub size: Option<u32>,
    /// At this step or a later one.
    pub step: Option<u64>,
    /// Once a file of this name is in the control directory.
    pub file: Option<String>,
}

/// The effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Exits with this code and sends no message.
    Exit(i32),
    /// Returns an error from the training function.
    Error,
    /// Panics.
    Panic,
    /// Sends SIGKILL to itself.
    Kill,
    /// Sends SIGSTOP to itself.
    Stop,
    /// Does nothing for ever.
    Hang,
    /// Waits until the file `release` is in the control directory.
    Wait,
    /// Prints this number of lines of 100 bytes.
    Print(u64),
}
