//! How a host without an identity gets one: a TLS channel in which neither side is proved, and then proofs of the join token
//! that hold for this channel alone.
//!
//! ```text
//! host                                    driver
//!   TLS without certificates of the host, ALPN er-enrol
//!   Request { token id, host }        ->
//!                                     <-  Proof { proof(driver, channel) } | Refused { why }
//!   proof(host, channel)              ->
//!                                     <-  Granted { credentials }          | Refused { why }
//! ```
//! The channel is what both ends export from their keys ([`Session::exporter`](crate::Session::exporter)). A man in the
//! middle has two channels, and a proof of one is worth nothing in the other. The secret of a token has 256 random bits, so a
//! proof does not help to guess it.

use rustls::{
    DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::verify_tls13_signature,
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use crate::config::provider;

#[cfg(feature = "tokio")]
mod exchange;

#[cfg(feature = "tokio")]
pub use exchange::{Error, ask, grant};

/// The protocol that a host without an identity asks for.
pub(crate) const PROTOCOL: &[u8] = b"er-enrol";

/// The label of the channel in which a token is proved.
pub const CHANNEL: &str = "elasticrun enrol";

/// Accepts any certificate whose key the server has. The join token proves the driver.
#[derive(Debug)]
pub(crate) struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only TLS 1.3 is spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = provider().signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, &algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
