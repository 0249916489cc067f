//! Reasons why a request to the store was refused.

use serde::{Deserialize, Serialize};

use crate::Round;

/// The number of missing keys that a timeout names.
pub const MISSING_NAMED: usize = 8;

/// A refusal. Nothing was changed, except perhaps for [`Refused::Unreachable`]. Lengths and limits are in bytes unless
/// stated otherwise.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// The round is over, or has not begun (invariant R3).
    #[error("its keys are those of round {asked}, and {}", now(.current))]
    StaleRound {
        /// The round of the request.
        asked: Round,
        /// The round that started last.
        current: Option<Round>,
    },
    /// Keys were not written in time.
    #[error("nobody has set {} in time", named(.missing, *.more))]
    TimedOut {
        /// Some of the missing keys.
        missing: Vec<String>,
        /// The number of further missing keys.
        more: u64,
    },
    /// A key is too long.
    #[error("the key {key:?} has {length} bytes, of {limit} that a key may have")]
    KeyTooLong {
        /// The beginning of the key.
        key: String,
        /// The size of the key.
        length: u64,
        /// [`MAX_KEY`](super::MAX_KEY).
        limit: u64,
    },
    /// A value is too large, or would become too large.
    #[error("the value of {key:?} has {length} bytes, of {limit} that a value may have")]
    ValueTooLarge {
        /// The key. A long one is cut as by [`shown`].
        key: String,
        /// The size that the value has or would have.
        length: u64,
        /// The largest value that the store has room for when it is empty; in a message,
        /// [`MAX_PIECE`](super::MAX_PIECE).
        limit: u64,
    },
    /// All keys and values of one request are too large together.
    #[error("the request has {length} bytes, of {limit} that one may have: split it")]
    RequestTooLarge {
        /// The size of the request.
        length: u64,
        /// [`MAX_MESSAGE`](super::MAX_MESSAGE).
        limit: u64,
    },
    /// All requested values are too large together for one answer.
    #[error(
        "the values have {length} bytes together, of {limit} in one answer: ask for fewer at once"
    )]
    AnswerTooLarge {
        /// The size of all values.
        length: u64,
        /// [`MAX_MESSAGE`](super::MAX_MESSAGE).
        limit: u64,
    },
    /// The store has reached its maximum number of keys and elements of queues.
    #[error("the store is full: it has room for {limit} keys and elements of queues; delete some")]
    TooManyKeys {
        /// The maximum number of keys and elements.
        limit: u64,
    },
    /// The store has reached its maximum number of bytes.
    #[error("the store is full: {}it has room for {limit} bytes of keys and values; delete some", needs(.key, *.length))]
    Full {
        /// The maximum size of keys, values and awaited keys.
        limit: u64,
        /// The key of the value that does not fit, cut as by [`shown`]. Empty from an older driver, and for a request that
        /// would wait.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        key: String,
        /// The size of that value.
        #[serde(default, skip_serializing_if = "is_zero")]
        length: u64,
    },
    /// A value is not staged, or not as a whole: its pieces were lost with a connection. Not sent to older workers.
    #[error("a value was lost on its way to or from the store with a connection")]
    NotStaged {
        /// The number of the value.
        staged: u64,
    },
    /// A worker has too many values on their way. Not sent to older workers.
    #[error(
        "this worker transfers {limit} large values already, and may not transfer more at once"
    )]
    TooManyTransfers {
        /// The maximum number of values.
        limit: u64,
    },
    /// A worker waits in too many requests.
    #[error("this worker waits for keys in {limit} requests already, and may not in more")]
    TooManyWaits {
        /// The maximum number of waiting requests.
        limit: u64,
    },
    /// The value for an addition is not a number.
    #[error("the value of {key:?} is no whole number, so nothing can be added to it")]
    NotANumber {
        /// The key of the value.
        key: String,
    },
    /// The sum does not fit a 64-bit number.
    #[error("the sum at {key:?} is beyond 64 bits")]
    Overflow {
        /// The key of the sum.
        key: String,
    },
    /// An agent or a driver of an earlier release does not know the operation. Not sent to workers of such a release.
    #[error(
        "the {peer} runs an earlier release of elasticrun, which lacks this operation: install the same release on all hosts"
    )]
    Unsupported {
        /// The part of the job that lacks it.
        peer: String,
    },
    /// The store is unreachable, or became so. It is unknown whether the request was carried out.
    #[error("the store of the job cannot be reached: {why}")]
    Unreachable {
        /// A message for the user.
        why: String,
    },
}

/// A key as messages show it: a long key is cut.
pub fn shown(key: &str) -> String {
    const MOST: usize = 100;
    match key.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &key[..end]),
        None => key.to_owned(),
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn needs(key: &str, length: u64) -> String {
    match length {
        0 => String::new(),
        length => format!("the value of {key:?} has {length} bytes, and "),
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
        let full = |key: &str, length| Refused::Full {
            limit: 9,
            key: key.into(),
            length,
        };
        assert_eq!(
            full("k", 7).to_string(),
            r#"the store is full: the value of "k" has 7 bytes, and it has room for 9 bytes of keys and values; delete some"#
        );
        let older: Refused = serde_json::from_str(r#"{"full":{"limit":9}}"#).expect("it is read");
        assert_eq!(older, full("", 0));
        assert_eq!(
            older.to_string(),
            "the store is full: it has room for 9 bytes of keys and values; delete some"
        );
    }

    #[test]
    fn a_long_key_is_cut_between_letters() {
        assert_eq!(shown("short"), "short");
        assert_eq!(shown(&"ä".repeat(101)), format!("{}...", "ä".repeat(100)));
    }
}
