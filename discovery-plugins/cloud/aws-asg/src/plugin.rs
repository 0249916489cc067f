//! The plugin.

use std::{
    fmt,
    time::{Duration, Instant},
};

use elasticrun_plugin_event_loop::EventLoop;
use elasticrun_plugin_sdk::{
    Command, Host, HostState, Manifest, Plugin, PluginError, Snapshot, jitter, tracing,
};

use crate::{
    Options,
    account::Account,
    groups,
    hooks::Hooks,
    host,
    instances::Instances,
    pace::{INTERVAL, JITTER},
    types::Types,
};

/// Time limit for the configuration. On an instance, it queries the metadata service for the region.
const START: Duration = Duration::from_secs(15);

/// The instances of Auto Scaling groups.
pub struct AwsAsg {
    options: Options,
    names: Vec<String>,
    account: Account,
    state: State,
    event_loop: EventLoop,
}

/// State that is kept between polls.
#[derive(Debug, Default)]
struct State {
    instances: Instances,
    types: Types,
    hooks: Hooks,
    /// Time of the last query of the members.
    queried: Option<Instant>,
    /// The hook of each group has been checked.
    hooks_checked: bool,
}

impl Plugin for AwsAsg {
    const MANIFEST: Manifest = Manifest {
        name: "aws-asg",
        version: env!("CARGO_PKG_VERSION"),
        license: "Apache-2.0",
        description: "the instances of AWS Auto Scaling groups: name=GROUP",
        config: include_str!("options.json"),
        environment: &[
            // A program of `credential_process` may need any of them.
            "AWS_*",
            "HTTPS_PROXY",
            "HTTP_PROXY",
            "NO_PROXY",
            "SSL_CERT_DIR",
            "SSL_CERT_FILE",
        ],
        permissions: &[
            "autoscaling:DescribeAutoScalingGroups",
            "ec2:DescribeInstances",
            "ec2:DescribeInstanceTypes",
            "autoscaling:DescribeLifecycleHooks",
            "autoscaling:CompleteLifecycleAction (with complete_hook)",
            "autoscaling:RecordLifecycleActionHeartbeat (with complete_hook)",
        ],
    };

    type Config = Options;

    fn create(options: Options) -> Result<Self, PluginError> {
        options.check()?;
        let names = options.groups()?;
        let event_loop = EventLoop::new()?;
        let account = event_loop.within(
            START,
            "AWS's configuration",
            Account::from_options(&options),
        )?;
        Ok(Self {
            options,
            names,
            account,
            state: State::default(),
            event_loop,
        })
    }

    fn poll(&mut self, deadline: Duration) -> Result<Snapshot, PluginError> {
        let (state, account, options) = (&mut self.state, &self.account, &self.options);
        let poll = async {
            let snapshot = query(state, account, &self.names, options).await?;
            if options.complete_hook {
                state.hooks.serve(account, options.hook.as_deref()).await;
            }
            Ok(snapshot)
        };
        self.event_loop.within(deadline, &account.place, poll)
    }

    fn command(&mut self, command: Command, deadline: Duration) -> Result<(), PluginError> {
        match command {
            Command::Drained { host } if self.options.complete_hook => {
                self.state.hooks.drained(host);
                let hook = self.options.hook.as_deref();
                let serve = async {
                    self.state.hooks.serve(&self.account, hook).await;
                    Ok(())
                };
                self.event_loop.within(deadline, &self.account.place, serve)
            }
            // A query changes nothing.
            Command::SelfTest => {
                let mut fresh = State::default();
                let query = query(&mut fresh, &self.account, &self.names, &self.options);
                self.event_loop
                    .within(deadline, &self.account.place, query)
                    .map(|_| ())
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for AwsAsg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsAsg")
            .field("names", &self.names)
            .field("place", &self.account.place)
            .finish_non_exhaustive()
    }
}

/// Queries AWS for the current hosts.
async fn query(
    state: &mut State,
    account: &Account,
    names: &[String],
    options: &Options,
) -> Result<Snapshot, PluginError> {
    let now = Instant::now();
    let groups = groups::describe(account, names).await?;
    let members = &groups.members;
    if options.complete_hook && !state.hooks_checked {
        let names = names.iter().map(String::as_str);
        state.hooks.query(account, names).await?;
        state.hooks.check(options.hook.as_deref())?;
        state.hooks_checked = true;
    }

    let ids = members.iter().map(|member| member.id.as_str());
    state.instances.refresh(account, ids).await?;

    let mut kinds = Vec::new();
    for member in members {
        let instance = state.instances.get(&member.id);
        let has_slots =
            options.slots.is_some() || instance.is_some_and(|instance| instance.slots.is_some());
        if !has_slots {
            kinds.extend(host::kind(member, instance));
        }
    }
    state.types.query(account, kinds.into_iter()).await?;

    let before = state.queried.replace(now).unwrap_or(now);
    state.hooks.update(members, before);
    let waiting = state.hooks.waiting_groups();
    let waiting = waiting.iter().map(String::as_str);
    if let Err(error) = state.hooks.query(account, waiting).await {
        tracing::warn!("hosts drain without a known deadline: {error}");
    }
    let hosts: Result<Vec<Host>, _> = members
        .iter()
        .map(|member| {
            let instance = state.instances.get(&member.id);
            let deadline = state.hooks.deadline(&member.id);
            host::host(member, instance, &state.types, options, deadline)
        })
        .collect();
    let hosts = hosts?;
    let ready = hosts
        .iter()
        .filter(|host| host.state == HostState::Ready)
        .count();
    tracing::debug!(
        hosts = hosts.len(),
        ready,
        desired = groups.desired,
        "looked"
    );
    Ok(Snapshot {
        next_poll: Some(INTERVAL + jitter(JITTER)),
        target_size: Some(groups.desired),
        ..Snapshot::new(hosts)
    })
}
