//! Access to AWS: credentials, region and clients, from options and environment.

use std::time::Duration;

use aws_config::{BehaviorVersion, Region, retry::RetryConfig, timeout::TimeoutConfig};
use elasticrun_plugin_sdk::PluginError;

use crate::{Options, http};

/// Timeout of a connection. An address without an answer must not use up the deadline of a poll.
const CONNECT: Duration = Duration::from_secs(4);
/// Timeout of the first byte of an answer.
const READ: Duration = Duration::from_secs(15);

/// The clients of the used services.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) scaling: aws_sdk_autoscaling::Client,
    pub(crate) ec2: aws_sdk_ec2::Client,
    /// The region, for messages.
    pub(crate) place: String,
}

impl Account {
    /// Reads options and environment. The first call looks up credentials.
    pub(crate) async fn from_options(options: &Options) -> Result<Self, PluginError> {
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(CONNECT)
            .read_timeout(READ)
            .build();
        // No retries: the job backs off by itself, and a throttled source must not be called again at once.
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .http_client(http::client()?)
            .timeout_config(timeouts)
            .retry_config(RetryConfig::disabled());
        if let Some(region) = &options.region {
            loader = loader.region(Region::new(region.clone()));
        }
        if let Some(endpoint) = &options.endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        let config = loader.load().await;
        let Some(region) = config.region() else {
            return Err(PluginError::bad_config(
                "no region is set; give region=NAME, or set AWS_REGION",
            ));
        };
        let place = match config.endpoint_url() {
            Some(endpoint) => format!("region {region} at {endpoint}"),
            None => format!("region {region}"),
        };
        Ok(Self {
            scaling: aws_sdk_autoscaling::Client::new(&config),
            ec2: aws_sdk_ec2::Client::new(&config),
            place,
        })
    }
}
