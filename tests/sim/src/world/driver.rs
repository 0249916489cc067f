//! The driver's shell: the job, its events and its time.

use std::{collections::BTreeSet, time::Duration};

use elasticrun_core::{
    Command, Event as JobEvent, Job, RunningTime, Time, journal::Saved, results::Outcome,
};
use elasticrun_protocol::{AgentCommand, DriverEpoch, HostId, Round};

use super::{Ev, World, clock::Clock, dying::TakeOver};
use crate::{invariants, scenario::Scenario};

/// A job as text, without the times of its last step.
fn state_of(job: &Job) -> String {
    let mut text = format!("{job:?}");
    // The time of a step is no change.
    for clock in [", settled: ", ", received: ", ", now: "] {
        if let Some((before, after)) = text.split_once(clock) {
            let rest = after.split_once(',').map_or("", |(_, rest)| rest);
            text = format!("{before},{rest}");
        }
    }
    text
}

/// The epoch of the first driver of a run.
const FIRST_EPOCH: DriverEpoch = DriverEpoch(1);

/// A job that needs more ticks than this at one moment loops.
const MOST_TICKS: u32 = 20;

/// The driver's shell and its job.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) epoch: DriverEpoch,
    pub(crate) job: Job,
    /// The current connection of each host.
    pub(super) current: Vec<Option<usize>>,
    pub(super) instances: u64,
    /// A connection whose arrival the job receives just now.
    pub(super) arrived: Option<usize>,
    /// The driver's time, which is that of the job.
    clock: Clock,
    tick_at: Option<Time>,
    /// The deadline that the next tick is for.
    due: Option<Time>,
    /// Ticks since the clock moved last.
    ticks: u32,
    pub(crate) ended: Option<(Time, Outcome)>,
    pub(super) exited: bool,
    /// The driver was killed, and no later one has begun.
    pub(super) dead: bool,
    /// When the driver began, if it continues the run of another one, and what it waits for.
    pub(crate) takeover: Option<TakeOver>,
    /// When the driver began.
    pub(super) began: Time,
    /// The current event reports that a peer was lost.
    pub(crate) broken: bool,
    /// The last round that a worker reported as broken.
    pub(super) last_broken: Option<Round>,
    /// Hosts whose agents connect with the current events. Due deadlines take effect before them.
    pub(crate) connects: BTreeSet<HostId>,
    /// Those of them whose agents are admitted.
    pub(crate) admitted: BTreeSet<HostId>,
    /// Events gather, and the tick that settles the job is due.
    gathering: bool,
    /// Why the current event must change nothing.
    pub(crate) inert: Option<&'static str>,
}

impl Driver {
    pub(super) fn new(plan: &Scenario, seed: u64) -> Self {
        let epoch = FIRST_EPOCH;
        Self {
            epoch,
            job: Job::new(plan.settings.clone(), "run", epoch, seed),
            current: vec![None; plan.hosts.len()],
            instances: 0,
            arrived: None,
            clock: Clock::default(),
            tick_at: None,
            due: None,
            ticks: 0,
            ended: None,
            exited: false,
            dead: false,
            takeover: None,
            began: Time::ZERO,
            broken: false,
            last_broken: None,
            connects: BTreeSet::new(),
            admitted: BTreeSet::new(),
            gathering: false,
            inert: None,
        }
    }

    /// A later driver of the run, with the records of the former ones. Its time begins now.
    pub(super) fn resume(
        former: &Self,
        plan: &Scenario,
        seed: u64,
        now: Time,
        saved: Saved,
    ) -> Self {
        let epoch = DriverEpoch(former.epoch.0 + 1);
        let takeover = TakeOver::begins(&saved, plan.settings.take_over());
        Self {
            epoch,
            job: Job::resume(plan.settings.clone(), "run", epoch, seed, saved),
            clock: Clock::begins(now),
            takeover: Some(takeover),
            began: now,
            ..Self::new(plan, seed)
        }
    }

    /// Whether a driver lives.
    pub(super) fn lives(&self) -> bool {
        !self.exited && !self.dead
    }

    /// Whether the end of a connection is that of an agent which the one that connects replaces.
    pub(crate) fn is_replaced(&self, host: &HostId) -> bool {
        self.connects.contains(host) && !self.admitted.contains(host)
    }

    /// Whether it is undecided whether the round of the former driver goes on.
    pub(crate) fn is_taking_over(&self) -> bool {
        (self.takeover.as_ref()).is_some_and(|takeover| !takeover.decided)
    }
}

impl World {
    pub(super) fn job_event(&mut self, event: JobEvent) {
        if !self.driver.lives() {
            return;
        }
        self.note(format_args!("driver < {event:?}"));
        let takeover = self.driver.takeover.as_ref();
        if takeover.is_some_and(|it| it.until <= self.driver_now()) && self.driver.job.is_settled()
        {
            // The job applies its deadlines before the event.
            self.reference.took_over();
        }
        self.observe(&event);
        let mut out = Vec::new();
        let came = match &event {
            JobEvent::AgentConnected(agent) => Some(agent.host.clone()),
            _ => None,
        };
        let returns = matches!(&event, JobEvent::AgentConnected(agent) if agent.adoption.is_some() && !self.takes_over(agent));
        if let Some(host) = &came {
            self.driver.connects.insert(host.clone());
            self.driver.admitted.remove(host);
        }
        self.driver.job.receive(self.driver_now(), event, &mut out);
        let gathers = self.driver.inert.is_none() && self.plan.gathers > Duration::ZERO;
        if !gathers || self.batch_rng.percent(30) {
            self.settle_job(&mut out);
        }
        self.obey(out);
        self.before_event = None;
        if self.driver.job.is_settled() {
            self.driver.connects.clear();
            self.driver.admitted.clear();
        }
        if let Some(host) = came.filter(|_| !returns) {
            self.blame.agent_came(self.driver_now(), &host);
        }
    }

    /// Ends the gathering of events.
    fn settle_job(&mut self, out: &mut Vec<Command>) {
        self.driver.job.settle(self.driver_now(), out);
        self.driver.gathering = false;
        self.take_over_ends();
    }

    /// Has the job apply its deadlines.
    fn tick_job(&mut self) -> Vec<Command> {
        let mut out = Vec::new();
        self.driver.job.tick(self.driver_now(), &mut out);
        self.take_over_ends();
        out
    }

    /// If the take-over of this driver is over, hosts that have not come back are gone.
    pub(crate) fn take_over_ends(&mut self) {
        let now = self.driver_now();
        let takeover = self.driver.takeover.as_ref();
        if takeover.is_some_and(|takeover| takeover.decided && takeover.until <= now) {
            self.reference.took_over();
        }
    }

    /// A heartbeat of an agent: the job may command nothing but the answer.
    pub(super) fn job_beat(&mut self, event: JobEvent) {
        let mut out = Vec::new();
        let due = self.driver.job.next_deadline();
        self.driver.job.receive(self.driver_now(), event, &mut out);
        for command in out {
            match command {
                Command::Send { host, command }
                    if matches!(command, AgentCommand::Heartbeat { .. }) =>
                {
                    self.send_command(&host, command);
                }
                other => self.violate(
                    "R3",
                    format!("a beat comes, and the job commands {other:?}"),
                ),
            }
        }
        // What hosts hold may change which replicas are needed. A deadline that has passed is noticed when it was to be.
        let next = self.driver.job.next_deadline();
        if next.is_some_and(|next| due.is_none_or(|due| next < due)) {
            self.schedule_job_tick();
        }
    }

    pub(super) fn job_tick(&mut self) {
        if !self.driver.lives() || self.driver.tick_at != Some(self.now) {
            return;
        }
        (self.driver.tick_at, self.driver.due) = (None, None);
        self.driver.gathering = false;
        let gathered = !self.driver.job.is_settled();
        if gathered {
            let mut out = Vec::new();
            self.settle_job(&mut out);
            self.obey(out);
            self.driver.connects.clear();
            self.driver.admitted.clear();
        }
        self.driver.broken = false;
        let out = self.tick_job();
        if !out.is_empty() {
            self.note(format_args!("driver ticks"));
        }
        self.obey(out);
        self.driver.ticks += u32::from(!gathered);
        if self.driver.ticks > MOST_TICKS {
            self.violate(
                "R9",
                "the job wants to be called again and again at one moment".into(),
            );
        }
    }

    /// The driver's time.
    pub(crate) fn driver_now(&self) -> Time {
        self.driver.clock.time(self.now)
    }

    /// Suspends the driver for a while, but not beyond the time of faults.
    pub(super) fn stall_driver(&mut self, wait: Duration) {
        if !self.driver.lives() {
            return;
        }
        let until = self.now + wait.min(self.plan.heal.since(self.now));
        let settles = RunningTime::threshold(self.plan.heartbeat_timeout);
        if self.driver.clock.stall(self.now, until, settles) {
            for host in &mut self.hosts {
                host.disturbed = host.disturbed.max(until);
            }
            self.at(until, Ev::DriverWakes);
        }
    }

    /// Actions that were due while the driver was suspended follow now.
    pub(super) fn driver_wakes(&mut self) {
        (self.driver.tick_at, self.driver.due) = (None, None);
        self.driver.gathering = false;
        self.note(format_args!("driver goes on"));
        self.schedule_job_tick();
    }

    /// Until when the driver is suspended.
    pub(super) fn driver_stalls(&self) -> Option<Time> {
        self.driver.clock.stalls(self.now)
    }

    pub(super) fn schedule_job_tick(&mut self) {
        if self.driver.gathering {
            return;
        }
        if !self.driver.job.is_settled() {
            let most = self.plan.gathers.as_micros() as u64;
            let at = self.now + self.batch_rng.micros(0, most);
            self.driver.gathering = true;
            (self.driver.tick_at, self.driver.due) = (Some(at), None);
            return self.at(at, Ev::JobTick);
        }
        let Some(due) = self.driver.job.next_deadline() else {
            (self.driver.tick_at, self.driver.due) = (None, None);
            return;
        };
        let due = due.max(self.driver_now());
        if due > self.driver_now() {
            self.driver.ticks = 0;
        }
        if self.driver.due == Some(due) {
            return;
        }
        self.driver.due = Some(due);
        let due = self.driver.clock.back(due) + self.lateness();
        if self.driver.tick_at != Some(due) {
            self.driver.tick_at = Some(due);
            self.at(due, Ev::JobTick);
        }
    }

    /// How late a deadline is noticed: other events may come before.
    fn lateness(&mut self) -> Duration {
        let most = self.plan.late.as_micros() as u64;
        if most == 0 || self.lateness_rng.percent(50) {
            return Duration::ZERO;
        }
        self.lateness_rng.micros(0, most)
    }

    /// Whether the driver has a connection of the host's agent.
    pub(crate) fn is_reached(&self, host: &HostId) -> bool {
        let link = self
            .host_index(host)
            .and_then(|index| self.driver.current[index]);
        link.is_some_and(|link| self.links[link].driver_open)
    }

    pub(super) fn driver_exit(&mut self) {
        if !self.driver.lives() || std::mem::replace(&mut self.driver.exited, true) {
            return;
        }
        self.note(format_args!("driver exits"));
        invariants::ends::named(self);
        for link in 0..self.links.len() {
            self.close_driver_end(link);
        }
        self.after(Duration::from_millis(200), Ev::Swept);
    }

    /// Applies an event that must change nothing (R3).
    pub(super) fn inert_event(&mut self, event: JobEvent, why: &'static str) {
        if !self.driver.lives() || self.driver.ended.is_some() {
            return;
        }
        // Due deadlines change the job as well, so they run first.
        for _ in 0..MOST_TICKS {
            if self
                .driver
                .job
                .next_deadline()
                .is_none_or(|due| due > self.driver_now())
            {
                break;
            }
            let out = self.tick_job();
            self.obey(out);
        }
        if self.driver.ended.is_some() {
            return;
        }
        let before = state_of(&self.driver.job);
        self.driver.inert = Some(why);
        let what = format!("{event:?}");
        self.job_event(event);
        self.driver.inert = None;
        let after = state_of(&self.driver.job);
        invariants::r3::unchanged(self, &before, &after, &what, why);
    }
}
