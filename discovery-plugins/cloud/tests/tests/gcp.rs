//! A job on a managed instance group: real driver, agents and workers, the plugin as a library.
//!
//! The addresses of the instances are invented, so the agents run on this machine. Each is its own host.

#![allow(clippy::unwrap_used)]

use elasticrun_cloud_tests::{StandIn, ids};
use elasticrun_process_tests::Job;
use serde_json::json;

const GROUP: &str = "projects/lab/zones/europe-west4-a/instanceGroupManagers/gpus";

#[test]
fn a_job_grows_drains_and_shrinks_with_its_group() {
    let mut gce = StandIn::gce();
    gce.order(json!({"do": "group", "path": GROUP, "zones": ["europe-west4-a"], "desired": 2}));
    let program = std::env::current_exe().unwrap();
    let plugins = program.ancestors().nth(2).unwrap().display().to_string();
    let source = format!("lab/europe-west4-a/gpus:endpoint={}", gce.endpoint());
    let mut job = Job::new("-np 2 --min-np 1 --max-np 4 --launcher local --slots-per-host 1")
        .flag(["--plugin-dir", &plugins, "--gcp-mig", &source])
        .start();
    let two = job.wait_training(2, 3);
    let members = ids(gce.order(json!({"do": "desired", "path": GROUP, "count": 3})));
    let three = job.wait_training(3, two[0].step);
    let hosts: Vec<_> = three.iter().map(|event| event.host.as_str()).collect();
    assert_eq!(hosts, members);
    gce.order(json!({"do": "set", "id": members[0], "action": "DELETING"}));
    let left = job.wait_training(2, three[0].step);
    assert!(left.iter().all(|event| event.host != members[0]));
    gce.order(json!({"do": "set", "id": members[2], "status": "TERMINATED"}));
    job.wait_training(1, left[0].step);
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [2, 3, 2, 1]);
    assert!(!ended.stderr.contains("failed"), "{}", ended.stderr);
}
