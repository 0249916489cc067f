//! The job: composes the machines. Events in, commands out.
//!
//! [`Job::receive`] applies one event, [`Job::settle`] brings intent and observation together. Events that have come together
//! are received one by one and settled once: the loss of 1,500 hosts in one instant is one plan. [`Job::step`] does both for one event.
//! What one event means is in `reports`, `requests`, `failures` and `ending`; what follows from the new state is in
//! `admission` (agents), `slots` (processes), `draining` (hosts that go away), `planning`, `probing`, `starting` and `going_back` (rounds),
//! `grouping` and `group_members` (workers without the SDK). What follows the end is in `shutdown`.
//!
//! Cost: an event costs O(log hosts + its own workers); only a change of hosts, a failure, a plan and a
//! start cost O(hosts + workers).

mod admission;
mod capacity;
mod discovery;
mod draining;
mod ending;
mod expected;
mod failures;
mod fruitless;
mod going_back;
mod group_members;
mod grouping;
mod planning;
mod probing;
mod reports;
mod requests;
mod shortage;
mod shutdown;
mod slots;
mod starting;
mod unable;

use std::collections::{BTreeSet, VecDeque};

use elasticrun_protocol::{AgentCommand, AgentReport, DriverEpoch, HostId, Process};

use crate::{
    Command, Event, Rejected, Settings, Time,
    blacklist::Blacklist,
    budgets::Budgets,
    fleet::{Agent, Fleet},
    groups::Groups,
    hosts::HostSet,
    lineage::Lineage,
    mutant::{Mutant, planted},
    placement::Placement,
    random::Random,
    registry::Registry,
    relapses::Relapses,
    results::Results,
    rounds::Rounds,
    sources::Sources,
    suspicion::Suspicion,
    time::earliest,
    waitlist::WaitList,
};
use capacity::Capacity;
use ending::Startup;
use expected::Expected;
use going_back::GoingBack;
use grouping::Counted;
use planning::Completed;
use probing::Probing;
use shortage::Shortage;
use shutdown::Shutdown;

type Out = Vec<Command>;

/// The state machine of a job. See the module.
#[derive(Clone, Debug)]
pub struct Job {
    settings: Settings,
    epoch: DriverEpoch,
    run_id: String,
    random: Random,
    sources: Sources,
    hosts: HostSet,
    blacklist: Blacklist,
    capacity: Capacity,
    expected: Expected,
    fleet: Fleet,
    placement: Placement,
    waitlist: WaitList,
    rounds: Rounds,
    groups: Groups,
    counted: Counted,
    lineage: Lineage,
    registry: Registry,
    budgets: Budgets,
    results: Results,
    /// When intent and observation were last brought together.
    settled: Time,
    /// The time of the step that is being taken.
    now: Time,
    /// Events were received since the job was settled.
    unsettled: bool,
    /// What the events have completed: followed when the job is settled, since later events may have undone it.
    completed: Option<Completed>,
    /// Hosts or blacklist changed: the capacity must be counted anew.
    capacity_dirty: bool,
    /// Slots may have gone that members of a round use.
    recheck_members: bool,
    /// Hosts where a slot may have become free or usable.
    dirty_hosts: BTreeSet<HostId>,
    /// Starts of agents and processes, oldest first, to see which take too long.
    starts: VecDeque<(Time, HostId, Option<Process>)>,
    /// A list of discovery has come.
    discovered: bool,
    /// What became of processes before the first round.
    startup: Startup,
    /// A worker has come to `run()`: the job's workers use the SDK.
    sdk_seen: bool,
    /// Too few workers.
    shortage: Shortage,
    /// Hosts whose memory is lost that may have held commits, and has not come back.
    memory_lost: BTreeSet<HostId>,
    /// The elastic timeout has passed before the first round: `min_np` workers are enough.
    accept_min_np: bool,
    /// Members of the last round are lost with their hosts and may train on until then, unless others have left it (R11).
    fenced_until: Option<Time>,
    /// Whether commits of the round that started last are out of reach.
    going_back: GoingBack,
    /// Survivors of a failure have just begun a round: until then no newcomer is started, so that they get the processor.
    newcomers_paused_until: Option<Time>,
    /// Which newcomers reach the round that trains.
    probing: Probing,
    /// Which hosts cannot reach each other.
    suspicion: Suspicion,
    /// Whether it is the program that fails.
    relapses: Relapses,
    /// A worker lost a peer: until then the job waits for the report of the peer's agent.
    loss_grace_until: Option<Time>,
    /// Since when the members are given the exit timeout: one has succeeded, or not all can any more.
    exits_since: Option<Time>,
    /// The job has ended and its agents end.
    shutdown: Option<Shutdown>,
}

impl Job {
    /// A job that has not begun. `seed` makes its jitter.
    pub fn new(
        settings: Settings,
        run_id: impl Into<String>,
        epoch: DriverEpoch,
        seed: u64,
    ) -> Self {
        Self {
            epoch,
            run_id: run_id.into(),
            random: Random::from_seed(seed),
            sources: Sources::new(settings.sources, settings.slots_per_host),
            hosts: HostSet::default(),
            blacklist: Blacklist::new(&settings),
            capacity: Capacity::default(),
            expected: Expected::default(),
            fleet: Fleet::default(),
            placement: Placement::default(),
            waitlist: WaitList::default(),
            rounds: Rounds::default(),
            groups: Groups::new(&settings),
            counted: Counted::default(),
            lineage: Lineage::default(),
            registry: Registry::default(),
            budgets: Budgets::new(&settings),
            results: Results::default(),
            settled: Time::ZERO,
            now: Time::ZERO,
            unsettled: false,
            completed: None,
            capacity_dirty: true,
            recheck_members: false,
            dirty_hosts: BTreeSet::new(),
            starts: VecDeque::new(),
            discovered: false,
            startup: Startup::default(),
            sdk_seen: false,
            shortage: Shortage::at_start(),
            memory_lost: BTreeSet::new(),
            accept_min_np: false,
            fenced_until: None,
            going_back: GoingBack::default(),
            newcomers_paused_until: None,
            probing: Probing::default(),
            suspicion: Suspicion::default(),
            relapses: Relapses::default(),
            loss_grace_until: None,
            exits_since: None,
            shutdown: None,
            settings,
        }
    }

    /// Applies one event, settles, and appends what must be done.
    pub fn step(&mut self, now: Time, event: Event, out: &mut Out) {
        self.receive(now, event, out);
        self.settle(now, out);
    }

    /// Applies one event and appends what must be done at once. Nothing is planned before [`Job::settle`], which is due at once
    /// ([`Job::next_deadline`]); deadlines that pass in between take effect after it.
    pub fn receive(&mut self, now: Time, event: Event, out: &mut Out) {
        if let Event::Reported {
            host,
            instance,
            report: AgentReport::Heartbeat { count, .. },
            ..
        } = &event
        {
            return self.answer_beat(host, *instance, *count, out);
        }
        if self.results.outcome().is_some() {
            self.tick(now, out);
            return self.after_end(now, event, out);
        }
        self.now = now;
        if !self.unsettled {
            self.tick(now, out);
        }
        if self.results.outcome().is_some() {
            // A deadline that passed just before the event has ended the job (R10).
            return self.after_end(now, event, out);
        }
        self.unsettled = true;
        self.apply(now, event, out);
        if self.groups.leads() {
            // What one event means to a group depends on what followed from the last one.
            self.settle(now, out);
        }
    }

    /// Plans for all events since the last call. Does nothing if there were none.
    pub fn settle(&mut self, now: Time, out: &mut Out) {
        if std::mem::take(&mut self.unsettled) {
            self.bring_together(now, out);
            self.exit_when_alone(out);
        }
    }

    /// Lets the deadlines that have passed take effect.
    pub fn tick(&mut self, now: Time, out: &mut Out) {
        if self.next_deadline().is_none_or(|due| due > now) {
            return;
        }
        if self.unsettled {
            // What has come by now has come in time.
            self.settle(now, out);
            return self.tick(now, out);
        }
        if self.results.outcome().is_some() {
            return self.tick_shutdown(now, out);
        }
        self.now = now;
        self.end_cooldowns(now, out);
        self.end_slow_starts(now, out);
        self.end_slow_probes(now, out);
        self.end_slow_rounds(now, out);
        self.end_waits(now, out);
        self.newcomers_paused_until = self.newcomers_paused_until.filter(|until| *until > now);
        self.bring_together(now, out);
        self.exit_when_alone(out);
    }

    /// Whether nothing was received since [`Job::settle`].
    pub fn is_settled(&self) -> bool {
        !self.unsettled
    }

    /// When [`Job::tick`] has something to do, if nothing else happens before.
    pub fn next_deadline(&self) -> Option<Time> {
        if self.unsettled {
            return Some(self.now);
        }
        if self.results.outcome().is_some() {
            return self.next_shutdown_deadline();
        }
        earliest([
            self.blacklist.next_deadline(),
            self.next_slow_start(),
            self.next_round_deadline(),
            self.probing.next_deadline(),
            self.next_wait_deadline(),
            self.next_group_deadline(),
            self.newcomers_paused_until,
        ])
    }

    /// How it ends: the outcome once there is one, and the first failure.
    pub fn results(&self) -> &Results {
        &self.results
    }

    /// What sources say.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Hosts that are known, in their order of arrival.
    pub fn hosts(&self) -> Vec<&HostId> {
        self.hosts.in_order()
    }

    /// Whether a host is known.
    pub fn has_host(&self, host: &HostId) -> bool {
        self.hosts.contains(host)
    }

    /// Agents and processes as observed.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// What the rounds are at.
    pub fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    /// Rounds that have started.
    pub fn rounds_started(&self) -> u32 {
        self.budgets.started()
    }

    /// Groups of workers without the SDK.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// What was asked for.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    fn apply(&mut self, now: Time, event: Event, out: &mut Out) {
        match event {
            Event::SourceAnswered { source, snapshot } => {
                self.sources.answered(source, snapshot);
                self.discovered(now, out);
            }
            Event::SourceFailed { source, fatal, why } => {
                self.source_failed(source, fatal, why, out);
            }
            Event::AgentConnected(agent) => self.agent_connected(now, agent, out),
            Event::AgentLost {
                host,
                instance,
                why,
            } => {
                if self.is_current(&host, instance) {
                    self.agent_lost(now, &host, why, out);
                }
            }
            Event::LaunchFailed { host, why } => {
                let launching = |h: &crate::fleet::Host| matches!(h.agent, Agent::Launching { .. });
                if self.fleet.host(&host).is_some_and(launching) {
                    self.agent_lost(now, &host, why, out);
                }
            }
            Event::Reported { host, epoch, .. } if epoch != self.epoch => {
                reject(out, &host, Rejected::OtherDriver(epoch));
            }
            Event::Reported {
                host,
                instance,
                report,
                ..
            } => {
                if self.is_current(&host, instance) || planted(Mutant::StaleConnection) {
                    self.reported(now, &host, report, out);
                } else {
                    reject(out, &host, Rejected::StaleConnection);
                }
            }
            Event::Requested { id, request } => self.requested(now, id, request, out),
            Event::StopRequested { signal } => self.stop_requested(signal, out),
        }
    }

    /// Brings what should be and what is together.
    fn bring_together(&mut self, now: Time, out: &mut Out) {
        if self.results.outcome().is_some() {
            return;
        }
        self.settled = now;
        self.follow_completed(now, out);
        if self.results.outcome().is_some() {
            return;
        }
        self.finish_drains(out);
        self.count_anew(out);
        self.conclude(now, out);
        let ending = self.is_ending() && !planted(Mutant::LateSpare);
        if self.results.outcome().is_some() || ending {
            return;
        }
        if self.groups.leads() {
            self.lead_group(now, out);
        } else {
            self.plan_or_hold(now, out);
            if self.look_for_newer(now, out) {
                self.count_anew(out);
                self.plan_or_hold(now, out);
            }
        }
        if self.results.outcome().is_none() {
            self.fill_slots(now, out);
            self.watch_shortage(now, out);
        }
    }

    /// Counts the capacity if hosts or blacklist have changed.
    fn count_anew(&mut self, out: &mut Out) {
        if std::mem::take(&mut self.capacity_dirty) {
            self.count_capacity(out);
            self.stop_unusable(out);
            self.recheck_members = true;
        }
    }

    fn is_current(&self, host: &HostId, instance: u64) -> bool {
        let up = self.fleet.host(host).and_then(|h| h.up());
        up.is_some_and(|up| up.instance == instance)
    }

    /// No new round is formed any more, since a member has finished.
    fn is_ending(&self) -> bool {
        self.registry.is_ending()
    }

    /// Closes the connection of a host's agent, and ends what was launched for it.
    fn disconnect(&self, host: &HostId, out: &mut Out) {
        self.close(host, out);
        out.push(Command::EndLaunch {
            host: host.clone(),
            unless_connected: !self.is_up(host),
        });
    }

    fn close(&self, host: &HostId, out: &mut Out) {
        if let Some(up) = self.fleet.host(host).and_then(|h| h.up()) {
            out.push(Command::Disconnect {
                host: host.clone(),
                instance: up.instance,
            });
        }
    }

    fn send(&self, host: &HostId, order: AgentCommand, out: &mut Out) {
        out.push(Command::Send {
            host: host.clone(),
            order,
        });
    }
}

fn reject(out: &mut Out, host: &HostId, why: Rejected) {
    out.push(Command::Reject {
        host: host.clone(),
        why,
    });
}
