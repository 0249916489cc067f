//! Validation of a plugin's answers (invariant D5).

use std::{collections::BTreeSet, slice};

use elasticrun_plugin_sdk::{
    Snapshot,
    abi::{Free, RawBuffer},
    hosts::MAX_SLOTS,
};

/// The size limit of an answer, in bytes.
pub(crate) const MAX_ANSWER: usize = 4 << 20;
/// The length limit of an id, address or user, in bytes.
const MAX_NAME: usize = 256;

/// Bytes that the plugin allocated. Dropping this frees them through the plugin.
pub(super) struct Answer {
    buffer: RawBuffer,
    free: Free,
}

impl Answer {
    /// An empty answer, to be filled by a call of the plugin that owns `free`.
    pub(super) fn empty(free: Free) -> Self {
        Self {
            buffer: RawBuffer::EMPTY,
            free,
        }
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut RawBuffer {
        &raw mut self.buffer
    }

    pub(super) fn bytes(&self) -> Result<&[u8], BadAnswer> {
        match self.buffer.len {
            0 => Ok(&[]),
            len if len > MAX_ANSWER => Err(BadAnswer::TooLarge { len }),
            _ if self.buffer.data.is_null() => Err(BadAnswer::NoData),
            // SAFETY: the plugin guarantees that many bytes until they are freed.
            len => Ok(unsafe { slice::from_raw_parts(self.buffer.data, len) }),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.buffer.data.is_null() {
            // SAFETY: the buffer is of this plugin and is freed once.
            unsafe { (self.free)(self.buffer) };
        }
    }
}

/// Checks that bytes are UTF-8.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, BadAnswer> {
    str::from_utf8(bytes).map_err(|_| BadAnswer::NotUtf8)
}

/// Parses and validates a snapshot.
pub(crate) fn snapshot(bytes: &[u8]) -> Result<Snapshot, BadAnswer> {
    let snapshot: Snapshot = serde_json::from_str(text(bytes)?)
        .map_err(|error| BadAnswer::NotASnapshot(error.to_string()))?;
    let mut ids = BTreeSet::new();
    for host in &snapshot.hosts {
        let id = || host.id.chars().take(80).collect::<String>();
        if !is_name(&host.id) {
            return Err(BadAnswer::Id { id: id() });
        }
        if !ids.insert(&host.id) {
            return Err(BadAnswer::Repeated { id: id() });
        }
        if let Some(slots) = host.slots.filter(|slots| *slots > MAX_SLOTS) {
            return Err(BadAnswer::Slots { id: id(), slots });
        }
        let mut names = host
            .addresses
            .iter()
            .chain([&host.address])
            .chain(&host.user);
        if let Some(name) = names.find(|name| !is_name(name)) {
            return Err(BadAnswer::Name {
                id: id(),
                name: name.chars().take(80).collect(),
            });
        }
    }
    Ok(snapshot)
}

/// Whether a text is safe as an argument of ssh and as a word in a log.
fn is_name(text: &str) -> bool {
    (1..=MAX_NAME).contains(&text.len())
        && !text.starts_with('-')
        && !text.contains(|character: char| character.is_whitespace() || character.is_control())
}

/// The rule that an answer breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadAnswer {
    #[error("the plugin's answer has {len} bytes; at most {} MiB are allowed", MAX_ANSWER >> 20)]
    TooLarge { len: usize },
    #[error("the plugin's answer has a length but no data")]
    NoData,
    #[error("the plugin's answer is not UTF-8")]
    NotUtf8,
    #[error("the plugin's answer is not a snapshot: {0}")]
    NotASnapshot(String),
    #[error(
        "the plugin listed a host with the id {id:?}; allowed are 1 to {MAX_NAME} bytes, no white space, \
         no '-' in front"
    )]
    Id { id: String },
    #[error("the plugin listed the host {id:?} twice; ids must be unique")]
    Repeated { id: String },
    #[error("the plugin gave the host {id:?} {slots} slots; at most {MAX_SLOTS} are allowed")]
    Slots { id: String, slots: u32 },
    #[error(
        "the plugin gave the host {id:?} the address or user {name:?}; allowed are 1 to {MAX_NAME} bytes, \
         no white space, no '-' in front"
    )]
    Name { id: String, name: String },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused(json: &str) -> String {
        snapshot(json.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn rules_are_kept() {
        let good = br#"{"hosts":[{"id":"a","slots":1024},{"id":"ns/b","address":"::1"}]}"#;
        assert_eq!(snapshot(good).unwrap().hosts.len(), 2);
        assert_eq!(snapshot(br#"{"hosts":[]}"#).unwrap().hosts, []);
        assert_eq!(
            refused(r#"{"hosts":[{"id":"a","slots":1025}]}"#),
            r#"the plugin gave the host "a" 1025 slots; at most 1024 are allowed"#
        );
        assert_eq!(
            refused(r#"{"hosts":[{"id":"a"},{"id":"b"},{"id":"a"}]}"#),
            r#"the plugin listed the host "a" twice; ids must be unique"#
        );
        for id in ["", "-oX", "a b", "a\\n", "\\u0000"] {
            let message = refused(&format!(r#"{{"hosts":[{{"id":"{id}","address":"a"}}]}}"#));
            assert!(
                message.starts_with("the plugin listed a host with the id "),
                "{message}"
            );
        }
        for field in [
            r#""address":"-oX""#,
            r#""user":"a b""#,
            r#""addresses":["ok",""]"#,
        ] {
            let message = refused(&format!(r#"{{"hosts":[{{"id":"a",{field}}}]}}"#));
            assert!(message.contains("the address or user"), "{message}");
        }
        assert!(refused("").starts_with("the plugin's answer is not a snapshot: EOF"));
        assert!(refused("{}").contains("missing field `hosts`"));
        assert_eq!(snapshot(b"\xff"), Err(BadAnswer::NotUtf8));
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = snapshot(&bytes);
        }
    }
}
