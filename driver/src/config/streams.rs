//! The streams of workers that are written to files and are not shown (`--redirects`), in torchrun's notation.

use std::collections::{BTreeMap, BTreeSet};

use toml::Value;

use super::value::{Setting, whole_number};

/// Streams of a process: 0 none, 1 standard output, 2 standard error, 3 both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Set(u32);

impl Set {
    fn has(self, stderr: bool) -> bool {
        self.0 & if stderr { 2 } else { 1 } != 0
    }
}

/// The same streams of all workers, or those of each local rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Streams {
    /// Those of local ranks without a set of their own.
    all: Set,
    /// None is equal to `all`.
    by_local_rank: BTreeMap<u32, Set>,
}

impl Streams {
    /// No stream of any worker.
    pub const NONE: Self = Self {
        all: Set(0),
        by_local_rank: BTreeMap::new(),
    };

    /// Whether a stream of the worker with this local rank is among them.
    #[must_use]
    pub fn has(&self, local_rank: u32, stderr: bool) -> bool {
        let set = self.by_local_rank.get(&local_rank).unwrap_or(&self.all);
        set.has(stderr)
    }

    /// Those that are not among the others.
    #[must_use]
    pub fn without(&self, others: &Self) -> Self {
        let of = |streams: &Self, local_rank: &u32| {
            let own = streams.by_local_rank.get(local_rank);
            *own.unwrap_or(&streams.all)
        };
        let left = |these: Set, others: Set| Set(these.0 & !others.0);
        let named = self.by_local_rank.keys().chain(others.by_local_rank.keys());
        let by_local_rank = named.map(|rank| (*rank, left(of(self, rank), of(others, rank))));
        let streams = Self {
            by_local_rank: by_local_rank.collect(),
            all: left(self.all, others.all),
        };
        streams.normal()
    }

    fn normal(mut self) -> Self {
        self.by_local_rank.retain(|_, set| *set != self.all);
        self
    }

    /// Whether no stream is among them.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }
}

const ALLOWED: &str =
    "0, 1 (stdout), 2 (stderr) or 3 (both), and these by local rank as in 0:1,1:3";

impl Setting for Streams {
    fn read(words: &[String]) -> Result<Self, String> {
        let [word] = words else {
            return Err(ALLOWED.to_owned());
        };
        let mut streams = Self::NONE;
        let mut seen = BTreeSet::new();
        for part in word.split(',') {
            let (local_rank, set) = match part.split_once(':') {
                Some((local_rank, set)) => {
                    let local_rank = whole_number(local_rank.trim()).ok_or(ALLOWED)?;
                    (Some(local_rank), set)
                }
                None => (None, part),
            };
            let set = whole_number(set.trim()).filter(|set| *set <= 3);
            let set = Set(set.ok_or(ALLOWED)?);
            match local_rank {
                Some(local_rank) => streams
                    .by_local_rank
                    .insert(local_rank, set)
                    .map_or((), drop),
                None => streams.all = set,
            }
            if !seen.insert(local_rank) {
                return Err(ALLOWED.to_owned());
            }
        }
        Ok(streams.normal())
    }

    fn show(&self) -> Option<Value> {
        let all = self.all.0 != 0 || self.by_local_rank.is_empty();
        let all = all.then(|| self.all.0.to_string());
        let each = |(local_rank, Set(set)): (&u32, &Set)| format!("{local_rank}:{set}");
        let each = self.by_local_rank.iter().map(each);
        let parts: Vec<_> = all.into_iter().chain(each).collect();
        Some(Value::String(parts.join(",")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(word: &str) -> Result<Streams, String> {
        Streams::read(&[word.to_owned()])
    }

    #[test]
    fn streams_are_those_of_all_or_of_some_local_ranks() {
        for (word, shown, expected) in [
            ("0", "0", [false; 4]),
            ("1", "1", [true, false, true, false]),
            ("2", "2", [false, true, false, true]),
            ("3", "3", [true; 4]),
            ("0:1,1:2", "0:1,1:2", [true, false, false, true]),
            ("1:3", "1:3", [false, false, true, true]),
            ("0:0", "0", [false; 4]),
            ("3,0:0", "3,0:0", [false, false, true, true]),
            ("1:3,3", "3", [true; 4]),
        ] {
            let streams = read(word).expect("allowed");
            let found = [(0, false), (0, true), (1, false), (1, true)];
            let found = found.map(|(local_rank, stderr)| streams.has(local_rank, stderr));
            assert_eq!(found, expected, "{word}");
            assert_eq!(streams.show(), Some(Value::String(shown.to_owned())));
            assert_eq!(read(shown), Ok(streams));
        }
    }

    #[test]
    fn streams_that_are_shown_as_well_are_taken_away() {
        for (these, others, left) in [
            ("3", "0", "3"),
            ("3", "1", "2"),
            ("1", "3", "0"),
            ("3", "0:3", "3,0:0"),
            ("0:3", "1", "0:2"),
            ("0:3,1:3", "1:1,0:2", "0:1,1:2"),
        ] {
            let read = |word| read(word).expect("allowed");
            assert_eq!(read(these).without(&read(others)), read(left), "{these}");
        }
    }

    #[test]
    fn other_words_are_refused() {
        for word in ["", "4", "-1", "0:4", "x:1", "1,2", "0:1,0:2", "0:1,"] {
            assert!(read(word).is_err(), "{word}");
        }
    }
}
