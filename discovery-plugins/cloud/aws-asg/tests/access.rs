//! Ways to AWS: proxies, certificates and programs that give credentials.

#![allow(clippy::unwrap_used)]

mod common;

use std::{env, fs, path::Path};

use common::{Aws, PLENTY, make};
use elasticrun_plugin_aws_asg::AwsAsg;
use elasticrun_plugin_sdk::{ErrorKind, Plugin, PluginError, Snapshot, from_options};
use serde_json::json;

fn set(name: &str, value: impl AsRef<std::ffi::OsStr>) {
    // SAFETY: nextest runs each test in its own process, and no other thread reads the environment yet.
    unsafe { env::set_var(name, value) };
}

#[test]
fn requests_go_by_the_proxy() {
    let mut aws = Aws::start();
    let ids = aws.group("g", 1);
    set("HTTP_PROXY", aws.endpoint());
    let options = json!({"name": "g", "region": "eu-central-1", "endpoint": "http://aws.invalid"});
    let hosts = make(&options).unwrap().poll(PLENTY).unwrap().hosts;
    assert_eq!(hosts.len(), 1);
    assert_eq!(hosts[0].id.as_str(), ids[0]);
}

#[test]
fn certificates_of_a_bundle_are_trusted() {
    let mut aws = Aws::start();
    aws.group("g", 1);
    let tls = aws.order(json!({"do": "tls"}));
    let endpoint = format!("https://127.0.0.1:{}", tls["port"]);
    let options = json!({"name": "g", "region": "eu-central-1", "endpoint": endpoint});
    let error = make(&options).unwrap().poll(PLENTY).unwrap_err();
    assert!(error.message.contains("certificate"), "{}", error.message);

    let files = tempfile::tempdir().unwrap();
    let bundle = files.path().join("bundle.pem");
    set("AWS_CA_BUNDLE", &bundle);
    let missing = make(&options).unwrap_err();
    assert_eq!(missing.kind, ErrorKind::BadConfig);
    let named = format!("AWS_CA_BUNDLE={}: ", bundle.display());
    assert!(missing.message.starts_with(&named), "{}", missing.message);

    fs::write(&bundle, tls["authority"].as_str().unwrap()).unwrap();
    assert_eq!(make(&options).unwrap().poll(PLENTY).unwrap().hosts.len(), 1);
}

/// The hosts of group `g` by a profile with these lines, without other credentials.
fn poll_with_profile(aws: &Aws, lines: &str) -> Result<Snapshot, PluginError> {
    let files = tempfile::tempdir().unwrap();
    let config = files.path().join("config");
    fs::write(&config, format!("[default]\n{lines}\n")).unwrap();
    set("AWS_CONFIG_FILE", config);
    set("AWS_SHARED_CREDENTIALS_FILE", Path::new("/dev/null"));
    set("AWS_EC2_METADATA_DISABLED", "true");
    let options =
        json!({"name": "g", "region": "eu-central-1", "endpoint": aws.endpoint()}).to_string();
    AwsAsg::create(from_options(options.as_bytes()).unwrap())?.poll(PLENTY)
}

#[test]
fn a_credential_process_is_run() {
    let mut aws = Aws::start();
    aws.group("g", 1);
    let key = tempfile::NamedTempFile::new().unwrap();
    fs::write(
        &key,
        r#"{"Version": 1, "AccessKeyId": "test", "SecretAccessKey": "test"}"#,
    )
    .unwrap();
    let line = format!("credential_process = cat {}", key.path().display());
    assert_eq!(poll_with_profile(&aws, &line).unwrap().hosts.len(), 1);
}

#[test]
fn a_login_session_is_refused_with_a_remedy() {
    let aws = Aws::start();
    let line = "login_session = arn:aws:iam::123456789012:user/me";
    let error = poll_with_profile(&aws, line).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Auth);
    let remedy = r#"run eval "$(aws configure export-credentials --format env)""#;
    assert!(error.message.ends_with(remedy), "{}", error.message);
}
