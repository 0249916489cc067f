//! The test server for AWS, and a plugin that uses it.

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

/// The test server, with a method per order.
pub(crate) struct Aws(StandIn);

impl Aws {
    pub(crate) fn start() -> Self {
        Self(StandIn::aws())
    }

    /// Creates a group. Returns the ids of its instances.
    pub(crate) fn group(&mut self, name: &str, desired: u32) -> Vec<String> {
        ids(self.order(json!({"do": "group", "name": name, "desired": desired})))
    }

    /// Sets the size of a group. Returns the ids of its instances.
    pub(crate) fn desired(&mut self, name: &str, count: u32) -> Vec<String> {
        ids(self.order(json!({"do": "desired", "name": name, "count": count})))
    }

    /// Sets the lifecycle state of an instance.
    pub(crate) fn life(&mut self, id: &str, state: &str) {
        self.order(json!({"do": "life", "id": id, "state": state}));
    }

    /// A plugin for this server with more options.
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

/// A plugin with these options, and with credentials, which moto ignores.
pub(crate) fn make(options: &Value) -> Result<AwsAsg, PluginError> {
    for (name, value) in [
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ] {
        // SAFETY: nextest runs each test in its own process, and no other thread reads the environment yet.
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
