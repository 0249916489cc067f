//! The plugin.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    time::{Duration, Instant},
};

use elasticrun_plugin_sdk::{Command, Manifest, Plugin, PluginError, Snapshot, jitter};

use crate::{
    Options,
    compute::{Compute, Instance, Member},
    group::Group,
    host::host,
    pace::{INTERVAL, JITTER},
};

/// The instances of a managed instance group.
#[derive(Debug)]
pub struct GcpMig {
    options: Options,
    group: Group,
    compute: Compute,
    /// Instances by number.
    instances: BTreeMap<String, Instance>,
}

impl Plugin for GcpMig {
    const MANIFEST: Manifest = Manifest {
        name: "gcp-mig",
        version: env!("CARGO_PKG_VERSION"),
        license: "Apache-2.0",
        description: "the instances of a Google Cloud managed instance group: group=PROJECT/ZONE-OR-REGION/NAME",
        config: include_str!("options.json"),
        environment: &[
            "CLOUDSDK_CONFIG",
            "ELASTICRUN_GCE_ENDPOINT",
            "GCE_METADATA_HOST",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "HTTPS_PROXY",
            "HTTP_PROXY",
            "NO_PROXY",
            "SSL_CERT_DIR",
            "SSL_CERT_FILE",
        ],
        permissions: &[
            "compute.instanceGroupManagers.get",
            "compute.instances.get",
            "compute.instances.list",
            "compute.machineTypes.get",
        ],
    };

    type Config = Options;

    fn create(options: Options) -> Result<Self, PluginError> {
        options.check()?;
        let endpoint = options.endpoint.clone();
        let endpoint = endpoint.or_else(|| env::var("ELASTICRUN_GCE_ENDPOINT").ok());
        Ok(Self {
            group: Group::read(&options.group)?,
            compute: Compute::new(endpoint.filter(|endpoint| !endpoint.is_empty()))?,
            options,
            instances: BTreeMap::new(),
        })
    }

    fn poll(&mut self, deadline: Duration) -> Result<Snapshot, PluginError> {
        let until = Instant::now() + deadline;
        let members = self.compute.members(&self.group, until)?;
        self.refresh(&members, until)?;
        let mut hosts = Vec::new();
        for member in &members {
            // Without a number the instance is only planned.
            if member.number.is_empty() {
                continue;
            }
            let instance = self.instances.get(&member.number);
            let needs_type = |instance: &&Instance| {
                self.options.slots.is_none() && instance.label.is_none() && instance.attached == 0
            };
            let accelerators = match instance.filter(needs_type) {
                Some(instance) => self.compute.accelerators(
                    &self.group.project,
                    &member.zone,
                    &instance.kind,
                    until,
                )?,
                None => 0,
            };
            hosts.push(host(
                member,
                instance,
                accelerators,
                &self.group.name,
                &self.options,
            )?);
        }
        let is_leaving =
            |member: &&Member| matches!(member.action.as_str(), "DELETING" | "ABANDONING");
        let target = members.len() - members.iter().filter(is_leaving).count();
        Ok(Snapshot {
            next_poll: Some(INTERVAL + jitter(JITTER)),
            target_size: u32::try_from(target).ok(),
            ..Snapshot::new(hosts)
        })
    }

    fn command(&mut self, command: Command, deadline: Duration) -> Result<(), PluginError> {
        match command {
            Command::SelfTest => self.poll(deadline).map(|_| ()),
            _ => Ok(()),
        }
    }
}

impl GcpMig {
    /// Queries new instances, and forgets those that are no longer members.
    fn refresh(&mut self, members: &[Member], until: Instant) -> Result<(), PluginError> {
        let numbers: BTreeSet<_> = members
            .iter()
            .map(|member| member.number.as_str())
            .collect();
        self.instances
            .retain(|number, _| numbers.contains(number.as_str()));
        let mut new: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for member in members {
            let known = self.instances.get(&member.number);
            // An instance has no address before its start.
            if !member.number.is_empty() && known.is_none_or(|instance| instance.internal.is_none())
            {
                new.entry(&member.zone).or_default().push(&member.name);
            }
        }
        for (zone, names) in new {
            let found = self
                .compute
                .instances(&self.group.project, zone, &names, until)?;
            // A list has all instances of the zone, and a recreated instance has another number.
            let found = found
                .into_iter()
                .filter(|(number, _)| numbers.contains(number.as_str()));
            self.instances.extend(found);
        }
        Ok(())
    }
}
