//! The clients of Compute Engine's services.

use elasticrun_plugin_sdk::{PluginError, text::with_causes};
use google_cloud_auth::credentials::Credentials;
use google_cloud_compute_v1::client::{
    InstanceGroupManagers, Instances, MachineTypes, RegionInstanceGroupManagers,
};
use google_cloud_gax::{client_builder, options::RequestOptionsBuilder, retry_policy::NeverRetry};

use crate::{
    access::{Source, credentials},
    group::Location,
};

/// The name of this program, for the logs of the cloud.
const AGENT: &str = concat!("elasticrun/", env!("CARGO_PKG_VERSION"));

/// The service of a group's kind.
#[derive(Clone, Debug)]
pub(crate) enum Managers {
    Zonal(InstanceGroupManagers),
    Regional(RegionInstanceGroupManagers),
}

/// Clients with the same credentials.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) source: Source,
    pub(crate) managers: Managers,
    pub(crate) instances: Instances,
    pub(crate) types: MachineTypes,
}

impl Clients {
    /// Reads the credentials. Must be called within an event loop; nothing is sent yet.
    ///
    /// # Errors
    /// `BadConfig`: the endpoint or the file of credentials cannot be used.
    pub(crate) async fn new(
        endpoint: Option<&str>,
        location: &Location,
    ) -> Result<Self, PluginError> {
        // The crates take the TLS of the process. An error means that it is chosen already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (credentials, source) = credentials(endpoint)?;
        let bad = |error: client_builder::Error| PluginError::bad_config(with_causes(&error));
        let managers = match location {
            Location::Zone(_) => {
                let client = InstanceGroupManagers::builder();
                Managers::Zonal(
                    configured(client, endpoint, &credentials)
                        .build()
                        .await
                        .map_err(bad)?,
                )
            }
            Location::Region(_) => {
                let client = RegionInstanceGroupManagers::builder();
                Managers::Regional(
                    configured(client, endpoint, &credentials)
                        .build()
                        .await
                        .map_err(bad)?,
                )
            }
        };
        let instances = configured(Instances::builder(), endpoint, &credentials);
        let types = configured(MachineTypes::builder(), endpoint, &credentials);
        Ok(Self {
            source,
            managers,
            instances: instances.build().await.map_err(bad)?,
            types: types.build().await.map_err(bad)?,
        })
    }
}

/// Without retries: the job backs off by itself, and a throttled service must not be called again at once.
fn configured<F>(
    builder: client_builder::ClientBuilder<F, Credentials>,
    endpoint: Option<&str>,
    credentials: &Credentials,
) -> client_builder::ClientBuilder<F, Credentials> {
    let builder = builder.with_credentials(credentials.clone());
    let builder = builder.with_retry_policy(NeverRetry);
    match endpoint {
        Some(endpoint) => builder.with_endpoint(endpoint),
        None => builder,
    }
}

/// A request that names this program.
pub(crate) fn named<R: RequestOptionsBuilder>(request: R) -> R {
    request.with_user_agent(AGENT)
}
