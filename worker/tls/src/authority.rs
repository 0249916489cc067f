//! The certificate authority of one job. Its end is the end of the trust: certificates do not expire, since the clocks of
//! hosts differ.

use std::fmt;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use serde::{Deserialize, Serialize};

use crate::{Certificate, Error, Identity, PrivateKey, Role};

/// What a journal keeps of an [`Authority`]. It contains the private key: see [`PrivateKey`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoredAuthority {
    /// The run whose processes it certifies.
    pub run_id: String,
    /// Its certificate, the root of all identities.
    pub certificate: Certificate,
    /// The key of the certificate.
    pub key: PrivateKey,
}

/// Issues the identities of one job.
pub struct Authority {
    run_id: String,
    params: CertificateParams,
    key: KeyPair,
    certificate: Certificate,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("run_id", &self.run_id)
            .finish_non_exhaustive()
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.key);
    }
}

impl Authority {
    /// Makes an authority with a fresh key.
    ///
    /// # Errors
    /// [`Error::Issue`] without randomness, or for a run id that no certificate can contain.
    pub fn new(run_id: &str) -> Result<Self, Error> {
        let key = KeyPair::generate().map_err(issue)?;
        let params = authority_params(run_id);
        let certificate = params.self_signed(&key).map_err(issue)?;
        Ok(Self {
            run_id: run_id.into(),
            params,
            certificate: Certificate::from_der(certificate.der().to_vec()),
            key,
        })
    }

    /// The authority of an earlier driver. Identities that the earlier one has issued stay valid.
    ///
    /// # Errors
    /// [`Error::Issue`] if the key is not one of ECDSA over P-256.
    pub fn restore(stored: &StoredAuthority) -> Result<Self, Error> {
        let key = stored.key.expose().try_into().map_err(issue)?;
        Ok(Self {
            run_id: stored.run_id.clone(),
            params: authority_params(&stored.run_id),
            certificate: stored.certificate.clone(),
            key,
        })
    }

    /// What [`Authority::restore`] needs.
    pub fn stored(&self) -> StoredAuthority {
        StoredAuthority {
            run_id: self.run_id.clone(),
            certificate: self.certificate.clone(),
            key: PrivateKey::from_pkcs8(self.key.serialize_der()),
        }
    }

    /// The root certificate of the job.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Issues an identity for a process of `role` on `host`, with a fresh key.
    ///
    /// # Errors
    /// [`Error::Issue`] without randomness.
    pub fn issue(&self, role: Role, host: &str) -> Result<Identity, Error> {
        let names = [role.name(), role.name_on(&self.run_id, host)];
        let mut params = CertificateParams::new(names).map_err(issue)?;
        always_valid(&mut params);
        params.distinguished_name = common_name(&format!("elasticrun {role}"));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().map_err(issue)?;
        let issuer = Issuer::from_params(&self.params, &self.key);
        let certificate = params.signed_by(&key, &issuer).map_err(issue)?;
        Ok(Identity {
            role,
            authority: self.certificate.clone(),
            certificate: Certificate::from_der(certificate.der().to_vec()),
            key: PrivateKey::from_pkcs8(key.serialize_der()),
        })
    }
}

/// The parameters of the root certificate. They decide what identities name as their issuer: the root certificate of a
/// job and the certificates that a later driver issues must agree in them. So they depend on the run alone, and a change
/// breaks jobs that a driver of another release takes over.
fn authority_params(run_id: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    always_valid(&mut params);
    params.distinguished_name = common_name(&format!("elasticrun job {run_id}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

/// Makes a certificate valid from the first time that the clock of a host can show, which a machine without a battery
/// has at its start, to the last one that a certificate can name.
fn always_valid(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(1970, 1, 1);
    params.not_after = date_time_ymd(9999, 12, 31);
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

#[expect(clippy::needless_pass_by_value, reason = "it is used by map_err")]
fn issue(error: rcgen::Error) -> Error {
    Error::Issue(error.to_string())
}
