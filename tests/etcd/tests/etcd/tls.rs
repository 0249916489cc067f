//! A member that serves https and wants certificates.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use crate::support::{eventually, write};
use base64::{Engine, engine::general_purpose::STANDARD};
use elasticrun_etcd::{Client, Error, Options, Tls};
use elasticrun_etcd_tests::Cluster;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

fn pem(kind: &str, der: &[u8]) -> String {
    format!(
        "-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n",
        STANDARD.encode(der)
    )
}

/// Writes the files of an authority, of a server and of a client.
fn certificates(directory: &Path, address: &str) {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let certificate = authority.self_signed(&key).expect("a certificate");
    let write = |name: &str, text: String| fs::write(directory.join(name), text).expect("written");
    write("ca.pem", pem("CERTIFICATE", certificate.der()));
    let issuer = Issuer::from_params(&authority, &key);
    for name in ["server", "client"] {
        let mut params = CertificateParams::new([address.to_owned()]).expect("an address");
        // etcd's gateway is a client of its own server, with the server's certificate.
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &issuer).expect("a certificate");
        write(
            &format!("{name}.pem"),
            pem("CERTIFICATE", certificate.der()),
        );
        write(
            &format!("{name}.key"),
            pem("PRIVATE KEY", key.serialized_der()),
        );
        let closed = fs::Permissions::from_mode(0o600);
        fs::set_permissions(directory.join(format!("{name}.key")), closed).expect("our file");
    }
}

#[tokio::test]
async fn a_certificate_opens_the_connection() {
    let secure = Cluster::start_secure(|directory, address| {
        certificates(directory, address);
        let file = |name| directory.join(name).display().to_string();
        vec![
            format!("--cert-file={}", file("server.pem")),
            format!("--key-file={}", file("server.key")),
            format!("--trusted-ca-file={}", file("ca.pem")),
            "--client-cert-auth".into(),
        ]
    });
    let cluster = match secure {
        Ok(cluster) => cluster,
        Err(why) => {
            eprintln!("skipped a_certificate_opens_the_connection: {why}");
            return;
        }
    };
    let file = |name| cluster.directory().join(name);
    let (ca, chain, key) = (file("ca.pem"), file("client.pem"), file("client.key"));
    let client = |tls: Tls| {
        let mut options = Options::new(cluster.endpoints());
        options.tls = Some(tls);
        Client::new(&options).expect("no password in clear")
    };
    let good = client(Tls::from_files(Some(&ca), Some((&chain, &key))).unwrap());
    eventually(async || write(&good, "a", "1").await).await;

    let without = client(Tls::from_files(Some(&ca), None).unwrap());
    let error = write(&without, "a", "2").await.unwrap_err();
    assert!(
        error.to_string().to_lowercase().contains("certificate"),
        "{error}"
    );
    let strange = client(Tls::from_files(Some(&chain), Some((&chain, &key))).unwrap());
    let error = write(&strange, "a", "2").await.unwrap_err();
    assert!(matches!(error, Error::Unreachable(_)), "{error}");
    assert!(
        error.to_string().to_lowercase().contains("certificate"),
        "{error}"
    );
}
