//! Durable commits in a bucket. `make test-s3` runs these tests with the address of a service and credentials in the
//! environment (`AWS_ENDPOINT_URL`, ...), which has a bucket of the name `bucket`.

use elasticrun_process_tests::{Job, Kind, Running, binaries};

use crate::{
    durable::{ROWS, TRAINS, continues, wait_written},
    parameter_servers::{accuracy, digits},
};

/// A job that trains on rows, and the place of its commits, which no other test uses.
fn training() -> (Running, String) {
    let job = Job::new(TRAINS);
    let (_, tag) = job.tag().variable();
    let place = format!("s3://bucket/commits/{tag}");
    let job = job.flag([place.as_str()]);
    let job = job.plan(|plan| (plan.rows, plan.step_ms) = (ROWS, 3));
    (job.start(), place)
}

#[test]
#[ignore = "needs a service: make test-s3"]
fn a_machine_that_is_started_again_continues_from_the_bucket() {
    let (mut job, place) = training();
    job.wait_training(2, 30);
    wait_written(&mut job, 3);
    job.kill_everything();
    let before = job.events().len();
    let newest = job.events().iter().map(|event| event.step).max().unwrap();
    let worker = binaries::worker().display().to_string();
    let job = job.resume(&format!("{TRAINS} {place} --resume-from latest {worker}"));
    continues(job, before, newest);
}

#[test]
#[ignore = "needs a service: make test-s3"]
fn a_bucket_that_does_not_exist_is_one_warning() {
    let job = Job::new(TRAINS).flag(["s3://nowhere/commits"]);
    let mut job = job.start();
    job.wait_said("durable_commit_failed");
    let step = job.wait_training(2, 1)[0].step;
    job.wait_training(2, step + 100);
    let [failed] = job.decisions("durable_commit_failed").try_into().unwrap();
    let why = failed["reason"].as_str().unwrap();
    assert!(
        why.starts_with("s3://nowhere/commits is not a durable store: "),
        "{why}"
    );
    job.finish();
    assert_eq!(job.end().code, 0);
}

#[test]
#[ignore = "needs a service: make test-s3"]
fn a_large_state_is_written_in_parts() {
    let job = Job::new(TRAINS);
    let (_, tag) = job.tag().variable();
    let place = format!("s3://bucket/commits/{tag}");
    let job = job.flag([place.as_str()]);
    let mut job = job.plan(|plan| plan.ballast = 40 << 20).start();
    job.wait_training(2, 3);
    // The first one may be the start of the round.
    wait_written(&mut job, 2);
    job.kill_everything();
    let before = job.events().len();
    let worker = binaries::worker().display().to_string();
    let mut job = job.resume(&format!("{TRAINS} {place} --resume-from latest {worker}"));
    let first = job.wait_for("it trains again", |events| {
        let mut new = events[before..].iter();
        new.find(|event| event.kind == Kind::Round).cloned()
    });
    assert!(first.step > 0, "{first:?}");
    job.finish();
    assert_eq!(job.end().code, 0);
}

#[test]
#[ignore = "needs a service: make test-s3"]
fn the_values_of_parameter_servers_are_saved_there() {
    let place = format!("s3://bucket/values-{}", std::process::id());
    let flags = format!("-np 2 --ps 2 --ps-replicas 1 --ps-snapshots {place}");
    let ended = digits(&flags, "5").run();
    ended.expect(0, &["succeeded"]);
    let again = digits(&flags, "0").run();
    again.expect(0, &["succeeded"]);
    assert_eq!(accuracy(&again), accuracy(&ended));
}
