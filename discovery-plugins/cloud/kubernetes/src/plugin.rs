//! The plugin.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use elasticrun_plugin_event_loop::EventLoop;
use elasticrun_plugin_sdk::{
    ChangeNotifier, Command, Host, Manifest, Plugin, PluginError, Snapshot,
};

use crate::{Options, cluster::Cluster, host::host, watch::Watch};

/// From a poll to the next, without a change.
const INTERVAL: Duration = Duration::from_secs(10);
/// Time limit for the configuration, which may run a program for credentials.
const START: Duration = Duration::from_secs(15);

/// The pods of a label selector.
pub struct Kubernetes {
    options: Options,
    cluster: Cluster,
    watch: Option<Watch>,
    event_loop: EventLoop,
}

impl Plugin for Kubernetes {
    const MANIFEST: Manifest = Manifest {
        name: "kubernetes",
        version: env!("CARGO_PKG_VERSION"),
        license: "Apache-2.0",
        description: "the pods that a label selector chooses: selector=app=train",
        config: include_str!("options.json"),
        // Programs of the kubeconfig that fetch credentials need the variables of their clouds.
        environment: &[
            "AAD_*",
            "ARM_*",
            "AWS_*",
            "AZURE_*",
            "CLOUDSDK_*",
            "GOOGLE_*",
            "KUBECONFIG",
            "KUBERNETES_SERVICE_HOST",
            "KUBERNETES_SERVICE_PORT",
            "SSL_CERT_DIR",
            "SSL_CERT_FILE",
            "USE_GKE_GCLOUD_AUTH_PLUGIN",
        ],
        permissions: &["list pods", "watch pods"],
    };

    type Config = Options;

    const WATCHES: bool = true;

    fn create(options: Options) -> Result<Self, PluginError> {
        options.check()?;
        let event_loop = EventLoop::new()?;
        let place = "the Kubernetes configuration";
        let cluster = event_loop.within(START, place, Cluster::from_options(&options))?;
        Ok(Self {
            options,
            cluster,
            watch: None,
            event_loop,
        })
    }

    fn poll(&mut self, deadline: Duration) -> Result<Snapshot, PluginError> {
        let place = &self.cluster.place;
        let list = self
            .event_loop
            .within(deadline, place, self.cluster.list())?;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_secs());
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let hosts = list.pods.iter().map(|pod| host(pod, &self.options, now));
        let hosts: Result<Vec<Option<Host>>, _> = hosts.collect();
        Ok(Snapshot {
            next_poll: Some(INTERVAL),
            ..Snapshot::new(hosts?.into_iter().flatten().collect())
        })
    }

    fn watch(&mut self, changed: ChangeNotifier) -> Result<(), PluginError> {
        let watch = Watch::start(self.options.clone(), changed)
            .map_err(|error| PluginError::retryable(format!("no thread to watch by: {error}")))?;
        self.watch = Some(watch);
        Ok(())
    }

    fn command(&mut self, command: Command, deadline: Duration) -> Result<(), PluginError> {
        match command {
            Command::SelfTest => self.poll(deadline).map(|_| ()),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Kubernetes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubernetes")
            .field("place", &self.cluster.place)
            .field("watch", &self.watch)
            .finish_non_exhaustive()
    }
}
