//! Bytes in JSON: base64, which adds a third. (Hexadecimal text, as in keys and proofs, doubles the size.)

use std::fmt;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Any bytes.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Blob(pub Vec<u8>);

impl From<&[u8]> for Blob {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl fmt::Debug for Blob {
    /// Prints the beginning as text: most values are short, and most are addresses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 40;
        let shown = &self.0[..self.0.len().min(MOST)];
        write!(f, "b\"{}\"", shown.escape_ascii())?;
        match self.0.len() {
            length if length > MOST => write!(f, "... ({length} bytes)"),
            _ => Ok(()),
        }
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl de::Visitor<'_> for Text {
            type Value = Blob;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes as base64")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Blob, E> {
                BASE64_STANDARD.decode(text).map(Blob).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_come_back(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let text = serde_json::to_string(&Blob(bytes.clone())).unwrap();
            prop_assert_eq!(serde_json::from_str::<Blob>(&text).unwrap().0, bytes);
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            let quoted = serde_json::to_string(&text).unwrap();
            if let Ok(blob) = serde_json::from_str::<Blob>(&quoted) {
                prop_assert_eq!(serde_json::to_string(&blob).unwrap(), quoted);
            }
        }
    }
}
