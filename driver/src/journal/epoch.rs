//! The epoch of the driver that has a journal.

use elasticrun_protocol::DriverEpoch;
use serde::{Deserialize, Serialize};

use super::{Entries, Entry};

/// The key of the entry.
pub(super) const KEY: &str = "epoch";

/// Which driver of the run writes the journal. It is durable before the driver opens its port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch {
    /// The first driver has 1, and each later one has the next number.
    pub epoch: DriverEpoch,
    /// A random number of the driver. It tells two drivers apart that have the same epoch by mistake.
    pub nonce: u64,
    /// Where agents reach the driver, each as `HOST:PORT`. Older releases have not written it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<String>,
}

impl Epoch {
    /// The epoch in these entries. `None` if it is missing or cannot be read.
    #[must_use]
    pub fn read(entries: &Entries) -> Option<Self> {
        serde_json::from_slice(entries.get(KEY)?).ok()
    }

    /// The entry.
    #[must_use]
    pub fn entry(&self) -> Entry {
        let value = serde_json::to_vec(self).expect("numbers and text are JSON");
        Entry::new(KEY, value)
    }
}
