//! What a plugin says of itself before any of its code runs.

/// What a plugin says of itself. It becomes JSON while the plugin is compiled.
#[derive(Clone, Copy, Debug)]
pub struct Manifest {
    /// The name in `--discovery NAME`: small letters, digits, `-`. The library is named
    /// `elasticrun_plugin_NAME`, with `_` for `-`.
    pub name: &'static str,
    /// The plugin's own version.
    pub version: &'static str,
    /// An SPDX expression.
    pub license: &'static str,
    /// One line for a list of plugins.
    pub description: &'static str,
    /// A JSON schema of the options, as text; empty for none. It must be JSON: it is part of the manifest.
    pub config: &'static str,
    /// The variables of the environment that it needs. In a process of its own it sees no others, but for PATH,
    /// HOME and their like.
    pub environment: &'static [&'static str],
    /// What it must be allowed to do at its source, in the source's words (`ec2:DescribeInstances`), for people.
    pub permissions: &'static [&'static str],
}

impl Manifest {
    /// A manifest that says nothing, for what need not be said: `Manifest { name: "rack", ..Manifest::EMPTY }`.
    pub const EMPTY: Self = Self {
        name: "",
        version: "",
        license: "",
        description: "",
        config: "",
        environment: &[],
        permissions: &[],
    };

    /// Bytes of [`Self::json`].
    pub const fn json_len(&self) -> usize {
        self.write(&mut [])
    }

    /// The manifest as JSON. `N` is [`Self::json_len`].
    pub const fn json<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        assert!(self.write(&mut bytes) == N, "N must be json_len()");
        bytes
    }

    /// Writes as much as fits and says how much there is.
    const fn write(&self, out: &mut [u8]) -> usize {
        let mut at = raw(out, 0, b"{\"name\":\"");
        at = escaped(out, at, self.name.as_bytes());
        at = raw(out, at, b"\",\"version\":\"");
        at = escaped(out, at, self.version.as_bytes());
        at = raw(out, at, b"\",\"license\":\"");
        at = escaped(out, at, self.license.as_bytes());
        at = raw(out, at, b"\",\"description\":\"");
        at = escaped(out, at, self.description.as_bytes());
        at = raw(out, at, b"\"");
        if !self.config.is_empty() {
            at = raw(out, at, b",\"config\":");
            at = raw(out, at, self.config.as_bytes());
        }
        at = list(out, at, b",\"environment\":[", self.environment);
        at = list(out, at, b",\"permissions\":[", self.permissions);
        raw(out, at, b"}")
    }
}

/// A list of strings; nothing at all if it is empty.
const fn list(out: &mut [u8], mut at: usize, name: &[u8], texts: &[&str]) -> usize {
    if texts.is_empty() {
        return at;
    }
    at = raw(out, at, name);
    let mut index = 0;
    while index < texts.len() {
        let quote: &[u8] = if index == 0 { b"\"" } else { b",\"" };
        at = raw(out, at, quote);
        at = escaped(out, at, texts[index].as_bytes());
        at = raw(out, at, b"\"");
        index += 1;
    }
    raw(out, at, b"]")
}

const fn put(out: &mut [u8], at: usize, byte: u8) -> usize {
    if at < out.len() {
        out[at] = byte;
    }
    at + 1
}

const fn raw(out: &mut [u8], mut at: usize, text: &[u8]) -> usize {
    let mut index = 0;
    while index < text.len() {
        at = put(out, at, text[index]);
        index += 1;
    }
    at
}

/// The inside of a JSON string.
const fn escaped(out: &mut [u8], mut at: usize, text: &[u8]) -> usize {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut index = 0;
    while index < text.len() {
        let byte = text[index];
        if byte == b'"' || byte == b'\\' {
            at = put(out, at, b'\\');
            at = put(out, at, byte);
        } else if byte < 0x20 {
            at = raw(out, at, b"\\u00");
            at = put(out, at, HEX[(byte >> 4) as usize]);
            at = put(out, at, HEX[(byte & 15) as usize]);
        } else {
            at = put(out, at, byte);
        }
        index += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    const ODD: Manifest = Manifest {
        name: "odd",
        version: "1",
        license: "\"\\\n\u{1f}",
        description: "größe",
        config: r#"{"type": "object"}"#,
        environment: &["A", "B\""],
        permissions: &["see"],
    };
    const LEN: usize = ODD.json_len();
    static JSON: [u8; LEN] = ODD.json::<LEN>();

    #[test]
    fn it_is_json_whatever_it_holds() {
        let value: serde_json::Value = serde_json::from_slice(&JSON).unwrap();
        let expected = serde_json::json!({
            "name": "odd", "version": "1", "license": "\"\\\n\u{1f}", "description": "größe",
            "config": {"type": "object"}, "environment": ["A", "B\""], "permissions": ["see"],
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn what_is_not_said_is_not_there() {
        const SHORT: Manifest = Manifest {
            name: "short",
            ..Manifest::EMPTY
        };
        const LEN: usize = SHORT.json_len();
        let value: serde_json::Value = serde_json::from_slice(&SHORT.json::<LEN>()).unwrap();
        let expected = serde_json::json!({
            "name": "short", "version": "", "license": "", "description": "",
        });
        assert_eq!(value, expected);
    }
}
