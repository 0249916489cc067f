//! Values are saved while a job runs and at its end, and the next job begins with them: real processes.

#![allow(clippy::unwrap_used, reason = "a helper of a test is a test")]

#[allow(dead_code)]
mod support;

use std::{fs, path::Path};

use nix::sys::signal::Signal;
use support::{Node, finish, free_port};
use tempfile::TempDir;

struct Job {
    scheduler: Node,
    servers: Vec<Node>,
    workers: Vec<Node>,
}

/// The variables of a job that saves its values in a place.
fn variables<'a>(place: &'a str, interval: &'a str, replicas: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        ("PS_ELASTIC", "1"),
        ("PS_REPLICAS", replicas),
        ("ELASTICRUN_PS_SNAPSHOTS", place),
        ("ELASTICRUN_PS_SNAPSHOT_INTERVAL", interval),
        ("PS_HEARTBEAT_INTERVAL", "0.2"),
        ("PS_HEARTBEAT_TIMEOUT", "3"),
        ("PS_VERBOSE", "1"),
    ]
}

impl Job {
    /// A job with two workers.
    fn start(servers: u32, variables: &[(&str, &str)]) -> Self {
        let port = free_port();
        let start = |role| Node::start(role, "snapshots", port, (servers, 2), variables);
        let mut job = Self {
            scheduler: start("scheduler"),
            servers: (0..servers).map(|_| start("server")).collect(),
            workers: vec![start("worker"), start("worker")],
        };
        for worker in &mut job.workers {
            worker.expect("working");
        }
        job
    }

    /// Both workers push once, in order, so that weights are the same in each run.
    fn push(&mut self, round: u64) {
        for worker in &mut self.workers {
            worker.say(&format!("push {round}"));
            worker.expect(&format!("pushed {round}"));
        }
    }

    /// All values.
    fn show(&mut self) -> String {
        self.workers[0].say("show");
        self.workers[0].expect("sums ")
    }

    /// A snapshot of this number.
    fn save(&mut self, number: u64) {
        self.workers[1].say("save");
        self.workers[1].expect(&format!("saved as {number}"));
    }

    fn finish(mut self) {
        for worker in &mut self.workers {
            worker.say("end");
        }
        let nodes = [self.scheduler].into_iter().chain(self.servers);
        finish(nodes.chain(self.workers).collect());
    }

    /// All processes die.
    fn kill(self) {
        let nodes = [self.scheduler].into_iter().chain(self.servers);
        for node in nodes.chain(self.workers) {
            node.signal(Signal::SIGKILL);
            node.end();
        }
    }
}

fn place() -> (TempDir, String) {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().to_str().unwrap().to_owned();
    (place, path)
}

#[test]
fn the_next_job_begins_with_the_values_of_the_last_one() {
    let (_place, path) = place();
    let mut job = Job::start(2, &variables(&path, "0", "1"));
    assert!(
        job.show().starts_with("(None, None)"),
        "there is nothing yet"
    );
    job.push(1);
    job.push(2);
    job.workers[1].say("show");
    let before = job.workers[1].expect("sums ");
    // Each of two workers has pushed key + 1 and key + 2.
    assert!(before.starts_with("(Some(6.0), Some(20002.0))"), "{before}");
    job.finish();

    // More servers, other ranges, no replicas.
    let mut job = Job::start(3, &variables(&path, "0", "0"));
    assert_eq!(job.show(), before);
    job.push(3);
    job.workers[1].say("show");
    let undisturbed = job.workers[1].expect("sums ");
    job.finish();

    // One server, and the state of the optimizer went along: the same weights as in a job that never ended.
    let (_place, other) = self::place();
    let mut whole = Job::start(1, &variables(&other, "0", "0"));
    (1..=3).for_each(|round| whole.push(round));
    assert_eq!(whole.show(), undisturbed);
    whole.finish();
    let mut job = Job::start(1, &variables(&path, "0", "0"));
    assert_eq!(job.show(), undisturbed);
    job.finish();
}

#[test]
fn a_job_that_was_killed_goes_on_from_its_last_snapshot() {
    let (_place, path) = place();
    let mut job = Job::start(2, &variables(&path, "0", "0"));
    job.push(1);
    job.save(1);
    let saved = job.show();
    job.push(2);
    job.kill();
    let mut job = Job::start(2, &variables(&path, "0", "0"));
    assert_eq!(job.show(), saved);
    job.finish();
}

#[test]
fn snapshots_are_taken_while_workers_push() {
    let (place, path) = place();
    let mut job = Job::start(2, &variables(&path, "0.3", "0"));
    let manifest = |number: u64| {
        place
            .path()
            .join(format!("parameter-server/{number}/manifest.json"))
    };
    let mut round = 0;
    // The first two are removed when the fourth is complete.
    while !manifest(4).exists() || manifest(2).exists() {
        round += 1;
        job.push(round);
        assert!(round < 10_000, "no snapshots");
    }
    let before = job.show();
    job.finish();
    let mut job = Job::start(1, &variables(&path, "0", "0"));
    assert_eq!(job.show(), before, "the last one has all that was pushed");
    job.finish();
}

#[test]
fn servers_may_die_while_snapshots_are_taken() {
    let (_place, path) = place();
    let mut job = Job::start(3, &variables(&path, "0.05", "1"));
    for round in 1..=60 {
        job.push(round);
        if round == 20 {
            let dead = job.servers.remove(0);
            dead.signal(Signal::SIGKILL);
            dead.end();
        }
    }
    let before = job.show();
    job.finish();
    let mut job = Job::start(2, &variables(&path, "0", "0"));
    assert_eq!(job.show(), before);
    job.finish();
}

#[test]
fn a_job_whose_last_values_are_not_saved_fails() {
    let (place, path) = place();
    let mut job = Job::start(1, &variables(&path, "0", "0"));
    job.push(1);
    fs::remove_dir_all(place.path()).unwrap();
    job.workers[0].say("save");
    let line = job.workers[0].expect("not saved");
    assert!(
        line.contains(&path) && line.contains("does not exist"),
        "{line}"
    );
    for worker in &mut job.workers {
        worker.say("end");
    }
    for worker in job.workers {
        let error = error_of(worker);
        assert!(error.contains("does not exist"), "{error}");
    }
    finish([job.scheduler].into_iter().chain(job.servers).collect());
}

/// The error of a node, which ends with it.
fn error_of(node: Node) -> String {
    let (status, lines) = node.end();
    assert_eq!(status.code(), Some(3), "{lines:?}");
    lines.last().unwrap().clone()
}

fn damage(place: &Path) {
    let snapshot = place.join("parameter-server/1");
    let files = fs::read_dir(snapshot)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let largest = files.max_by_key(|path| fs::metadata(path).unwrap().len());
    let path = largest.unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn what_cannot_be_read_or_written_is_named() {
    let start = |role, variables: &[(&str, &str)], port| {
        Node::start(role, "snapshots", port, (1, 1), variables)
    };
    let error = error_of(start(
        "scheduler",
        &variables("/nowhere/at/all", "0", "0"),
        free_port(),
    ));
    assert!(
        error.contains("/nowhere/at/all") && error.contains("does not exist"),
        "{error}"
    );
    let mut without = variables("/tmp", "0", "0");
    without.retain(|(name, _)| !name.starts_with("PS_ELASTIC") && *name != "PS_REPLICAS");
    let error = error_of(start("scheduler", &without, free_port()));
    assert!(
        error.contains("ELASTICRUN_PS_SNAPSHOTS needs PS_ELASTIC=1"),
        "{error}"
    );

    let (place, path) = place();
    let mut job = Job::start(1, &variables(&path, "0", "0"));
    job.push(1);
    job.finish();
    damage(place.path());
    let (port, all) = (free_port(), variables(&path, "0", "0"));
    let _scheduler = start("scheduler", &all, port);
    let _worker = start("worker", &all, port);
    let error = error_of(start("server", &all, port));
    assert!(
        error.contains("range-") && error.contains("are not those that were written"),
        "{error}"
    );
}

#[test]
fn a_job_without_a_place_says_what_to_set() {
    let port = free_port();
    let variables = [("PS_ELASTIC", "1")];
    let start = |role| Node::start(role, "snapshots", port, (1, 1), &variables);
    let others = vec![start("scheduler"), start("server")];
    let mut worker = start("worker");
    worker.expect("working");
    worker.say("save");
    let line = worker.expect("not saved");
    assert!(
        line.contains("set ELASTICRUN_PS_SNAPSHOTS for all its nodes"),
        "{line}"
    );
    worker.say("end");
    finish(others.into_iter().chain([worker]).collect());
}
