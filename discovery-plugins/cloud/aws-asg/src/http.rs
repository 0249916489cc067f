//! The HTTP client: by the proxies of the environment, and with the certificates that `AWS_CA_BUNDLE` adds.

use std::{env, fs};

use aws_smithy_http_client::{
    Builder, Connector,
    proxy::ProxyConfig,
    tls::{Provider, TlsContext, TrustStore, rustls_provider::CryptoMode},
};
use aws_smithy_runtime_api::client::{
    http::SharedHttpClient, runtime_components::RuntimeComponents,
};
use elasticrun_plugin_sdk::PluginError;
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

/// The variable that names a file of certificates, as AWS's own programs know it.
const BUNDLE: &str = "AWS_CA_BUNDLE";

/// A client for all services.
///
/// # Errors
/// `BadConfig`: the file that `AWS_CA_BUNDLE` names cannot be used.
pub(crate) fn client() -> Result<SharedHttpClient, PluginError> {
    let mut trusted = TrustStore::default();
    if let Some(path) = env::var_os(BUNDLE).filter(|path| !path.is_empty()) {
        let refused = |why: String| {
            PluginError::bad_config(format!("{BUNDLE}={}: {why}", path.to_string_lossy()))
        };
        let pem = fs::read(&path).map_err(|error| refused(error.to_string()))?;
        check(&pem).map_err(refused)?;
        trusted.add_pem_certificate(pem);
    }
    let tls = TlsContext::builder().with_trust_store(trusted).build();
    let tls = tls.map_err(|error| PluginError::bad_config(error.to_string()))?;
    Ok(
        Builder::new().build_with_connector_fn(move |settings, components| {
            let mut connector = Connector::builder()
                .tls_provider(Provider::Rustls(CryptoMode::Ring))
                .tls_context(tls.clone())
                .proxy_config(ProxyConfig::from_env());
            connector.set_connector_settings(settings.cloned());
            connector.set_sleep_impl(components.and_then(RuntimeComponents::sleep_impl));
            connector.build()
        }),
    )
}

/// Checks certificates, since the client panics on a wrong one.
fn check(pem: &[u8]) -> Result<(), String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("no PEM file: {error:?}"))?;
        let number = roots.len() + 1;
        (roots.add(certificate)).map_err(|error| format!("certificate {number}: {error}"))?;
    }
    match roots.is_empty() {
        true => Err("it has no certificate in PEM".to_owned()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_refused() {
        assert_eq!(check(b"").unwrap_err(), "it has no certificate in PEM");
        assert_eq!(check(b"x").unwrap_err(), "it has no certificate in PEM");
        let broken = b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        assert!(check(broken).unwrap_err().starts_with("certificate 1: "));
    }
}
