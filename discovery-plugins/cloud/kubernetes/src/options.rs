//! What `--discovery kubernetes:...` takes.

use elasticrun_plugin_sdk::{PluginError, slots};
use serde::Deserialize;

/// Which pods.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// A label selector: `app=train`, `app=train,tier in (gpu)`.
    pub selector: String,
    /// Their namespace; else that of the configuration.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Slots of every pod, whatever labels and resources say.
    #[serde(default)]
    pub slots: Option<u32>,
}

impl Options {
    /// What is wrong whatever the cluster says.
    pub(crate) fn check(&self) -> Result<(), PluginError> {
        // All pods of a namespace are never meant.
        if self.selector.trim().is_empty() {
            return Err(PluginError::bad_config(
                "selector: is empty; give labels, such as app=train",
            ));
        }
        slots::check_option(self.slots)
    }
}
