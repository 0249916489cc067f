//! What callers say to etcd and get from it, and how the gateway writes it: base64 for bytes, text for 64-bit numbers, and no
//! fields that have their default.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Value, json};

/// A revision of the whole store. Each change raises it by one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Deserialize)]
pub struct Revision(#[serde(deserialize_with = "number")] pub i64);

/// The number of a lease. 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Deserialize)]
pub struct LeaseId(#[serde(deserialize_with = "number")] pub i64);

/// A key with its value.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default)]
pub struct KeyValue {
    /// The key.
    #[serde(deserialize_with = "bytes")]
    pub key: Vec<u8>,
    /// The value. Empty for a key that was deleted.
    #[serde(deserialize_with = "bytes")]
    pub value: Vec<u8>,
    /// The revision in which the key was put after it did not exist.
    pub create_revision: Revision,
    /// The revision of the last change.
    pub mod_revision: Revision,
    /// The lease with which the key ends.
    pub lease: LeaseId,
}

/// A key, or all keys with a prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Keys {
    /// This key.
    One(Vec<u8>),
    /// All keys that begin with this.
    Prefix(Vec<u8>),
}

impl Keys {
    /// The fields that name the keys in a request.
    fn to_json(&self) -> Value {
        match self {
            Self::One(key) => json!({ "key": STANDARD.encode(key) }),
            Self::Prefix(prefix) => json!({
                // An empty key names nothing: the first key that can exist is a zero byte.
                "key": STANDARD.encode(if prefix.is_empty() { &[0] } else { &prefix[..] }),
                "range_end": STANDARD.encode(end_of(prefix)),
            }),
        }
    }
}

/// The first key behind all that begin with `prefix`. A zero byte is the end of all keys.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

/// A condition of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Compare {
    /// The key was created in this revision; 0: it does not exist.
    Created(Vec<u8>, Revision),
    /// The key was last changed in this revision; 0: it does not exist.
    Modified(Vec<u8>, Revision),
    /// The key has not changed after this revision, or does not exist.
    Unmodified(Vec<u8>, Revision),
    /// The key exists.
    Exists(Vec<u8>),
}

impl Compare {
    fn to_json(&self) -> Value {
        match self {
            Self::Created(key, revision) => json!({
                "key": STANDARD.encode(key), "target": "CREATE", "result": "EQUAL",
                "create_revision": revision.0.to_string(),
            }),
            Self::Modified(key, revision) => json!({
                "key": STANDARD.encode(key), "target": "MOD", "result": "EQUAL",
                "mod_revision": revision.0.to_string(),
            }),
            Self::Unmodified(key, revision) => json!({
                "key": STANDARD.encode(key), "target": "MOD", "result": "LESS",
                "mod_revision": revision.0.saturating_add(1).to_string(),
            }),
            Self::Exists(key) => json!({
                "key": STANDARD.encode(key), "target": "CREATE", "result": "GREATER",
                "create_revision": "0",
            }),
        }
    }
}

/// A step of a transaction. The `Debug` output has no value.
#[derive(Clone, PartialEq, Eq)]
pub enum Op {
    /// Puts a value. A key with a lease ends with it.
    Put {
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
        /// The lease; the default is none.
        lease: LeaseId,
    },
    /// Deletes keys.
    Delete(Keys),
    /// Reads keys.
    Range(Keys),
    /// Finds the keys that have not changed after a revision, without their values. [`Outcome::counts`] has the number of all.
    Unmodified(Keys, Revision),
    /// Takes several steps. etcd takes 128 of them, less the conditions or the steps of the levels around, whichever are more.
    All(Vec<Op>),
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Put { key, value, .. } => {
                let key = String::from_utf8_lossy(key);
                write!(f, "Put({key:?}, {} bytes)", value.len())
            }
            Self::Delete(keys) => write!(f, "Delete({keys:?})"),
            Self::Range(keys) => write!(f, "Range({keys:?})"),
            Self::Unmodified(keys, revision) => write!(f, "Unmodified({keys:?}, {revision:?})"),
            Self::All(steps) => f.debug_tuple("All").field(steps).finish(),
        }
    }
}

impl Op {
    fn to_json(&self) -> Value {
        match self {
            Self::Put { key, value, lease } => json!({ "request_put": {
                "key": STANDARD.encode(key), "value": STANDARD.encode(value),
                "lease": lease.0.to_string(),
            } }),
            Self::Delete(keys) => json!({ "request_delete_range": keys.to_json() }),
            Self::Range(keys) => json!({ "request_range": keys.to_json() }),
            Self::Unmodified(keys, revision) => {
                let mut range = keys.to_json();
                // The first change of a store gives revision 2, and 0 would find all keys.
                range["max_mod_revision"] = revision.0.max(1).to_string().into();
                range["keys_only"] = true.into();
                json!({ "request_range": range })
            }
            Self::All(steps) => json!({ "request_txn": {
                "success": steps.iter().map(Self::to_json).collect::<Vec<_>>(),
            } }),
        }
    }
}

/// The request of a transaction.
pub(crate) fn txn_request(compares: &[Compare], success: &[Op], failure: &[Op]) -> Value {
    let ops = |ops: &[Op]| ops.iter().map(Op::to_json).collect::<Vec<_>>();
    json!({
        "compare": compares.iter().map(Compare::to_json).collect::<Vec<_>>(),
        "success": ops(success),
        "failure": ops(failure),
    })
}

/// The request of a range.
pub(crate) fn range_request(keys: &Keys, limit: u32, revision: Revision) -> Value {
    let mut request = keys.to_json();
    request["limit"] = limit.to_string().into();
    request["revision"] = revision.0.to_string().into();
    request
}

/// The request of a watch.
pub(crate) fn watch_request(keys: &Keys, from: Revision) -> Value {
    let mut create = keys.to_json();
    create["start_revision"] = from.0.to_string().into();
    json!({ "create_request": create })
}

/// The head of an answer.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Header {
    pub(crate) revision: Revision,
}

/// What a range has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The revision of the store at which the keys were read.
    pub revision: Revision,
    /// The keys in their order.
    pub keys: Vec<KeyValue>,
    /// Whether there are more keys than the limit.
    pub more: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RangeAnswer {
    header: Header,
    kvs: Vec<KeyValue>,
    more: bool,
    /// Of all keys in the range, also those that a condition leaves out.
    #[serde(deserialize_with = "number")]
    count: i64,
}

impl From<RangeAnswer> for Found {
    fn from(answer: RangeAnswer) -> Self {
        Self {
            revision: answer.header.revision,
            keys: answer.kvs,
            more: answer.more,
        }
    }
}

/// What a transaction has done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Whether all conditions held, so that the steps for success were taken, else those for failure.
    pub succeeded: bool,
    /// The revision after the transaction.
    pub revision: Revision,
    /// The keys that each [`Op::Range`] and [`Op::Unmodified`] has found, in the order of the steps. Those of steps within
    /// [`Op::All`] are left out.
    pub found: Vec<Vec<KeyValue>>,
    /// For each of them, the number of keys that it names.
    pub counts: Vec<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TxnAnswer {
    header: Header,
    succeeded: bool,
    responses: Vec<Response>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Response {
    response_range: Option<RangeAnswer>,
}

impl From<TxnAnswer> for Outcome {
    fn from(answer: TxnAnswer) -> Self {
        let responses = answer.responses.into_iter();
        let ranges = responses.filter_map(|response| response.response_range);
        let (found, counts) = ranges
            .map(|range| (range.kvs, usize::try_from(range.count).unwrap_or(0)))
            .unzip();
        Self {
            succeeded: answer.succeeded,
            revision: answer.header.revision,
            found,
            counts,
        }
    }
}

/// The answer to a grant or a keep-alive.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LeaseAnswer {
    #[serde(rename = "ID")]
    pub(crate) id: LeaseId,
    /// Seconds. Absent for a lease that is gone.
    #[serde(rename = "TTL", deserialize_with = "number")]
    pub(crate) ttl: i64,
}

/// A change of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// The key was put.
    Put(KeyValue),
    /// The key was deleted, or ended with its lease.
    Deleted {
        /// The key.
        key: Vec<u8>,
        /// The revision of the deletion.
        revision: Revision,
    },
}

/// Changes that a watch has seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// The revision of the store up to which the watch has seen everything.
    pub revision: Revision,
    /// The changes in their order.
    pub changes: Vec<Change>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WatchAnswer {
    header: Header,
    pub(crate) created: bool,
    pub(crate) canceled: bool,
    pub(crate) compact_revision: Revision,
    pub(crate) cancel_reason: String,
    events: Vec<WatchEvent>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WatchEvent {
    #[serde(rename = "type")]
    kind: String,
    kv: KeyValue,
}

impl From<WatchAnswer> for Batch {
    fn from(answer: WatchAnswer) -> Self {
        let change = |event: WatchEvent| match event.kind.as_str() {
            "DELETE" => Change::Deleted {
                key: event.kv.key,
                revision: event.kv.mod_revision,
            },
            _ => Change::Put(event.kv),
        };
        Self {
            revision: answer.header.revision,
            changes: answer.events.into_iter().map(change).collect(),
        }
    }
}

/// A 64-bit number, which JSON of protobuf writes as text.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Text(String),
        Number(i64),
    }
    match Form::deserialize(deserializer)? {
        Form::Text(text) => text.parse().map_err(D::Error::custom),
        Form::Number(number) => Ok(number),
    }
}

fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    STANDARD.decode(text).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_key() {
        assert_eq!(end_of(b"a/"), b"a0");
        assert_eq!(end_of(&[1, 255, 255]), [2]);
        assert_eq!(end_of(&[255]), [0]);
        assert_eq!(end_of(b""), [0]);
    }

    #[test]
    fn absent_fields_have_their_default() {
        let answer: TxnAnswer = serde_json::from_str("{\"header\":{\"revision\":\"7\"}}").unwrap();
        let outcome = Outcome::from(answer);
        assert_eq!((outcome.succeeded, outcome.revision), (false, Revision(7)));
        let answer: LeaseAnswer = serde_json::from_str("{\"ID\":\"78\"}").unwrap();
        assert_eq!((answer.id, answer.ttl), (LeaseId(78), 0));
        let found: RangeAnswer = serde_json::from_str("{}").unwrap();
        assert_eq!(Found::from(found).keys, []);
    }

    #[test]
    fn numbers_come_as_text_and_as_numbers() {
        for text in ["{\"TTL\":\"5\"}", "{\"TTL\":5}"] {
            let answer: LeaseAnswer = serde_json::from_str(text).unwrap();
            assert_eq!(answer.ttl, 5);
        }
        assert!(serde_json::from_str::<LeaseAnswer>("{\"TTL\":\"x\"}").is_err());
    }

    #[test]
    fn a_put_shows_no_value() {
        let put = Op::Put {
            key: b"k".to_vec(),
            value: b"secret".to_vec(),
            lease: LeaseId(0),
        };
        assert_eq!(format!("{put:?}"), "Put(\"k\", 6 bytes)");
    }

    #[test]
    fn events_are_puts_and_deletions() {
        let text = r#"{"header":{"revision":"3"},"events":[{"kv":{"key":"Zm9v","create_revision":"2",
            "mod_revision":"2","value":"YQ==","lease":"77"}},{"type":"DELETE","kv":{"key":"Zm9v","mod_revision":"3"}}]}"#;
        let batch = Batch::from(serde_json::from_str::<WatchAnswer>(text).unwrap());
        let put = KeyValue {
            key: b"foo".to_vec(),
            value: b"a".to_vec(),
            create_revision: Revision(2),
            mod_revision: Revision(2),
            lease: LeaseId(77),
        };
        let deleted = Change::Deleted {
            key: b"foo".to_vec(),
            revision: Revision(3),
        };
        assert_eq!(batch.revision, Revision(3));
        assert_eq!(batch.changes, [Change::Put(put), deleted]);
    }
}
