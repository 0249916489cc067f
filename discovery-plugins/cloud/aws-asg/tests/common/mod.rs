//! The stand-in for AWS, and a plugin that talks to it.

#![allow(clippy::unwrap_used, dead_code)]

use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};

use elasticrun_cloud_tests::{StandIn, ids};
use elasticrun_plugin_aws_asg::AwsAsg;
use elasticrun_plugin_sdk::{Host, HostState, Plugin, PluginError, from_options};
use serde_json::{Value, json};

pub(crate) const PLENTY: Duration = Duration::from_secs(30);

/// The stand-in, and its orders by name.
pub(crate) struct Aws(StandIn);

impl Aws {
    pub(crate) fn start() -> Self {
        Self(StandIn::aws())
    }

    /// A group; gives the ids of its instances.
    pub(crate) fn group(&mut self, name: &str, desired: u32) -> Vec<String> {
        ids(self.order(json!({"do": "group", "name": name, "desired": desired})))
    }

    /// A new size of a group; gives the ids of its instances.
    pub(crate) fn desired(&mut self, name: &str, count: u32) -> Vec<String> {
        ids(self.order(json!({"do": "desired", "name": name, "count": count})))
    }

    /// Another lifecycle state of an instance.
    pub(crate) fn life(&mut self, id: &str, state: &str) {
        self.order(json!({"do": "life", "id": id, "state": state}));
    }

    /// A plugin of this AWS with more options.
    pub(crate) fn plugin(&self, mut options: Value) -> AwsAsg {
        options["endpoint"] = self.endpoint().into();
        options["region"] = "eu-central-1".into();
        make(&options).unwrap()
    }
}

impl Deref for Aws {
    type Target = StandIn;

    fn deref(&self) -> &StandIn {
        &self.0
    }
}

impl DerefMut for Aws {
    fn deref_mut(&mut self) -> &mut StandIn {
        &mut self.0
    }
}

/// A plugin from its options. It has credentials, which moto does not look at.
pub(crate) fn make(options: &Value) -> Result<AwsAsg, PluginError> {
    for (name, value) in [
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ] {
        // SAFETY: the tests of this crate are run by nextest, each in a process of its own, and nothing of this
        // one's reads the environment on another thread yet.
        unsafe { std::env::set_var(name, value) };
    }
    AwsAsg::create(from_options(options.to_string().as_bytes())?)
}

pub(crate) fn poll(plugin: &mut AwsAsg) -> Vec<Host> {
    plugin.poll(PLENTY).unwrap().hosts
}

/// Ids of the hosts in a state.
pub(crate) fn in_state(hosts: &[Host], state: HostState) -> Vec<&str> {
    let hosts = hosts.iter().filter(|host| host.state == state);
    hosts.map(|host| host.id.as_str()).collect()
}
