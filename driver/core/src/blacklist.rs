//! Blacklist: failure domains that failed, and when they may be used again.
//!
//! - Failures of one domain between two rounds count once. A failure of something that began after the counted failure
//!   counts again: a process that dies at every start waits longer each time.
//! - The cooldown of the n-th failure is `min(high, low * 2^(n-1) * (1 + jitter))`, with jitter in `[0, 0.1)`. Its end is
//!   rounded up to a multiple of [`COMMON_END`], within `high`. So hosts that failed together return in few groups, and the
//!   job plans once for each group.
//! - The count falls by one for every `high` of health. At `max_host_failures` the domain is out for good.
//! - Health is time in which a worker of the domain waits at `run()` or trains. A cooldown or a start gives no health.
//!
//! Cost: O(log domains) for each failure and each cooldown that ends, O(1) for the next deadline. Domains that failed are
//! remembered, since their next failure counts more, also while their host is in no list.

mod entry;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use elasticrun_protocol::{HostId, LocalRank};

use serde::{Deserialize, Serialize};

use crate::{
    journal::Changed,
    mutant::{Mutant, planted},
    random::Random,
    settings::{Cooldown, Settings},
    time::Time,
};

/// Cooldowns that end within this time end together.
const COMMON_END: Duration = Duration::from_millis(100);

/// The part of the job that a failure takes out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Domain {
    /// A whole host.
    Host(HostId),
    /// One slot of a host.
    Slot(HostId, LocalRank),
}

impl Domain {
    /// The host itself, or the host of the slot.
    pub fn host(&self) -> &HostId {
        match self {
            Self::Host(host) | Self::Slot(host, _) => host,
        }
    }
}

impl std::fmt::Display for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host(host) => write!(f, "host {host}"),
            Self::Slot(host, slot) => write!(f, "slot {slot} of host {host}"),
        }
    }
}

/// How long a domain is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    /// Until this time.
    Until(Time),
    /// For good.
    ForGood,
}

#[derive(Clone, Debug)]
struct Entry {
    failures: u32,
    /// The time of the last counted failure.
    failed: Time,
    health: Health,
    out: Option<Out>,
}

/// Health of a domain since its last failure.
#[derive(Clone, Debug, Default)]
struct Health {
    /// Slots of the domain whose workers are at `run()` or train.
    there: BTreeSet<LocalRank>,
    /// Since when this set is not empty.
    since: Time,
    /// Health before that.
    before: Duration,
}

impl Health {
    fn came(&mut self, now: Time, slot: LocalRank) {
        if self.there.is_empty() {
            self.since = now;
        }
        self.there.insert(slot);
    }

    fn went(&mut self, now: Time, slot: LocalRank) {
        if self.there.remove(&slot) && self.there.is_empty() {
            self.before += now.since(self.since);
        }
    }

    fn total(&self, now: Time) -> Duration {
        match self.there.is_empty() {
            true => self.before,
            false => self.before + now.since(self.since),
        }
    }
}

/// The failure domains that failed.
#[derive(Clone, Debug)]
pub struct Blacklist {
    cooldown: Cooldown,
    limit: Option<u32>,
    entries: BTreeMap<Domain, Entry>,
    /// When the cooldowns end: an index of the entries that are out until a time.
    ends: BTreeSet<(Time, Domain)>,
    /// Domains that failed since the last started round.
    episode: BTreeSet<Domain>,
    /// Domains whose record has changed.
    changed: Changed<Domain>,
}

impl Blacklist {
    /// An empty blacklist.
    pub fn new(settings: &Settings) -> Self {
        Self {
            cooldown: settings.cooldown,
            limit: settings.max_host_failures,
            entries: BTreeMap::new(),
            ends: BTreeSet::new(),
            episode: BTreeSet::new(),
            changed: Changed::default(),
        }
    }

    /// Records a failure of `domain`, caused by something that began at `begun`. Gives how long the domain is out, or
    /// `None` if the failure does not count.
    pub fn fail(
        &mut self,
        now: Time,
        domain: Domain,
        begun: Time,
        random: &mut Random,
    ) -> Option<Out> {
        let again = !self.episode.insert(domain.clone());
        let known = self.entries.get(&domain);
        let counted = again && known.is_some_and(|entry| begun <= entry.failed);
        if counted && !planted(Mutant::EpisodeCountsEach) {
            return None;
        }
        let endless = matches!(domain, Domain::Slot(..)) && planted(Mutant::SlotOutForever);
        let more = u32::from(planted(Mutant::LimitOneMore));
        let entry = self.entries.entry(domain.clone()).or_insert(Entry {
            failures: 0,
            failed: now,
            health: Health::default(),
            out: None,
        });
        if let Cooldown::Range { high, .. } = self.cooldown
            && !high.is_zero()
        {
            let health = entry.health.total(now);
            let forgiven = health.as_nanos() / high.as_nanos();
            let forgiven = match () {
                () if planted(Mutant::NothingForgiven) => 0,
                () if planted(Mutant::AllForgiven) && !health.is_zero() => u32::MAX,
                () => u32::try_from(forgiven).unwrap_or(u32::MAX),
            };
            entry.failures = entry.failures.saturating_sub(forgiven);
        }
        entry.failures += 1;
        entry.failed = now;
        let out = match self.cooldown {
            Cooldown::Forever => Out::ForGood,
            _ if endless => Out::ForGood,
            _ if (self.limit).is_some_and(|limit| entry.failures >= limit + more) => Out::ForGood,
            Cooldown::Range { low, high } => {
                let wait = cooldown(low, high, entry.failures, random.unit() * 0.1);
                // Rounded up, but not beyond the longest cooldown.
                Out::Until(common_end(now + wait).min(now + wait.max(high)))
            }
        };
        // Workers of the domain that still live are stopped. Only later workers give health.
        entry.health = Health::default();
        self.set_out(&domain, Some(out));
        Some(out)
    }

    /// A worker has reached `run()`.
    pub fn came(&mut self, now: Time, host: &HostId, slot: LocalRank) {
        self.each_of(host, slot, |entry| entry.health.came(now, slot));
    }

    /// A worker neither waits at `run()` nor trains any more: it has ended, or is being stopped.
    pub fn went(&mut self, now: Time, host: &HostId, slot: LocalRank) {
        self.each_of(host, slot, |entry| entry.health.went(now, slot));
    }

    /// Applies `act` to the entries that cover a slot: its own and that of its host.
    fn each_of(&mut self, host: &HostId, slot: LocalRank, mut act: impl FnMut(&mut Entry)) {
        // Most jobs have no failure at all.
        if self.entries.is_empty() {
            return;
        }
        for domain in [Domain::Host(host.clone()), Domain::Slot(host.clone(), slot)] {
            if let Some(entry) = self.entries.get_mut(&domain) {
                act(entry);
            }
        }
    }

    /// A round has started: the next failure of each domain counts again.
    pub fn round_started(&mut self) {
        if planted(Mutant::EpisodeWithoutEnd) {
            return;
        }
        self.changed.mark_all(&self.episode);
        self.episode.clear();
    }

    /// Forgives the failures since the last started round: all workers failed, so the hosts are not at fault.
    pub fn forgive_episode(&mut self) {
        for domain in std::mem::take(&mut self.episode) {
            if planted(Mutant::RestartBlames) {
                continue;
            }
            if let Some(entry) = self.entries.get_mut(&domain) {
                entry.failures = entry.failures.saturating_sub(1);
            }
            self.set_out(&domain, None);
        }
    }

    /// Ends the cooldowns that are over and gives their domains, in order.
    pub fn expire(&mut self, now: Time) -> BTreeSet<Domain> {
        let over = self.ends.iter().take_while(|(end, _)| *end <= now);
        let over: BTreeSet<_> = over.map(|(_, domain)| domain.clone()).collect();
        for domain in &over {
            self.set_out(domain, None);
        }
        over
    }

    /// Sets how long a domain that failed is out.
    fn set_out(&mut self, domain: &Domain, out: Option<Out>) {
        let Some(entry) = self.entries.get_mut(domain) else {
            return;
        };
        self.changed.mark(domain);
        if let Some(Out::Until(end)) = std::mem::replace(&mut entry.out, out) {
            self.ends.remove(&(end, domain.clone()));
        }
        if let Some(Out::Until(end)) = out {
            self.ends.insert((end, domain.clone()));
        }
    }

    /// Whether a slot is out, by itself or with its host.
    pub fn is_out(&self, host: &HostId, slot: LocalRank) -> bool {
        // Most jobs have no failure at all, so the lookups are skipped.
        !self.entries.is_empty()
            && (self.host_is_out(host) || self.out(&Domain::Slot(host.clone(), slot)).is_some())
    }

    /// Whether a whole host is out.
    pub fn host_is_out(&self, host: &HostId) -> bool {
        !self.entries.is_empty()
            && self.out(&Domain::Host(host.clone())).is_some()
            && !planted(Mutant::OutUsed)
    }

    /// Whether a slot is out for good, by itself or with its host.
    pub fn is_out_for_good(&self, host: &HostId, slot: LocalRank) -> bool {
        !self.entries.is_empty()
            && (self.out(&Domain::Host(host.clone())) == Some(Out::ForGood)
                || self.out(&Domain::Slot(host.clone(), slot)) == Some(Out::ForGood))
    }

    /// When the next cooldown ends.
    pub fn next_deadline(&self) -> Option<Time> {
        self.ends.first().map(|(end, _)| *end)
    }

    fn out(&self, domain: &Domain) -> Option<Out> {
        self.entries.get(domain).and_then(|entry| entry.out)
    }
}

/// The time, rounded up to a multiple of [`COMMON_END`].
fn common_end(time: Time) -> Time {
    let step = COMMON_END.as_nanos();
    let beyond = time.since_start().as_nanos() % step;
    let rest = if beyond == 0 { 0 } else { step - beyond };
    time + Duration::from_nanos(rest as u64)
}

fn cooldown(low: Duration, high: Duration, failures: u32, jitter: f64) -> Duration {
    let (high, failures) = match () {
        () if planted(Mutant::CooldownNeverGrows) => (high, 1),
        () if planted(Mutant::CooldownUncapped) => (high.saturating_mul(8), failures),
        () => (high, failures),
    };
    let doubled = low.saturating_mul(1u32.checked_shl(failures - 1).unwrap_or(u32::MAX));
    // Capped before the jitter as well, since a product of large durations cannot be represented.
    doubled.min(high).mul_f64(1.0 + jitter).min(high)
}

#[cfg(test)]
mod tests;
