//! The blacklist by the words of the contract, computed separately from the core: which domains each failure
//! excludes, and for how long.
//!
//! The decisions of the job give the failures. The excluded domain and the count of its failures are computed
//! here. Only the jitter of a cooldown is the job's, within its bounds.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use elasticrun_core::{
    Command, Cooldown, Decision, FailureDomain, ReplicaGroupSize, Settings, Time,
    blacklist::{Domain, Out},
    fleet::{Fleet, Life, Live},
    journal::{DomainEntry, Saved},
};
use elasticrun_protocol::{AgentCommand, HostId, LocalRank, Process};

use crate::invariants::groups::TakesOut;

/// The expected exclusion after a failure.
#[derive(Clone, Debug)]
enum Expected {
    /// The failure was counted already.
    Nothing,
    ForGood(Domain),
    For(Domain, Duration, Duration),
}

#[derive(Clone, Debug, Default)]
struct Count {
    failures: u32,
    failed: Time,
    /// The domain has failed since the round that started last.
    this_episode: bool,
    /// Time since the failure with a worker at `run()` or in training.
    health: Duration,
    well_since: Option<Time>,
    /// It has failed since the job was settled last.
    stops: bool,
    /// Workers that outlive the failure, since the cooldown was over before a take-over. They give no health before they
    /// come to `run()` again. For each, whether it is there.
    outlive: BTreeMap<(HostId, Process), bool>,
}

/// The expected blacklist.
#[derive(Debug)]
pub(crate) struct Blame {
    settings: Settings,
    counts: BTreeMap<Domain, Count>,
    /// When each process was started.
    started: BTreeMap<(HostId, Process), Time>,
    /// Processes whose ends are known. During a take-over it is decided later what an end means, and they give no health.
    ended: BTreeSet<(HostId, Process)>,
    /// When each agent was launched or registered itself, for agents that are connected or being launched.
    asked: BTreeMap<HostId, Time>,
    /// When each host was probed last.
    probed: BTreeMap<HostId, Time>,
    expected: Option<Expected>,
}

impl Blame {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            settings: settings.clone(),
            counts: BTreeMap::new(),
            started: BTreeMap::new(),
            ended: BTreeSet::new(),
            asked: BTreeMap::new(),
            probed: BTreeMap::new(),
            expected: None,
        }
    }

    /// A later driver begins with these records. Its clock begins anew, and so does the health of the domains.
    pub(crate) fn resumed(&mut self, saved: &Saved) {
        let count = |entry: &DomainEntry| Count {
            failures: entry.failures,
            this_episode: entry.recent,
            ..Count::default()
        };
        let domains = saved.domains.values();
        *self = Self {
            counts: domains
                .map(|entry| (entry.domain.clone(), count(entry)))
                .collect(),
            ..Self::new(&self.settings)
        };
    }

    /// An agent of the former driver has come back with a process.
    pub(crate) fn process_came(&mut self, now: Time, host: &HostId, process: Process) {
        self.ended.remove(&(host.clone(), process));
        self.started.insert((host.clone(), process), now);
    }

    /// An agent has reported that a process is lost or has ended.
    pub(crate) fn process_ended(&mut self, host: &HostId, process: Process) {
        self.ended.insert((host.clone(), process));
    }

    /// An agent has connected.
    pub(crate) fn agent_came(&mut self, now: Time, host: &HostId) {
        self.asked.entry(host.clone()).or_insert(now);
    }

    /// One command of the job. `hosts` is the number of known hosts.
    pub(crate) fn command(
        &mut self,
        now: Time,
        hosts: usize,
        command: &Command,
        takes_out: TakesOut,
    ) -> Result<(), String> {
        let out = match command {
            Command::Announce(Decision::Blacklisted { domain, out }) => Some((domain, *out)),
            _ => None,
        };
        match (self.expected.take(), out) {
            (None, None) => {}
            (Some(expected), out) => met(now, &expected, out)?,
            (None, Some((domain, _))) => return Err(format!("{domain} is out and has not failed")),
        }
        match command {
            Command::Launch { host } => {
                self.asked.insert(host.clone(), now);
            }
            Command::Disconnect { host, .. } | Command::EndLaunch { host, .. } => {
                // If the host fails right after this, its agent was launched before.
                if let Some(asked) = self.asked.remove(host) {
                    self.started.insert((host.clone(), AGENT), asked);
                }
            }
            Command::Send {
                host,
                command: AgentCommand::Spawn(spawn),
            } => {
                self.ended.remove(&(host.clone(), spawn.process));
                self.started.insert((host.clone(), spawn.process), now);
            }
            Command::Send {
                host,
                command: AgentCommand::Probe { .. },
            } => {
                self.probed.insert(host.clone(), now);
            }
            Command::Announce(note) => self.note(now, hosts, note, takes_out),
            _ => {}
        }
        Ok(())
    }

    /// Whether each worker holds a part of the state.
    fn is_divided(&self) -> bool {
        self.settings.replica_group_size != ReplicaGroupSize::One
    }

    fn note(&mut self, now: Time, hosts: usize, note: &Decision, takes_out: TakesOut) {
        match note {
            Decision::WorkerFailed { .. } if takes_out == TakesOut::Nothing => {}
            Decision::WorkerFailed {
                host,
                process,
                member,
                ..
            } => {
                let slot = Domain::Slot(host.clone(), process.local_rank);
                let domain = match self.settings.failure_domain {
                    _ if takes_out == TakesOut::Slot => slot,
                    _ if member.is_none() && takes_out != TakesOut::Member => slot,
                    FailureDomain::Slot => slot,
                    FailureDomain::Auto if hosts <= 1 || self.is_divided() => slot,
                    FailureDomain::Auto | FailureDomain::Host => Domain::Host(host.clone()),
                };
                let begun = self.started.get(&(host.clone(), *process)).copied();
                self.expected = Some(self.fail(now, domain, begun.unwrap_or(now)));
            }
            Decision::HostFailed { host, .. } => {
                let before = self.started.get(&(host.clone(), AGENT)).copied();
                // The agent may be connected, and the failure may be one of a probe.
                let agent = self.asked.get(host).copied();
                let probe = self.probed.get(host).copied().filter(|_| agent.is_some());
                let begun = probe.max(agent).or(before).unwrap_or(now);
                self.expected = Some(self.fail(now, Domain::Host(host.clone()), begun));
            }
            // The same agent is back.
            Decision::HostReturned { host } => {
                if let Some(asked) = self.started.get(&(host.clone(), AGENT)) {
                    self.asked.insert(host.clone(), *asked);
                }
            }
            Decision::RoundStarted { .. } | Decision::GroupStarted { .. } => self.round_began(),
            Decision::Restarting { .. } => {
                // The program failed, not the hosts.
                for count in self.counts.values_mut().filter(|count| count.this_episode) {
                    count.this_episode = false;
                    count.failures = count.failures.saturating_sub(1);
                }
            }
            _ => {}
        }
    }

    /// A round has begun, or a later driver learns of one.
    pub(crate) fn round_began(&mut self) {
        for count in self.counts.values_mut() {
            count.this_episode = false;
        }
    }

    fn fail(&mut self, now: Time, domain: Domain, begun: Time) -> Expected {
        let count = self.counts.entry(domain.clone()).or_default();
        if count.this_episode && begun <= count.failed {
            return Expected::Nothing;
        }
        let health =
            count.health + (count.well_since).map_or(Duration::ZERO, |since| now.since(since));
        let mut forgiven = 0;
        if let Cooldown::Range { high, .. } = self.settings.cooldown
            && !high.is_zero()
        {
            forgiven = (health.as_nanos() / high.as_nanos()) as u32;
        }
        *count = Count {
            failures: count.failures.saturating_sub(forgiven) + 1,
            failed: now,
            this_episode: true,
            health: Duration::ZERO,
            well_since: None,
            stops: true,
            outlive: BTreeMap::new(),
        };
        let failures = count.failures;
        let limit = self.settings.max_host_failures;
        match self.settings.cooldown {
            Cooldown::Forever => Expected::ForGood(domain),
            _ if limit.is_some_and(|limit| failures >= limit) => Expected::ForGood(domain),
            Cooldown::Range { low, high } => {
                let doublings = (failures - 1).min(40);
                let exact = low.as_secs_f64() * 2f64.powi(doublings as i32);
                let capped = |seconds: f64| seconds.min(high.as_secs_f64());
                // The jitter is a tenth at most, and the end is rounded up to a tenth of a second.
                let (least, most) = (capped(exact), capped(exact * 1.1 + 0.1));
                let slack = 1e-6;
                Expected::For(
                    domain,
                    Duration::from_secs_f64((least - slack).max(0.0)),
                    Duration::from_secs_f64(most + slack),
                )
            }
        }
    }

    /// The step is over: updates which domains have a worker at `run()` or in training.
    pub(crate) fn look(&mut self, now: Time, settled: bool, fleet: &Fleet) -> Result<(), String> {
        if let Some(expected) = self.expected.take() {
            met(now, &expected, None)?;
        }
        for (domain, count) in &mut self.counts {
            if count.stops {
                let there = lives(fleet, domain).filter(|(_, live)| is_there(live.life));
                let named = there.map(|(host, live)| ((host, live.process), waits(&live)));
                count.outlive = named.collect();
            }
            // Workers of a domain that has just failed are stopped when the job is settled.
            count.stops &= !settled;
            count.outlive.retain(|(host, process), waited| {
                let live = fleet.current(host, *process);
                let waits_now = live.is_some_and(|live| waits(&live));
                let waited = std::mem::replace(waited, waits_now);
                live.is_some() && (waited || !waits_now)
            });
            let well = lives(fleet, domain).any(|(host, live)| {
                let named = (host, live.process);
                let lives = is_there(live.life) && !self.ended.contains(&named);
                lives && !count.outlive.contains_key(&named)
            });
            let well = well && !count.stops;
            match (well, count.well_since) {
                (true, None) => count.well_since = Some(now),
                (false, Some(since)) => {
                    count.health += now.since(since);
                    count.well_since = None;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The agent of a host, as an entry among its processes.
const AGENT: Process = Process {
    local_rank: LocalRank(u32::MAX),
    generation: elasticrun_protocol::Generation(0),
};

/// Whether a worker waits at `run()` or trains.
fn is_there(life: Life) -> bool {
    matches!(
        life,
        Life::Waiting | Life::Returning { .. } | Life::Training { .. }
    )
}

fn waits(live: &Live) -> bool {
    live.life == Life::Waiting
}

/// The processes of a domain.
fn lives<'a>(fleet: &'a Fleet, domain: &'a Domain) -> impl Iterator<Item = (HostId, Live)> + 'a {
    let (host, slot) = match domain {
        Domain::Host(host) => (host, None),
        Domain::Slot(host, slot) => (host, Some(*slot)),
    };
    let live = fleet.host(host).into_iter().flat_map(|state| state.live());
    live.filter(move |live| slot.is_none_or(|slot| slot == live.process.local_rank))
        .map(|live| (host.clone(), live))
}

fn met(now: Time, expected: &Expected, is: Option<(&Domain, Out)>) -> Result<(), String> {
    let holds = match (expected, is) {
        (Expected::Nothing, None) => true,
        (Expected::ForGood(domain), Some((other, Out::ForGood))) => domain == other,
        (Expected::For(domain, least, most), Some((other, Out::Until(end)))) => {
            let time = end.since(now);
            domain == other && *least <= time && time <= *most
        }
        _ => false,
    };
    if holds {
        Ok(())
    } else {
        Err(format!("{expected:?} is expected, and the job says {is:?}"))
    }
}
