//! Kinds of credentials, tokens that are refused, and answers of other servers, through the plugin.

#![allow(clippy::unwrap_used)]

use std::{env, ffi::OsStr, fs, path::PathBuf, time::Duration};

use elasticrun_cloud_tests::StandIn;
use elasticrun_plugin_gcp_mig::GcpMig;
use elasticrun_plugin_sdk::{ErrorKind, Plugin, PluginError, from_options};
use serde_json::{Value, json};
use tempfile::TempDir;

const PLENTY: Duration = Duration::from_secs(30);
const GROUP: &str = "projects/lab/zones/europe-west4-a/instanceGroupManagers/gpus";

/// A group of one instance behind TLS, in an environment without credentials.
struct Cloud {
    gce: StandIn,
    files: TempDir,
    endpoint: String,
}

impl Cloud {
    fn start() -> Self {
        let mut gce = StandIn::gce();
        gce.order(json!({"do": "group", "path": GROUP, "zones": ["europe-west4-a"], "desired": 1}));
        let tls = gce.order(json!({"do": "tls"}));
        let files = tempfile::tempdir().unwrap();
        let cloud = Self {
            gce,
            files,
            endpoint: format!("https://127.0.0.1:{}", tls["port"]),
        };
        set(
            "SSL_CERT_FILE",
            cloud.file("ca.pem", tls["authority"].as_str().unwrap()),
        );
        set("CLOUDSDK_CONFIG", cloud.files.path());
        set("GCE_METADATA_HOST", "127.0.0.1:1");
        cloud
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.files.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Makes these the credentials of this environment. Returns their file.
    fn credentials(&self, text: &str) -> PathBuf {
        let path = self.file("key.json", text);
        set("GOOGLE_APPLICATION_CREDENTIALS", &path);
        path
    }

    /// The login of a user, as a file of gcloud has it.
    fn login(&self) -> Value {
        json!({"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r",
            "token_uri": format!("{}/token", self.gce.endpoint())})
    }

    fn plugin(&self) -> GcpMig {
        let options = json!({"group": "lab/europe-west4-a/gpus", "endpoint": self.endpoint});
        GcpMig::create(from_options(options.to_string().as_bytes()).unwrap()).unwrap()
    }

    /// The calls of one poll, which succeeds.
    fn calls(&mut self, plugin: &mut GcpMig) -> Vec<Value> {
        self.gce.calls();
        assert_eq!(plugin.poll(PLENTY).unwrap().hosts.len(), 1);
        let calls = self.gce.order(json!({"do": "calls"}));
        serde_json::from_value(calls).unwrap()
    }

    fn error(&self) -> PluginError {
        self.plugin().poll(PLENTY).unwrap_err()
    }
}

fn set(name: &str, value: impl AsRef<OsStr>) {
    // SAFETY: nextest runs each test in its own process, and no other thread reads the environment yet.
    unsafe { env::set_var(name, value) };
}

fn actions(calls: &[Value]) -> Vec<&str> {
    calls
        .iter()
        .map(|call| call["action"].as_str().unwrap())
        .collect()
}

#[test]
fn a_login_gives_a_token_which_is_kept() {
    let mut cloud = Cloud::start();
    let login = cloud.login().to_string();
    cloud.file("application_default_credentials.json", &login);
    let mut plugin = cloud.plugin();
    let calls = cloud.calls(&mut plugin);
    assert_eq!(
        actions(&calls),
        ["token", "managed", "get_instance", "machine_type"]
    );
    let form = &calls[0]["form"];
    assert_eq!(form["grant_type"], "refresh_token");
    assert_eq!(form["refresh_token"], "r");
    assert_eq!(calls[1]["headers"]["authorization"], "Bearer t");
    assert_eq!(actions(&cloud.calls(&mut plugin)), ["managed"]);
}

#[test]
fn a_revoked_token_is_renewed() {
    let mut cloud = Cloud::start();
    cloud.credentials(&cloud.login().to_string());
    let mut plugin = cloud.plugin();
    cloud.calls(&mut plugin);
    cloud.gce.order(json!({"do": "revoke", "token": "u"}));
    let calls = cloud.calls(&mut plugin);
    assert_eq!(actions(&calls), ["managed", "token", "managed"]);
    assert_eq!(calls[2]["headers"]["authorization"], "Bearer u");

    // A token that is refused at once is not asked for again before the next poll.
    let refused = json!({"do": "fail", "action": "managed", "status": 401, "reason": "authError", "times": 9});
    cloud.gce.order(refused);
    cloud.gce.calls();
    assert_eq!(plugin.poll(PLENTY).unwrap_err().kind, ErrorKind::Auth);
    assert_eq!(cloud.gce.calls(), ["managed", "token", "managed"]);
}

#[test]
fn the_account_of_an_instance_is_used() {
    let mut cloud = Cloud::start();
    set("GCE_METADATA_HOST", format!("127.0.0.1:{}", cloud.gce.port));
    let mut plugin = cloud.plugin();
    let calls = cloud.calls(&mut plugin);
    assert_eq!(actions(&calls)[..2], ["token", "managed"]);
    let path = "/computeMetadata/v1/instance/service-accounts/default/token";
    assert_eq!(calls[0]["path"], path);
    assert_eq!(calls[0]["headers"]["metadata-flavor"], "Google");
}

#[test]
fn workload_identity_is_exchanged() {
    let mut cloud = Cloud::start();
    let subject = cloud.file("subject", "its-token");
    let key = json!({
        "type": "external_account", "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
        "token_url": format!("{}/token", cloud.gce.endpoint()), "credential_source": {"file": subject},
    });
    cloud.credentials(&key.to_string());
    let mut plugin = cloud.plugin();
    let calls = cloud.calls(&mut plugin);
    assert_eq!(actions(&calls)[..2], ["token", "managed"]);
    assert_eq!(calls[0]["form"]["subject_token"], "its-token");
    assert_eq!(calls[1]["headers"]["authorization"], "Bearer t");
}

#[test]
fn a_service_account_is_impersonated() {
    let mut cloud = Cloud::start();
    let url = "/v1/projects/-/serviceAccounts/me@lab.iam.gserviceaccount.com:generateAccessToken";
    let key = json!({
        "type": "impersonated_service_account", "source_credentials": cloud.login(),
        "service_account_impersonation_url": format!("{}{url}", cloud.gce.endpoint()),
    });
    cloud.credentials(&key.to_string());
    let mut plugin = cloud.plugin();
    let calls = cloud.calls(&mut plugin);
    assert_eq!(actions(&calls)[..3], ["token", "impersonate", "managed"]);
}

#[test]
fn credentials_that_cannot_be_used_are_named() {
    let mut cloud = Cloud::start();
    let error = cloud.error();
    assert_eq!(error.kind, ErrorKind::Auth, "{error}");
    let remedy =
        "no Google credentials were found; set GOOGLE_APPLICATION_CREDENTIALS, log in by `gcloud";
    assert!(error.message.starts_with(remedy), "{error}");

    for (key, why) in [
        ("x", "is not JSON: "),
        (
            r#"{"type": "x"}"#,
            r#"the type "x" cannot be used; authorized_user, "#,
        ),
        (r#"{"type": "service_account"}"#, ""),
    ] {
        let path = cloud.credentials(key);
        let error = cloud.error();
        assert_eq!(error.kind, ErrorKind::BadConfig, "{error}");
        let start = format!("credentials {}: {why}", path.display());
        assert!(error.message.starts_with(&start), "{error}");
    }

    cloud.credentials(&cloud.login().to_string());
    for (status, kind) in [(400, ErrorKind::Auth), (503, ErrorKind::Retryable)] {
        cloud
            .gce
            .order(json!({"do": "fail", "action": "token", "status": status}));
        let error = cloud.error();
        assert_eq!(error.kind, kind, "{error}");
        let start = "no access token: failed to refresh user access token, body=<";
        assert!(error.message.starts_with(start), "{error}");
    }
}

#[test]
fn an_answer_of_another_server_is_told_by_its_status() {
    let mut cloud = Cloud::start();
    cloud.credentials(&cloud.login().to_string());
    let mut plugin = cloud.plugin();
    cloud.calls(&mut plugin);
    for (status, kind) in [
        (200, ErrorKind::Retryable),
        (403, ErrorKind::Auth),
        (407, ErrorKind::Auth),
        (429, ErrorKind::Throttled),
        (502, ErrorKind::Retryable),
    ] {
        cloud.gce.order(json!({"do": "fail", "action": "managed", "status": status, "body": "<html>\nof a proxy\n"}));
        let error = plugin.poll(PLENTY).unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        let what = "listManagedInstances of gpus in zone europe-west4-a of project lab: ";
        assert!(error.message.starts_with(what), "{error}");
        let said = match status {
            200 => "no answer of Compute Engine: ".to_owned(),
            _ => format!("{what}{status}: no answer of Compute Engine: <html> of a proxy"),
        };
        assert!(error.message.contains(&said), "{error}");
    }
}
