//! The plugin.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    time::Duration,
};

use elasticrun_plugin_event_loop::EventLoop;
use elasticrun_plugin_sdk::{Command, Manifest, Plugin, PluginError, Snapshot, jitter};

use crate::{
    Options,
    access::Source,
    compute::Compute,
    error::Failure,
    group::Group,
    host::host,
    model::{Instance, Member},
    pace::{INTERVAL, JITTER},
};

/// The instances of a managed instance group.
#[derive(Debug)]
pub struct GcpMig {
    poller: Poller,
    event_loop: EventLoop,
}

/// What the plugin knows of its group.
#[derive(Debug)]
struct Poller {
    options: Options,
    group: Group,
    compute: Compute,
    /// Instances by number.
    instances: BTreeMap<u64, Instance>,
    /// Whether a poll has succeeded.
    has_polled: bool,
}

impl Plugin for GcpMig {
    const MANIFEST: Manifest = Manifest {
        name: "gcp-mig",
        version: env!("CARGO_PKG_VERSION"),
        license: "Apache-2.0",
        description: "the instances of a Google Cloud managed instance group: group=PROJECT/ZONE-OR-REGION/NAME",
        config: include_str!("options.json"),
        // Credentials of other clouds are exchanged for those of Google, by a program as well.
        environment: &[
            "AWS_*",
            "CLOUDSDK_CONFIG",
            "ELASTICRUN_GCE_ENDPOINT",
            "GCE_METADATA_*",
            "GOOGLE_*",
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
        let endpoint = endpoint.filter(|endpoint| !endpoint.is_empty());
        let group = Group::read(&options.group)?;
        Ok(Self {
            poller: Poller {
                compute: Compute::new(group.clone(), endpoint)?,
                options,
                group,
                instances: BTreeMap::new(),
                has_polled: false,
            },
            event_loop: EventLoop::new()?,
        })
    }

    fn poll(&mut self, deadline: Duration) -> Result<Snapshot, PluginError> {
        let Self { poller, event_loop } = self;
        let server = poller.compute.server().to_owned();
        event_loop.within(deadline, &server, poller.poll())
    }

    fn command(&mut self, command: Command, deadline: Duration) -> Result<(), PluginError> {
        match command {
            Command::SelfTest => self.poll(deadline).map(|_| ()),
            _ => Ok(()),
        }
    }
}

impl Poller {
    /// Polls, and once more with new credentials if the known ones have failed.
    async fn poll(&mut self) -> Result<Snapshot, PluginError> {
        let is_new = self.compute.connect().await?;
        let mut result = self.snapshot().await;
        if result
            .as_ref()
            .is_err_and(|failure| failure.unauthenticated)
        {
            let source = self.compute.source();
            // Credentials that have failed for good are never asked again by their crate.
            self.compute.disconnect();
            if !is_new && source != Some(Source::Anonymous) {
                self.compute.connect().await?;
                result = self.snapshot().await;
            }
            if source == Some(Source::Metadata) && !self.has_polled {
                result = result.map_err(Failure::without_credentials);
            }
        }
        self.has_polled |= result.is_ok();
        result.map_err(|failure| failure.error)
    }

    async fn snapshot(&mut self) -> Result<Snapshot, Failure> {
        let members = self.compute.members().await?;
        self.refresh(&members).await?;
        let mut hosts = Vec::new();
        for member in &members {
            // Without a number the instance is only planned.
            let Some(number) = member.number else {
                continue;
            };
            let instance = self.instances.get(&number);
            let needs_type = |instance: &&Instance| {
                self.options.slots.is_none() && instance.label.is_none() && instance.attached == 0
            };
            let accelerators = match instance.filter(needs_type) {
                Some(instance) => {
                    let kind = &instance.kind;
                    self.compute.accelerators(&member.zone, kind).await?
                }
                None => 0,
            };
            let host = host(
                member,
                number,
                instance,
                accelerators,
                &self.group.name,
                &self.options,
            );
            hosts.push(host?);
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

    /// Queries new instances, and forgets those that are no longer members.
    async fn refresh(&mut self, members: &[Member]) -> Result<(), Failure> {
        let numbers: BTreeSet<_> = members.iter().filter_map(|member| member.number).collect();
        self.instances.retain(|number, _| numbers.contains(number));
        let mut new: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for member in members {
            let Some(number) = member.number else {
                continue;
            };
            let known = self.instances.get(&number);
            // An instance has no address before its start.
            if known.is_none_or(|instance| instance.internal.is_none()) {
                new.entry(&member.zone).or_default().push(&member.name);
            }
        }
        for (zone, names) in new {
            let found = self.compute.instances(zone, &names).await?;
            // A list has all instances of the zone, and a recreated instance has another number.
            let found = found.into_iter();
            let found = found.filter(|(number, _)| numbers.contains(number));
            self.instances.extend(found);
        }
        Ok(())
    }
}
