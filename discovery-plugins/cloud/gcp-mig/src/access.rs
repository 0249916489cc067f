//! Credentials of Google Cloud: from a file, from gcloud's login, or from the metadata service of the instance.
//!
//! The crate google-cloud-auth renews tokens before they end. It looks for gcloud's login in the home directory only, so
//! this finds the file and gives its content to the crate.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use elasticrun_plugin_sdk::{PluginError, text::with_causes};
use google_cloud_auth::{
    build_errors::Error as BuildError,
    credentials::{
        Credentials, anonymous, external_account, impersonated, mds, service_account, user_account,
    },
};
use serde_json::Value;

const SCOPE: &str = "https://www.googleapis.com/auth/compute.readonly";
/// The domain of all services, unless the variable of Google Cloud names another one.
const UNIVERSE: &str = "googleapis.com";
const UNIVERSE_VARIABLE: &str = "GOOGLE_CLOUD_UNIVERSE_DOMAIN";

/// Where credentials come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Nowhere: the endpoint has no TLS, and a token is sent only over TLS.
    Anonymous,
    File,
    Metadata,
}

/// Credentials for an endpoint. Must be called within an event loop, on which tokens are renewed.
///
/// # Errors
/// `BadConfig`: the file of credentials cannot be used.
pub(crate) fn credentials(endpoint: Option<&str>) -> Result<(Credentials, Source), PluginError> {
    if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
        return Ok((anonymous::Builder::new().build(), Source::Anonymous));
    }
    if let Some(path) = file() {
        return Ok((from_file(&path)?, Source::File));
    }
    // Else the crate asks the metadata service for the domain, and again for each client.
    let universe = env::var(UNIVERSE_VARIABLE).unwrap_or_else(|_| UNIVERSE.to_owned());
    let built = mds::Builder::default().with_universe_domain(universe);
    match built.build() {
        Ok(credentials) => Ok((credentials, Source::Metadata)),
        Err(error) => Err(PluginError::bad_config(with_causes(&error))),
    }
}

/// `GOOGLE_APPLICATION_CREDENTIALS`, or the file of gcloud's login.
fn file() -> Option<PathBuf> {
    let given = env::var_os("GOOGLE_APPLICATION_CREDENTIALS");
    if let Some(path) = given.filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    let config = env::var_os("CLOUDSDK_CONFIG").map(PathBuf::from);
    let config =
        config.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".config/gcloud")))?;
    let path = config.join("application_default_credentials.json");
    path.is_file().then_some(path)
}

fn from_file(path: &Path) -> Result<Credentials, PluginError> {
    let bad = |why: &str| PluginError::bad_config(format!("credentials {}: {why}", path.display()));
    let text = fs::read(path).map_err(|error| bad(&error.to_string()))?;
    let key: Value =
        serde_json::from_slice(&text).map_err(|error| bad(&format!("is not JSON: {error}")))?;
    let kind = key["type"].as_str().unwrap_or_default().to_owned();
    let built: Result<Credentials, BuildError> = match kind.as_str() {
        "authorized_user" => user_account::Builder::new(key).build(),
        "external_account" => external_account::Builder::new(key)
            .with_scopes([SCOPE])
            .build(),
        "impersonated_service_account" => {
            impersonated::Builder::new(key).with_scopes([SCOPE]).build()
        }
        "service_account" => {
            let scope = service_account::AccessSpecifier::from_scopes([SCOPE]);
            service_account::Builder::new(key)
                .with_access_specifier(scope)
                .build()
        }
        _ => {
            return Err(bad(&format!(
                "the type {kind:?} cannot be used; authorized_user, external_account, \
                 impersonated_service_account and service_account can"
            )));
        }
    };
    built.map_err(|error| bad(&with_causes(&error)))
}
