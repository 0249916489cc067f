//! Which hardships of a scenario remain.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::Amount;
use crate::{fault::Fault, scenario::Scenario};

/// What remains of the hardships of a scenario. By default, all do.
///
/// Planned faults are numbered as the seed draws them: first those with a time, then deaths of the driver that follow a
/// decision. The numbers do not depend on what remains.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Simplification {
    /// Numbers of the planned faults that remain; none: all of them.
    pub faults: Option<BTreeSet<usize>>,
    /// Amounts with less than the drawn value.
    pub amounts: BTreeMap<Amount, u64>,
}

/// A text is no simplification.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A fault has no such number.
    #[error("`{0}` is no number of a fault: give numbers with `,` between them, or `none`")]
    FaultNumber(String),
    /// An amount has no value.
    #[error(
        "`{0}` is no amount: give NAME=NUMBER with `,` between them, for example ambushes=0,steps=7"
    )]
    AmountForm(String),
    /// There is no amount of this name.
    #[error("no amount has the name `{0}`: the names are {names}", names = names())]
    UnknownAmount(String),
}

fn names() -> String {
    Amount::ALL.map(Amount::name).join(", ")
}

impl Simplification {
    /// Reads the values of `--faults` and `--less`.
    pub fn parse(faults: Option<&str>, less: Option<&str>) -> Result<Self, ParseError> {
        let number = |text: &str| {
            let number = text.trim().parse::<usize>();
            number.map_err(|_| ParseError::FaultNumber(text.trim().into()))
        };
        let numbers = |text: &str| match text.trim() {
            "none" => Ok(BTreeSet::new()),
            numbers => numbers.split(',').map(number).collect(),
        };
        Ok(Self {
            faults: faults.map(numbers).transpose()?,
            amounts: less.map_or(Ok(BTreeMap::new()), |less| {
                less.split(',').map(amount).collect()
            })?,
        })
    }

    /// Takes the hardships that do not remain away from a scenario.
    pub(crate) fn apply(&self, scenario: &mut Scenario) {
        if let Some(faults) = &self.faults {
            let mut numbers = 0..;
            let mut remains = || {
                numbers
                    .next()
                    .is_some_and(|number| faults.contains(&number))
            };
            scenario.faults.retain(|_| remains());
            scenario.ambushing_deaths.retain(|_: &Fault| remains());
        }
        for (amount, value) in &self.amounts {
            amount.set(scenario, *value);
        }
    }
}

fn amount(text: &str) -> Result<(Amount, u64), ParseError> {
    let form = || ParseError::AmountForm(text.trim().into());
    let (name, value) = text.split_once('=').ok_or_else(form)?;
    let amount = name.trim().parse()?;
    Ok((amount, value.trim().parse().map_err(|_| form())?))
}

/// The options of the command line, without a leading space.
impl fmt::Display for Simplification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut options = Vec::new();
        if let Some(faults) = &self.faults {
            let numbers: Vec<_> = faults.iter().map(ToString::to_string).collect();
            let numbers = match numbers.is_empty() {
                true => "none".into(),
                false => numbers.join(","),
            };
            options.push(format!("--faults {numbers}"));
        }
        if !self.amounts.is_empty() {
            let amounts = self.amounts.iter();
            let amounts: Vec<_> = amounts
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            options.push(format!("--less {}", amounts.join(",")));
        }
        f.write_str(&options.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(faults: &str, less: &str) -> Result<Simplification, ParseError> {
        let faults = Some(faults).filter(|text| !text.is_empty());
        Simplification::parse(faults, Some(less).filter(|text| !text.is_empty()))
    }

    #[test]
    fn what_is_displayed_is_parsed() {
        for (faults, less, text) in [
            ("", "", ""),
            ("none", "", "--faults none"),
            ("17, 3", "", "--faults 3,17"),
            ("", "late-ms=0", "--less late-ms=0"),
            (
                "0",
                "steps=7, ambushes=0",
                "--faults 0 --less ambushes=0,steps=7",
            ),
        ] {
            let parsed = parse(faults, less).unwrap();
            assert_eq!(parsed.to_string(), text);
            let words: Vec<_> = text.split(' ').collect();
            let option = |name| words.iter().position(|word| *word == name);
            let value = |name| option(name).map_or("", |at| words[at + 1]);
            assert_eq!(parse(value("--faults"), value("--less")), Ok(parsed));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let number = |text: &str| Err(ParseError::FaultNumber(text.into()));
        assert_eq!(parse("3,x", ""), number("x"));
        assert_eq!(parse("-1", ""), number("-1"));
        assert_eq!(parse("3,", ""), number(""));
        assert_eq!(Simplification::parse(Some(""), None), number(""));
        let form = |text: &str| Err(ParseError::AmountForm(text.into()));
        assert_eq!(parse("", "steps"), form("steps"));
        assert_eq!(parse("", "steps=few"), form("steps=few"));
        let unknown = parse("", "stepz=1").unwrap_err();
        assert_eq!(unknown, ParseError::UnknownAmount("stepz".into()));
        assert!(unknown.to_string().contains("late-deaths, repeats"));
    }

    #[test]
    fn each_name_is_that_of_one_amount() {
        for amount in Amount::ALL {
            assert_eq!(amount.name().parse(), Ok(amount));
        }
    }
}
