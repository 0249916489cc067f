//! The options of `--discovery aws-asg:...`.

use elasticrun_plugin_sdk::{PluginError, slots};
use serde::Deserialize;

/// The options of the plugin.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The group, or several separated by commas.
    pub name: String,
    /// The region, else that of the AWS environment (`AWS_REGION`, profile, instance).
    #[serde(default)]
    pub region: Option<String>,
    /// Another endpoint for all services, such as a test server, else `AWS_ENDPOINT_URL`, if set.
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
    /// Slots of each instance. It overrides tags and types.
    #[serde(default)]
    pub slots: Option<u32>,
    /// Extend the wait of a termination hook until the host is drained, and complete it then.
    #[serde(default)]
    pub complete_hook: bool,
    /// The termination hook to complete. Required if a group has several.
    #[serde(default)]
    pub hook: Option<String>,
}

/// The kind of address to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AddressKind {
    /// The address in its network.
    #[default]
    Private,
    /// The public address.
    Public,
}

impl Options {
    /// The names of the groups in their order, without repetition.
    pub(crate) fn groups(&self) -> Result<Vec<String>, PluginError> {
        let mut groups: Vec<String> = Vec::new();
        for name in self.name.split(',').map(str::trim) {
            if name.is_empty() || name.len() > 255 {
                return Err(PluginError::bad_config(format!(
                    "name: {:?} has a group of {} letters; a group's name has 1 to 255",
                    self.name,
                    name.len()
                )));
            }
            if !groups.iter().any(|known| known == name) {
                groups.push(name.to_owned());
            }
        }
        Ok(groups)
    }

    /// Checks the options without AWS.
    pub(crate) fn check(&self) -> Result<(), PluginError> {
        slots::check_option(self.slots)?;
        if self.port == Some(0) {
            return bad("port: must be a number from 1 to 65535");
        }
        if let Some(endpoint) = &self.endpoint
            && !endpoint.starts_with("http://")
            && !endpoint.starts_with("https://")
        {
            return bad(format!(
                "endpoint: {endpoint:?} is not http://... or https://..."
            ));
        }
        let is_name = |region: &str| {
            !region.is_empty()
                && region
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        };
        if let Some(region) = &self.region
            && !is_name(region)
        {
            return bad(format!(
                "region: {region:?} is not a name such as eu-central-1"
            ));
        }
        if self.hook.is_some() && !self.complete_hook {
            return bad("hook: says which hook to complete, so it needs complete_hook=true");
        }
        Ok(())
    }
}

fn bad<T>(why: impl Into<String>) -> Result<T, PluginError> {
    Err(PluginError::bad_config(why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use elasticrun_plugin_sdk::{ErrorKind, from_options};

    fn read(json: &str) -> Result<Options, PluginError> {
        let options: Options = from_options(json.as_bytes())?;
        options.check()?;
        options.groups()?;
        Ok(options)
    }

    #[test]
    fn strings_of_a_command_line_are_parsed() {
        let options = read(
            r#"{"name": "a, b,a", "use": "public", "port": "2222", "slots": "8", "complete_hook": "true"}"#,
        )
        .unwrap();
        assert_eq!(options.groups().unwrap(), ["a", "b"]);
        assert_eq!(options.address, AddressKind::Public);
        assert_eq!((options.port, options.slots), (Some(2222), Some(8)));
        assert!(options.complete_hook);
    }

    #[test]
    fn mistakes_are_named() {
        let refused = |json: &str| {
            let error = read(json).unwrap_err();
            assert_eq!(error.kind, ErrorKind::BadConfig, "{json}");
            error.message
        };
        assert_eq!(refused("{}"), "missing field `name`");
        assert_eq!(
            refused(r#"{"name": "a,,b"}"#),
            r#"name: "a,,b" has a group of 0 letters; a group's name has 1 to 255"#
        );
        assert_eq!(
            refused(r#"{"name": "a", "slots": "0"}"#),
            "slots: must be a number from 1 to 1024"
        );
        assert_eq!(
            refused(r#"{"name": "a", "endpoint": "localhost:5000"}"#),
            r#"endpoint: "localhost:5000" is not http://... or https://..."#
        );
        assert_eq!(
            refused(r#"{"name": "a", "region": "Frankfurt (eu)"}"#),
            r#"region: "Frankfurt (eu)" is not a name such as eu-central-1"#
        );
        assert_eq!(
            refused(r#"{"name": "a", "hook": "drain"}"#),
            "hook: says which hook to complete, so it needs complete_hook=true"
        );
        assert!(refused(r#"{"name": "a", "use": "vpn"}"#).starts_with("use: unknown variant"));
        assert!(refused(r#"{"group": "a"}"#).starts_with("unknown field `group`"));
    }
}
