//! Explores all interleavings of the hold: two workers, each with its agent, and a driver.
//!
//! A step of the model is one access to shared memory, in the order of the code. The words and their meaning are those
//! of [`hold`]. Mutants prove that the explorer detects each mistake that the order of accesses prevents.

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
    EventcountReadLast,
    NoNotify,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum WorkerStep {
    Enter,
    StoreCount,
    LoadEventcount,
    LoadHold,
    /// With [`Mutant::EventcountReadLast`]: the worker has decided to wait and loads the eventcount only now.
    LoadEventcountLate,
    /// With [`Mutant::WorkerReadsFirst`]: the worker has decided before it stores its count.
    StoreCountLate(bool),
    Asleep,
    Left,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum AgentStep {
    StoreHold,
    NotifyHold,
    LoadCount,
    StoreAnswer,
    NotifyLast,
    Done,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Host {
    count_word: u64,
    hold_word: u64,
    eventcount: u32,
    worker: WorkerStep,
    /// The boundary that the worker is at, in its own memory.
    count: u64,
    eventcount_seen: u32,
    passed: u64,
    agent: AgentStep,
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
            eventcount: 0,
            worker: WorkerStep::Enter,
            count: 0,
            eventcount_seen: 0,
            passed: 0,
            agent: AgentStep::StoreHold,
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
        // The words that earlier rounds may have left in the page.
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

    /// No step is possible: all workers must be in the final state of the plan.
    fn end(&mut self, world: &World) -> Result<(), String> {
        self.ends += 1;
        for host in &world.hosts {
            let good = match self.plan {
                Plan::Leave => host.worker == WorkerStep::Left && Some(host.count) == world.k(),
                Plan::Withdraw => host.worker == WorkerStep::StoreCount && host.count == LIMIT,
            };
            if !good {
                return Err(format!("ends at {world:?}, K {:?}", world.k()));
            }
        }
        Ok(())
    }

    fn worker(&self, world: &World, index: usize) -> Result<Option<World>, String> {
        let mut next = world.clone();
        let is_done = world.hosts[index].agent == AgentStep::Done;
        let limit = match self.plan {
            Plan::Leave if is_done => LIMIT + 1,
            _ => LIMIT,
        };
        let host = &mut next.hosts[index];
        match host.worker {
            WorkerStep::Enter => {
                host.count_word = hold::count_word(ROUND, 0);
                host.worker = WorkerStep::StoreCount;
            }
            WorkerStep::StoreCount => {
                if host.count >= limit {
                    return Ok(None);
                }
                host.count += 1;
                if self.mutant != Mutant::WorkerReadsFirst {
                    host.count_word = hold::count_word(ROUND, host.count);
                }
                host.worker = WorkerStep::LoadEventcount;
            }
            WorkerStep::LoadEventcount => {
                host.eventcount_seen = host.eventcount;
                host.worker = WorkerStep::LoadHold;
            }
            WorkerStep::LoadHold => {
                let verdict = hold::judge(Look::at(host.hold_word), ROUND, host.count);
                host.worker = match verdict {
                    Verdict::Continue if self.mutant == Mutant::WorkerReadsFirst => {
                        WorkerStep::StoreCountLate(true)
                    }
                    Verdict::Wait if self.mutant == Mutant::WorkerReadsFirst => {
                        WorkerStep::StoreCountLate(false)
                    }
                    Verdict::Continue => WorkerStep::StoreCount,
                    Verdict::Wait if self.mutant == Mutant::EventcountReadLast => {
                        WorkerStep::LoadEventcountLate
                    }
                    Verdict::Wait => WorkerStep::Asleep,
                    Verdict::Leave => WorkerStep::Left,
                    Verdict::AwaitLease | Verdict::Abort => unreachable!("not in the model"),
                };
                if verdict == Verdict::Continue {
                    host.passed = host.count;
                }
            }
            WorkerStep::LoadEventcountLate => {
                host.eventcount_seen = host.eventcount;
                host.worker = WorkerStep::Asleep;
            }
            WorkerStep::StoreCountLate(passes) => {
                host.count_word = hold::count_word(ROUND, host.count);
                host.worker = if passes {
                    WorkerStep::StoreCount
                } else {
                    WorkerStep::Asleep
                };
            }
            WorkerStep::Asleep => {
                if host.eventcount == host.eventcount_seen {
                    return Ok(None);
                }
                host.worker = match self.mutant {
                    Mutant::EventcountReadLast => WorkerStep::LoadHold,
                    _ => WorkerStep::LoadEventcount,
                };
            }
            WorkerStep::Left => return Ok(None),
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
            && host.agent == AgentStep::StoreHold
            && host.reported.is_none()
        {
            host.reported = Some(hold::count_in(host.count_word, ROUND).0);
            return Some(next);
        }
        host.agent = match host.agent {
            AgentStep::StoreHold => {
                host.hold_word = hold::held(ROUND);
                AgentStep::NotifyHold
            }
            AgentStep::NotifyHold => {
                host.eventcount += 1;
                if self.mutant == Mutant::AgentReadsFirst {
                    AgentStep::StoreAnswer
                } else {
                    AgentStep::LoadCount
                }
            }
            AgentStep::LoadCount => {
                host.reported = Some(hold::count_in(host.count_word, ROUND).0);
                AgentStep::StoreAnswer
            }
            AgentStep::StoreAnswer => {
                host.hold_word = match self.plan {
                    Plan::Leave => hold::leave_at(ROUND, Boundary(k?)).unwrap(),
                    Plan::Withdraw => hold::withdrawn(ROUND),
                };
                AgentStep::NotifyLast
            }
            AgentStep::NotifyLast => {
                host.eventcount += u32::from(self.mutant != Mutant::NoNotify);
                AgentStep::Done
            }
            AgentStep::Done => return None,
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
        (Plan::Leave, Mutant::EventcountReadLast),
        (Plan::Withdraw, Mutant::EventcountReadLast),
        (Plan::Leave, Mutant::NoNotify),
        (Plan::Withdraw, Mutant::NoNotify),
    ] {
        let why = Explorer::run(plan, mutant).unwrap_err();
        assert!(why.starts_with("ends at"), "{why}");
    }
}
