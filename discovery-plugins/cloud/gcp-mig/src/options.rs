//! What `--discovery gcp-mig:...` takes.

use elasticrun_plugin_sdk::{PluginError, slots};
use serde::Deserialize;

/// Which group, and how its instances are reached.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// `PROJECT/ZONE/NAME`, or `PROJECT/REGION/NAME`.
    pub group: String,
    /// Another endpoint, such as a stand-in; else `ELASTICRUN_GCE_ENDPOINT`, if set.
    #[serde(default)]
    pub endpoint: Option<String>,
    /// Which address of an instance is used.
    #[serde(default, rename = "use")]
    pub address: AddressKind,
    /// Who logs in there.
    #[serde(default)]
    pub user: Option<String>,
    /// Port of the ssh servers.
    #[serde(default)]
    pub port: Option<u16>,
    /// Slots of every instance, whatever labels and types say.
    #[serde(default)]
    pub slots: Option<u32>,
}

/// Which address of an instance is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AddressKind {
    /// That of its network.
    #[default]
    Internal,
    /// That of the internet.
    External,
}

impl Options {
    /// What is wrong whatever the cloud says.
    pub(crate) fn check(&self) -> Result<(), PluginError> {
        slots::check_option(self.slots)?;
        if self.port == Some(0) {
            let why = "port: must be a number from 1 to 65535";
            return Err(PluginError::bad_config(why));
        }
        Ok(())
    }
}
