//! The plugin.

use std::{fs, path::PathBuf, time::Duration};

use elasticrun_plugin_sdk::{
    Host, Manifest, Plugin, PluginError, Snapshot,
    hosts::{parse_host_list, parse_hostfile},
};
use serde::Deserialize;

/// The list never changes, so polls are rare.
const NEXT_POLL: Duration = Duration::from_secs(3600);

/// Options of the plugin. Exactly one is given.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// `a:4,b:4`.
    #[serde(default)]
    pub hosts: Option<String>,
    /// A file with one host per line.
    #[serde(default)]
    pub hostfile: Option<PathBuf>,
}

/// A list of hosts that does not change.
#[derive(Debug)]
pub struct StaticHosts {
    hosts: Vec<Host>,
}

impl Plugin for StaticHosts {
    const MANIFEST: Manifest = Manifest {
        name: "static",
        version: env!("CARGO_PKG_VERSION"),
        license: "Apache-2.0",
        description: "a fixed list of hosts: hosts=a:4\\,b:4 or hostfile=PATH",
        config: r#"{"type": "object", "additionalProperties": false, "properties": {"hosts": {"type": "string", "description": "a:4,b:4"}, "hostfile": {"type": "string", "description": "a file with one host a line"}}}"#,
        ..Manifest::EMPTY
    };

    type Config = Options;

    fn create(options: Options) -> Result<Self, PluginError> {
        let hosts = match (options.hosts, options.hostfile) {
            (Some(hosts), None) => parse_host_list(&hosts)
                .map_err(|error| PluginError::bad_config(format!("hosts: {error}")))?,
            (None, Some(path)) => {
                let bad = |error: &dyn std::fmt::Display| {
                    PluginError::bad_config(format!("hostfile {}: {error}", path.display()))
                };
                let content = fs::read(&path).map_err(|error| bad(&error))?;
                parse_hostfile(content).map_err(|error| bad(&error))?
            }
            _ => return Err(PluginError::bad_config("give one of hosts and hostfile")),
        };
        Ok(Self {
            hosts: hosts.into_iter().map(Host::from).collect(),
        })
    }

    fn poll(&mut self, _deadline: Duration) -> Result<Snapshot, PluginError> {
        Ok(Snapshot {
            next_poll: Some(NEXT_POLL),
            ..Snapshot::new(self.hosts.clone())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use elasticrun_plugin_sdk::ErrorKind;
    use std::io::Write;

    fn listed(options: Options) -> Result<Vec<(String, Option<u32>)>, PluginError> {
        let snapshot = StaticHosts::create(options)?.poll(Duration::from_secs(1))?;
        Ok(snapshot
            .hosts
            .into_iter()
            .map(|host| (host.id, host.slots))
            .collect())
    }

    #[test]
    fn hosts_come_from_a_list_or_from_a_file() {
        let options = Options {
            hosts: Some("b:4,a".into()),
            hostfile: None,
        };
        assert_eq!(
            listed(options).unwrap(),
            [("b".into(), Some(4)), ("a".into(), None)]
        );
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"# mine\r\nb slots=2\r\nme@a:1\r\n")
            .unwrap();
        let options = Options {
            hosts: None,
            hostfile: Some(file.path().to_owned()),
        };
        let mut plugin = StaticHosts::create(options).unwrap();
        file.as_file().set_len(0).unwrap();
        let snapshot = plugin.poll(Duration::from_secs(1)).unwrap();
        assert_eq!(snapshot.next_poll, Some(NEXT_POLL));
        assert_eq!(
            (snapshot.hosts[0].slots, snapshot.hosts[1].slots),
            (Some(2), Some(1))
        );
        assert_eq!(snapshot.hosts[1].user.as_deref(), Some("me"));
    }

    #[test]
    fn mistakes_are_named() {
        let refused = |options| {
            let error = listed(options).unwrap_err();
            assert_eq!(error.kind, ErrorKind::BadConfig);
            error.message
        };
        assert_eq!(
            refused(Options::default()),
            "give one of hosts and hostfile"
        );
        let both = Options {
            hosts: Some("a".into()),
            hostfile: Some("b".into()),
        };
        assert_eq!(refused(both), "give one of hosts and hostfile");
        assert_eq!(
            refused(Options {
                hosts: Some("a:0".into()),
                hostfile: None
            }),
            r#"hosts: host 1, "a:0": slots must be a number from 1 to 1024"#
        );
        assert_eq!(
            refused(Options {
                hosts: None,
                hostfile: Some("/does/not/exist".into())
            }),
            "hostfile /does/not/exist: No such file or directory (os error 2)"
        );
    }
}
