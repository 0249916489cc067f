//! What a seed has drawn, as far as it can be simplified.

use std::collections::BTreeMap;

use elasticrun_core::Time;

use super::{Amount, Simplification};
use crate::{
    fault::{Fault, Strike},
    scenario::{Scenario, Seeded},
};

/// A fault of the scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Planned {
    /// When it strikes; none: after a decision.
    at: Option<Time>,
    fault: Fault,
}

/// The planned faults and the amounts of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    faults: Vec<Planned>,
    /// For each amount, its least and its drawn value.
    amounts: BTreeMap<Amount, (u64, u64)>,
}

/// A simplification does not fit its seed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The seed has no fault of this number.
    #[error("the seed has no planned fault {number}: {range}", range = range(*.planned))]
    NoSuchFault {
        /// The number.
        number: usize,
        /// How many planned faults the seed has.
        planned: usize,
    },
    /// The value is not between the least and the drawn one.
    #[error("{amount}={value} does not fit the seed: the value must be in {least}..={drawn}")]
    OutOfRange {
        /// The amount.
        amount: Amount,
        /// The value.
        value: u64,
        /// The least value.
        least: u64,
        /// The value that the seed has drawn.
        drawn: u64,
    },
}

fn range(planned: usize) -> String {
    match planned {
        0 => "it has none".into(),
        1 => "it has only 0".into(),
        _ => format!("it has 0 to {}", planned - 1),
    }
}

impl Drawn {
    /// Draws the scenario of a seed.
    pub fn from_seed(seed: u64) -> Self {
        Self::from_scenario(&Seeded::new(seed).scenario)
    }

    fn from_scenario(scenario: &Scenario) -> Self {
        let timed = scenario.faults.iter().map(|(at, fault)| Planned {
            at: Some(*at),
            fault: fault.clone(),
        });
        let deaths = scenario.ambushing_deaths.iter().map(|fault| Planned {
            at: None,
            fault: fault.clone(),
        });
        let values = |amount: Amount| {
            let drawn = amount.get(scenario);
            (amount, (amount.least(scenario).min(drawn), drawn))
        };
        Self {
            faults: timed.chain(deaths).collect(),
            amounts: Amount::ALL.into_iter().map(values).collect(),
        }
    }

    /// Number of planned faults.
    pub fn faults(&self) -> usize {
        self.faults.len()
    }

    /// The least and the drawn value of each amount.
    pub(super) fn amounts(&self) -> &BTreeMap<Amount, (u64, u64)> {
        &self.amounts
    }

    /// Checks that the seed has the faults and amounts that remain.
    pub fn check(&self, simplification: &Simplification) -> Result<(), Error> {
        let planned = self.faults();
        let mut numbers = simplification.faults.iter().flatten();
        if let Some(&number) = numbers.find(|number| **number >= planned) {
            return Err(Error::NoSuchFault { number, planned });
        }
        for (&amount, &value) in &simplification.amounts {
            let (least, drawn) = self.amounts.get(&amount).copied().unwrap_or_default();
            if !(least..=drawn).contains(&value) {
                return Err(Error::OutOfRange {
                    amount,
                    value,
                    least,
                    drawn,
                });
            }
        }
        Ok(())
    }

    /// The number of the planned fault that has struck; none if it was not planned.
    pub(super) fn number(&self, strike: &Strike) -> Option<usize> {
        self.faults.iter().position(|planned| {
            planned.fault == strike.fault && planned.at.is_none_or(|at| at == strike.at)
        })
    }

    #[cfg(test)]
    pub(super) fn artificial(faults: usize, amounts: &[(Amount, u64, u64)]) -> Self {
        let fault = |number| Planned {
            at: Some(Time::from_start(std::time::Duration::from_secs(number))),
            fault: Fault::KillWorker,
        };
        let values = |(amount, least, drawn): &_| (*amount, (*least, *drawn));
        Self {
            faults: (0..faults as u64).map(fault).collect(),
            amounts: amounts.iter().map(values).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_seed_has_fits() {
        let drawn = Drawn::artificial(2, &[(Amount::Steps, 3, 9)]);
        let check = |faults: Option<&str>, less: Option<&str>| {
            drawn.check(&Simplification::parse(faults, less).unwrap())
        };
        assert_eq!(check(Some("0,1"), Some("steps=3")), Ok(()));
        assert_eq!(check(Some("none"), Some("steps=9")), Ok(()));
        let error = check(Some("1,2"), None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the seed has no planned fault 2: it has 0 to 1"
        );
        for value in [2, 10] {
            let less = format!("steps={value}");
            let error = check(None, Some(&less)).unwrap_err();
            let expected =
                format!("steps={value} does not fit the seed: the value must be in 3..=9");
            assert_eq!(error.to_string(), expected);
        }
    }
}
