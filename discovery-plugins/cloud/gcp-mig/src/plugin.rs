//! The plugin.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    time::{Duration, Instant},
};

use elasticrun_plugin_sdk::{Command, Manifest, Plugin, PluginError, Snapshot, jitter};

use crate::{
    Options,
    compute::{Compute, Machine, Member},
    group::Group,
    host::host,
};

/// From a poll to the next, at least.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);
/// At most so much is added to it, so that many jobs do not ask together.
const JITTER: Duration = Duration::from_secs(1);

/// The instances of a managed instance group.
#[derive(Debug)]
pub struct GcpMig {
    options: Options,
    group: Group,
    compute: Compute,
    /// Instances by number.
    machines: BTreeMap<String, Machine>,
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
            machines: BTreeMap::new(),
        })
    }

    fn poll(&mut self, deadline: Duration) -> Result<Snapshot, PluginError> {
        let until = Instant::now() + deadline;
        let members = self.compute.members(&self.group, until)?;
        self.refresh(&members, until)?;
        let mut hosts = Vec::new();
        for member in &members {
            // Before it has a number it is a plan.
            if member.number.is_empty() {
                continue;
            }
            let machine = self.machines.get(&member.number);
            let asks_type = |machine: &&Machine| {
                self.options.slots.is_none() && machine.label.is_none() && machine.attached == 0
            };
            let accelerators = match machine.filter(asks_type) {
                Some(machine) => self.compute.accelerators(
                    &self.group.project,
                    &member.zone,
                    &machine.kind,
                    until,
                )?,
                None => 0,
            };
            hosts.push(host(
                member,
                machine,
                accelerators,
                &self.group.name,
                &self.options,
            )?);
        }
        let leaves = |member: &&Member| matches!(member.action.as_str(), "DELETING" | "ABANDONING");
        let target = members.len() - members.iter().filter(leaves).count();
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
    /// Asks for the instances that are new, and forgets those that are no members any more.
    fn refresh(&mut self, members: &[Member], until: Instant) -> Result<(), PluginError> {
        let numbers: BTreeSet<_> = members
            .iter()
            .map(|member| member.number.as_str())
            .collect();
        self.machines
            .retain(|number, _| numbers.contains(number.as_str()));
        let mut new: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for member in members {
            let known = self.machines.get(&member.number);
            // An address comes with the start.
            if !member.number.is_empty() && known.is_none_or(|machine| machine.internal.is_none()) {
                new.entry(&member.zone).or_default().push(&member.name);
            }
        }
        for (zone, names) in new {
            let found = self
                .compute
                .machines(&self.group.project, zone, &names, until)?;
            // A list has the whole zone, and an instance that was made anew another number.
            let found = found
                .into_iter()
                .filter(|(number, _)| numbers.contains(number.as_str()));
            self.machines.extend(found);
        }
        Ok(())
    }
}
