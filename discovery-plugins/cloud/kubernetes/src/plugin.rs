//! The plugin.

use std::{
    fmt,
    future::Future,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use elasticrun_plugin_sdk::{Changed, Command, Host, Manifest, Plugin, PluginError, Snapshot};
use tokio::runtime::Runtime;

use crate::{Options, cluster::Cluster, host::host, watch::Watch};

/// From a poll to the next, when no change is said.
const INTERVAL: Duration = Duration::from_secs(10);
/// For reading the configuration, which may start a program that gives credentials.
const START: Duration = Duration::from_secs(15);

/// The pods that a label selector chooses.
pub struct Kubernetes {
    options: Options,
    cluster: Cluster,
    watch: Option<Watch>,
    /// Taken when it is dropped.
    runtime: Option<Runtime>,
}

impl Plugin for Kubernetes {
    const MANIFEST: Manifest = Manifest {
        name: "kubernetes",
        version: env!("CARGO_PKG_VERSION"),
        license: "Apache-2.0",
        description: "the pods that a label selector chooses: selector=app=train",
        config: include_str!("options.json"),
        environment: &[
            "AWS_PROFILE",
            "AWS_REGION",
            "CLOUDSDK_CONFIG",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "KUBECONFIG",
            "KUBERNETES_SERVICE_HOST",
            "KUBERNETES_SERVICE_PORT",
            "SSL_CERT_DIR",
            "SSL_CERT_FILE",
        ],
        permissions: &["list pods", "watch pods"],
    };

    type Config = Options;

    const WATCHES: bool = true;

    fn create(options: Options) -> Result<Self, PluginError> {
        options.check()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| PluginError::retryable(format!("no event loop: {error}")))?;
        let cluster = within(
            &runtime,
            START,
            "the Kubernetes configuration",
            Cluster::of(&options),
        )?;
        Ok(Self {
            options,
            cluster,
            watch: None,
            runtime: Some(runtime),
        })
    }

    fn poll(&mut self, deadline: Duration) -> Result<Snapshot, PluginError> {
        let Some(runtime) = &self.runtime else {
            return Err(PluginError::retryable("the plugin is closed"));
        };
        let list = within(runtime, deadline, &self.cluster.place, self.cluster.list())?;
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

    fn watch(&mut self, changed: Changed) -> Result<(), PluginError> {
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

impl Drop for Kubernetes {
    fn drop(&mut self) {
        // Looking up a name happens on a thread that cannot be interrupted; nobody waits for it.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Runs work to its end, but not beyond a time.
fn within<T>(
    runtime: &Runtime,
    limit: Duration,
    place: &str,
    work: impl Future<Output = Result<T, PluginError>>,
) -> Result<T, PluginError> {
    let result = runtime.block_on(async { tokio::time::timeout(limit, work).await });
    result.unwrap_or_else(|_| {
        Err(PluginError::retryable(format!(
            "{place}: no answer within {limit:?}"
        )))
    })
}
