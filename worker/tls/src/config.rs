//! What each side of a connection accepts: mutual TLS 1.3 under the job's authority, with the role in the certificate.

use std::sync::{Arc, LazyLock};

use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme,
    client::{WebPkiServerVerifier, verify_server_name},
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::{
        NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    version::TLS13,
};

use crate::{Error, Identity, Role, enrol};

/// AES with 128 bits first: it is the fastest one with the instructions of today's processors.
static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
    let mut provider = ring::default_provider();
    provider.cipher_suites = vec![
        ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
        ring::cipher_suite::TLS13_AES_256_GCM_SHA384,
        ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(provider)
});

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::clone(&PROVIDER)
}

/// The side that accepts connections. A clone shares the keys of session tickets.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub(crate) mutual: Arc<rustls::ServerConfig>,
    pub(crate) enrolment: Option<Arc<rustls::ServerConfig>>,
}

impl ServerConfig {
    /// Accepts peers of the same job whose role is one of `accepts`.
    ///
    /// # Errors
    /// [`Error::Identity`] for an identity that is damaged.
    pub fn new(identity: &Identity, accepts: &[Role]) -> Result<Self, Error> {
        let roots = roots(identity)?;
        let webpki = WebPkiClientVerifier::builder_with_provider(roots, provider())
            .build()
            .map_err(unusable)?;
        let verifier = RoleVerifier {
            webpki,
            accepts: accepts.to_vec(),
        };
        let mut mutual = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_single_cert(vec![identity.certificate.to_der()], identity.key.to_der())
            .map_err(unusable)?;
        // A ticket holds the session, so that any number of agents can resume, without memory here.
        mutual.ticketer = ring::Ticketer::new().map_err(unusable)?;
        Ok(Self {
            mutual: Arc::new(mutual),
            enrolment: None,
        })
    }

    /// Also accepts hosts that have no identity yet. They are [`Peer::Enrolling`](crate::Peer::Enrolling), and have proved
    /// nothing.
    ///
    /// # Errors
    /// [`Error::Identity`] for an identity that is damaged.
    pub fn with_enrolment(mut self, identity: &Identity) -> Result<Self, Error> {
        let mut config = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .with_no_client_auth()
            .with_single_cert(vec![identity.certificate.to_der()], identity.key.to_der())
            .map_err(unusable)?;
        config.alpn_protocols = vec![enrol::PROTOCOL.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        self.enrolment = Some(Arc::new(config));
        Ok(self)
    }
}

/// The side that opens connections. A clone shares the session tickets.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    pub(crate) config: Arc<rustls::ClientConfig>,
    pub(crate) name: ServerName<'static>,
    /// It wants an identity, and trusts no certificate.
    pub(crate) enrols: bool,
}

impl ClientConfig {
    /// Connects to peers of the same job with the role `expects`.
    ///
    /// # Errors
    /// [`Error::Identity`] for an identity that is damaged.
    pub fn new(identity: &Identity, expects: Role) -> Result<Self, Error> {
        let webpki = WebPkiServerVerifier::builder_with_provider(roots(identity)?, provider())
            .build()
            .map_err(unusable)?;
        let mut config = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .with_webpki_verifier(webpki)
            .with_client_auth_cert(vec![identity.certificate.to_der()], identity.key.to_der())
            .map_err(unusable)?;
        // The name would be sent in clear.
        config.enable_sni = false;
        Ok(Self {
            config: Arc::new(config),
            name: expects.server_name(),
            enrols: false,
        })
    }

    /// Connects to a driver without an identity, to get one by a join token. Neither side is proved by the handshake: see
    /// [`enrol`](crate::enrol).
    ///
    /// # Errors
    /// [`Error::Identity`] if the cryptography cannot be set up.
    pub fn enrolling() -> Result<Self, Error> {
        let mut config = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(unusable)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(enrol::AnyCertificate))
            .with_no_client_auth();
        config.alpn_protocols = vec![enrol::PROTOCOL.to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        config.enable_sni = false;
        Ok(Self {
            config: Arc::new(config),
            name: Role::Driver.server_name(),
            enrols: true,
        })
    }
}

fn roots(identity: &Identity) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(identity.authority.to_der()).map_err(unusable)?;
    Ok(Arc::new(roots))
}

fn unusable(error: impl ToString) -> Error {
    Error::Identity(error.to_string())
}

/// Verifies a client's certificate under the job's authority, and then that its role is accepted.
#[derive(Debug)]
struct RoleVerifier {
    webpki: Arc<dyn ClientCertVerifier>,
    accepts: Vec<Role>,
}

impl ClientCertVerifier for RoleVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.webpki.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self
            .webpki
            .verify_client_cert(end_entity, intermediates, now)?;
        role_of(end_entity, &self.accepts)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.webpki.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        self.webpki.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

/// The one of `roles` that a certificate names.
pub(crate) fn role_of(
    certificate: &CertificateDer<'_>,
    roles: &[Role],
) -> Result<Role, rustls::Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    roles
        .iter()
        .copied()
        .find(|role| verify_server_name(&parsed, &role.server_name()).is_ok())
        .ok_or_else(|| rustls::CertificateError::NotValidForName.into())
}

/// Whether a certificate has a name.
pub(crate) fn has_name(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
    ParsedCertificate::try_from(certificate)
        .is_ok_and(|parsed| verify_server_name(&parsed, name).is_ok())
}
