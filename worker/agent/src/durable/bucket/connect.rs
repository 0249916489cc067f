//! Connects to S3 or a compatible service, or to Google Cloud Storage.

use std::{sync::Arc, time::Duration};

use object_store::{
    ClientConfigKey, ObjectStore, Result, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey},
    gcp::{GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey},
    path::Path,
};

use crate::durable::access::Access;

/// The time limit of a request, with its bytes, also of one to a metadata service. A search of the store must end within half
/// a minute, with the reason why it has failed.
const REQUEST_TIMEOUT: &str = "25s";

/// How long failing requests are repeated.
const RETRY_TIMEOUT: Duration = Duration::from_secs(15);

/// Connects to a bucket. Returns it with the prefix in it, or an error for the operator.
pub(super) fn connect(
    place: &str,
    access: &Access,
) -> std::result::Result<(Arc<dyn ObjectStore>, Path), String> {
    // Another part of this process may have installed a provider, which works as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (scheme, rest) = place.split_once("://").unwrap_or(("", place));
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = Path::parse(prefix.trim_end_matches('/')).map_err(|error| error.to_string())?;
    let retry = RetryConfig {
        retry_timeout: RETRY_TIMEOUT,
        ..RetryConfig::default()
    };
    match scheme {
        "s3" => refuse_plain(access, "AWS_")?,
        "gs" => refuse_plain(access, "GOOGLE_")?,
        _ => {}
    }
    let store = match scheme {
        "s3" => s3(bucket, access, retry).map(|store| Arc::new(store) as Arc<dyn ObjectStore>),
        "gs" => gcs(bucket, access, retry).map(|store| Arc::new(store) as Arc<dyn ObjectStore>),
        _ => {
            return Err(format!(
                "{scheme}:// is not supported; give a directory, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX"
            ));
        }
    };
    let store = store.map_err(|error| error.to_string())?;
    Ok((store, prefix))
}

/// Refuses an endpoint without TLS, unless the user allows it. The library says only that it cannot build a request.
fn refuse_plain(access: &Access, prefix: &str) -> std::result::Result<(), String> {
    let variables = access.with_prefix(prefix);
    let allows = format!("{prefix}ALLOW_HTTP");
    if variables.iter().any(|(name, _)| *name == allows) {
        return Ok(());
    }
    let plain = variables
        .iter()
        .find(|(_, value)| value.starts_with("http://"));
    match plain {
        Some((name, _)) => Err(format!(
            "{name} is an address without TLS; {allows}=true allows that"
        )),
        None => Ok(()),
    }
}

fn s3(bucket: &str, access: &Access, retry: RetryConfig) -> Result<AmazonS3> {
    let timeout = AmazonS3ConfigKey::Client(ClientConfigKey::Timeout);
    let builder = AmazonS3Builder::new().with_config(timeout, REQUEST_TIMEOUT);
    let variables = access.with_prefix("AWS_").into_iter();
    let builder = variables.fold(builder, |builder, (name, value)| {
        match name.to_ascii_lowercase().parse() {
            Ok(key) => builder.with_config(key, value),
            Err(_) => builder,
        }
    });
    builder.with_bucket_name(bucket).with_retry(retry).build()
}

fn gcs(bucket: &str, access: &Access, retry: RetryConfig) -> Result<GoogleCloudStorage> {
    let timeout = GoogleConfigKey::Client(ClientConfigKey::Timeout);
    let builder = GoogleCloudStorageBuilder::new().with_config(timeout, REQUEST_TIMEOUT);
    let variables = access.with_prefix("GOOGLE_").into_iter();
    let builder = variables.fold(builder, |builder, (name, value)| {
        match name.to_ascii_lowercase().parse() {
            Ok(key) => builder.with_config(key, value),
            Err(_) => builder,
        }
    });
    builder.with_bucket_name(bucket).with_retry(retry).build()
}
