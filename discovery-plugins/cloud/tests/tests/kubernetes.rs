//! A job on pods: real driver, agents and workers, the plugin as a library.
//!
//! The pods are those of a test server, so the agents run on this machine. Each is its own host.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    time::{Duration, Instant},
};

use elasticrun_cloud_tests::StandIn;
use elasticrun_process_tests::Job;
use serde_json::json;

/// Shorter than the poll interval, so that a poll does not find the change.
const PUSHED: Duration = Duration::from_secs(7);

#[test]
fn a_job_follows_its_pods_as_they_change_and_through_watches_that_end() {
    let mut cluster = StandIn::kubernetes();
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config");
    fs::write(&config, cluster.kubeconfig()).unwrap();
    // SAFETY: nextest runs each test in its own process, and there is no other thread yet.
    unsafe { std::env::set_var("KUBECONFIG", &config) };
    let pod = |cluster: &mut StandIn, name: &str| {
        let id = cluster.order(json!({"do": "pod", "name": name, "namespace": "lab"}));
        id.as_str().unwrap().to_owned()
    };
    let program = std::env::current_exe().unwrap();
    let plugins = program.ancestors().nth(2).unwrap().display().to_string();
    let first = pod(&mut cluster, "train-0");
    let mut job = Job::new("-np 1 --min-np 1 --max-np 4 --launcher local --slots-per-host 1")
        .flag(["--plugin-dir", &plugins, "--k8s", "app=train"])
        .start();
    let one = job.wait_training(1, 3);
    assert_eq!(one[0].host, first);

    let started = Instant::now();
    pod(&mut cluster, "train-1");
    let two = job.wait_training(2, one[0].step);
    assert!(started.elapsed() < PUSHED, "{:?}", started.elapsed());

    // A watch that ends, and one that expires, are restarted.
    for (order, name) in [("breaks", "train-2"), ("expire", "train-3")] {
        cluster.order(json!({"do": order}));
        pod(&mut cluster, name);
    }
    let four = job.wait_training(4, two[0].step);

    let started = Instant::now();
    cluster.order(json!({"do": "delete", "name": "train-0"}));
    let three = job.wait_training(3, four[0].step);
    assert!(started.elapsed() < PUSHED, "{:?}", started.elapsed());
    assert!(three.iter().all(|event| event.host != first));
    cluster.order(json!({"do": "gone", "name": "train-0"}));
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert!(!ended.stderr.contains("failed"), "{}", ended.stderr);
}
