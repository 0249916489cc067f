//! The libraries of the cloud plugins pass the conformance suite, each with its test server.

#![allow(clippy::unwrap_used)]

use std::{fs, path::PathBuf};

use elasticrun_cloud_tests::{StandIn, ids};
use elasticrun_process_tests::assert_conforms;
use serde_json::json;

/// The directory of the libraries of the workspace.
fn libraries() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.ancestors().nth(2).unwrap().to_owned()
}

fn set(variables: &[(&str, &str)]) {
    for (name, value) in variables {
        // SAFETY: nextest runs each test in its own process, and there is no other thread yet.
        unsafe { std::env::set_var(name, value) };
    }
}

#[test]
fn aws_asg_keeps_all_rules() {
    let mut aws = StandIn::aws();
    set(&[
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ]);
    aws.order(json!({"do": "group", "name": "g", "desired": 3}));
    let endpoint = aws.endpoint();
    let spec = format!("aws-asg:name=g,region=eu-central-1,endpoint={endpoint}");
    assert_conforms(&spec, &libraries());
}

#[test]
fn gcp_mig_keeps_all_rules() {
    let mut gce = StandIn::gce();
    let path = "projects/lab/zones/europe-west4-a/instanceGroupManagers/gpus";
    let group = json!({"do": "group", "path": path, "zones": ["europe-west4-a"], "desired": 3});
    assert_eq!(ids(gce.order(group)).len(), 3);
    let endpoint = gce.endpoint();
    let spec = format!("gcp-mig:group=lab/europe-west4-a/gpus,endpoint={endpoint}");
    assert_conforms(&spec, &libraries());
}

#[test]
fn kubernetes_keeps_all_rules() {
    let mut cluster = StandIn::kubernetes();
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config");
    fs::write(&config, cluster.kubeconfig()).unwrap();
    set(&[("KUBECONFIG", config.to_str().unwrap())]);
    for name in ["train-0", "train-1"] {
        cluster.order(json!({"do": "pod", "name": name, "namespace": "lab"}));
    }
    assert_conforms("kubernetes:selector=app=train", &libraries());
}
