//! The outcome of a run that has ended.

use serde::{Deserialize, Serialize};

use super::{Entries, Entry};

/// The key of the entry.
pub(super) const KEY: &str = "final";

/// How a run ended. It is durable before the agents are told to end, so that no later driver continues the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Final {
    /// The exit code of the driver.
    pub code: u8,
    /// The lines that the driver prints at its end. The last one is the outcome.
    #[serde(default)]
    pub lines: Vec<String>,
    /// Whether the driver has also ended the agents.
    #[serde(default)]
    pub finished: bool,
}

impl Final {
    /// The outcome in these entries. `None` if the run has not ended, or the outcome cannot be read.
    #[must_use]
    pub fn read(entries: &Entries) -> Option<Self> {
        serde_json::from_slice(entries.get(KEY)?).ok()
    }

    /// Whether the run has ended, although this release may not be able to read how.
    #[must_use]
    pub fn is_in(entries: &Entries) -> bool {
        entries.contains_key(KEY)
    }

    /// The entry.
    #[must_use]
    pub fn entry(&self) -> Entry {
        let value = serde_json::to_vec(self).expect("numbers and text are JSON");
        Entry::new(KEY, value)
    }
}
