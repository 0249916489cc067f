//! Access to the pods.

use std::env;

use elasticrun_plugin_sdk::{PluginError, text::with_causes};
use http::header::{HeaderValue, USER_AGENT};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, Config, api::ListParams, config::Kubeconfig};

use crate::{Options, error::classify, proxy};

/// The maximum number of pods of a page.
const PAGE: u32 = 500;

/// The pods of a selector in a namespace.
#[derive(Clone)]
pub(crate) struct Cluster {
    pub(crate) pods: Api<Pod>,
    pub(crate) selector: String,
    /// Selector and namespace, for messages.
    pub(crate) place: String,
}

/// A list of pods.
pub(crate) struct Pods {
    pub(crate) pods: Vec<Pod>,
    /// The version at which a watch continues.
    pub(crate) version: String,
}

impl Cluster {
    /// Uses the configuration of this environment: that of the pod, or that of kubectl.
    pub(crate) async fn from_options(options: &Options) -> Result<Self, PluginError> {
        let mut config = Config::infer().await.map_err(|error| {
            PluginError::bad_config(format!(
                "no Kubernetes configuration; run in a pod, or set KUBECONFIG ({})",
                with_causes(&error)
            ))
        })?;
        // Without a kubeconfig this is a pod, from which the server is reached directly.
        let kubeconfig = Kubeconfig::read().ok();
        let variable = |name: &str| env::var(name).ok();
        config.proxy_url = match &kubeconfig {
            Some(kubeconfig) => proxy::choose(kubeconfig, &config.cluster_url, variable)
                .map_err(|place| PluginError::bad_config(format!("{place} is no URL")))?,
            None => None,
        };
        // A watch may be silent for long, and a poll has its own deadline.
        config.read_timeout = None;
        // No retries: the job backs off by itself, and a throttled server must not be called again at once.
        config.default_retry = false;
        let agent = HeaderValue::from_static(concat!("elasticrun/", env!("CARGO_PKG_VERSION")));
        config.headers.push((USER_AGENT, agent));
        let namespace = options
            .namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone());
        let place = format!("pods {} in namespace {namespace}", options.selector);
        let client = Client::try_from(config).map_err(|error| {
            PluginError::bad_config(format!("Kubernetes configuration: {}", with_causes(&error)))
        })?;
        Ok(Self {
            pods: Api::namespaced(client, &namespace),
            selector: options.selector.clone(),
            place,
        })
    }

    /// All current pods. A list that expires between two pages is restarted once.
    pub(crate) async fn list(&self) -> Result<Pods, PluginError> {
        match self.pages().await {
            Err(kube::Error::Api(status)) if status.code == 410 => self.pages().await,
            result => result,
        }
        .map_err(|error| classify(&self.place, &error))
    }

    async fn pages(&self) -> kube::Result<Pods> {
        let mut params = ListParams::default().labels(&self.selector).limit(PAGE);
        let mut pods = Vec::new();
        loop {
            let page = self.pods.list(&params).await?;
            pods.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => {
                    let version = page.metadata.resource_version.unwrap_or_default();
                    return Ok(Pods { pods, version });
                }
            }
        }
    }
}
