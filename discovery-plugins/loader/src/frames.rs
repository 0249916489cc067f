//! The frames between the driver and an isolated plugin. docs/design/plugin-frames.md describes them for authors of plugins
//! in other languages.
//!
//! A frame is the length of its body in decimal digits, a newline, and the body, which is a JSON object. This build writes
//! the body as one line. Its newline is part of the length, so that a shell can read the body with `read`.

use std::io::{self, BufRead};

use elasticrun_plugin_sdk::Command;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

use crate::{Failure, FailureKind, Manifest, library::MAX_ANSWER};

/// The descriptor of the connection in a plugin's process.
pub(crate) const CONNECTION: i32 = 3;
/// The size limit of a body: that of an answer, plus its envelope.
pub(crate) const MAX_BODY: usize = MAX_ANSWER + (64 << 10);
/// The version of the frames.
pub(crate) const VERSION: u32 = 1;

/// A call of the driver.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "kebab-case")]
pub(crate) enum Call {
    /// Create the instance. There is one per process.
    Create {
        id: u64,
        deadline_ms: u64,
        config: Map<String, Value>,
        /// The highest log level that the driver takes.
        log: i32,
    },
    /// Start to push changes. Only for plugins with `watches`.
    Watch { id: u64, deadline_ms: u64 },
    /// Return the current hosts.
    Poll { id: u64, deadline_ms: u64 },
    /// Execute a command. Only for plugins with `commands`.
    Command {
        id: u64,
        deadline_ms: u64,
        command: Command,
    },
    /// Destroy the instance and end.
    Destroy { id: u64 },
}

/// The first message of a plugin's process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// [`VERSION`].
    pub(crate) frames: u32,
    pub(crate) manifest: Manifest,
    #[serde(default)]
    pub(crate) watches: bool,
    #[serde(default)]
    pub(crate) commands: bool,
}

/// A message of a plugin's process. A frame holds one of `hello`, `refused`, `answer`, `changed` and `log`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct PluginFrame<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) hello: Option<Hello>,
    /// Why the plugin cannot be loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
    /// The id of a finished call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answer: Option<u64>,
    /// The result of a successful poll.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub(crate) snapshot: Option<&'a RawValue>,
    /// The kind of failure of a call: one of [`KINDS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_ms: Option<u64>,
    /// The hosts may have changed: poll now.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) changed: bool,
    /// The level of a log line: error, warn, info, debug or trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) log: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
}

/// Kinds of failures by their words in frames. An unknown word counts as the first.
const KINDS: [(&str, FailureKind); 7] = [
    ("retryable", FailureKind::Retryable),
    ("bad-config", FailureKind::BadConfig),
    ("auth", FailureKind::Auth),
    ("throttled", FailureKind::Throttled),
    ("unknown-group", FailureKind::UnknownGroup),
    ("panic", FailureKind::Panicked),
    ("bad-answer", FailureKind::BadAnswer),
];

pub(crate) fn word(kind: FailureKind) -> &'static str {
    let found = KINDS.iter().find(|(_, known)| *known == kind);
    found.map_or(KINDS[0].0, |(word, _)| word)
}

/// The failure in a frame.
pub(crate) fn failure(word: &str, message: String, retry_after_ms: Option<u64>) -> Failure {
    let found = KINDS.iter().find(|(known, _)| *known == word);
    let kind = found.map_or(FailureKind::Retryable, |(_, kind)| *kind);
    Failure {
        retry_after: retry_after_ms.map(std::time::Duration::from_millis),
        ..Failure::new(kind, message)
    }
}

/// A frame with this body.
pub(crate) fn frame(body: &impl Serialize) -> Vec<u8> {
    let json = serde_json::to_vec(body).expect("a frame is always JSON");
    let mut bytes = format!("{}\n", json.len() + 1).into_bytes();
    bytes.extend(json);
    bytes.push(b'\n');
    bytes
}

/// Why bytes are no valid frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadFrame {
    #[error("{0:?} where the length of a frame was expected, a decimal number and a newline")]
    Length(String),
    #[error("a frame of {0} bytes; at most 4 MiB are allowed")]
    TooLarge(usize),
}

/// Removes the first complete frame from the received bytes. Returns its body.
pub(crate) fn take(bytes: &mut Vec<u8>) -> Result<Option<Vec<u8>>, BadFrame> {
    const DIGITS: usize = 12;
    let head = &bytes[..bytes.len().min(DIGITS)];
    let wrong = || {
        let line = bytes
            .split(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default();
        let shown = &line[..line.len().min(40)];
        BadFrame::Length(String::from_utf8_lossy(shown).into_owned())
    };
    let Some(end) = head.iter().position(|byte| *byte == b'\n') else {
        let may_be = head.len() < DIGITS && head.iter().all(u8::is_ascii_digit);
        return if may_be { Ok(None) } else { Err(wrong()) };
    };
    let digits = str::from_utf8(&head[..end]).unwrap_or_default();
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let length: usize = digits.parse().ok().filter(|_| plain).ok_or_else(wrong)?;
    if length > MAX_BODY {
        return Err(BadFrame::TooLarge(length));
    }
    let (start, end) = (end + 1, end + 1 + length);
    if bytes.len() < end {
        return Ok(None);
    }
    let body = bytes[start..end].to_vec();
    bytes.drain(..end);
    Ok(Some(body))
}

/// Waits for a frame. `None` at the end of the stream. For the plugin's side, which trusts the driver.
pub(crate) fn read(stream: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut head = String::new();
    if stream.read_line(&mut head)? == 0 {
        return Ok(None);
    }
    let length: usize = head.trim_end().parse().map_err(io::Error::other)?;
    if length > MAX_BODY {
        return Err(io::Error::other(BadFrame::TooLarge(length)));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Some(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_frame_is_a_length_and_a_line() {
        let call = Call::Poll {
            id: 2,
            deadline_ms: 30_000,
        };
        let bytes = frame(&call);
        let text = "43\n{\"call\":\"poll\",\"id\":2,\"deadline_ms\":30000}\n";
        assert_eq!(String::from_utf8_lossy(&bytes), text);
        let drained = Call::Command {
            id: 3,
            deadline_ms: 5,
            command: Command::Drained { host: "a".into() },
        };
        let expected = json!({"call": "command", "id": 3, "deadline_ms": 5,
            "command": {"command": "drained", "host": "a"}});
        assert_eq!(serde_json::to_value(drained).unwrap(), expected);
    }

    #[test]
    fn what_is_no_frame_is_known_early() {
        let refused = |text: &str| take(&mut text.into()).unwrap_err().to_string();
        assert!(refused("hello\n").starts_with("\"hello\" where the length"));
        assert!(refused("h").starts_with("\"h\""));
        assert!(refused("\n{}").contains("where the length"));
        assert!(refused("+2\n{}").contains("where the length"));
        assert!(refused("123456789012").contains("where the length"));
        assert_eq!(
            refused("67108864\n"),
            "a frame of 67108864 bytes; at most 4 MiB are allowed"
        );
        assert_eq!(take(&mut b"12".to_vec()), Ok(None));
    }

    #[test]
    fn failures_cross() {
        for (text, kind) in KINDS {
            assert_eq!(word(kind), text);
            assert_eq!(failure(text, String::new(), None).kind, kind);
        }
        assert_eq!(
            failure("odd", String::new(), None).kind,
            FailureKind::Retryable
        );
    }

    proptest! {
        #[test]
        fn frames_are_found_however_they_arrive(
            bodies in prop::collection::vec("[a-z]{0,5}", 0..5),
            cut in 1usize..7,
        ) {
            let sent: Vec<u8> = bodies.iter().flat_map(frame).collect();
            let (mut bytes, mut found) = (Vec::new(), Vec::new());
            for piece in sent.chunks(cut) {
                bytes.extend_from_slice(piece);
                while let Some(body) = take(&mut bytes).unwrap() {
                    found.push(serde_json::from_slice::<String>(&body).unwrap());
                }
            }
            prop_assert_eq!(found, bodies);
            prop_assert!(bytes.is_empty());
        }

        #[test]
        fn any_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut bytes = bytes;
            while let Ok(Some(_)) = take(&mut bytes) {}
        }
    }
}
