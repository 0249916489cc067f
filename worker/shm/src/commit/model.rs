//! Explores all interleavings of pins: a worker that commits without a pause, and two threads of its agent. One pins the
//! newest commit and reads it, the other one the oldest. The agent excludes pins of different commits at the same time.
//!
//! A step of the model is one access to shared memory, in the order of the code. Mutants prove that the explorer detects
//! each mistake that the order of accesses prevents.

use std::collections::HashSet;

use super::{
    layout::MAX_BUFFERS,
    search::{Search, Step},
};

const BUFFERS: usize = 3;
/// The worker ends after this many commits, to keep the space finite.
const COMMITS: u64 = 5;
/// A thread of the agent gives up after this many attempts, as in the code.
const ATTEMPTS: u8 = 3;
/// How often the worker looks again for a buffer, fewer than in the code.
const AGAIN: u16 = 1;
/// The body of a buffer in the middle of a commit.
const TORN: u64 = u64::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mutant {
    None,
    /// The agent looks at the seal before it pins.
    AgentLooksFirst,
    /// The worker looks at the pin before it clears the seal.
    WorkerLooksFirst,
    /// The worker does not go to another buffer.
    WorkerInsists,
    /// The worker does not look again, but takes a pinned buffer as if it were free.
    WorkerGivesUp,
    /// The worker counts an overrun before it clears the seal.
    WorkerCountsFirst,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum WorkerStep {
    Choose,
    Look,
    CountOverrun,
    ClearSeal {
        force: bool,
    },
    LoadPin,
    /// With [`Mutant::WorkerLooksFirst`].
    ClearSealLate,
    RestoreSeal,
    WriteFirst,
    WriteLast,
    StoreSeal,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum AgentStep {
    Find,
    LoadOverruns,
    StorePin,
    LoadSeal,
    Read,
    ReadAgain,
    CompareOverruns,
    ClearPin { again: bool },
    Done,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
struct Buffer {
    /// The number of the commit, or 0.
    seal: u64,
    pins: u8,
    overruns: u8,
    body: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Agent {
    step: AgentStep,
    pinned: usize,
    seal: u64,
    overruns: u8,
    is_torn: bool,
    attempts: u8,
    copies: u8,
}

impl Agent {
    const NEW: Self = Self {
        step: AgentStep::Find,
        pinned: 0,
        seal: 0,
        overruns: 0,
        is_torn: false,
        attempts: 0,
        copies: 0,
    };

    /// Whether it pins, or is about to.
    fn is_busy(&self) -> bool {
        !matches!(self.step, AgentStep::Find | AgentStep::Done)
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    buffers: [Buffer; BUFFERS],
    worker: WorkerStep,
    /// The newest sealed commit, and its buffer.
    newest: Option<usize>,
    commits: u64,
    target: usize,
    search: Search,
    kept_seal: u64,
    agents: [Agent; 2],
}

struct Explorer {
    mutant: Mutant,
    seen: HashSet<World>,
    copied: bool,
    refused: bool,
    again: bool,
    forced: bool,
    noticed: bool,
}

impl Explorer {
    fn run(mutant: Mutant) -> Result<Self, String> {
        let mut explorer = Self {
            mutant,
            seen: HashSet::new(),
            copied: false,
            refused: false,
            again: false,
            forced: false,
            noticed: false,
        };
        let mut open = vec![World {
            buffers: Default::default(),
            worker: WorkerStep::Choose,
            newest: None,
            commits: 0,
            target: 0,
            search: Search::new(BUFFERS, [false; MAX_BUFFERS], AGAIN),
            kept_seal: 0,
            agents: [Agent::NEW; 2],
        }];
        while let Some(world) = open.pop() {
            if explorer.seen.insert(world.clone()) {
                open.extend(explorer.worker(&world)?);
                open.extend(explorer.agent(&world, 0)?);
                open.extend(explorer.agent(&world, 1)?);
            }
        }
        Ok(explorer)
    }

    fn worker(&mut self, world: &World) -> Result<Option<World>, String> {
        let mut next = world.clone();
        let target = world.target;
        next.worker = match world.worker {
            WorkerStep::Choose if world.commits == COMMITS => return Ok(None),
            WorkerStep::Choose => match (next.search.next(world.newest), self.mutant) {
                (Step::Try(target), _) => {
                    next.target = target;
                    WorkerStep::Look
                }
                (Step::Again, Mutant::WorkerGivesUp) => {
                    next.target = (0..BUFFERS)
                        .find(|buffer| Some(*buffer) != world.newest)
                        .unwrap_or(0);
                    WorkerStep::ClearSeal { force: true }
                }
                (Step::Again, _) => {
                    self.again = true;
                    WorkerStep::Choose
                }
                (Step::Force(target), _) => {
                    self.forced = true;
                    next.target = target;
                    match self.mutant {
                        Mutant::WorkerCountsFirst => WorkerStep::CountOverrun,
                        _ => WorkerStep::ClearSeal { force: true },
                    }
                }
            },
            WorkerStep::CountOverrun => {
                next.buffers[target].overruns += 1;
                match self.mutant {
                    Mutant::WorkerCountsFirst => WorkerStep::ClearSeal { force: true },
                    _ => WorkerStep::WriteFirst,
                }
            }
            WorkerStep::Look => match (world.buffers[target].pins, self.mutant) {
                (0, Mutant::WorkerLooksFirst) => WorkerStep::ClearSealLate,
                (0, _) | (_, Mutant::WorkerInsists) => WorkerStep::ClearSeal { force: false },
                _ => {
                    next.search.refuse(target);
                    WorkerStep::Choose
                }
            },
            WorkerStep::ClearSeal { force } => {
                next.kept_seal = world.buffers[target].seal;
                next.buffers[target].seal = 0;
                match (force, self.mutant) {
                    (false, _) => WorkerStep::LoadPin,
                    (true, Mutant::WorkerCountsFirst | Mutant::WorkerGivesUp) => {
                        WorkerStep::WriteFirst
                    }
                    (true, _) => WorkerStep::CountOverrun,
                }
            }
            WorkerStep::LoadPin => match (world.buffers[target].pins, self.mutant) {
                (0, _) | (_, Mutant::WorkerInsists) => WorkerStep::WriteFirst,
                _ => {
                    next.search.refuse(target);
                    WorkerStep::RestoreSeal
                }
            },
            WorkerStep::ClearSealLate => {
                next.buffers[target].seal = 0;
                WorkerStep::WriteFirst
            }
            WorkerStep::RestoreSeal => {
                self.refused = true;
                next.buffers[target].seal = world.kept_seal;
                WorkerStep::Choose
            }
            WorkerStep::WriteFirst => {
                next.buffers[target].body = TORN;
                WorkerStep::WriteLast
            }
            WorkerStep::WriteLast => {
                next.buffers[target].body = world.commits + 1;
                WorkerStep::StoreSeal
            }
            WorkerStep::StoreSeal => {
                next.commits += 1;
                next.buffers[target].seal = next.commits;
                next.newest = Some(target);
                next.search = Search::new(BUFFERS, [false; MAX_BUFFERS], AGAIN);
                WorkerStep::Choose
            }
        };
        // C2, in every state.
        let newest = world.newest.map(|buffer| next.buffers[buffer]);
        if newest.is_some_and(|buffer| buffer.seal != world.commits || buffer.body != buffer.seal) {
            return Err(format!("the newest commit is gone: {next:?}"));
        }
        Ok(Some(next))
    }

    fn agent(&mut self, world: &World, index: usize) -> Result<Option<World>, String> {
        let (agent, other) = (world.agents[index], world.agents[1 - index]);
        let (mut next, mut new) = (world.clone(), agent);
        let pinned = agent.pinned;
        let buffer = world.buffers[pinned];
        new.step = match agent.step {
            AgentStep::Find => {
                let sealed =
                    (world.buffers.iter().enumerate()).filter(|(_, found)| found.seal != 0);
                let found = match index {
                    0 => sealed.max_by_key(|(_, found)| found.seal),
                    _ => sealed.min_by_key(|(_, found)| found.seal),
                };
                let Some((buffer, found)) = found else {
                    return Ok(None);
                };
                if other.is_busy() {
                    return Ok(None);
                }
                (new.pinned, new.seal) = (buffer, found.seal);
                new.attempts += 1;
                new.is_torn = false;
                match self.mutant {
                    Mutant::AgentLooksFirst => AgentStep::LoadSeal,
                    _ => AgentStep::LoadOverruns,
                }
            }
            AgentStep::LoadOverruns => {
                new.overruns = buffer.overruns;
                AgentStep::StorePin
            }
            AgentStep::StorePin => {
                next.buffers[pinned].pins += 1;
                match self.mutant {
                    Mutant::AgentLooksFirst => AgentStep::Read,
                    _ => AgentStep::LoadSeal,
                }
            }
            AgentStep::LoadSeal => match (buffer.seal == agent.seal, self.mutant) {
                (true, Mutant::AgentLooksFirst) => AgentStep::StorePin,
                (true, _) => AgentStep::Read,
                (false, Mutant::AgentLooksFirst) => AgentStep::Done,
                (false, _) => AgentStep::ClearPin { again: true },
            },
            AgentStep::Read | AgentStep::ReadAgain => {
                new.is_torn |= buffer.body != agent.seal;
                match agent.step {
                    AgentStep::Read => AgentStep::ReadAgain,
                    _ => AgentStep::CompareOverruns,
                }
            }
            AgentStep::CompareOverruns => {
                let is_intact = buffer.overruns == agent.overruns;
                if is_intact && agent.is_torn {
                    return Err(format!("the pinned commit is torn: {world:?}"));
                }
                self.copied |= is_intact;
                self.noticed |= agent.is_torn;
                AgentStep::ClearPin { again: false }
            }
            AgentStep::ClearPin { again } => {
                next.buffers[pinned].pins -= 1;
                new.copies += u8::from(!again);
                // A second pin follows the first, of another commit.
                if again && agent.attempts < ATTEMPTS || !again && new.copies < 2 {
                    AgentStep::Find
                } else {
                    AgentStep::Done
                }
            }
            AgentStep::Done => return Ok(None),
        };
        next.agents[index] = new;
        Ok(Some(next))
    }
}

#[test]
fn a_pinned_commit_is_never_torn_and_the_worker_always_finds_a_buffer() {
    let explorer = Explorer::run(Mutant::None).map_err(|why| panic!("{why}"));
    let explorer = explorer.unwrap_or_else(|()| unreachable!());
    assert!(explorer.copied && explorer.refused && explorer.again);
    // The worker looks again only once here, so that pins which move twice are reached.
    assert!(explorer.forced && explorer.noticed);
    assert!(
        explorer.seen.len() > 1000,
        "{} states are not all",
        explorer.seen.len()
    );
}

#[test]
fn an_agent_that_looks_before_it_pins_is_caught() {
    let why = Explorer::run(Mutant::AgentLooksFirst).err().unwrap();
    assert!(why.contains("torn"), "{why}");
}

#[test]
fn a_worker_that_looks_before_it_clears_the_seal_is_caught() {
    let why = Explorer::run(Mutant::WorkerLooksFirst).err().unwrap();
    assert!(why.contains("torn"), "{why}");
}

#[test]
fn a_worker_that_ignores_a_pin_is_caught() {
    let why = Explorer::run(Mutant::WorkerInsists).err().unwrap();
    assert!(why.contains("torn"), "{why}");
}

#[test]
fn a_worker_that_takes_a_pinned_buffer_in_place_of_looking_again_is_caught() {
    let why = Explorer::run(Mutant::WorkerGivesUp).err().unwrap();
    assert!(why.contains("torn"), "{why}");
}

#[test]
fn a_worker_that_counts_an_overrun_before_it_clears_the_seal_is_caught() {
    let why = Explorer::run(Mutant::WorkerCountsFirst).err().unwrap();
    assert!(why.contains("torn"), "{why}");
}
