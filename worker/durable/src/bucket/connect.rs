//! Connects to S3 or a compatible service, or to Google Cloud Storage.

use std::{str::FromStr, sync::Arc, time::Duration};

use object_store::{
    ClientConfigKey, ObjectStore, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey},
    gcp::{GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey},
    path::Path,
};

use crate::Access;

/// The time limit of a request, with its bytes, also of one to a metadata service. A search of the store must end within half
/// a minute, with the reason why it has failed.
const REQUEST_TIMEOUT: &str = "25s";

/// How long failing requests are repeated.
const RETRY_TIMEOUT: Duration = Duration::from_secs(15);

/// Connects to a bucket. Returns it with the prefix in it, or an error for the operator.
pub(super) fn connect(
    place: &str,
    access: &Access,
) -> Result<(Arc<dyn ObjectStore>, Path), String> {
    // Another part of this process may have installed a provider, which works as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (scheme, rest) = place.split_once("://").unwrap_or(("", place));
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = Path::parse(prefix.trim_end_matches('/')).map_err(|error| error.to_string())?;
    let retry = RetryConfig {
        retry_timeout: RETRY_TIMEOUT,
        ..RetryConfig::default()
    };
    let store: Arc<dyn ObjectStore> = match scheme {
        "s3" => Arc::new(s3(bucket, access, retry)?),
        "gs" => Arc::new(gcs(bucket, access, retry)?),
        _ => {
            return Err(format!(
                "{scheme}:// is not supported; give a directory, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX"
            ));
        }
    };
    Ok((store, prefix))
}

fn s3(bucket: &str, access: &Access, retry: RetryConfig) -> Result<AmazonS3, String> {
    use AmazonS3ConfigKey::{Client, Endpoint, S3Endpoint, StsEndpoint};
    let settings = settings(access, "AWS_");
    let is_endpoint = |key: &_| matches!(key, Endpoint | S3Endpoint | StsEndpoint);
    refuse_plain(&settings, is_endpoint, &Client(ClientConfigKey::AllowHttp))?;
    let builder =
        AmazonS3Builder::new().with_config(Client(ClientConfigKey::Timeout), REQUEST_TIMEOUT);
    let builder = (settings.into_iter()).fold(builder, |builder, setting| {
        builder.with_config(setting.key, setting.value)
    });
    let store = builder.with_bucket_name(bucket).with_retry(retry).build();
    store.map_err(|error| error.to_string())
}

fn gcs(bucket: &str, access: &Access, retry: RetryConfig) -> Result<GoogleCloudStorage, String> {
    use GoogleConfigKey::{BaseUrl, Client};
    let settings = settings(access, "GOOGLE_");
    let is_endpoint = |key: &_| matches!(key, BaseUrl);
    refuse_plain(&settings, is_endpoint, &Client(ClientConfigKey::AllowHttp))?;
    let builder = GoogleCloudStorageBuilder::new()
        .with_config(Client(ClientConfigKey::Timeout), REQUEST_TIMEOUT);
    let builder = (settings.into_iter()).fold(builder, |builder, setting| {
        builder.with_config(setting.key, setting.value)
    });
    let store = builder.with_bucket_name(bucket).with_retry(retry).build();
    store.map_err(|error| error.to_string())
}

/// A variable that the library knows.
struct Setting<K> {
    name: String,
    key: K,
    value: String,
}

/// The variables with this prefix that the library knows, the last one of each key.
fn settings<K: FromStr + PartialEq>(access: &Access, prefix: &str) -> Vec<Setting<K>> {
    let mut settings: Vec<Setting<K>> = Vec::new();
    for (name, value) in access.with_prefix(prefix) {
        let Ok(key) = name.to_ascii_lowercase().parse() else {
            continue;
        };
        settings.retain(|setting| setting.key != key);
        settings.push(Setting { name, key, value });
    }
    settings
}

/// Refuses an endpoint without TLS, unless the user allows it. The library says only that it cannot build a request. Services
/// on the own host that give out credentials have no TLS, and are none of these endpoints.
fn refuse_plain<K: PartialEq>(
    settings: &[Setting<K>],
    is_endpoint: impl Fn(&K) -> bool,
    allows: &K,
) -> Result<(), String> {
    let is_on = |value: &str| !["0", "false", "off", "no", "n"].contains(&value);
    let allowed = |setting: &&Setting<K>| {
        setting.key == *allows && is_on(&setting.value.to_ascii_lowercase())
    };
    let plain =
        |setting: &&Setting<K>| is_endpoint(&setting.key) && setting.value.starts_with("http://");
    match settings.iter().find(plain) {
        Some(Setting { name, .. }) if !settings.iter().any(|setting| allowed(&setting)) => {
            let prefix = name.split('_').next().unwrap_or(name);
            Err(format!(
                "{name} is an address without TLS; {prefix}_ALLOW_HTTP=true allows that"
            ))
        }
        _ => Ok(()),
    }
}
