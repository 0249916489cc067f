//! Why a peer is not trusted.

use rustls::{AlertDescription, CertificateError};

/// Why a connection cannot be used.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Error {
    /// The peer does not speak TLS. Its bytes are untouched, so that it can be answered in its own protocol.
    #[error("the peer does not speak TLS (its first byte is {0:#04x})")]
    NotTls(u8),
    /// The peer has no certificate.
    #[error("the peer has no certificate of this job")]
    NoCertificate,
    /// Another authority has issued the peer's certificate.
    #[error("the peer's certificate is of another job")]
    OtherJob,
    /// The peer's role is not served here, or is not the expected one.
    #[error("the peer's certificate is of another role")]
    WrongRole,
    /// The peer has refused this process.
    #[error("refused by the peer: {0}")]
    Refused(String),
    /// The peer breaks the protocol of TLS, or its bytes were changed on the way.
    #[error("the peer breaks the protocol of TLS: {0}")]
    Protocol(rustls::Error),
    /// The peer gives no identities. Only a driver with a join token does.
    #[error("it takes no join token: give the driver --join-token-file")]
    NoEnrolment,
    /// The handshake is not complete.
    #[error("the handshake is not complete")]
    NotEstablished,
    /// An identity cannot be used.
    #[error("the identity of this process cannot be used: {0}")]
    Identity(String),
    /// A certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    Issue(String),
}

impl From<rustls::Error> for Error {
    fn from(error: rustls::Error) -> Self {
        use rustls::Error as E;
        match error {
            E::NoCertificatesPresented => Self::NoCertificate,
            E::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            ) => Self::OtherJob,
            E::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ) => Self::WrongRole,
            E::AlertReceived(alert) => Self::Refused(reason(alert)),
            other => Self::Protocol(other),
        }
    }
}

/// An alert of a peer in words. The peer maps its reason to few alerts.
fn reason(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => "it wants a certificate of its job".into(),
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "this process is of another job".into()
        }
        AlertDescription::BadCertificate | AlertDescription::CertificateUnknown => {
            "it does not serve processes of this role".into()
        }
        other => format!("alert {other:?}"),
    }
}
