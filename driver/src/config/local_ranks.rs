//! The local ranks whose output is shown (`--local-ranks-filter`).

use std::collections::BTreeSet;

use toml::Value;

use super::value::{Setting, whole_number};

/// Some local ranks, at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalRanks(BTreeSet<u32>);

impl LocalRanks {
    /// Whether a local rank is among them.
    #[must_use]
    pub fn contains(&self, local_rank: u32) -> bool {
        self.0.contains(&local_rank)
    }
}

impl Setting for LocalRanks {
    fn read(words: &[String]) -> Result<Self, String> {
        let [word] = words else {
            return Err(ALLOWED.to_owned());
        };
        let ranks = word.split(',').map(|part| whole_number(part.trim()));
        let ranks: Option<BTreeSet<_>> = ranks.collect();
        ranks.map(Self).ok_or_else(|| ALLOWED.to_owned())
    }

    fn show(&self) -> Option<Value> {
        let ranks: Vec<_> = self.0.iter().map(u32::to_string).collect();
        Some(Value::String(ranks.join(",")))
    }
}

const ALLOWED: &str = "local ranks separated by commas, as in 0,1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_ranks_are_numbers() {
        let read = |word: &str| LocalRanks::read(&[word.to_owned()]);
        let some = read("2, 0").expect("two of them");
        assert!(some.contains(0) && !some.contains(1) && some.contains(2));
        assert_eq!(some.show(), Some(Value::String("0,2".to_owned())));
        for word in ["", "a", "0,", "-1", "0;1"] {
            assert_eq!(read(word), Err(ALLOWED.to_owned()), "{word}");
        }
    }
}
