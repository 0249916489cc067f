//! Validation of a plugin's answers (invariant D5).

use std::{collections::BTreeSet, slice};

use elasticrun_plugin_sdk::{
    Host, HostState, Snapshot,
    abi::{Free, RawBuffer},
    hosts::{MAX_SLOTS, is_address, is_user, without_final_dot},
    text::{is_invisible, one_line},
};

/// The size limit of an answer, in bytes.
pub(crate) const MAX_ANSWER: usize = 4 << 20;
/// The length limit of an id, in bytes.
const MAX_ID: usize = 256;

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
    let mut snapshot: Snapshot = serde_json::from_str(text(bytes)?)
        .map_err(|error| BadAnswer::NotASnapshot(error.to_string()))?;
    let mut ids = BTreeSet::new();
    for host in &mut snapshot.hosts {
        clean(host);
    }
    for host in &snapshot.hosts {
        let id = || host.id.chars().take(80).collect::<String>();
        if !is_id(&host.id) {
            return Err(BadAnswer::Id { id: id() });
        }
        if !ids.insert(&host.id) {
            return Err(BadAnswer::Repeated { id: id() });
        }
        if let Some(slots) = host.slots.filter(|slots| *slots > MAX_SLOTS) {
            return Err(BadAnswer::Slots { id: id(), slots });
        }
        // An id stands for a missing address, which a host needs only when it is used.
        let address =
            (host.state == HostState::Ready || host.address != host.id).then_some(&host.address);
        let quoted = |text: &String| text.chars().take(80).collect();
        if let Some(address) = address
            .into_iter()
            .chain(&host.addresses)
            .find(|address| !is_address(address))
        {
            return Err(BadAnswer::Address {
                id: id(),
                address: quoted(address),
            });
        }
        if let Some(user) = host.user.as_ref().filter(|user| !is_user(user)) {
            return Err(BadAnswer::User {
                id: id(),
                user: quoted(user),
            });
        }
    }
    Ok(snapshot)
}

/// Brings a host into the form that the driver takes: names without a final dot, no ready host with 0 slots, and each text
/// that is only shown on one line of at most 300 characters.
fn clean(host: &mut Host) {
    let names = [&mut host.id, &mut host.address];
    for name in names.into_iter().chain(&mut host.addresses) {
        let length = without_final_dot(name).len();
        name.truncate(length);
    }
    host.apply_zero_slots();
    let texts = [&mut host.reason, &mut host.zone, &mut host.kind];
    for text in texts.into_iter().flatten() {
        *text = one_line(text);
    }
    let labels = std::mem::take(&mut host.labels);
    host.labels = labels
        .iter()
        .map(|(name, value)| (one_line(name), one_line(value)))
        .collect();
}

/// Whether a text is safe as a word in a log.
fn is_id(text: &str) -> bool {
    (1..=MAX_ID).contains(&text.len())
        && !text.starts_with('-')
        && !text.contains(|character: char| character.is_whitespace() || is_invisible(character))
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
        "the plugin listed a host with the id {id:?}; allowed are 1 to {MAX_ID} bytes, no white space, \
         no '-' in front"
    )]
    Id { id: String },
    #[error("the plugin listed the host {id:?} twice; ids must be unique")]
    Repeated { id: String },
    #[error("the plugin gave the host {id:?} {slots} slots; allowed are at most {MAX_SLOTS}")]
    Slots { id: String, slots: u32 },
    #[error(
        "the plugin gave the host {id:?} the address {address:?}; allowed is a name of letters, digits, '-', '_' and \
         '.', an IPv4 address, or an IPv6 address without brackets"
    )]
    Address { id: String, address: String },
    #[error(
        "the plugin gave the host {id:?} the user {user:?}; allowed are letters, digits, '-', '_', '+' and '.', no '-' \
         in front"
    )]
    User { id: String, user: String },
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
            r#"the plugin gave the host "a" 1025 slots; allowed are at most 1024"#
        );
        let unstarted = br#"{"hosts":[{"id":"ns/b","state":"pending"},{"id":"7"}]}"#;
        assert_eq!(snapshot(unstarted).unwrap().hosts.len(), 2);
        assert_eq!(
            refused(r#"{"hosts":[{"id":"a"},{"id":"b"},{"id":"a"}]}"#),
            r#"the plugin listed the host "a" twice; ids must be unique"#
        );
        for id in ["", "-oX", "a b", "a\\n", "\\u0000", "a\\u202e", "a\\u200b"] {
            let message = refused(&format!(r#"{{"hosts":[{{"id":"{id}","address":"a"}}]}}"#));
            assert!(
                message.starts_with("the plugin listed a host with the id "),
                "{message}"
            );
        }
        for text in [
            "-oX",
            "a b",
            "$(id)",
            ";rm",
            "`id`",
            "%h",
            "ssh://evil:22",
            "root@evil",
            "/etc/passwd",
            "a\\u202e",
            "a\\u200b",
            "[::1]",
            "10.0.0.256",
        ] {
            for (field, what) in [
                (format!(r#""address":"{text}""#), "the address"),
                (format!(r#""addresses":["ok","{text}"]"#), "the address"),
            ] {
                let message = refused(&format!(r#"{{"hosts":[{{"id":"a",{field}}}]}}"#));
                assert!(message.contains(what), "{message}");
            }
        }
        for user in ["a b", "-oX", "$(id)", "a@b", ""] {
            let message = refused(&format!(r#"{{"hosts":[{{"id":"a","user":"{user}"}}]}}"#));
            assert!(message.contains("the user"), "{message}");
        }
        assert!(refused(r#"{"hosts":[{"id":"ns/b"}]}"#).contains("the address"));
        assert!(refused("").starts_with("the plugin's answer is not a snapshot: EOF"));
        assert!(refused("{}").contains("missing field `hosts`"));
        assert_eq!(snapshot(b"\xff"), Err(BadAnswer::NotUtf8));
    }

    #[test]
    fn a_host_with_0_slots_is_refused_alone() {
        let json = br#"{"hosts":[{"id":"a","slots":0,"reason":"r"},{"id":"b","slots":4},{"id":"c","slots":0,"state":"draining"}]}"#;
        let found = snapshot(json).unwrap();
        let states: Vec<_> = found.hosts.iter().map(|h| (h.state, h.slots)).collect();
        let expected = [
            (HostState::Pending, Some(0)),
            (HostState::Ready, Some(4)),
            (HostState::Draining, None),
        ];
        assert_eq!(states, expected);
        let reason = found.hosts[0].reason.as_deref();
        assert_eq!(reason, Some("its source reports 0 slots"));
        let again = serde_json::to_vec(&found).unwrap();
        assert_eq!(snapshot(&again).unwrap(), found);
    }

    #[test]
    fn a_complete_name_is_the_same_host_as_without_its_dot() {
        let json = br#"{"hosts":[{"id":"a.example.org.","addresses":["b.example.org.","10.0.0.1"]},{"id":"ns/b.","address":"c."}]}"#;
        let hosts = snapshot(json).unwrap().hosts;
        assert_eq!(
            (&*hosts[0].id, &*hosts[0].address),
            ("a.example.org", "a.example.org")
        );
        assert_eq!(hosts[0].addresses, ["b.example.org", "10.0.0.1"]);
        assert_eq!((&*hosts[1].id, &*hosts[1].address), ("ns/b.", "c"));
        let twice = refused(r#"{"hosts":[{"id":"a.b"},{"id":"a.b."}]}"#);
        assert!(twice.contains(r#"the host "a.b" twice"#), "{twice}");
    }

    #[test]
    fn texts_of_a_host_are_one_line() {
        let json = r#"{"hosts":[{"id":"a","reason":"\u001b[31mforged\nelasticrun: succeeded\u202e","zone":"z\r",
            "type":"t\u0007","labels":{"k\n":"v\u2028w"}}]}"#;
        let host = &snapshot(json.as_bytes()).unwrap().hosts[0];
        assert_eq!(
            host.reason.as_deref(),
            Some("[31mforged elasticrun: succeeded")
        );
        assert_eq!(host.zone.as_deref(), Some("z"));
        assert_eq!(host.kind.as_deref(), Some("t"));
        let labels: Vec<_> = host.labels.iter().collect();
        assert_eq!(labels, [(&"k".to_owned(), &"v w".to_owned())]);
        let long = format!(
            r#"{{"hosts":[{{"id":"a","reason":"{}"}}]}}"#,
            "x".repeat(100_000)
        );
        let host = &snapshot(long.as_bytes()).unwrap().hosts[0];
        assert_eq!(host.reason.as_ref().map(String::len), Some(303));
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = snapshot(&bytes);
        }
    }
}
