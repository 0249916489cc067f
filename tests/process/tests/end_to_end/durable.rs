//! Durable commits of real jobs: the state survives the loss of all processes, and each row is trained on once.

use std::fs;

use elasticrun_process_tests::{Event, Job, Kind, Running, binaries, send_signal};
use nix::sys::signal::Signal;

use crate::support::{assert_nothing_lost, parent_of};

/// Two workers whose commits are written all the time.
pub(crate) const TRAINS: &str =
    "-np 2 --min-np 2 -H localhost:2 --log-format json --durable-interval 20ms --durable-commits";

/// Rows of the data set. The workers check at the end of each epoch that each row was trained on once.
pub(crate) const ROWS: u64 = 700;

/// A job that trains on rows with these flags, and its durable store.
fn training(flags: &str) -> Running {
    let job = Job::new(TRAINS);
    let place = job.directory().join("commits");
    fs::create_dir(&place).unwrap();
    let place = place.display().to_string();
    let job = flags
        .split_whitespace()
        .fold(job.flag([place.as_str()]), |job, word| job.flag([word]));
    job.plan(|plan| (plan.rows, plan.step_ms) = (ROWS, 3))
        .start()
}

/// Waits until so many further commits are complete in the store.
pub(crate) fn wait_written(job: &mut Running, count: usize) {
    let stderr = job.path("stderr");
    let written = || {
        let said = fs::read_to_string(&stderr).unwrap_or_default();
        said.matches("durable_commit_written").count()
    };
    let enough = written() + count;
    job.wait_for("commits are written", |_| {
        (written() >= enough).then_some(())
    });
}

/// Starts the job again, as a new run with these flags.
fn again(job: Running, flags: &str) -> Running {
    let place = job.path("commits").display().to_string();
    let worker = binaries::worker().display().to_string();
    job.resume(&format!("{TRAINS} {place} {flags} {worker}"))
}

fn epoch(event: &Event) -> u64 {
    event.text.parse().unwrap_or(0)
}

/// Trains until another epoch has passed, which checks its rows, and ends.
pub(crate) fn finish_an_epoch(mut job: Running, from: usize) -> elasticrun_process_tests::Ended {
    job.wait_for("two epochs more", |events| {
        let steps = events[from..].iter().filter(|e| e.kind == Kind::Step);
        let epochs: Vec<u64> = steps.map(epoch).collect();
        (epochs.last()? >= &(epochs.first()? + 2)).then_some(())
    });
    job.finish();
    let ended = job.end();
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    ended
}

/// Checks that a job which was started again continues from a commit that the former run has written. `before` is the number of
/// events of that run, and `newest` its newest step.
pub(crate) fn continues(mut job: Running, before: usize, newest: u64) {
    job.wait_for("it trains again", |events| {
        events[before..]
            .iter()
            .find(|e| e.kind == Kind::Step)
            .map(|_| ())
    });
    let [loading] = job.decisions("durable_commit_loading").try_into().unwrap();
    let count = loading["commit"]["count"].as_u64().unwrap();
    assert!(0 < count && count <= newest + 1, "{loading}");
    // The test worker commits each step.
    let begun: Vec<_> = (job.events()[before..].iter())
        .filter(|event| event.kind == Kind::Round)
        .map(|event| event.step)
        .collect();
    assert_eq!(begun, [count; 2]);
    finish_an_epoch(job, before);
}

#[test]
fn a_machine_that_is_started_again_continues_from_the_store() {
    let mut job = training("");
    job.wait_training(2, 30);
    wait_written(&mut job, 2);
    job.kill_everything();
    let before = job.events().len();
    let newest = job.events().iter().map(|event| event.step).max().unwrap();
    let job = again(job, "--resume-from latest");
    continues(job, before, newest);
}

#[test]
fn a_job_begins_anew_unless_it_is_told_otherwise() {
    let mut job = training("");
    job.wait_training(2, 30);
    wait_written(&mut job, 1);
    job.kill_everything();
    let before = job.events().len();
    let mut job = again(job, "");
    let first = job.wait_for("it trains again", |events| {
        events[before..]
            .iter()
            .find(|e| e.kind == Kind::Round)
            .cloned()
    });
    assert_eq!(first.step, 0);
    assert!(job.decisions("durable_commit_loading").is_empty());
    finish_an_epoch(job, before);
}

#[test]
fn torn_and_damaged_commits_are_named_and_the_older_one_is_used() {
    let mut job = training("");
    job.wait_training(2, 30);
    wait_written(&mut job, 3);
    job.kill_everything();
    let before = job.events().len();
    let [run] = children(&job.path("commits")).try_into().unwrap();
    let mut commits: Vec<_> = (children(&run).into_iter())
        .filter(|commit| commit.join("manifest.json").exists())
        .collect();
    let count = |path: &std::path::PathBuf| -> u64 {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        name.rsplit('.').next().unwrap().parse().unwrap()
    };
    commits.sort_by_key(count);
    let newest = commits.pop().unwrap();
    let older = count(&commits.pop().expect("two are kept"));
    let is_shard = |path: &std::path::PathBuf| path.extension().is_none();
    let shard = children(&newest).into_iter().find(is_shard).unwrap();
    let mut bytes = fs::read(&shard).unwrap();
    bytes[0] ^= 1;
    fs::write(&shard, bytes).unwrap();
    let mut job = again(job, "--resume-from latest");
    let first = job.wait_for("it trains again", |events| {
        events[before..]
            .iter()
            .find(|e| e.kind == Kind::Round)
            .cloned()
    });
    assert_eq!(first.step, older);
    let [refused] = job.decisions("durable_commit_refused").try_into().unwrap();
    assert!(refused["reason"].as_str().unwrap().contains("is damaged"));
    finish_an_epoch(job, before);
}

fn children(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn all_workers_that_die_at_once_continue_from_memory() {
    let mut job = training("--max-restarts 1 --restart-mode in-process");
    let workers = job.wait_training(2, 30);
    wait_written(&mut job, 1);
    for worker in &workers {
        send_signal(worker.pid, Signal::SIGKILL);
    }
    job.wait_for("new processes train", |events| {
        events
            .iter()
            .find(|e| e.kind == Kind::Step && e.generation == 2)
            .map(|_| ())
    });
    assert!(job.decisions("durable_commit_loading").is_empty());
    let from = job.events().len();
    let ended = finish_an_epoch(job, from);
    assert_nothing_lost(&ended.events, 0);
}

#[test]
fn an_agent_that_dies_with_all_memory_is_replaced_from_the_store() {
    let mut job = training("--max-np 2 --blacklist-cooldown-range 100ms 400ms");
    let workers = job.wait_training(2, 30);
    wait_written(&mut job, 2);
    send_signal(parent_of(workers[0].pid), Signal::SIGKILL);
    job.wait_for("new processes train", |events| {
        events
            .iter()
            .find(|e| e.kind == Kind::Step && e.generation == 2)
            .map(|_| ())
    });
    let [loading] = job.decisions("durable_commit_loading").try_into().unwrap();
    let count = loading["commit"]["count"].as_u64().unwrap();
    let begun = job
        .events()
        .iter()
        .rfind(|e| e.kind == Kind::Round)
        .unwrap();
    assert_eq!(begun.step, count);
    let from = job.events().len();
    finish_an_epoch(job, from);
}

#[test]
fn a_store_that_cannot_be_written_is_one_warning() {
    let job = Job::new(TRAINS);
    let place = job.directory().join("not mounted").display().to_string();
    let mut job = job.flag([place.as_str()]).start();
    job.wait_said("durable_commit_failed");
    let step = job.wait_training(2, 1)[0].step;
    job.wait_training(2, step + 100);
    let [failed] = job.decisions("durable_commit_failed").try_into().unwrap();
    let why = format!("{place} is not a durable store: it does not exist on this host");
    assert_eq!(failed["reason"], why);
    job.finish();
    assert_eq!(job.end().code, 0);
}

#[test]
fn a_run_that_is_not_in_the_store_ends_the_job() {
    let job = training("--resume-from 1f2e3d4c");
    let ended = job.end();
    assert_eq!(ended.code, 6, "{}", ended.stderr);
    let last = "no durable commit of run 1f2e3d4c can be used (--resume-from 1f2e3d4c)";
    assert!(ended.stderr.contains(last), "{}", ended.stderr);
    assert!(ended.events.iter().all(|event| event.kind != Kind::Step));
}

#[test]
fn the_first_run_of_a_script_begins_anew() {
    let mut job = training("--resume-from latest");
    job.wait_training(2, 30);
    assert_eq!(job.decisions("durable_commit_none").len(), 1);
    let from = job.events().len();
    finish_an_epoch(job, from);
}

#[test]
fn a_later_driver_continues_its_run_from_the_store() {
    let mut job = training("--journal auto");
    job.wait_training(2, 30);
    wait_written(&mut job, 2);
    let said = job.said();
    let run = said.split("elasticrun resume ").nth(1).unwrap();
    let run = run.split_whitespace().next().unwrap().to_owned();
    job.kill_everything();
    let before = job.events().len();
    let mut job = job.resume(&format!("resume {run}"));
    job.wait_for("it trains again", |events| {
        events[before..]
            .iter()
            .find(|e| e.kind == Kind::Step)
            .map(|_| ())
    });
    assert_eq!(job.decisions("durable_commit_loading").len(), 1);
    finish_an_epoch(job, before);
}
