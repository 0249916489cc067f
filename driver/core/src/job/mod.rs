//! The job, composed of the other machines: events in, commands out.
//!
//! [`Job::receive`] applies one event. [`Job::settle`] compares the intended state with the observed one and plans. The
//! driver receives all events that have arrived together one by one, and settles once: the loss of 1,500 hosts at one
//! instant leads to one plan. [`Job::step`] receives one event and settles.
//!
//! | submodule | handles |
//! |---|---|
//! | `reports`, `requests`, `failures`, `discovery`, `unable` | the meaning of one event |
//! | `admission`, `contact`, `away`, `returning` | agents: connected, heard, out of reach, back |
//! | `slots`, `launching`, `capacity`, `expected` | agents, processes and their slots |
//! | `draining`, `reserve` | hosts that will go away |
//! | `planning`, `probing`, `starting`, `going_back`, `stored`, `store_search`, `fruitless` | rounds |
//! | `replication` | replicas of commits on other hosts |
//! | `cuts` | the same for a state that is divided among workers |
//! | `servers` | parameter servers beside the workers |
//! | `grouping`, `group_members` | workers without the SDK |
//! | `recording`, `resuming` | records for the journal, and a job of a later driver |
//! | `takeover`, `adopting` | agents that come back to a later driver |
//! | `shortage`, `ending`, `shutdown` | the elastic timeout, the end of the job, and the end of its agents |
//!
//! Cost: an event costs O(log hosts + its own workers). Only a change of hosts, a failure, a plan and a start cost
//! O(hosts + workers).

mod admission;
mod adopting;
mod away;
mod base;
mod capacity;
mod contact;
mod cuts;
mod discovery;
mod draining;
mod ending;
mod expected;
mod failures;
mod fruitless;
mod going_back;
mod group_members;
mod grouping;
mod held_commits;
mod launching;
mod planning;
mod probing;
mod recording;
mod replica_groups;
mod replication;
mod reports;
mod requests;
mod reserve;
mod resuming;
mod returning;
mod servers;
mod shortage;
mod shutdown;
mod slots;
mod starting;
mod store_search;
mod stored;
mod takeover;
mod unable;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use elasticrun_protocol::{AgentCommand, AgentReport, DriverEpoch, HostId, Process, Rank, Round};

use crate::{
    Command, Decision, Event, Rejected, Settings, Time,
    blacklist::Blacklist,
    budgets::Budgets,
    fleet::Fleet,
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
    seats::FormerSeats,
    sources::Sources,
    suspicion::Suspicion,
    time::earliest,
    waitlist::WaitList,
};
use capacity::Capacity;
use contact::Contact;
use ending::Startup;
use expected::Expected;
use going_back::GoingBack;
use grouping::Counted;
use launching::Launches;
use planning::Completed;
use probing::Probing;
use recording::Recorded;
use replication::Replication;
use servers::Servers;
use shortage::Shortage;
use shutdown::Shutdown;
use store_search::Stored;
use takeover::TakeOver;

type Out = Vec<Command>;

/// The state machine of a job.
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
    /// The seats of the members of the last round, if replica groups have a fixed size.
    seats: FormerSeats,
    budgets: Budgets,
    results: Results,
    /// When the job was settled last. Deadlines up to then were applied.
    settled: Time,
    /// When the first event since then was received.
    received: Time,
    /// The time of the event or tick that is being handled.
    now: Time,
    /// Events were received since the job was settled.
    unsettled: bool,
    /// What the hosts of a round have completed. Handled when the job is settled, since later events may have
    /// invalidated it.
    completed: Option<Completed>,
    /// Hosts or blacklist have changed: the capacity must be counted again.
    capacity_dirty: bool,
    /// The slots of members may have gone.
    recheck_members: bool,
    /// Hosts where a slot may have become free or usable.
    dirty_hosts: BTreeSet<HostId>,
    /// Starts of agents and processes, oldest first, for the start timeout.
    starts: VecDeque<(Time, HostId, Option<Process>)>,
    launches: Launches,
    /// Failed processes whose exit is not known yet, with rank and round.
    unexplained: BTreeMap<(HostId, Process), Option<(Rank, Round)>>,
    /// Discovery has given a list.
    discovered: bool,
    /// The processes before the first round.
    startup: Startup,
    /// A worker has reached `run()`, so the workers of the job use the SDK.
    sdk_seen: bool,
    /// How long there have been too few workers.
    shortage: Shortage,
    /// Hosts whose memory may have held commits and is lost, until they return with it.
    memory_lost: BTreeSet<HostId>,
    /// The elastic timeout has passed before the first round: `min_np` workers suffice.
    accept_min_np: bool,
    /// Members of the last round are lost with their hosts. They may train until this time, unless other members have
    /// left the round (R11).
    fenced_until: Option<Time>,
    /// Commits of the round that started last, and whether they are out of reach.
    going_back: GoingBack,
    /// The search of the durable store.
    stored: Stored,
    /// The hosts that keep replicas.
    replication: Replication,
    /// The parameter servers.
    servers: Servers,
    /// Survivors of a failure have just begun a round. No newcomer is started before this time, so that the survivors
    /// get the processor.
    newcomers_paused_until: Option<Time>,
    /// Which newcomers can reach the round that trains.
    probing: Probing,
    /// Which hosts cannot reach each other.
    suspicion: Suspicion,
    /// Whether the program itself fails.
    relapses: Relapses,
    /// A worker has lost a peer. The job waits until this time for the report of the peer's agent.
    loss_grace_until: Option<Time>,
    /// When the exit timeout of the members began: one has succeeded, or success of all is no longer possible.
    exits_since: Option<Time>,
    /// Hosts that are out of reach, and whose agents may return.
    away: BTreeSet<HostId>,
    /// Whether the driver hears of any agent.
    contact: Contact,
    /// The end of the agents, once the job has ended.
    shutdown: Option<Shutdown>,
    /// This driver has resumed the run, and agents may still come back.
    takeover: Option<TakeOver>,
    /// What [`Job::journal`] has returned.
    recorded: Recorded,
}

impl Job {
    /// A job without events. `seed` determines its jitter.
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
            seats: FormerSeats::default(),
            budgets: Budgets::new(&settings),
            results: Results::default(),
            settled: Time::ZERO,
            received: Time::ZERO,
            now: Time::ZERO,
            unsettled: false,
            completed: None,
            capacity_dirty: true,
            recheck_members: false,
            dirty_hosts: BTreeSet::new(),
            starts: VecDeque::new(),
            launches: Launches::default(),
            unexplained: BTreeMap::new(),
            discovered: false,
            startup: Startup::default(),
            sdk_seen: false,
            shortage: Shortage::at_start(),
            memory_lost: BTreeSet::new(),
            accept_min_np: false,
            fenced_until: None,
            going_back: GoingBack::default(),
            stored: Stored::new(epoch),
            replication: Replication::new(epoch),
            servers: Servers::new(epoch),
            newcomers_paused_until: None,
            probing: Probing::default(),
            suspicion: Suspicion::default(),
            relapses: Relapses::default(),
            loss_grace_until: None,
            exits_since: None,
            away: BTreeSet::new(),
            contact: Contact::default(),
            shutdown: None,
            takeover: None,
            recorded: Recorded::default(),
            settings,
        }
    }

    /// Applies one event, settles, and appends the commands.
    pub fn step(&mut self, now: Time, event: Event, out: &mut Out) {
        self.receive(now, event, out);
        self.settle(now, out);
    }

    /// Applies one event and appends the commands that are due at once. Planning waits for [`Job::settle`], which is
    /// due at once ([`Job::next_deadline`]). Deadlines that pass in between take effect after it. Groups of workers
    /// without the SDK settle after each event.
    pub fn receive(&mut self, now: Time, event: Event, out: &mut Out) {
        if let Event::Reported {
            host,
            instance,
            report:
                AgentReport::Heartbeat {
                    count,
                    held,
                    sealed,
                    ..
                },
            ..
        } = &event
        {
            if self.is_current(host, *instance) {
                self.beat_holds(now, host, *held, *sealed);
            }
            return self.answer_beat(now, host, *instance, *count, out);
        }
        if self.results.outcome().is_some() {
            self.tick(now, out);
            return self.after_end(now, event, out);
        }
        self.now = now;
        if !self.unsettled {
            self.tick(now, out);
            self.received = now;
        }
        if self.results.outcome().is_some() {
            // A deadline that passed just before the event has ended the job (R10).
            return self.after_end(now, event, out);
        }
        self.unsettled = true;
        self.apply(now, event, out);
        if self.groups.leads() {
            // The meaning of an event to a group depends on the result of the previous event.
            self.settle(now, out);
        }
    }

    /// Plans for all events since the last call. Does nothing if there are none.
    pub fn settle(&mut self, now: Time, out: &mut Out) {
        if std::mem::take(&mut self.unsettled) {
            self.now = now;
            self.bring_together(now, out);
            // Deadlines that passed since the first event are still to be applied.
            self.settled = self.received;
            self.exit_when_alone(out);
        }
    }

    /// Applies the deadlines that have passed.
    pub fn tick(&mut self, now: Time, out: &mut Out) {
        if self.next_deadline().is_none_or(|due| due > now) {
            return;
        }
        if self.unsettled {
            // Events received by now are in time.
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
        self.end_absences(now, out);
        self.end_slow_rounds(now, out);
        if !self.is_taking_over() {
            self.end_waits(now, out);
        }
        self.newcomers_paused_until = self.newcomers_paused_until.filter(|until| *until > now);
        self.replication.end_wait(now);
        self.bring_together(now, out);
        self.exit_when_alone(out);
    }

    /// Whether no event was received since the last [`Job::settle`].
    pub fn is_settled(&self) -> bool {
        !self.unsettled
    }

    /// When [`Job::tick`] is due, if no event comes before.
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
            self.next_launch(),
            self.next_round_deadline(),
            self.probing.next_deadline(),
            self.next_takeover_deadline(),
            (self.next_wait_deadline()).filter(|_| !self.is_taking_over()),
            self.next_group_deadline(),
            self.newcomers_paused_until,
            self.next_absence_deadline(),
            self.replication.deadline(),
            self.servers.deadline(self.settled),
        ])
    }

    /// The outcome, once there is one, and the first failure.
    pub fn results(&self) -> &Results {
        &self.results
    }

    /// The sources of hosts and their last answers.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// The known hosts in their order of arrival.
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

    /// Whether a host has parameter servers that run or end.
    pub fn has_servers(&self, host: &HostId) -> bool {
        self.servers.runs_on(host)
    }

    /// The phase of the rounds.
    pub fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    /// The number of rounds that have started.
    pub fn rounds_started(&self) -> u32 {
        self.budgets.started()
    }

    /// Groups of workers without the SDK.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The settings that the job was created with. They never change.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    fn apply(&mut self, now: Time, event: Event, out: &mut Out) {
        match event {
            Event::SourceAnswered { source, snapshot } => {
                if self.sources.answered(source, snapshot) {
                    out.push(Command::Announce(Decision::DiscoveryWorks));
                }
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
                    self.connection_lost(now, &host, why, out);
                }
            }
            Event::LaunchFailed { host, why } => self.launch_ended(now, &host, why, out),
            Event::AgentDied { host, agent, why } => self.agent_died(now, &host, agent, why, out),
            Event::Reported { host, epoch, .. } if epoch != self.epoch => {
                reject(out, &host, Rejected::OtherDriver(epoch));
            }
            Event::Reported {
                host,
                instance,
                number,
                report,
                ..
            } => {
                let current = self.is_current(&host, instance);
                let repeats = planted(Mutant::ReportsRepeated) || reports::counts_twice(&report);
                if !current && !planted(Mutant::StaleConnection) {
                    reject(out, &host, Rejected::StaleConnection);
                } else if !self.is_new(&host, number) && !repeats {
                    reject(out, &host, Rejected::Repeated);
                } else {
                    self.heard(now, &host);
                    self.reported_in_turn(now, &host, number, report, out);
                }
            }
            Event::Requested { id, request } => self.requested(now, id, request, out),
            Event::StopRequested { signal } => self.stop_requested(signal, out),
        }
    }

    /// Compares the intended state with the observed one, and plans.
    fn bring_together(&mut self, now: Time, out: &mut Out) {
        if self.results.outcome().is_some() {
            return;
        }
        self.settled = now;
        if self.follow_takeover(now, out) {
            return;
        }
        self.follow_completed(now, out);
        if self.results.outcome().is_some() {
            return;
        }
        self.finish_drains(out);
        // A search of the store has waited for a host that is released.
        self.follow_completed(now, out);
        if self.results.outcome().is_some() {
            return;
        }
        self.count_anew(out);
        if self.leave_the_away(now, out) {
            self.count_anew(out);
        }
        self.conclude(now, out);
        let ending = self.is_ending() && !planted(Mutant::LateSpare);
        if self.results.outcome().is_some() || ending {
            return;
        }
        self.follow_servers(now, out);
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
            self.replicate(now, out);
            self.watch_shortage(now, out);
        }
    }

    /// Counts the capacity again if hosts, blacklist or reserve have changed.
    fn count_anew(&mut self, out: &mut Out) {
        let dirty = std::mem::take(&mut self.capacity_dirty);
        if dirty || self.reserve() != *self.capacity.reserve() {
            self.count_capacity(out);
            self.stop_unusable(out);
            self.recheck_members = true;
        }
    }

    fn is_current(&self, host: &HostId, instance: u64) -> bool {
        let up = self.fleet.host(host).and_then(|h| h.up());
        up.is_some_and(|up| up.instance == instance)
    }

    /// Whether a member has finished, so that no further round is formed.
    fn is_ending(&self) -> bool {
        self.registry.is_ending()
    }

    /// Closes the connection of a host's agent, and ends its launch.
    fn disconnect(&self, host: &HostId, out: &mut Out) {
        self.close(host, out);
        out.push(Command::EndLaunch {
            host: host.clone(),
            unless_connected: !self.is_up(host) && !self.away.contains(host),
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

    fn send(&self, host: &HostId, command: AgentCommand, out: &mut Out) {
        out.push(Command::Send {
            host: host.clone(),
            command,
        });
    }
}

fn reject(out: &mut Out, host: &HostId, why: Rejected) {
    out.push(Command::Reject {
        host: host.clone(),
        why,
    });
}
