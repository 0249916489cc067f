//! No credentials and no region. The test changes the environment, so it is alone in this file.

#![allow(clippy::unwrap_used)]

mod common;

use common::PLENTY;
use elasticrun_plugin_aws_asg::AwsAsg;
use elasticrun_plugin_sdk::{ErrorKind, Plugin, from_options};

#[test]
fn what_is_missing_is_named_with_the_way_to_give_it() {
    let home = tempfile::tempdir().unwrap();
    let names: Vec<_> = std::env::vars_os().map(|(name, _)| name).collect();
    for name in names {
        if name.to_string_lossy().starts_with("AWS_") {
            // SAFETY: this file has one test, and no other thread reads the environment yet.
            unsafe { std::env::remove_var(name) };
        }
    }
    // SAFETY: as above.
    unsafe {
        std::env::set_var("HOME", home.path());
        std::env::set_var("AWS_EC2_METADATA_DISABLED", "true");
    }
    let error = AwsAsg::create(from_options(br#"{"name": "g"}"#).unwrap()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::BadConfig);
    assert_eq!(
        error.message,
        "no region is set; give region=NAME, or set AWS_REGION"
    );

    let options = br#"{"name": "g", "region": "eu-central-1", "endpoint": "http://127.0.0.1:9"}"#;
    let mut plugin = AwsAsg::create(from_options(options).unwrap()).unwrap();
    let error = plugin.poll(PLENTY).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Auth);
    assert_eq!(
        error.message,
        "no AWS credentials were found; set AWS_PROFILE or AWS_ACCESS_KEY_ID, or run where an instance role is"
    );
}
