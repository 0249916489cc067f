//! All interleavings of the hold, explored: two workers, each with its agent, and a driver.
//!
//! A step of the model is one access to shared memory, in the order in which the code makes them; the
//! words and their meaning are those of [`hold`]. Mutants prove that the explorer can see each
//! of the mistakes which the order of accesses prevents.

use std::collections::HashSet;

use elasticrun_core::hold::{self, Look, Verdict};
use elasticrun_protocol::{Boundary, Round};

const ROUND: Round = Round(3);
/// Workers do not run beyond this boundary unless K is larger, to keep the space finite.
const LIMIT: u64 = 3;
const WORKERS: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Plan {
    Leave,
    Withdraw,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mutant {
    None,
    AgentReadsFirst,
    WorkerReadsFirst,
    BellReadLast,
    NoRing,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum WorkerAt {
    Enter,
    StoreCount,
    LoadBell,
    LoadHold,
    /// With [`Mutant::BellReadLast`]: it has decided to wait and looks at the bell only now.
    LoadBellLate,
    /// With [`Mutant::WorkerReadsFirst`]: it has decided before its count is seen.
    StoreCountLate(bool),
    Asleep,
    Left,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum AgentAt {
    StoreHold,
    RingHold,
    LoadCount,
    Told,
    RingLast,
    Done,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Host {
    count_word: u64,
    hold_word: u64,
    bell: u32,
    worker: WorkerAt,
    /// The boundary that the worker is at, in its own memory.
    count: u64,
    bell_seen: u32,
    passed: u64,
    agent: AgentAt,
    reported: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    hosts: [Host; WORKERS],
}

struct Explorer {
    plan: Plan,
    mutant: Mutant,
    seen: HashSet<World>,
    ends: usize,
}

impl World {
    fn new(count_word: u64, hold_word: u64) -> Self {
        let host = Host {
            count_word,
            hold_word,
            bell: 0,
            worker: WorkerAt::Enter,
            count: 0,
            bell_seen: 0,
            passed: 0,
            agent: AgentAt::StoreHold,
            reported: None,
        };
        Self {
            hosts: [host.clone(), host],
        }
    }

    fn k(&self) -> Option<u64> {
        let mut largest = 0;
        for host in &self.hosts {
            largest = largest.max(host.reported?);
        }
        Some(largest + 1)
    }
}

impl Explorer {
    fn run(plan: Plan, mutant: Mutant) -> Result<usize, String> {
        // What earlier rounds may have left in the page.
        let counts = [0, hold::count_word(Round(2), 2)];
        let holds = [
            0,
            hold::held(Round(2)),
            hold::leave_at(Round(2), Boundary(1)).unwrap(),
            hold::withdrawn(ROUND),
        ];
        let mut states = 0;
        for count in counts {
            for hold in holds {
                let mut explorer = Self {
                    plan,
                    mutant,
                    seen: HashSet::new(),
                    ends: 0,
                };
                explorer.explore(World::new(count, hold))?;
                assert!(explorer.ends > 0);
                states += explorer.seen.len();
            }
        }
        Ok(states)
    }

    fn explore(&mut self, start: World) -> Result<(), String> {
        let mut open = vec![start];
        while let Some(world) = open.pop() {
            if !self.seen.insert(world.clone()) {
                continue;
            }
            let mut stuck = true;
            for index in 0..WORKERS {
                for next in [self.worker(&world, index)?, self.agent(&world, index)]
                    .into_iter()
                    .flatten()
                {
                    stuck = false;
                    open.push(next);
                }
            }
            if stuck {
                self.end(&world)?;
            }
        }
        Ok(())
    }

    /// Nobody can move: all must be where the plan wants them.
    fn end(&mut self, world: &World) -> Result<(), String> {
        self.ends += 1;
        for host in &world.hosts {
            let good = match self.plan {
                Plan::Leave => host.worker == WorkerAt::Left && Some(host.count) == world.k(),
                Plan::Withdraw => host.worker == WorkerAt::StoreCount && host.count == LIMIT,
            };
            if !good {
                return Err(format!("ends at {world:?}, K {:?}", world.k()));
            }
        }
        Ok(())
    }

    fn worker(&self, world: &World, index: usize) -> Result<Option<World>, String> {
        let mut next = world.clone();
        let told = world.hosts[index].agent == AgentAt::Done;
        let limit = match self.plan {
            Plan::Leave if told => LIMIT + 1,
            _ => LIMIT,
        };
        let host = &mut next.hosts[index];
        match host.worker {
            WorkerAt::Enter => {
                host.count_word = hold::count_word(ROUND, 0);
                host.worker = WorkerAt::StoreCount;
            }
            WorkerAt::StoreCount => {
                if host.count >= limit {
                    return Ok(None);
                }
                host.count += 1;
                if self.mutant != Mutant::WorkerReadsFirst {
                    host.count_word = hold::count_word(ROUND, host.count);
                }
                host.worker = WorkerAt::LoadBell;
            }
            WorkerAt::LoadBell => {
                host.bell_seen = host.bell;
                host.worker = WorkerAt::LoadHold;
            }
            WorkerAt::LoadHold => {
                let verdict = hold::judge(Look::at(host.hold_word), ROUND, host.count);
                host.worker = match verdict {
                    Verdict::Continue if self.mutant == Mutant::WorkerReadsFirst => {
                        WorkerAt::StoreCountLate(true)
                    }
                    Verdict::Wait if self.mutant == Mutant::WorkerReadsFirst => {
                        WorkerAt::StoreCountLate(false)
                    }
                    Verdict::Continue => WorkerAt::StoreCount,
                    Verdict::Wait if self.mutant == Mutant::BellReadLast => WorkerAt::LoadBellLate,
                    Verdict::Wait => WorkerAt::Asleep,
                    Verdict::Leave => WorkerAt::Left,
                    Verdict::AwaitLease | Verdict::Abort => unreachable!("not in the model"),
                };
                if verdict == Verdict::Continue {
                    host.passed = host.count;
                }
            }
            WorkerAt::LoadBellLate => {
                host.bell_seen = host.bell;
                host.worker = WorkerAt::Asleep;
            }
            WorkerAt::StoreCountLate(passes) => {
                host.count_word = hold::count_word(ROUND, host.count);
                host.worker = if passes {
                    WorkerAt::StoreCount
                } else {
                    WorkerAt::Asleep
                };
            }
            WorkerAt::Asleep => {
                if host.bell == host.bell_seen {
                    return Ok(None);
                }
                host.worker = match self.mutant {
                    Mutant::BellReadLast => WorkerAt::LoadHold,
                    _ => WorkerAt::LoadBell,
                };
            }
            WorkerAt::Left => return Ok(None),
        }
        // H2 and H3, in every state.
        if self.plan == Plan::Leave
            && let Some(k) = next.k()
            && next.hosts.iter().any(|host| host.passed >= k)
        {
            return Err(format!("passed K {k}: {next:?}"));
        }
        Ok(Some(next))
    }

    fn agent(&self, world: &World, index: usize) -> Option<World> {
        let k = world.k();
        let mut next = world.clone();
        let host = &mut next.hosts[index];
        if self.mutant == Mutant::AgentReadsFirst
            && host.agent == AgentAt::StoreHold
            && host.reported.is_none()
        {
            host.reported = Some(hold::count_in(host.count_word, ROUND).0);
            return Some(next);
        }
        host.agent = match host.agent {
            AgentAt::StoreHold => {
                host.hold_word = hold::held(ROUND);
                AgentAt::RingHold
            }
            AgentAt::RingHold => {
                host.bell += 1;
                if self.mutant == Mutant::AgentReadsFirst {
                    AgentAt::Told
                } else {
                    AgentAt::LoadCount
                }
            }
            AgentAt::LoadCount => {
                host.reported = Some(hold::count_in(host.count_word, ROUND).0);
                AgentAt::Told
            }
            AgentAt::Told => {
                host.hold_word = match self.plan {
                    Plan::Leave => hold::leave_at(ROUND, Boundary(k?)).unwrap(),
                    Plan::Withdraw => hold::withdrawn(ROUND),
                };
                AgentAt::RingLast
            }
            AgentAt::RingLast => {
                host.bell += u32::from(self.mutant != Mutant::NoRing);
                AgentAt::Done
            }
            AgentAt::Done => return None,
        };
        Some(next)
    }
}

#[test]
fn all_leave_at_the_same_boundary_in_every_interleaving() {
    let states = Explorer::run(Plan::Leave, Mutant::None).unwrap();
    assert!(states > 10_000, "{states} states are not all");
}

#[test]
fn all_run_on_when_the_hold_is_withdrawn_in_every_interleaving() {
    Explorer::run(Plan::Withdraw, Mutant::None).unwrap();
}

#[test]
fn an_agent_that_counts_before_it_holds_is_caught() {
    let why = Explorer::run(Plan::Leave, Mutant::AgentReadsFirst).unwrap_err();
    assert!(why.starts_with("passed K"), "{why}");
}

#[test]
fn a_worker_that_looks_before_it_counts_is_caught() {
    let why = Explorer::run(Plan::Leave, Mutant::WorkerReadsFirst).unwrap_err();
    assert!(why.starts_with("passed K"), "{why}");
}

#[test]
fn a_lost_wake_up_is_caught() {
    for (plan, mutant) in [
        (Plan::Leave, Mutant::BellReadLast),
        (Plan::Withdraw, Mutant::BellReadLast),
        (Plan::Leave, Mutant::NoRing),
        (Plan::Withdraw, Mutant::NoRing),
    ] {
        let why = Explorer::run(plan, mutant).unwrap_err();
        assert!(why.starts_with("ends at"), "{why}");
    }
}
