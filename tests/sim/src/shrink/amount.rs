//! The amounts of a scenario that can be lessened.

use std::{fmt, str::FromStr, time::Duration};

use elasticrun_core::Time;

use super::ParseError;
use crate::scenario::Scenario;

/// An amount of a scenario. Less of it is less hardship, or a shorter run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Amount {
    /// Faults that follow right after a decision.
    Ambushes,
    /// Percentage of rounds that lose a data path as they start.
    Cuts,
    /// Percentage of rounds that break and then lose another member.
    LateDeaths,
    /// Percentage of messages that arrive twice.
    Repeats,
    /// 1 if the script runs other collectives beside the training.
    Careless,
    /// 1 if training goes on while a commit is copied.
    Asynchronous,
    /// 1 if the script raises an error from some step on.
    Raises,
    /// Hosts that are listed at first.
    Hosts,
    /// Steps of the training.
    Steps,
    /// The time when all faults stop.
    Heal,
    /// How late the driver notices a deadline.
    Late,
    /// How long the driver gathers events.
    Gathers,
    /// Longest delay of a message from an agent to its worker.
    Hearing,
    /// Longest import of a process.
    Import,
    /// Longest time of a sync.
    Sync,
    /// Longest time to seal a commit.
    Seal,
    /// Usual delay of a message between hosts.
    Delay,
}

impl Amount {
    /// All amounts, in the order in which they are lessened.
    pub const ALL: [Self; 17] = [
        Self::Ambushes,
        Self::Cuts,
        Self::LateDeaths,
        Self::Repeats,
        Self::Careless,
        Self::Asynchronous,
        Self::Raises,
        Self::Hosts,
        Self::Steps,
        Self::Heal,
        Self::Late,
        Self::Gathers,
        Self::Hearing,
        Self::Import,
        Self::Sync,
        Self::Seal,
        Self::Delay,
    ];

    /// The name on the command line, with the unit.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ambushes => "ambushes",
            Self::Cuts => "cuts",
            Self::LateDeaths => "late-deaths",
            Self::Repeats => "repeats",
            Self::Careless => "careless",
            Self::Asynchronous => "asynchronous",
            Self::Raises => "raises",
            Self::Hosts => "hosts",
            Self::Steps => "steps",
            Self::Heal => "heal-ms",
            Self::Late => "late-ms",
            Self::Gathers => "gathers-us",
            Self::Hearing => "hearing-ms",
            Self::Import => "import-ms",
            Self::Sync => "sync-ms",
            Self::Seal => "seal-ms",
            Self::Delay => "delay-us",
        }
    }

    /// The smallest difference that counts as less; none if there is nothing between the drawn value and the least.
    pub(super) fn unit(self) -> Option<u64> {
        match self {
            Self::Ambushes | Self::Hosts | Self::Steps => Some(1),
            Self::Heal => Some(1_000),
            _ => None,
        }
    }

    /// The value in this scenario.
    pub(super) fn get(self, scenario: &Scenario) -> u64 {
        match self {
            Self::Ambushes => scenario.ambushes,
            Self::Cuts => scenario.cuts,
            Self::LateDeaths => scenario.late_deaths,
            Self::Repeats => scenario.repeats,
            Self::Careless => scenario.careless.into(),
            Self::Asynchronous => scenario.asynchronous.into(),
            Self::Raises => scenario.raises_at.is_some().into(),
            Self::Hosts => scenario.listed as u64,
            Self::Steps => scenario.steps,
            Self::Heal => scenario.heal.since_start().as_millis() as u64,
            Self::Late => scenario.late.as_millis() as u64,
            Self::Gathers => scenario.gathers.as_micros() as u64,
            Self::Hearing => scenario.hearing.as_millis() as u64,
            Self::Import => scenario.import.as_millis() as u64,
            Self::Sync => scenario.sync.as_millis() as u64,
            Self::Seal => scenario.seal.as_millis() as u64,
            Self::Delay => scenario.delay.as_micros() as u64,
        }
    }

    /// The least value for this scenario: the least that any seed draws, and as many hosts as the job asks for.
    pub(super) fn least(self, scenario: &Scenario) -> u64 {
        match self {
            Self::Hosts => needed_hosts(scenario) as u64,
            Self::Steps => 3,
            Self::Heal => 2_000,
            Self::Hearing | Self::Seal => 1,
            Self::Import => 50,
            Self::Sync => 5,
            Self::Delay => 100,
            _ => 0,
        }
    }

    /// Sets the value in this scenario. It is at most the current one.
    pub(super) fn set(self, scenario: &mut Scenario, value: u64) {
        let millis = Duration::from_millis(value);
        match self {
            Self::Ambushes => scenario.ambushes = value,
            Self::Cuts => scenario.cuts = value,
            Self::LateDeaths => scenario.late_deaths = value,
            Self::Repeats => scenario.repeats = value,
            Self::Careless => scenario.careless = value > 0,
            Self::Asynchronous => scenario.asynchronous = value > 0,
            Self::Raises => scenario.raises_at = scenario.raises_at.filter(|_| value > 0),
            Self::Hosts => scenario.listed = value as usize,
            Self::Steps => scenario.steps = value,
            Self::Heal => scenario.heal = Time::from_start(millis),
            Self::Late => scenario.late = millis,
            Self::Gathers => scenario.gathers = Duration::from_micros(value),
            Self::Hearing => scenario.hearing = millis,
            Self::Import => scenario.import = millis,
            Self::Sync => scenario.sync = millis,
            Self::Seal => scenario.seal = millis,
            Self::Delay => scenario.delay = Duration::from_micros(value),
        }
    }
}

/// The number of first hosts that have a slot for each process that the job asks for; all if there are too few.
fn needed_hosts(scenario: &Scenario) -> usize {
    let mut slots = 0;
    let enough = |slots_of_host: &u32| {
        slots += slots_of_host;
        slots >= scenario.settings.np
    };
    let listed = &scenario.hosts[..scenario.listed];
    listed
        .iter()
        .position(enough)
        .map_or(scenario.listed, |last| last + 1)
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Amount {
    type Err = ParseError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let named = |amount: &Self| amount.name() == name;
        (Self::ALL.into_iter().find(named)).ok_or_else(|| ParseError::UnknownAmount(name.into()))
    }
}
