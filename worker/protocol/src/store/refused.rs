//! Why a request to the store changed nothing.

use serde::{Deserialize, Serialize};

use crate::Round;

/// How many missing keys a timeout names.
pub const MISSING_NAMED: usize = 8;

/// Nothing was changed, but for [`Refused::Unreachable`]. Lengths and limits are bytes where not said otherwise.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// The round is over, or has not begun (invariant R3).
    #[error("its keys are those of round {asked}, and {}", now(.current))]
    StaleRound {
        /// The round of the request.
        asked: Round,
        /// The one that started last.
        current: Option<Round>,
    },
    /// Keys did not come in time.
    #[error("nobody has set {} in time", named(.missing, *.more))]
    TimedOut {
        /// Some of the keys that are missing.
        missing: Vec<String>,
        /// How many more there are.
        more: u64,
    },
    /// A key is too long.
    #[error("the key {key:?} has {length} bytes, of {limit} that a key may have")]
    KeyTooLong {
        /// How it begins.
        key: String,
        /// How long it is.
        length: u64,
        /// How long it may be.
        limit: u64,
    },
    /// A value is too large, or would be.
    #[error("the value of {key:?} has {length} bytes, of {limit} that a value may have")]
    ValueTooLarge {
        /// Of which key.
        key: String,
        /// How large it is.
        length: u64,
        /// How large it may be.
        limit: u64,
    },
    /// All keys and values of one request are too large.
    #[error("the request has {length} bytes, of {limit} that one may have: split it")]
    RequestTooLarge {
        /// How large it is.
        length: u64,
        /// How large it may be.
        limit: u64,
    },
    /// All values that were asked for are too large for one answer.
    #[error(
        "the values have {length} bytes together, of {limit} in one answer: ask for fewer at once"
    )]
    AnswerTooLarge {
        /// How large they are.
        length: u64,
        /// How large they may be.
        limit: u64,
    },
    /// The store has as many keys as it may have.
    #[error("the store is full: it has room for {limit} keys; delete some")]
    TooManyKeys {
        /// How many it may have.
        limit: u64,
    },
    /// The store has as many bytes as it may have.
    #[error("the store is full: it has room for {limit} bytes of keys and values; delete some")]
    Full {
        /// How many it may have.
        limit: u64,
    },
    /// A worker waits in too many requests.
    #[error("this worker waits for keys in {limit} requests already, and may not in more")]
    TooManyWaits {
        /// How many it may.
        limit: u64,
    },
    /// What is to be added to is no number.
    #[error("the value of {key:?} is no whole number, so nothing can be added to it")]
    NotANumber {
        /// Of which key.
        key: String,
    },
    /// The sum is no 64-bit number.
    #[error("the sum at {key:?} is beyond 64 bits")]
    Overflow {
        /// Of which key.
        key: String,
    },
    /// The store cannot be reached, or went away: it is not known whether the request was carried out.
    #[error("the store of the job cannot be reached: {why}")]
    Unreachable {
        /// What went wrong.
        why: String,
    },
}

/// A key as messages show it: the beginning of a long one.
pub fn shown(key: &str) -> String {
    const MOST: usize = 100;
    match key.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &key[..end]),
        None => key.to_owned(),
    }
}

fn now(current: &Option<Round>) -> String {
    current.map_or("no round has started".to_owned(), |round| {
        format!("the job is in round {round}")
    })
}

fn named(missing: &[String], more: u64) -> String {
    let named: Vec<_> = missing.iter().map(|key| format!("{key:?}")).collect();
    match more {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_what_where_and_what_is_allowed() {
        let stale = |current| Refused::StaleRound {
            asked: Round(3),
            current,
        };
        assert_eq!(
            stale(Some(Round(4))).to_string(),
            "its keys are those of round 3, and the job is in round 4"
        );
        assert_eq!(
            stale(None).to_string(),
            "its keys are those of round 3, and no round has started"
        );
        let missing = Refused::TimedOut {
            missing: vec!["a".into(), "b\n".into()],
            more: 2,
        };
        assert_eq!(
            missing.to_string(),
            r#"nobody has set "a", "b\n" and 2 more in time"#
        );
    }

    #[test]
    fn a_long_key_is_cut_between_letters() {
        assert_eq!(shown("short"), "short");
        assert_eq!(shown(&"ä".repeat(101)), format!("{}...", "ä".repeat(100)));
    }
}
