//! Replicas of commits: the state survives the loss of all hosts that train, and each row is trained on once.

use elasticrun_process_tests::{Event, Job, Kind, Running, send_signal};
use nix::sys::signal::Signal;

use crate::{
    durable::finish_an_epoch,
    support::{first, parent_of},
};

/// Two workers on the first host. The second one is not needed for them.
const TRAINS: &str = "-np 2 --min-np 2 --max-np 2 -H localhost:2,127.0.0.1:2 --blacklist forever \
     --log-format json --replicate-commits 1 --replicate-interval 20ms";

/// Rows of the data set. The workers check at the end of each epoch that each row was trained on once.
const ROWS: u64 = 700;

fn training(flags: &str) -> Running {
    let job = flags
        .split_whitespace()
        .fold(Job::new(TRAINS), |job, word| job.flag([word]));
    job.plan(|plan| (plan.rows, plan.step_ms) = (ROWS, 3))
        .start()
}

/// The counts of the commits that were replicated. All are of the first round.
fn replicated(job: &Running) -> Vec<u64> {
    let records = job.decisions("commit_replicated");
    let count = |record: &serde_json::Value| record["commit"]["count"].as_u64().unwrap();
    records.iter().map(count).collect()
}

/// Waits until new processes train, and returns the first event of their round.
fn wait_new_processes(job: &mut Running) -> Event {
    job.wait_for("new processes train", |events| {
        let new = |event: &&Event| event.host == "127.0.0.1";
        let mut new = events.iter().filter(new);
        let begun = new.find(|event| event.kind == Kind::Round)?.clone();
        new.any(|event| event.kind == Kind::Step).then_some(begun)
    })
}

#[test]
fn a_host_that_is_lost_with_all_workers_is_replaced_from_a_replica() {
    let mut job = training("");
    let workers = job.wait_training(2, 30);
    job.wait_until("commits are replicated", |job| {
        (replicated(job).len() > 2).then_some(())
    });
    assert_eq!(workers[0].host, "localhost");
    let before = replicated(&job);
    send_signal(parent_of(workers[0].pid), Signal::SIGKILL);
    let begun = wait_new_processes(&mut job);
    // The test worker commits each step.
    assert!(begun.step >= *before.last().unwrap(), "{begun:?}");
    assert!(replicated(&job).contains(&begun.step), "{begun:?}");
    let from = job.events().len();
    let ended = finish_an_epoch(job, from);
    assert_eq!(ended.sizes(), [2, 2]);
}

#[test]
fn without_replicas_the_state_is_lost_with_the_host() {
    let flags = TRAINS.split(" --replicate").next().unwrap();
    // A tenth of it is the wait for a host that may return.
    let mut job = Job::new(flags).flag(["--elastic-timeout", "10s"]).start();
    let workers = job.wait_training(2, 30);
    send_signal(parent_of(workers[0].pid), Signal::SIGKILL);
    let ended = job.end();
    assert_eq!(ended.code, 6, "{}", ended.stderr);
}

#[test]
fn no_replica_is_made_while_members_are_on_enough_hosts() {
    let mut job = Job::new("-np 2 --min-np 1 --max-np 2 -H localhost:1,127.0.0.1:1,[::1]:1")
        .flag(["--log-format", "json", "--replicate-commits", "1"])
        .flag(["--replicate-interval", "20ms"])
        .start();
    job.wait_training(2, 200);
    assert_eq!(replicated(&job), [] as [u64; 0]);
    assert!(!job.said().contains("\"::1\""), "{}", job.said());
    job.finish();
    let ended = job.end();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(first(&ended.events, Kind::Round).size, 2);
}
