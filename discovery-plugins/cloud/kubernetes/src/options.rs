//! The options of `--discovery kubernetes:...`.

use elasticrun_plugin_sdk::{PluginError, slots};
use serde::Deserialize;

/// The options of the plugin.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// A label selector: `app=train`, `app=train,tier in (gpu)`.
    pub selector: String,
    /// The namespace, else that of the configuration.
    #[serde(default)]
    pub namespace: Option<String>,
    /// Slots of each pod. It overrides labels and resources.
    #[serde(default)]
    pub slots: Option<u32>,
}

impl Options {
    /// Checks the options without the cluster.
    pub(crate) fn check(&self) -> Result<(), PluginError> {
        // An empty selector would select all pods of the namespace.
        if self.selector.trim().is_empty() {
            return Err(PluginError::bad_config(
                "selector: is empty; give labels, such as app=train",
            ));
        }
        slots::check_option(self.slots)
    }
}
