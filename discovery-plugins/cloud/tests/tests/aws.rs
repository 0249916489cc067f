//! Jobs on an Auto Scaling group: real driver, agents and workers, the plugin as a library. moto simulates AWS.
//!
//! The addresses of the instances are invented, so the agents run on this machine. Each is its own host.

#![allow(clippy::unwrap_used)]

use elasticrun_cloud_tests::{StandIn, ids};
use elasticrun_process_tests::{Job, Running};
use serde_json::json;

/// A job on the group `g` with a minimum of workers.
fn start(aws: &StandIn, min_np: u32, more: &str) -> Running {
    for (name, value) in [
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ] {
        // SAFETY: nextest runs each test in its own process, and there is no other thread yet.
        unsafe { std::env::set_var(name, value) };
    }
    let program = std::env::current_exe().unwrap();
    let plugins = program.ancestors().nth(2).unwrap().display().to_string();
    let source = format!(
        "aws-asg:name=g,region=eu-central-1,endpoint={}{more}",
        aws.endpoint()
    );
    Job::new("-np 2 --max-np 4 --launcher local --slots-per-host 1")
        .flag(["--min-np", &min_np.to_string()])
        .flag(["--plugin-dir", &plugins, "--discovery", &source])
        .start()
}

#[test]
fn a_job_grows_and_shrinks_with_its_group() {
    let mut aws = StandIn::aws();
    aws.order(json!({"do": "group", "name": "g", "desired": 2}));
    let mut job = start(&aws, 1, "");
    let two = job.wait_training(2, 3);
    let members = ids(aws.order(json!({"do": "desired", "name": "g", "count": 3})));
    let three = job.wait_training(3, two[0].step);
    let hosts: Vec<_> = three.iter().map(|event| event.host.as_str()).collect();
    assert_eq!(hosts, members);
    aws.order(json!({"do": "desired", "name": "g", "count": 1}));
    job.wait_training(1, three[0].step);
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [2, 3, 1]);
    assert!(!ended.stderr.contains("failed"), "{}", ended.stderr);
}

#[test]
fn a_job_drains_an_instance_that_waits_to_be_terminated() {
    let mut aws = StandIn::aws();
    let members = ids(aws.order(json!({"do": "group", "name": "g", "desired": 3})));
    aws.order(json!({"do": "hook", "group": "g", "name": "drain", "seconds": 60}));
    let mut job = start(&aws, 1, ",complete_hook=true");
    let three = job.wait_training(3, 3);
    aws.order(json!({"do": "life", "id": members[0], "state": "Terminating:Wait"}));
    let two = job.wait_training(2, three[0].step);
    assert!(two.iter().all(|event| event.host != members[0]));
    // The job ends the wait, long before its timeout.
    job.wait_for("the hook is completed", |_| {
        aws.calls()
            .contains(&"CompleteLifecycleAction".to_owned())
            .then_some(())
    });
    assert!(
        aws.order(json!({"do": "life_of", "id": members[0]}))
            .is_null(),
        "the group has let it go"
    );
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [3, 2]);
    assert!(!ended.stderr.contains("failed"), "{}", ended.stderr);
}

#[test]
fn a_job_that_ends_while_an_instance_waits_completes_its_hook() {
    let mut aws = StandIn::aws();
    let members = ids(aws.order(json!({"do": "group", "name": "g", "desired": 2})));
    aws.order(json!({"do": "hook", "group": "g", "name": "drain", "seconds": 600}));
    let mut job = start(&aws, 2, ",complete_hook=true");
    job.wait_training(2, 3);
    aws.order(json!({"do": "life", "id": members[0], "state": "Terminating:Wait"}));
    job.wait_said(&format!("host {} will go away", members[0]));
    // No other worker could continue, so this one still trains when the job ends.
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [2]);
    assert!(
        aws.calls().contains(&"CompleteLifecycleAction".to_owned()),
        "{}",
        ended.stderr
    );
    assert!(
        aws.order(json!({"do": "life_of", "id": members[0]}))
            .is_null(),
        "the group has let it go"
    );
}

#[test]
fn a_group_that_does_not_exist_ends_the_job_with_one_line() {
    let aws = StandIn::aws();
    let ended = start(&aws, 1, "").end();
    ended.expect(
        5,
        &[
            "no Auto Scaling group g in region eu-central-1",
            "check the name, the region and the account",
        ],
    );
}
