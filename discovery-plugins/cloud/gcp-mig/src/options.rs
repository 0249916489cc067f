//! The options of `--discovery gcp-mig:...`.

use elasticrun_plugin_sdk::{PluginError, slots};
use serde::Deserialize;

/// The options of the plugin.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// `PROJECT/ZONE/NAME`, or `PROJECT/REGION/NAME`.
    pub group: String,
    /// Another endpoint, such as a test server, else `ELASTICRUN_GCE_ENDPOINT`, if set.
    #[serde(default)]
    pub endpoint: Option<String>,
    /// The kind of address to use.
    #[serde(default, rename = "use")]
    pub address: AddressKind,
    /// The user for ssh.
    #[serde(default)]
    pub user: Option<String>,
    /// Port of the ssh servers.
    #[serde(default)]
    pub port: Option<u16>,
    /// Slots of each instance. It overrides labels and types.
    #[serde(default)]
    pub slots: Option<u32>,
}

/// The kind of address to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AddressKind {
    /// The address in its network.
    #[default]
    Internal,
    /// The external address.
    External,
}

impl Options {
    /// Checks the options without the cloud.
    pub(crate) fn check(&self) -> Result<(), PluginError> {
        slots::check_option(self.slots)?;
        if self.port == Some(0) {
            let why = "port: must be a number from 1 to 65535";
            return Err(PluginError::bad_config(why));
        }
        Ok(())
    }
}
