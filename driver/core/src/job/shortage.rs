//! The elastic timeout: the longest time with too few workers.
//!
//! - Workers count if they are at `run()`, on their way back to it, or in a round. Usable slots do not count. So the
//!   clock keeps running during a hanging start, for an agent that never connects, and during recurring cooldowns. It
//!   also keeps running during fruitless rounds ([`crate::suspicion`]).
//! - The first start of a slot has its full start timeout. If enough such starts began before the elastic timeout
//!   passed, the job waits for them. So the clock ends a job at the latest one start timeout after the elastic timeout.
//!   It never ends a long first import that is within its own time.
//! - A standard job runs scripts that never reach `run()`: there a process counts as soon as it is started.

use std::time::Duration;

use super::{Job, Out};
use crate::{
    Command, Decision, Time,
    fleet::Life,
    mutant::{Mutant, planted},
    results::Outcome,
    rounds::Phase,
    time::earliest,
};

/// Since when there are too few workers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shortage {
    /// For the next round, which needs `np` workers until one has started.
    of_np: Option<Time>,
    /// For any round.
    of_min_np: Option<Time>,
    /// The missing slots were announced.
    told: bool,
}

impl Shortage {
    /// The shortage at the start of the job, with no workers: the clocks also limit the wait for a discovery that hangs.
    pub(super) fn at_start() -> Self {
        Self {
            of_np: Some(Time::ZERO),
            of_min_np: Some(Time::ZERO),
            told: false,
        }
    }
}

impl Job {
    /// Starts or stops the clocks of the elastic timeout.
    pub(super) fn watch_shortage(&mut self, now: Time, out: &mut Out) {
        if matches!(self.rounds.phase, Phase::Training(_)) || self.groups.is_running() {
            self.shortage = Shortage::default();
            return;
        }
        let (there, needed) = (self.workers_there(), self.needed());
        // Fruitless rounds count as no rounds.
        let begins = self.suspicion.idle_since().unwrap_or(now);
        let since = |short: bool, before: Option<Time>| short.then(|| before.unwrap_or(begins));
        let shortage = &mut self.shortage;
        shortage.of_np = since(there < needed, shortage.of_np);
        shortage.of_min_np = since(there < self.settings.min_np, shortage.of_min_np);
        let usable = self.usable_slots();
        if usable >= needed {
            self.shortage.told = false;
        } else if !self.shortage.told && self.discovered {
            self.shortage.told = true;
            out.push(Command::Announce(Decision::WaitingForSlots {
                usable,
                needed,
            }));
        }
    }

    /// The number of slots that a worker of the next round may have.
    fn usable_slots(&self) -> u32 {
        // The slot of a process that ended with code 0 without joining is used up. While other processes of an unknown
        // kind still start, they may all be scripts, and no slot is subtracted.
        let scripts = !self.sdk_seen && self.fleet.census().starting > 0;
        let done = if scripts { 0 } else { self.done_slots() };
        self.capacity.total().saturating_sub(done)
    }

    /// Workers that are at `run()`, return to it or train; in process mode, workers that a group could start with.
    fn workers_there(&self) -> u32 {
        if self.groups.leads() {
            return self.group_size().try_into().unwrap_or(u32::MAX);
        }
        let census = self.fleet.census();
        let there = census.waiting + census.returning + census.training;
        let scripts = match self.settings.elastic {
            true => 0,
            false => census.starting + self.done_scripts(),
        };
        (there + scripts).try_into().unwrap_or(u32::MAX)
    }

    /// Ends the job, or lets it begin with fewer workers, if workers were too few for too long.
    pub(super) fn end_shortage(&mut self, now: Time, out: &mut Out) {
        let min_np = self.settings.min_np;
        let over = |since: &Time, needed| {
            *since + self.elastic_timeout() <= now && self.shortage_ends(*since, needed) <= now
        };
        if let Some(since) = self.shortage.of_min_np.filter(|since| over(since, min_np)) {
            self.end_too_few(now, since, out);
        } else if self
            .shortage
            .of_np
            .is_some_and(|since| over(&since, self.needed()))
        {
            if planted(Mutant::SettlesNever) {
                let since = self.shortage.of_np.unwrap_or(now);
                return self.end_too_few(now, since, out);
            }
            self.accept_min_np = !planted(Mutant::NeverSettles);
            self.shortage.of_np = None;
        }
    }

    /// Ends the job: workers were too few, or their rounds fruitless, for longer than the elastic timeout.
    pub(super) fn end_too_few(&mut self, now: Time, since: Time, out: &mut Out) {
        let outcome = Outcome::TimedOut {
            workers: self.workers_there(),
            usable: self.capacity.total(),
            needed: self.settings.min_np,
            waited: now.since(since),
        };
        self.end(outcome, out);
    }

    pub(super) fn next_shortage_deadline(&self) -> Option<Time> {
        let shortages = [
            (self.shortage.of_np, self.needed()),
            (self.shortage.of_min_np, self.settings.min_np),
        ];
        earliest(shortages.map(|(since, needed)| {
            let plain = since? + self.elastic_timeout();
            // First starts are only checked once they matter, since that costs a look at each process.
            match plain > self.settled {
                true => Some(plain),
                false => since.map(|since| self.shortage_ends(since, needed)),
            }
        }))
    }

    /// When a shortage since `since` has lasted too long, including the time of first starts that may end it.
    fn shortage_ends(&self, since: Time, needed: u32) -> Time {
        let plain = since + self.elastic_timeout();
        if !self.settings.elastic || planted(Mutant::FirstStartHurried) {
            // In a standard job a process counts as soon as it is started.
            return plain;
        }
        let missing = needed.saturating_sub(self.workers_there()) as usize;
        let processes = self.fleet.hosts().flat_map(|(_, state)| state.live());
        let first = processes.filter(|live| live.process.generation.0 == 1);
        let mut ends: Vec<_> = first
            .filter_map(|live| match live.life {
                Life::Starting { since } if since < plain => Some(since),
                _ => None,
            })
            .map(|since| since + self.settings.start_timeout)
            .collect();
        if missing == 0 || ends.len() < missing {
            return plain;
        }
        // After this start has timed out, those that are left are too few.
        ends.sort_unstable();
        plain.max(ends[ends.len() - missing])
    }

    pub(super) fn elastic_timeout(&self) -> Duration {
        match self.settings.elastic_timeout {
            timeout if planted(Mutant::ElasticTimeoutNever) => timeout * 1000,
            timeout if planted(Mutant::ElasticTimeoutEarly) => timeout / 2,
            timeout => timeout,
        }
    }
}
