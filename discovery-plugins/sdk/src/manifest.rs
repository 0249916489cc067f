//! The manifest of a plugin, which is read before any of its code runs.

/// The description of a plugin. It becomes JSON at compile time.
#[derive(Clone, Copy, Debug)]
pub struct Manifest {
    /// The name in `--discovery NAME`: lower-case letters, digits, `-`. The library is named
    /// `elasticrun_plugin_NAME`, with `_` for `-`.
    pub name: &'static str,
    /// The plugin's own version.
    pub version: &'static str,
    /// An SPDX expression.
    pub license: &'static str,
    /// One line for a list of plugins.
    pub description: &'static str,
    /// A JSON schema of the options, as text. Empty for none. It must be JSON, since it is part of the manifest.
    pub config: &'static str,
    /// The environment variables that it needs. In its own process it gets only these and common ones such as PATH and
    /// HOME.
    pub environment: &'static [&'static str],
    /// The permissions that it needs at its source, as the source names them (`ec2:DescribeInstances`), for the user.
    pub permissions: &'static [&'static str],
}

impl Manifest {
    /// An empty manifest, for default fields: `Manifest { name: "rack", ..Manifest::EMPTY }`.
    pub const EMPTY: Self = Self {
        name: "",
        version: "",
        license: "",
        description: "",
        config: "",
        environment: &[],
        permissions: &[],
    };

    /// Length of [`Self::json`] in bytes.
    pub const fn json_len(&self) -> usize {
        self.write(&mut [])
    }

    /// The manifest as JSON. `N` is [`Self::json_len`].
    pub const fn json<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        assert!(self.write(&mut bytes) == N, "N must be json_len()");
        bytes
    }

    /// Writes as much as fits. Returns the total length.
    const fn write(&self, out: &mut [u8]) -> usize {
        let mut pos = raw(out, 0, b"{\"name\":\"");
        pos = escaped(out, pos, self.name.as_bytes());
        pos = raw(out, pos, b"\",\"version\":\"");
        pos = escaped(out, pos, self.version.as_bytes());
        pos = raw(out, pos, b"\",\"license\":\"");
        pos = escaped(out, pos, self.license.as_bytes());
        pos = raw(out, pos, b"\",\"description\":\"");
        pos = escaped(out, pos, self.description.as_bytes());
        pos = raw(out, pos, b"\"");
        if !self.config.is_empty() {
            pos = raw(out, pos, b",\"config\":");
            pos = raw(out, pos, self.config.as_bytes());
        }
        pos = list(out, pos, b",\"environment\":[", self.environment);
        pos = list(out, pos, b",\"permissions\":[", self.permissions);
        raw(out, pos, b"}")
    }
}

/// Writes a list of strings, or nothing if it is empty.
const fn list(out: &mut [u8], mut pos: usize, name: &[u8], texts: &[&str]) -> usize {
    if texts.is_empty() {
        return pos;
    }
    pos = raw(out, pos, name);
    let mut index = 0;
    while index < texts.len() {
        let quote: &[u8] = if index == 0 { b"\"" } else { b",\"" };
        pos = raw(out, pos, quote);
        pos = escaped(out, pos, texts[index].as_bytes());
        pos = raw(out, pos, b"\"");
        index += 1;
    }
    raw(out, pos, b"]")
}

const fn put(out: &mut [u8], pos: usize, byte: u8) -> usize {
    if pos < out.len() {
        out[pos] = byte;
    }
    pos + 1
}

const fn raw(out: &mut [u8], mut pos: usize, text: &[u8]) -> usize {
    let mut index = 0;
    while index < text.len() {
        pos = put(out, pos, text[index]);
        index += 1;
    }
    pos
}

/// Writes the content of a JSON string.
const fn escaped(out: &mut [u8], mut pos: usize, text: &[u8]) -> usize {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut index = 0;
    while index < text.len() {
        let byte = text[index];
        if byte == b'"' || byte == b'\\' {
            pos = put(out, pos, b'\\');
            pos = put(out, pos, byte);
        } else if byte < 0x20 {
            pos = raw(out, pos, b"\\u00");
            pos = put(out, pos, HEX[(byte >> 4) as usize]);
            pos = put(out, pos, HEX[(byte & 15) as usize]);
        } else {
            pos = put(out, pos, byte);
        }
        index += 1;
    }
    pos
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
