//! The simulated world: hosts, agents, workers, the network between them and the sources of hosts.
//!
//! [`World::run`] is the loop: it takes the earliest event of the queue and applies it at once. Events of one time keep
//! the order in which they were queued. The driver's [`Job`](elasticrun_core::Job) and every agent's
//! [`Machine`](elasticrun_core::agent::Machine) are the shipped ones; everything around them is a model.
//!
//! | file | models |
//! |---|---|
//! | `queue` | the events, and their order |
//! | `driver`, `clock` | the driver's shell: the job, its events, its time |
//! | `obeying` | the same: how it carries out the commands of the job |
//! | `observing` | what the reference and the invariants observe of an event |
//! | `dying`, `journal` | the death of the driver, a later one, and the records that it begins with |
//! | `probe` | probes between hosts |
//! | `network`, `link` | connections: order kept, delay, cuts, heartbeats |
//! | `host` | a host and how the network reaches it |
//! | `agent`, `launch`, `returning` | the agent's shell, how it begins and ends, and how it returns |
//! | `memory` | pages and commit memories |
//! | `worker`, `schedule` | a training process, and the order of its actions |
//! | `joining`, `beginning` | how a worker waits for a round, leaves it, and begins it |
//! | `training`, `death` | the steps of a worker in a round, and its end |
//! | `collective` | collectives of the workers of a round |
//! | `divided` | the start of a round of a state that is divided, and its commits |
//! | `asynchronous` | the same: commits that are copied while training goes on |
//! | `group` | steps of scripts without the SDK |
//! | `replica` | copies of commits between agents |
//! | `reading` | how workers read their data |
//! | `discovery` | the sources of hosts |
//! | `fault_injection` | how faults are applied |
//! | `view` | queries of the invariants |
//!
//! Not modelled: loss inside a connection (TCP hides it), several threads of one process, output.

mod agent;
mod ambush;
mod asynchronous;
mod beginning;
mod clock;
mod collective;
mod death;
mod discovery;
mod divided;
mod driver;
mod durable;
mod dying;
mod fault_injection;
pub(crate) mod group;
pub(crate) mod host;
mod joining;
mod journal;
mod launch;
mod link;
pub(crate) mod memory;
mod network;
mod obeying;
mod observing;
mod probe;
mod queue;
pub(crate) mod reading;
mod replica;
mod returning;
mod schedule;
mod servers;
mod training;
mod view;
mod worker;

use std::{
    any::Any,
    collections::{BTreeMap, BinaryHeap},
    time::Duration,
};

use elasticrun_core::Time;
use elasticrun_protocol::{HostId, Process, Round};

use crate::{
    blame::Blame,
    fault::Strike,
    history::History,
    invariants::Invariants,
    reference::Reference,
    rng::Rng,
    scenario::{Scenario, Seeded},
    shrink::Simplification,
    trace::{Detail, Trace},
};
pub(crate) use collective::{RoundSim, Seat};
use discovery::Discovery;
use driver::Driver;
pub(crate) use durable::Durable;
use group::GroupSim;
use host::Host;
use journal::Journal;
use link::Link;
use queue::{Entry, Ev};
pub(crate) use replica::LONGEST_COPY;

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The number or name of the invariant in the design.
    pub invariant: &'static str,
    /// The observation.
    pub what: String,
}

impl Violation {
    /// A panic of the shipped code, or of the simulation, with its text.
    pub(crate) fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let text = (panic.downcast_ref::<String>().map(String::as_str))
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("a panic without a text");
        Self {
            invariant: "panic",
            what: text.to_owned(),
        }
    }
}

/// The state of a run.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) plan: Scenario,
    rng: Rng,
    /// The generator of the readers: separate, so that the data changes no other draws.
    data_rng: Rng,
    /// The generator of the delays of deadlines: separate as well.
    lateness_rng: Rng,
    /// The generator that decides which events come together.
    batch_rng: Rng,
    /// The generator of the durable store.
    store_rng: Rng,
    /// The generator of copies between agents.
    replica_rng: Rng,
    /// The generator of layouts.
    layout_rng: Rng,
    /// The generator of copies that fail.
    copy_rng: Rng,
    /// Whole commits in the durable store, oldest first.
    pub(crate) store: Vec<durable::Durable>,
    queue: BinaryHeap<Entry>,
    entered: u64,
    pub(crate) driver: Driver,
    journal: Journal,
    pub(crate) hosts: Vec<Host>,
    links: Vec<Link>,
    pub(crate) rounds: BTreeMap<Round, RoundSim>,
    pub(crate) groups: BTreeMap<Round, GroupSim>,
    /// Steps that groups have saved.
    pub(crate) group_steps: u64,
    discovery: Discovery,
    pub(crate) reference: Reference,
    /// The reference before the current event, if a deadline had passed by then.
    pub(crate) before_event: Option<Reference>,
    pub(crate) blame: Blame,
    pub(crate) history: History,
    pub(crate) invariants: Invariants,
    pub(crate) trace: Trace,
    pub(crate) violation: Option<Violation>,
    /// Faults that have struck, in this order.
    pub(crate) strikes: Vec<Strike>,
    /// Faults that wait for the next process or launch they can apply to.
    pending: fault_injection::Pending,
    pub(crate) healed: bool,
    swept: bool,
    fates: BTreeMap<(usize, Process), view::Fate>,
}

/// Derives the generator of delays from the seed.
const LATENESS: u64 = 0x6c61_7465;

/// Derives the generator of the durable store from the seed.
const STORE: u64 = 0x7374_6f72_6500;

/// Derives the generator of replicas from the seed.
const REPLICAS: u64 = 0x7265_706c_6963;

/// Derives the generator of layouts from the seed.
const LAYOUTS: u64 = 0x6c61_796f_7574;

/// Derives the generator of copies from the seed.
const COPIES: u64 = 0x636f_7069_6573;

/// A run that needs more events than this loops.
const MOST_EVENTS: u64 = 3_000_000;

impl World {
    /// The world of a seed, without the hardships that a simplification takes away.
    pub(crate) fn new(seed: u64, detail: Detail, simplification: &Simplification) -> Self {
        let Seeded {
            scenario: mut plan,
            mut rng,
            data: data_rng,
            batches: batch_rng,
        } = Seeded::new(seed);
        simplification.apply(&mut plan);
        let mut world = Self {
            now: Time::ZERO,
            driver: Driver::new(&plan, rng.seed()),
            journal: Journal::new(plan.lag()),
            hosts: (plan.hosts.iter().zip(0..))
                .map(|(slots, index)| Host::new(index, *slots))
                .collect(),
            rng,
            data_rng,
            lateness_rng: Rng::new(seed ^ LATENESS),
            batch_rng,
            store_rng: Rng::new(seed ^ STORE),
            replica_rng: Rng::new(seed ^ REPLICAS),
            layout_rng: Rng::new(seed ^ LAYOUTS),
            copy_rng: Rng::new(seed ^ COPIES),
            store: Vec::new(),
            queue: BinaryHeap::new(),
            entered: 0,
            links: Vec::new(),
            rounds: BTreeMap::new(),
            groups: BTreeMap::new(),
            group_steps: 0,
            discovery: Discovery::new(&plan),
            reference: Reference::of(&plan.settings),
            before_event: None,
            blame: Blame::new(&plan.settings),
            history: History::default(),
            invariants: Invariants::default(),
            trace: Trace::new(detail),
            violation: None,
            strikes: Vec::new(),
            pending: fault_injection::Pending::default(),
            healed: false,
            swept: false,
            fates: BTreeMap::new(),
            plan,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        if self.trace_is_on() {
            let plan = format!("{:?}", self.plan);
            self.note(format_args!("scenario {plan}"));
        }
        for (at, fault) in self.plan.faults.clone() {
            self.at(at, Ev::Fault(fault));
        }
        self.at(self.plan.heal, Ev::Heal);
        self.begin_discovery();
        self.schedule_job_tick();
        self.after(Duration::from_millis(500), Ev::Watch);
    }

    /// Runs until the job and all its processes have ended, or an invariant does not hold.
    pub(crate) fn run(&mut self) {
        while self.violation.is_none() && !self.swept {
            let Some(entry) = self.queue.pop() else {
                return self.violate(
                    "R9",
                    "nothing will happen any more and the job has not ended".into(),
                );
            };
            self.now = entry.at;
            self.trace.event(entry.at, entry.number);
            if self.trace.events() > MOST_EVENTS {
                return self.violate("R9", "the job goes round in circles".into());
            }
            self.happen(entry.ev);
        }
    }

    /// Until when this event must wait, because its driver or agent is suspended.
    fn stands_still(&self, ev: &Ev) -> Option<Time> {
        let host = match ev {
            Ev::Down(link) => self.links[*link].host,
            Ev::AgentTick { host, .. }
            | Ev::Flush { host, .. }
            | Ev::Redial { host, .. }
            | Ev::Machine { host, .. } => *host,
            Ev::Up(_)
            | Ev::RepeatUp(..)
            | Ev::JobTick
            | Ev::Job(_)
            | Ev::Poll(_)
            | Ev::Heart(_)
            | Ev::LaunchEnded { .. }
            | Ev::AgentDied { .. }
            | Ev::DriverExit => {
                return self.driver_stalls();
            }
            // An agent reaps its own children. Processes of an earlier agent have another parent.
            Ev::Reap { host, process } => {
                let worker = self.hosts[*host].workers.get(process)?;
                self.hosts[*host].is_agent(worker.agent).then_some(*host)?
            }
            _ => return None,
        };
        let until = self.hosts[host].stalled;
        (until > self.now && self.hosts[host].agent.is_some()).then_some(until)
    }

    fn happen(&mut self, ev: Ev) {
        if let Some(until) = self.stands_still(&ev) {
            return self.at(until, ev);
        }
        match ev {
            Ev::JobTick => self.job_tick(),
            Ev::DriverWakes => self.driver_wakes(),
            Ev::Job(event) => self.job_event(event),
            Ev::Poll(source) => self.poll(source),
            Ev::Up(link) => self.up(link),
            Ev::Down(link) => self.down(link),
            Ev::Heart(link) => self.heart(link),
            Ev::RepeatUp(link, report) => self.repeat_up(link, report),
            Ev::RepeatDown(link, message) => self.repeat_down(link, message),
            Ev::Launch { host, token } => self.launch_done(host, token),
            Ev::LaunchEnded { host, token } => self.launch_ended(host, token),
            Ev::AgentDied { host, agent } => self.agent_died(host, agent),
            Ev::Redial { host, agent } => self.redial(host, agent),
            Ev::Register(host) => self.register_itself(host),
            Ev::AgentTick { host, agent } => self.agent_tick(host, agent),
            Ev::Flush { host, agent } => self.flush(host, agent),
            Ev::Machine { host, agent, event } => self.machine_event(host, agent, event),
            Ev::Stored { at, commit } => self.stored(at, commit),
            Ev::Loaded {
                at,
                number,
                process,
                stored,
            } => self.loaded(at, (number, process), stored),
            Ev::Copied { at, copying } => self.copied(at, copying),
            Ev::Dialled {
                host,
                agent,
                number,
                unreachable,
            } => self.dialled(host, agent, number, unreachable),
            Ev::Worker {
                host,
                process,
                token,
                act,
            } => self.worker_acts(host, process, token, act),
            Ev::Wake { host, process } => self.worker_wakes(host, process),
            Ev::PeerLost {
                host,
                process,
                round,
            } => self.peer_lost(host, process, round),
            Ev::Tell {
                host,
                agent,
                process,
                tell,
            } => self.worker_told(host, agent, process, tell),
            Ev::Kill {
                host,
                process,
                term,
            } => self.worker_signalled(host, process, term),
            Ev::Reap { host, process } => self.reap(host, process),
            Ev::GroupStep(round) => self.group_step(round),
            Ev::GroupStalled { round, step } => self.group_stalled(round, step),
            Ev::Stalled { round, index } => self.stalled(round, index),
            Ev::Fault(fault) => self.strike(fault),
            Ev::Uncut {
                host,
                up,
                down,
                data,
            } => self.uncut(host, up, down, data),
            Ev::Revive(host) => self.revive(host),
            Ev::Resume { host, process } => self.resume(host, process),
            Ev::Watch => self.watch(),
            Ev::Heal => self.heal(),
            Ev::Patience => self.patience_over(),
            Ev::DriverExit => self.driver_exit(),
            Ev::DriverResumes { whole } => self.driver_resumes(whole),
            Ev::Swept => self.check_swept(),
        }
    }

    fn at(&mut self, at: Time, ev: Ev) {
        self.entered += 1;
        let number = self.entered;
        self.queue.push(Entry { at, number, ev });
    }

    fn after(&mut self, wait: Duration, ev: Ev) {
        self.at(self.now + wait, ev);
    }

    pub(crate) fn violate(&mut self, invariant: &'static str, what: String) {
        self.note(format_args!("VIOLATED {invariant}: {what}"));
        self.violation.get_or_insert(Violation { invariant, what });
    }

    pub(crate) fn note(&mut self, what: std::fmt::Arguments<'_>) {
        self.trace.note(self.now, what);
    }

    fn trace_is_on(&self) -> bool {
        self.trace.is_on()
    }

    pub(crate) fn host_index(&self, id: &HostId) -> Option<usize> {
        host::index_of(id).filter(|index| *index < self.hosts.len())
    }

    fn watch(&mut self) {
        if !self.driver.dead {
            crate::invariants::watch(self);
        }
        if !self.driver.exited {
            self.after(Duration::from_millis(500), Ev::Watch);
        }
    }

    fn patience_over(&mut self) {
        // A later driver has as much time as the first one.
        let time = self.now.since(self.driver.began.max(self.plan.heal));
        if self.driver.ended.is_none() && !self.driver.dead && time >= self.plan.patience() {
            let what = crate::invariants::r9::describe(self);
            self.violate("R9", what);
        }
    }
}
