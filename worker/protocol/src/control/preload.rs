//! Standby interpreters: what they import before a restart.

use serde::{Deserialize, Serialize};

/// What the standby interpreters of a host import before a restart of a group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preload {
    /// What the script imports from the standard library and from installed packages.
    Auto,
    /// These modules.
    Modules(Vec<String>),
}
