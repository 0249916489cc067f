//! The name of a node.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A node of a rendezvous: one run of a program that joins, such as `host-7_4711_0` (address, process id, number).
///
/// A program that starts again needs another id. Two programs with the same id are one node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeId(Arc<str>);

impl NodeId {
    /// The longest id, in bytes.
    pub const MAX_BYTES: usize = 255;

    /// An id of 1 to [`Self::MAX_BYTES`] bytes without control characters.
    ///
    /// # Errors
    /// The text is empty, too long, or has a control character.
    pub fn new(text: &str) -> Result<Self, InvalidNodeId> {
        if text.is_empty() || text.len() > Self::MAX_BYTES || text.chars().any(char::is_control) {
            return Err(InvalidNodeId { bytes: text.len() });
        }
        Ok(Self(text.into()))
    }

    /// The text of the id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A text that is no id of a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an id of a node has 1 to {max} bytes and no control characters, this one has {bytes} bytes",
    max = NodeId::MAX_BYTES
)]
pub struct InvalidNodeId {
    /// The length of the text.
    pub bytes: usize,
}

impl TryFrom<String> for NodeId {
    type Error = InvalidNodeId;

    fn try_from(text: String) -> Result<Self, InvalidNodeId> {
        Self::new(&text)
    }
}

impl Serialize for NodeId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for NodeId {
    /// Takes the text where it is: a state has one for each node.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl de::Visitor<'_> for Text {
            type Value = NodeId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the id of a node")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<NodeId, E> {
                NodeId::new(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

impl From<NodeId> for String {
    fn from(id: NodeId) -> Self {
        id.as_str().to_owned()
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
