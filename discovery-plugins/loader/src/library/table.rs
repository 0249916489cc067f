//! A plugin's table, checked.

use std::{mem::MaybeUninit, ptr, slice};

use elasticrun_plugin_sdk::abi::{
    ABI_MAJOR, Create, Destroy, Free, MAGIC, Poll, RawCommand, RawPlugin, Watch, flag,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::BadTable;

/// What a plugin says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The name in `--discovery NAME`.
    pub name: String,
    /// The plugin's own version.
    pub version: String,
    /// An SPDX expression.
    #[serde(default)]
    pub license: String,
    /// One line for a person.
    #[serde(default)]
    pub description: String,
    /// A JSON schema of its options; empty: it tells none.
    #[serde(default)]
    pub config: Map<String, Value>,
    /// The variables of the environment that it needs.
    #[serde(default)]
    pub environment: Vec<String>,
    /// What it must be allowed to do at its source, for people.
    #[serde(default)]
    pub permissions: Vec<String>,
}

/// The functions of a plugin that was checked. They may be called for ever.
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

/// A manifest has a few lines.
const MAX_MANIFEST: usize = 64 << 10;

impl Table {
    /// Reads a table, each part only after what comes before it says that it is there.
    ///
    /// # Safety
    /// The pointer leads to a constant that was meant to be a table, and so does what that points to, for ever.
    pub(super) unsafe fn read(raw: *const RawPlugin) -> Result<Self, BadTable> {
        if raw.is_null() || !raw.is_aligned() {
            return Err(BadTable::Magic);
        }
        // SAFETY: the least that an exported symbol leads to is looked at first.
        if unsafe { ptr::read(&raw const (*raw).magic) } != MAGIC {
            return Err(BadTable::Magic);
        }
        // SAFETY: the magic says that versions and size follow; that holds for every version to come.
        let (major, minor, size) = unsafe { ((*raw).abi_major, (*raw).abi_minor, (*raw).size) };
        if major != ABI_MAJOR {
            return Err(BadTable::Version { major, minor });
        }
        let needed = RawPlugin::SIZE_1_0;
        if (size as usize) < needed {
            return Err(BadTable::Size { size, needed });
        }
        // What was appended later is there if the size covers it; else it is nothing (invariant of the interface).
        let mut whole = MaybeUninit::<RawPlugin>::zeroed();
        let covered = (size as usize).min(size_of::<RawPlugin>());
        // SAFETY: that many bytes are there on both sides; functions that are zero are none.
        let raw = unsafe {
            ptr::copy_nonoverlapping(raw.cast::<u8>(), whole.as_mut_ptr().cast(), covered);
            whole.assume_init()
        };
        let flagged = |flag| raw.flags & flag != 0;
        // The flag of watching was reserved in 1.0.
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
            // SAFETY: a constant of that length, says a table whose magic, version and size are right.
            manifest: unsafe { slice::from_raw_parts(raw.manifest, raw.manifest_len) },
        })
    }

    pub(super) fn manifest(&self) -> Result<Manifest, BadTable> {
        serde_json::from_slice(self.manifest).map_err(|error| BadTable::Manifest(error.to_string()))
    }
}
