//! The certificates with which a cluster is reached.

use std::{
    fmt,
    fs::{self, File},
    io::Read,
    os::unix::fs::MetadataExt,
    path::Path,
};

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use zeroize::Zeroizing;

/// A file with certificates or keys that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{path}: {why}")]
pub struct TlsError {
    path: String,
    why: String,
}

/// The certificates with which endpoints are reached over https.
#[derive(Clone, Debug)]
pub struct Tls(pub(crate) rustls::ClientConfig);

impl Tls {
    /// Trusts the certificates in `ca`, a file of PEM; without, those of the system. `client` has the files of the
    /// certificates and of the key with which this process proves itself.
    ///
    /// # Errors
    /// A file cannot be read or has nothing usable, the system has no usable certificate, or the file of the key is of this
    /// user and other users can use it.
    pub fn from_files(ca: Option<&Path>, client: Option<(&Path, &Path)>) -> Result<Self, TlsError> {
        let identity = client
            .map(|(chain, key)| identity(chain, key))
            .transpose()?;
        let mut roots = RootCertStore::empty();
        match ca {
            Some(path) => {
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| bad(path, error))?;
                }
            }
            None => {
                let found = rustls_native_certs::load_native_certs();
                roots.add_parsable_certificates(found.certs);
                check_system(&roots, &found.errors)?;
            }
        }
        let provider = rustls::crypto::ring::default_provider().into();
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has the suites of both versions")
            .with_root_certificates(roots);
        let config = match (identity, client) {
            (Some((chain, private)), Some((_, key))) => builder
                .with_client_auth_cert(chain, private)
                .map_err(|error| bad(key, error))?,
            _ => builder.with_no_client_auth(),
        };
        Ok(Self(config))
    }
}

/// The certificates and the key with which this process proves itself.
fn identity(
    chain: &Path,
    key: &Path,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let pem = private_file(key)?;
    let private = PrivateKeyDer::from_pem_slice(&pem)
        .map_err(|_| bad(key, "it has no private key as PEM"))?;
    Ok((certificates(chain)?, private))
}

/// Checks that certificates of the system were found. Without one, no endpoint could prove itself.
fn check_system(roots: &RootCertStore, errors: &[impl fmt::Display]) -> Result<(), TlsError> {
    if !roots.is_empty() {
        return Ok(());
    }
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    let why = match errors.is_empty() {
        true => "there are none; name a file".to_owned(),
        false => errors.join("; "),
    };
    Err(TlsError {
        path: "the certificates of the system".into(),
        why,
    })
}

/// Reads a file with a key. A file of this user must be closed to others. One of another user, such as a secret that is
/// mounted into a container, cannot be closed by this user.
fn private_file(path: &Path) -> Result<Zeroizing<Vec<u8>>, TlsError> {
    let mut file = File::open(path).map_err(|error| bad(path, error))?;
    let metadata = file.metadata().map_err(|error| bad(path, error))?;
    let mode = metadata.mode() & 0o777;
    let is_ours = metadata.uid() == rustix::process::geteuid().as_raw();
    if is_ours && mode & 0o077 != 0 {
        let why = format!("other users can use this key (mode {mode:03o}); chmod 600 it");
        return Err(bad(path, why));
    }
    // Of the size of the file, so that no copy of the key is left where a buffer grew.
    let size = usize::try_from(metadata.len()).unwrap_or(0);
    let mut bytes = Zeroizing::new(Vec::with_capacity(size + 1));
    file.read_to_end(&mut bytes)
        .map_err(|error| bad(path, error))?;
    Ok(bytes)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = fs::read(path).map_err(|error| bad(path, error))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(bad(path, "it has no certificate as PEM")),
    }
}

fn bad(path: &Path, why: impl ToString) -> TlsError {
    TlsError {
        path: path.display().to_string(),
        why: why.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_system_without_certificates_is_explained() {
        let roots = RootCertStore::empty();
        let none = check_system(&roots, &[] as &[&str]).unwrap_err();
        assert!(
            none.to_string().contains("system: there are none"),
            "{none}"
        );
        let error = check_system(&roots, &["/a: denied", "/b: no PEM"]).unwrap_err();
        assert!(error.to_string().ends_with("/a: denied; /b: no PEM"));
    }

    #[test]
    fn a_key_that_others_can_use_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.pem");
        fs::write(&path, "a key").unwrap();
        let set = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        for mode in [0o604, 0o602, 0o640, 0o666] {
            set(mode);
            let why = private_file(&path).unwrap_err().to_string();
            assert!(
                why.contains("key.pem: other users can use this key"),
                "{why}"
            );
        }
        for mode in [0o600, 0o400] {
            set(mode);
            assert_eq!(private_file(&path).unwrap().as_slice(), b"a key");
        }
    }

    #[test]
    fn files_without_certificates_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ca.pem");
        let error = Tls::from_files(Some(&path), None).unwrap_err().to_string();
        assert!(error.contains("ca.pem: No such file"), "{error}");
        fs::write(&path, "nothing").unwrap();
        let error = Tls::from_files(Some(&path), None).unwrap_err().to_string();
        assert!(
            error.ends_with("ca.pem: it has no certificate as PEM"),
            "{error}"
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let error = Tls::from_files(None, Some((&path, &path)))
            .unwrap_err()
            .to_string();
        assert!(
            error.ends_with("ca.pem: it has no private key as PEM"),
            "{error}"
        );
    }
}
