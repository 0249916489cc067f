//! Faults and changes. The target of a fault is chosen when the fault is injected.

use std::{fmt, time::Duration};

use elasticrun_core::Time;
use elasticrun_protocol::Process;

use crate::rng::Rng;

/// A fault or a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A worker dies by SIGKILL.
    KillWorker,
    /// A parameter server dies by SIGKILL.
    KillServer,
    /// A worker ends by itself, with an error.
    FailWorker,
    /// All workers end by themselves, with an error, within a moment.
    FailAll,
    /// One worker of every host ends by itself.
    FailOneOfEach,
    /// A worker is stopped and perhaps continued.
    Suspend { resume: Option<Duration> },
    /// The next processes end during their imports.
    FailStarts(u64),
    /// The next processes never come to `run()`.
    HangStarts(u64),
    /// The next processes end with code 0 before they come to `run()`.
    QuitStarts(u64),
    /// The next processes cannot be started at all.
    RefuseStarts(u64),
    /// The next workers that finish hang, or end with an error.
    FailExit { hang: bool },
    /// The training thread of a worker pauses for a while, while its process sends heartbeats.
    Busy(Duration),
    /// An agent dies, and its workers with it.
    KillAgent,
    /// A member of the last round whose paths are well hangs at once, and is killed later.
    LateDeath { after: Duration },
    /// This process is killed.
    KillProcess { host: usize, process: Process },
    /// The host asks an agent to end (SIGTERM).
    TermAgent,
    /// A host dies and comes back.
    KillHost { back: Duration },
    /// No message passes between a host and the driver, in one or both directions, and perhaps between the host
    /// and its peers.
    Cut {
        up: bool,
        down: bool,
        data: bool,
        heal: Duration,
    },
    /// No message passes between this host and the driver, and none between it and its peers.
    CutHost { host: usize, heal: Duration },
    /// No data passes between a host of the last round and its peers.
    CutMember { heal: Duration },
    /// No message passes between the driver and the hosts of the last round, in one or both directions.
    CutMembers {
        up: bool,
        down: bool,
        heal: Duration,
    },
    /// The hosts of the last round receive nothing, and after `after` nothing from them arrives either. Held
    /// messages arrive when the cut heals.
    CrossMembers { after: Duration, heal: Duration },
    /// The hosts of the last round die and come back.
    KillMembers { back: Duration },
    /// From now on every process of a host hangs at its start, even after all other faults stop.
    HangHost,
    /// From now on no agent of a host ever connects.
    LoseWay,
    /// From now on no data passes between the workers of a host and those of others.
    LoseData,
    /// An agent is suspended for a while, and its workers are not.
    StallAgent(Duration),
    /// The driver is suspended for a while.
    StallDriver(Duration),
    /// The driver is killed and loses its last writes to the journal. A later driver begins after a while.
    KillDriver { lost_writes: usize, down: Duration },
    /// The connection of an agent breaks, and both ends notice it.
    Break,
    /// No message passes between the driver and one or all agents, in one or both directions. With `closes`, connections
    /// end at once at the agents, and with `heard` at the driver as well.
    BreakNetwork {
        all: bool,
        up: bool,
        down: bool,
        closes: bool,
        heard: bool,
        heal: Duration,
    },
    /// Agents cannot be launched for a while.
    FailLaunches(u64),
    /// Launches hang.
    HangLaunches(u64),
    /// Discovery: one more host.
    Add,
    /// Discovery: a host leaves the list.
    Remove,
    /// Discovery: a host drains and then goes.
    Drain,
    /// A host will go away: its agent or an operator reports it, and no list takes it back.
    Notice { within: Option<Duration> },
    /// All hosts with an agent will go away: each is reported at a random time before `apart` has passed.
    NoticeAll { within: Duration, apart: Duration },
    /// This host will go away.
    NoticeHost { host: usize, within: Duration },
    /// Discovery: a draining host is ready again.
    Undrain,
    /// Discovery: a host is reported gone.
    Gone,
    /// Discovery: a host that went returns.
    Return,
    /// Discovery: a host has another number of slots.
    Resize,
    /// Discovery: empty lists.
    Empty(u64),
    /// Discovery: a host is missing from one list.
    Flap,
    /// Discovery: polls fail.
    FailPolls { count: u64, fatal: bool },
    /// Discovery: a poll hangs.
    HangPoll(Duration),
    /// The user ends the job.
    Stop,
}

/// A fault that has struck.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strike {
    pub(crate) at: Time,
    pub(crate) fault: Fault,
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.at, self.fault)
    }
}

/// The longest time of a notice.
pub(crate) const LONGEST_NOTICE: Duration = Duration::from_secs(20);

impl Fault {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        match rng.range(0, 99) {
            0..=17 => Self::KillWorker,
            18..=24 => Self::FailWorker,
            25..=26 => Self::FailAll,
            27..=28 => Self::FailOneOfEach,
            29..=34 => Self::Suspend {
                resume: rng.percent(60).then(|| rng.millis(10, 12_000)),
            },
            35..=37 => Self::FailStarts(rng.range(1, 4)),
            38..=39 => Self::HangStarts(rng.range(1, 2)),
            40 => Self::QuitStarts(rng.range(1, 2)),
            41..=42 => Self::RefuseStarts(rng.range(1, 3)),
            43..=44 => Self::FailExit {
                hang: rng.percent(50),
            },
            45..=47 => Self::Busy(rng.millis(10, 12_000)),
            48..=53 => Self::KillAgent,
            54 => Self::TermAgent,
            55..=59 => Self::KillHost {
                back: rng.millis(100, 20_000),
            },
            60..=67 => Self::Cut {
                up: rng.percent(75),
                down: rng.percent(75),
                data: rng.percent(60),
                heal: rng.millis(10, 12_000),
            },
            68..=71 => Self::Break,
            72..=73 => Self::FailLaunches(rng.range(1, 3)),
            74 => Self::HangLaunches(rng.range(1, 2)),
            75 => {
                if rng.percent(30) {
                    Self::Stop
                } else {
                    Self::KillWorker
                }
            }
            _ => Self::draw_discovery(rng),
        }
    }

    /// A worker fails, or its process does not run for a while. Its host keeps its memory.
    pub(crate) fn draw_of_worker(rng: &mut Rng) -> Self {
        match rng.range(0, 9) {
            0..=4 => Self::KillWorker,
            5..=7 => Self::FailWorker,
            8 => Self::FailOneOfEach,
            _ => Self::Suspend {
                resume: Some(rng.millis(10, 5_000)),
            },
        }
    }

    /// Whether hosts may go, or get out of reach, with their memory.
    pub(crate) fn loses_memory(&self) -> bool {
        matches!(
            self,
            Self::KillAgent
                | Self::TermAgent
                | Self::KillHost { .. }
                | Self::KillMembers { .. }
                | Self::Cut { .. }
                | Self::CutMember { .. }
                | Self::CutMembers { .. }
                | Self::CrossMembers { .. }
                | Self::LoseWay
                | Self::LoseData
                | Self::Remove
                | Self::Drain
                | Self::Gone
                | Self::Notice { .. }
                | Self::NoticeAll { .. }
        )
    }

    /// The network breaks and heals.
    pub(crate) fn draw_break(rng: &mut Rng) -> Self {
        let heal = rng.millis(100, 30_000);
        Self::draw_break_of(rng, heal)
    }

    /// The network breaks for so long.
    pub(crate) fn draw_break_of(rng: &mut Rng, heal: Duration) -> Self {
        let both = rng.percent(70);
        let up = both || rng.percent(50);
        Self::BreakNetwork {
            all: rng.percent(50),
            up,
            down: both || !up,
            closes: rng.percent(50),
            heard: rng.percent(50),
            heal,
        }
    }

    fn draw_discovery(rng: &mut Rng) -> Self {
        match rng.range(0, 9) {
            0 => Self::Empty(rng.range(1, 3)),
            1 => Self::Flap,
            2 => Self::FailPolls {
                count: rng.range(1, 3),
                fatal: rng.percent(30),
            },
            3 => Self::HangPoll(rng.millis(10, 10_000)),
            _ => Self::draw_change(rng),
        }
    }

    /// Workers fail, and then all hosts of a round are lost at once, so that only others hold an older commit.
    pub(crate) fn draw_split(rng: &mut Rng) -> Self {
        match rng.range(0, 9) {
            0..=2 => Self::FailWorker,
            3..=4 => Self::KillWorker,
            5 => Self::KillMembers {
                back: rng.millis(100, 20_000),
            },
            6 if rng.percent(50) => Self::CrossMembers {
                after: rng.millis(0, 3_000),
                heal: rng.millis(8_000, 25_000),
            },
            6 => Self::Break,
            _ => Self::CutMembers {
                up: rng.percent(75),
                down: rng.percent(75),
                heal: rng.millis(2_000, 20_000),
            },
        }
    }

    /// Faults that do not heal.
    pub(crate) fn draw_lasting(rng: &mut Rng) -> Self {
        match rng.range(0, 9) {
            0..=3 => Self::HangHost,
            4..=6 => Self::LoseWay,
            _ => Self::LoseData,
        }
    }

    /// A worker dies, or the hosts change.
    pub(crate) fn draw_gentle(rng: &mut Rng) -> Self {
        match rng.range(0, 2) {
            0 => Self::KillWorker,
            1 => Self::FailWorker,
            _ => Self::draw_change(rng),
        }
    }

    /// A change that is no fault.
    pub(crate) fn draw_change(rng: &mut Rng) -> Self {
        match rng.range(0, 11) {
            0..=3 => Self::Add,
            10 => Self::Notice {
                within: rng
                    .percent(70)
                    .then(|| rng.millis(0, LONGEST_NOTICE.as_millis() as u64)),
            },
            11 => Self::TermAgent,
            4 => Self::Remove,
            5 => Self::Drain,
            6 => Self::Undrain,
            7 => Self::Gone,
            8 => Self::Return,
            _ => Self::Resize,
        }
    }
}
