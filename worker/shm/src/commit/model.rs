//! Explores all interleavings of a pin: a worker that commits without a pause, and its agent, which pins its newest
//! commit and reads it.
//!
//! A step of the model is one access to shared memory, in the order of the code. Mutants prove that the explorer detects
//! each mistake that the order of accesses prevents.

use std::collections::HashSet;

use super::writer::choose;

const BUFFERS: usize = 3;
/// The worker ends after this many commits, to keep the space finite.
const COMMITS: u64 = 5;
/// The agent gives up after this many attempts, as in the code.
const ATTEMPTS: u8 = 3;
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
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum WorkerStep {
    Choose,
    Look,
    ClearSeal,
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
    StorePin,
    LoadSeal,
    Read,
    ReadAgain,
    ClearPin { again: bool },
    Done,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
struct Buffer {
    /// The number of the commit, or 0.
    seal: u64,
    pins: u8,
    body: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    buffers: [Buffer; BUFFERS],
    worker: WorkerStep,
    /// The newest sealed commit, and its buffer.
    newest: Option<usize>,
    commits: u64,
    target: usize,
    /// Buffers that the worker leaves alone in this commit.
    refused: [bool; BUFFERS],
    kept_seal: u64,
    agent: AgentStep,
    pinned: usize,
    seal: u64,
    attempts: u8,
    copies: u8,
}

struct Explorer {
    mutant: Mutant,
    seen: HashSet<World>,
    copied: bool,
    refused: bool,
}

impl Explorer {
    fn run(mutant: Mutant) -> Result<Self, String> {
        let mut explorer = Self {
            mutant,
            seen: HashSet::new(),
            copied: false,
            refused: false,
        };
        let mut open = vec![World {
            buffers: Default::default(),
            worker: WorkerStep::Choose,
            newest: None,
            commits: 0,
            target: 0,
            refused: [false; BUFFERS],
            kept_seal: 0,
            agent: AgentStep::Find,
            pinned: 0,
            seal: 0,
            attempts: 0,
            copies: 0,
        }];
        while let Some(world) = open.pop() {
            if explorer.seen.insert(world.clone()) {
                open.extend(explorer.worker(&world)?);
                open.extend(explorer.agent(&world)?);
            }
        }
        Ok(explorer)
    }

    fn worker(&mut self, world: &World) -> Result<Option<World>, String> {
        let mut next = world.clone();
        let target = world.target;
        next.worker = match world.worker {
            WorkerStep::Choose if world.commits == COMMITS => return Ok(None),
            WorkerStep::Choose => {
                next.target = choose(BUFFERS, world.newest, |buffer| world.refused[buffer])
                    .ok_or_else(|| format!("no buffer is left: {world:?}"))?;
                WorkerStep::Look
            }
            WorkerStep::Look => match (world.buffers[target].pins, self.mutant) {
                (0, Mutant::WorkerLooksFirst) => WorkerStep::ClearSealLate,
                (0, _) | (_, Mutant::WorkerInsists) => WorkerStep::ClearSeal,
                _ => {
                    next.refused[target] = true;
                    WorkerStep::Choose
                }
            },
            WorkerStep::ClearSeal => {
                next.kept_seal = world.buffers[target].seal;
                next.buffers[target].seal = 0;
                WorkerStep::LoadPin
            }
            WorkerStep::LoadPin => match (world.buffers[target].pins, self.mutant) {
                (0, _) | (_, Mutant::WorkerInsists) => WorkerStep::WriteFirst,
                _ => {
                    next.refused[target] = true;
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
                next.refused = [false; BUFFERS];
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

    fn agent(&mut self, world: &World) -> Result<Option<World>, String> {
        let mut next = world.clone();
        let pinned = world.pinned;
        next.agent = match world.agent {
            AgentStep::Find => {
                let Some((buffer, found)) = (world.buffers.iter().enumerate())
                    .filter(|(_, buffer)| buffer.seal != 0)
                    .max_by_key(|(_, buffer)| buffer.seal)
                else {
                    return Ok(None);
                };
                (next.pinned, next.seal) = (buffer, found.seal);
                next.attempts += 1;
                match self.mutant {
                    Mutant::AgentLooksFirst => AgentStep::LoadSeal,
                    _ => AgentStep::StorePin,
                }
            }
            AgentStep::StorePin => {
                next.buffers[pinned].pins += 1;
                match self.mutant {
                    Mutant::AgentLooksFirst => AgentStep::Read,
                    _ => AgentStep::LoadSeal,
                }
            }
            AgentStep::LoadSeal => match (world.buffers[pinned].seal == world.seal, self.mutant) {
                (true, Mutant::AgentLooksFirst) => AgentStep::StorePin,
                (true, _) => AgentStep::Read,
                (false, Mutant::AgentLooksFirst) => AgentStep::Done,
                (false, _) => AgentStep::ClearPin { again: true },
            },
            AgentStep::Read | AgentStep::ReadAgain => {
                if world.buffers[pinned].body != world.seal {
                    return Err(format!("the pinned commit is torn: {world:?}"));
                }
                self.copied = true;
                match world.agent {
                    AgentStep::Read => AgentStep::ReadAgain,
                    _ => AgentStep::ClearPin { again: false },
                }
            }
            AgentStep::ClearPin { again } => {
                next.buffers[pinned].pins -= 1;
                next.copies += u8::from(!again);
                // A second pin follows the first, of a newer commit.
                if again && world.attempts < ATTEMPTS || !again && next.copies < 2 {
                    AgentStep::Find
                } else {
                    AgentStep::Done
                }
            }
            AgentStep::Done => return Ok(None),
        };
        Ok(Some(next))
    }
}

#[test]
fn a_pinned_commit_is_never_torn_and_the_worker_always_finds_a_buffer() {
    let explorer = Explorer::run(Mutant::None).map_err(|why| panic!("{why}"));
    let explorer = explorer.unwrap_or_else(|()| unreachable!());
    assert!(explorer.copied && explorer.refused);
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
