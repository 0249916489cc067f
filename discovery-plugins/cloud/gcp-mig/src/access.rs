//! Access tokens from a key file, from the login of gcloud, or from the metadata service of the instance.

use std::{
    env, fs,
    path::PathBuf,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use elasticrun_plugin_http::{Answer, Ask, ask};
use elasticrun_plugin_sdk::{ErrorKind, PluginError};
use ring::{rand::SystemRandom, signature};
use serde_json::{Value, json};
use ureq::Agent;

use crate::error::text;

const SCOPE: &str = "https://www.googleapis.com/auth/compute.readonly";
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
/// Time before its end at which a token is renewed.
const RENEW_BEFORE: Duration = Duration::from_secs(120);

/// The source of tokens, with a cache of the last one.
#[derive(Debug, Default)]
pub(crate) struct Access {
    token: Option<(String, Instant)>,
}

impl Access {
    /// A valid token.
    ///
    /// # Errors
    /// No source gives a token.
    pub(crate) fn token(&mut self, agent: &Agent, until: Instant) -> Result<String, PluginError> {
        if let Some((token, end)) = &self.token
            && Instant::now() + RENEW_BEFORE < *end
        {
            return Ok(token.clone());
        }
        let answer = match key_file() {
            Some(path) => token_from_file(agent, &path, until)?,
            None => token_from_metadata(agent, until)?,
        };
        if answer.status != 200 {
            let why = [
                text(&answer.body, "error"),
                text(&answer.body, "error_description"),
            ];
            let why = why.join(" ");
            return Err(refused(format!(
                "no access token: {} {}",
                answer.status,
                why.trim()
            )));
        }
        let token = text(&answer.body, "access_token").to_owned();
        if token.is_empty() {
            return Err(refused("no access token: the answer has none"));
        }
        let seconds = answer.body["expires_in"].as_u64().unwrap_or(0);
        self.token = Some((token.clone(), Instant::now() + Duration::from_secs(seconds)));
        Ok(token)
    }
}

fn refused(why: impl Into<String>) -> PluginError {
    PluginError::new(ErrorKind::Auth, why)
}

/// `GOOGLE_APPLICATION_CREDENTIALS`, or the file of gcloud's login.
fn key_file() -> Option<PathBuf> {
    if let Some(path) =
        env::var_os("GOOGLE_APPLICATION_CREDENTIALS").filter(|path| !path.is_empty())
    {
        return Some(path.into());
    }
    let config = env::var_os("CLOUDSDK_CONFIG").map(PathBuf::from);
    let config =
        config.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".config/gcloud")))?;
    let path = config.join("application_default_credentials.json");
    path.is_file().then_some(path)
}

fn token_from_file(agent: &Agent, path: &PathBuf, until: Instant) -> Result<Answer, PluginError> {
    let bad = |why: &str| PluginError::bad_config(format!("credentials {}: {why}", path.display()));
    let key = fs::read(path).map_err(|error| bad(&error.to_string()))?;
    let key: Value = serde_json::from_slice(&key).map_err(|error| bad(&error.to_string()))?;
    let uri = Some(text(&key, "token_uri"))
        .filter(|uri| !uri.is_empty())
        .unwrap_or(TOKEN_URI);
    match text(&key, "type") {
        "authorized_user" => {
            let fields = [
                ("grant_type", "refresh_token"),
                ("client_id", text(&key, "client_id")),
                ("client_secret", text(&key, "client_secret")),
                ("refresh_token", text(&key, "refresh_token")),
            ];
            ask(agent, uri, &Ask::Form(&fields), &[], until)
        }
        "service_account" => {
            let assertion = assertion(&key, uri).map_err(bad)?;
            let fields = [
                ("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer"),
                ("assertion", assertion.as_str()),
            ];
            ask(agent, uri, &Ask::Form(&fields), &[], until)
        }
        other => Err(bad(&format!(
            "the type {other:?} cannot be used; service_account and authorized_user can"
        ))),
    }
}

/// The signed assertion by which a service account gets a token (RFC 7523).
fn assertion(key: &Value, uri: &str) -> Result<String, &'static str> {
    const BAD: &str = "private_key is no RSA key in PEM (PKCS #8)";
    let pem = text(key, "private_key");
    let body: String = pem
        .lines()
        .filter(|line| !line.starts_with("-----"))
        .collect();
    let der = STANDARD.decode(body.trim()).map_err(|_| BAD)?;
    let pair = signature::RsaKeyPair::from_pkcs8(&der).map_err(|_| BAD)?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    let head = json!({"alg": "RS256", "typ": "JWT", "kid": text(key, "private_key_id")});
    let claims = json!({
        "iss": text(key, "client_email"), "scope": SCOPE, "aud": uri, "iat": now, "exp": now + 3600,
    });
    let encoded = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encoded(head), encoded(claims));
    let mut bytes = vec![0; pair.public().modulus_len()];
    pair.sign(
        &signature::RSA_PKCS1_SHA256,
        &SystemRandom::new(),
        signed.as_bytes(),
        &mut bytes,
    )
    .map_err(|_| BAD)?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(bytes)))
}

fn token_from_metadata(agent: &Agent, until: Instant) -> Result<Answer, PluginError> {
    // Outside of Google Cloud the name does not resolve, which fails soon.
    const TIMEOUT: Duration = Duration::from_secs(3);
    let host = env::var("GCE_METADATA_HOST").unwrap_or_else(|_| "metadata.google.internal".into());
    let url = format!("http://{host}/computeMetadata/v1/instance/service-accounts/default/token");
    let until = until.min(Instant::now() + TIMEOUT);
    ask(
        agent,
        &url,
        &Ask::Get,
        &[("Metadata-Flavor", "Google")],
        until,
    )
    .map_err(|error| {
        refused(format!(
            "no Google credentials were found; set GOOGLE_APPLICATION_CREDENTIALS, log in by \
             `gcloud auth application-default login`, or run on an instance ({error})"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use elasticrun_cloud_tests::StandIn;
    use std::{fs, process::Command};

    #[test]
    fn a_service_account_signs_its_identity() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let openssl = |words: &[&str]| {
            let output = Command::new("openssl").args(words).output().unwrap();
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
        };
        let (private, public) = (path("private.pem"), path("public.der"));
        openssl(&[
            "genpkey",
            "-algorithm",
            "RSA",
            "-pkeyopt",
            "rsa_keygen_bits:2048",
            "-out",
            &private,
        ]);
        openssl(&[
            "rsa",
            "-in",
            &private,
            "-RSAPublicKey_out",
            "-outform",
            "DER",
            "-out",
            &public,
        ]);
        let key =
            json!({"client_email": "me@lab", "private_key": fs::read_to_string(&private).unwrap()});
        let assertion = assertion(&key, TOKEN_URI).unwrap();
        let (signed, sealed) = assertion.rsplit_once('.').unwrap();
        let public = signature::UnparsedPublicKey::new(
            &signature::RSA_PKCS1_2048_8192_SHA256,
            fs::read(&public).unwrap(),
        );
        public
            .verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(sealed).unwrap())
            .unwrap();
        let claims = signed.split('.').nth(1).unwrap();
        let claims: Value =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
        assert_eq!(
            (&claims["iss"], &claims["aud"]),
            (&json!("me@lab"), &json!(TOKEN_URI))
        );
        assert_eq!(
            claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(),
            3600
        );
        assert!(super::assertion(&json!({"private_key": "x"}), TOKEN_URI).is_err());
    }

    /// Gets a token in its own environment. Returns it and the calls on the test server.
    fn token(gce: &mut StandIn, name: &str, value: &str) -> (Result<String, PluginError>, Value) {
        for other in ["GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST"] {
            // SAFETY: nextest runs each test in its own process, and there is no other thread yet.
            unsafe { env::remove_var(other) };
        }
        // SAFETY: as above.
        unsafe {
            env::set_var("CLOUDSDK_CONFIG", "/nowhere");
            env::set_var(name, value);
        }
        let (agent, until) = (
            elasticrun_plugin_http::agent(),
            Instant::now() + Duration::from_secs(10),
        );
        let mut access = Access::default();
        let first = access.token(&agent, until);
        if first.is_ok() {
            assert_eq!(
                access.token(&agent, until).unwrap(),
                "t",
                "the first one is still good"
            );
        }
        (first, gce.order(json!({"do": "calls"})))
    }

    #[test]
    fn a_token_comes_from_the_instance_or_from_a_key_file_and_is_kept() {
        let mut gce = StandIn::gce();
        let host = format!("127.0.0.1:{}", gce.port);
        let (got, asked) = token(&mut gce, "GCE_METADATA_HOST", &host);
        assert_eq!(got.unwrap(), "t");
        assert_eq!(asked.as_array().unwrap().len(), 1);
        assert_eq!(
            asked[0]["path"],
            "/computeMetadata/v1/instance/service-accounts/default/token"
        );
        assert_eq!(asked[0]["headers"]["metadata-flavor"], "Google");

        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key.json");
        let key = |key: Value| fs::write(&file, key.to_string()).unwrap();
        let path = file.display().to_string();
        let uri = format!("{}/token", gce.endpoint());
        key(
            json!({"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r",
            "token_uri": uri}),
        );
        let (got, asked) = token(&mut gce, "GOOGLE_APPLICATION_CREDENTIALS", &path);
        assert_eq!(got.unwrap(), "t");
        let form = json!({"grant_type": "refresh_token", "client_id": "c", "client_secret": "s",
            "refresh_token": "r"});
        assert_eq!(asked[0]["form"], form);

        gce.order(json!({"do": "fail", "action": "token", "status": 400}));
        let refused = token(&mut gce, "GOOGLE_APPLICATION_CREDENTIALS", &path)
            .0
            .unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Auth);
        key(json!({"type": "external_account"}));
        let refused = token(&mut gce, "GOOGLE_APPLICATION_CREDENTIALS", &path)
            .0
            .unwrap_err();
        assert_eq!(refused.kind, ErrorKind::BadConfig);
        assert_eq!(
            refused.message,
            format!(
                r#"credentials {path}: the type "external_account" cannot be used; service_account and authorized_user can"#
            )
        );
    }

    #[test]
    fn without_credentials_the_message_has_a_remedy() {
        let mut gce = StandIn::gce();
        let (got, _) = token(&mut gce, "GCE_METADATA_HOST", "127.0.0.1:1");
        let error = got.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Auth);
        assert!(error.message.starts_with(
            "no Google credentials were found; set GOOGLE_APPLICATION_CREDENTIALS, log in by `gcloud"
        ));
    }
}
