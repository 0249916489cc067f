//! Validation of a plugin's table.

use std::{mem::MaybeUninit, ptr, slice};

use elasticrun_plugin_sdk::{
    abi::{ABI_MAJOR, Create, Destroy, Free, MAGIC, Poll, RawCommand, RawPlugin, Watch, flag},
    text,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::BadTable;
use crate::failure::one_line;

/// The description of a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The name in `--discovery NAME`.
    pub name: String,
    /// The plugin's own version.
    pub version: String,
    /// An SPDX expression.
    #[serde(default)]
    pub license: String,
    /// One line for the user.
    #[serde(default)]
    pub description: String,
    /// A JSON schema of its options. Empty if the plugin has none.
    #[serde(default)]
    pub config: Map<String, Value>,
    /// The environment variables that it needs.
    #[serde(default)]
    pub environment: Vec<String>,
    /// The permissions that it needs at its source, for the user.
    #[serde(default)]
    pub permissions: Vec<String>,
}

/// The functions of a checked plugin. They are valid until the process ends.
#[derive(Clone, Copy)]
pub(super) struct Table {
    pub(super) create: Create,
    pub(super) poll: Poll,
    pub(super) destroy: Destroy,
    pub(super) free: Free,
    pub(super) watch: Option<Watch>,
    pub(super) command: Option<RawCommand>,
    manifest: &'static [u8],
}

/// The size limit of a manifest.
const MAX_MANIFEST: usize = 64 << 10;

impl Table {
    /// Reads a table. Each part is read only after the part before it has declared it.
    ///
    /// # Safety
    /// The pointer refers to a constant that is meant as a table. The table and its targets are never freed.
    pub(super) unsafe fn read(raw: *const RawPlugin) -> Result<Self, BadTable> {
        if raw.is_null() || !raw.is_aligned() {
            return Err(BadTable::Magic);
        }
        // SAFETY: the first bytes of an exported symbol are readable.
        if unsafe { ptr::read(&raw const (*raw).magic) } != MAGIC {
            return Err(BadTable::Magic);
        }
        // SAFETY: versions and size follow the magic number, in all versions.
        let (major, minor, size) = unsafe { ((*raw).abi_major, (*raw).abi_minor, (*raw).size) };
        if major != ABI_MAJOR {
            return Err(BadTable::Version { major, minor });
        }
        let needed = RawPlugin::SIZE_1_0;
        if (size as usize) < needed {
            return Err(BadTable::Size { size, needed });
        }
        // Appended fields exist if the size covers them, else they are zero (invariant of the interface).
        let mut whole = MaybeUninit::<RawPlugin>::zeroed();
        let covered = (size as usize).min(size_of::<RawPlugin>());
        // SAFETY: both sides have that many bytes. A zero function is `None`.
        let raw = unsafe {
            ptr::copy_nonoverlapping(raw.cast::<u8>(), whole.as_mut_ptr().cast(), covered);
            whole.assume_init()
        };
        let flagged = |flag| raw.flags & flag != 0;
        // 1.0 reserved the flag of watching.
        let later = raw.abi_minor >= 1;
        let watch = raw.watch.filter(|_| later && flagged(flag::WATCH));
        let command = raw.command.filter(|_| later && flagged(flag::COMMAND));
        if later && flagged(flag::WATCH) && watch.is_none() {
            return Err(BadTable::NoFunction("watch"));
        }
        if later && flagged(flag::COMMAND) && command.is_none() {
            return Err(BadTable::NoFunction("command"));
        }
        if raw.flags & flag::POLL == 0 {
            return Err(BadTable::NoPoll { flags: raw.flags });
        }
        if raw.manifest.is_null() || raw.manifest_len > MAX_MANIFEST {
            return Err(BadTable::Manifest(format!("{} bytes", raw.manifest_len)));
        }
        Ok(Self {
            create: raw.create.ok_or(BadTable::NoFunction("create"))?,
            poll: raw.poll.ok_or(BadTable::NoFunction("poll"))?,
            destroy: raw.destroy.ok_or(BadTable::NoFunction("destroy"))?,
            free: raw.free.ok_or(BadTable::NoFunction("free"))?,
            watch,
            command,
            // SAFETY: the checked table declares a constant of that length.
            manifest: unsafe { slice::from_raw_parts(raw.manifest, raw.manifest_len) },
        })
    }

    pub(super) fn manifest(&self) -> Result<Manifest, BadTable> {
        manifest(self.manifest)
    }
}

/// Parses a manifest.
pub(crate) fn manifest(json: &[u8]) -> Result<Manifest, BadTable> {
    serde_json::from_slice(json)
        .map(Manifest::cleaned)
        .map_err(|error| BadTable::Manifest(one_line(&error.to_string())))
}

impl Manifest {
    /// The same with each text as one line of at most 300 characters, since all of them are printed.
    pub(crate) fn cleaned(self) -> Self {
        let all = |texts: Vec<String>| texts.iter().map(|text| text::one_line(text)).collect();
        Self {
            name: text::one_line(&self.name),
            version: text::one_line(&self.version),
            license: text::one_line(&self.license),
            description: text::one_line(&self.description),
            config: cleaned_fields(self.config),
            environment: all(self.environment),
            permissions: all(self.permissions),
        }
    }
}

fn cleaned_json(value: Value) -> Value {
    match value {
        Value::String(text) => text::one_line(&text).into(),
        Value::Array(values) => values.into_iter().map(cleaned_json).collect(),
        Value::Object(fields) => cleaned_fields(fields).into(),
        value => value,
    }
}

fn cleaned_fields(fields: Map<String, Value>) -> Map<String, Value> {
    let cleaned = |(name, value): (String, _)| (text::one_line(&name), cleaned_json(value));
    fields.into_iter().map(cleaned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_manifest_are_one_line() {
        let json = r#"{"name": "a\nb", "version": "1\u001b[0m", "license": "\u202e", "description": "c\rd",
            "environment": ["E\n"], "permissions": ["p\u0007"],
            "config": {"properties": {"o\n": {"description": "x\ny"}}}}"#;
        let manifest = manifest(json.as_bytes()).expect("it is JSON");
        let shown = format!("{manifest:?}");
        assert!(!shown.contains('\\'), "{shown}");
        assert_eq!(manifest.name, "a b");
        assert_eq!(manifest.config["properties"]["o"]["description"], "x y");
    }
}
