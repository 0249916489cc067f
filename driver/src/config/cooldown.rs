//! The cooldown of failed hosts and slots.

use std::time::Duration;

use toml::Value;

use super::{
    duration,
    value::{Setting, Shape},
};

/// The shortest and the longest cooldown of a blacklisted domain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CooldownRange {
    lo: Duration,
    hi: Duration,
}

impl CooldownRange {
    /// A failed domain may be used again at once.
    pub const NONE: Self = Self {
        lo: Duration::ZERO,
        hi: Duration::ZERO,
    };

    /// From `lo` to `hi`. `None` if `lo` is longer than `hi`.
    #[must_use]
    pub const fn new(lo: Duration, hi: Duration) -> Option<Self> {
        if lo.as_nanos() <= hi.as_nanos() {
            Some(Self { lo, hi })
        } else {
            None
        }
    }

    /// The first cooldown. May be zero.
    #[must_use]
    pub fn lo(self) -> Duration {
        self.lo
    }

    /// The longest cooldown, at least as long as the first.
    #[must_use]
    pub fn hi(self) -> Duration {
        self.hi
    }
}

impl Setting for CooldownRange {
    const SHAPE: Shape = Shape::Pair;

    fn read(words: &[String]) -> Result<Self, String> {
        let parts: Vec<_> = words
            .iter()
            .flat_map(|word| word.split_whitespace())
            .collect();
        let [lo, hi] = parts.as_slice() else {
            return Err("two durations, LO HI".to_owned());
        };
        match (duration::parse(lo), duration::parse(hi)) {
            (Some(lo), Some(hi)) => {
                Self::new(lo, hi).ok_or_else(|| "LO not longer than HI".to_owned())
            }
            _ => Err(format!("two durations, LO HI, each {}", duration::ALLOWED)),
        }
    }

    fn show(&self) -> Option<Value> {
        Some(Value::Array(vec![
            Value::String(duration::show(self.lo)),
            Value::String(duration::show(self.hi)),
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Setting>(words: &[&str]) -> Result<T, String> {
        T::read(
            &words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn a_cooldown_range_is_ordered() {
        let range: CooldownRange = read(&["0", "300"]).expect("a range");
        assert_eq!(
            (range.lo(), range.hi()),
            (Duration::ZERO, Duration::from_mins(5))
        );
        assert_eq!(read::<CooldownRange>(&["1s 4s"]), read(&["1s", "4s"]));
        for wrong in [
            &["1s"][..],
            &["2s", "1s"],
            &["1s", "2s", "3s"],
            &["a", "1s"],
            &[],
        ] {
            assert!(read::<CooldownRange>(wrong).is_err(), "{wrong:?}");
        }
    }
}
