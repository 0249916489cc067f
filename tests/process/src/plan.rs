//! What a test wants its workers to do. The test writes it, every worker of the run reads it at its start.

use serde::{Deserialize, Serialize};

/// Names the control directory of the run to the workers: plan, event log, control files.
pub const DIRECTORY: &str = "PROCESS_TEST_DIR";

/// The behaviour of the workers of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Train until so many steps are committed; none: until the file `finish` is there.
    pub steps: Option<u64>,
    /// How long one step takes beside its allreduce.
    pub step_ms: u64,
    /// Steps from one commit to the next, as long as no host is at risk; a step without a commit looks for updates.
    pub commit_every: u64,
    /// How long a process takes before it uses the SDK, as imports would.
    pub import_ms: u64,
    /// Whether they meet in the key-value store: once at the start of a round, then before each step.
    pub store: bool,
    /// Bytes of the model beside its counters.
    pub ballast: usize,
    /// Rows of a data set that they train on; 0 is none.
    pub rows: u64,
    /// What goes wrong.
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

/// Something that goes wrong, once per run unless [`Fault::always`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// Where in the program.
    pub point: Point,
    /// For whom and when; all that is given must hold.
    pub when: When,
    /// What.
    pub what: What,
    /// It happens to everybody and every time, not only to the first who comes there.
    pub always: bool,
}

impl Fault {
    /// A fault of whoever comes first to a point under a condition.
    pub fn new(point: Point, when: When, what: What) -> Self {
        Self {
            point,
            when,
            what,
            always: false,
        }
    }

    /// It happens every time.
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
    /// While the state is saved for a commit or for others.
    Save,
    /// While the state is taken over.
    Restore,
    /// `run()` has returned; the process has not ended yet.
    Trained,
}

/// A condition; what is not given does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct When {
    /// The rank in the round.
    pub rank: Option<u32>,
    /// The host's name.
    pub host: Option<String>,
    /// The slot.
    pub local_rank: Option<u32>,
    /// The start of the slot.
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

/// What a worker does that it should not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Ends with this code, without a word to anybody.
    Exit(i32),
    /// Returns an error from the training function.
    Error,
    /// Panics.
    Panic,
    /// SIGKILL to itself.
    Kill,
    /// SIGSTOP to itself.
    Stop,
    /// Does nothing for ever.
    Hang,
    /// Goes on only when the file `release` is in the control directory.
    Wait,
    /// Prints so many lines of 100 bytes.
    Print(u64),
}
