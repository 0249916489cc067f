//! Parameter servers beside the workers (`--ps`), with the program of examples/ps.

use std::fs;

use elasticrun_process_tests::{Ended, Job, Running, binaries, send_signal};
use nix::sys::signal::Signal;

use crate::take_over::Survivor;

pub(crate) fn digits(flags: &str, epochs: &str) -> Job {
    let program = binaries::example_of_servers().display().to_string();
    Job::new(flags).command([&program, "--epochs", epochs])
}

/// All images were read, and the model has learned.
fn has_learned(ended: &Ended, epochs: &str) {
    ended.expect(0, &["succeeded"]);
    let text = &ended.stdout;
    assert!(text.contains("accuracy "), "{text}");
    let line = format!("worker 1: 719 images, {epochs} epochs");
    assert!(text.contains(&line), "{text}");
}

#[test]
fn servers_run_beside_the_workers() {
    has_learned(&digits("-np 2 --ps 2", "5").run(), "5");
}

#[test]
fn elastic_servers_run_beside_the_workers() {
    has_learned(&digits("-np 2 --ps 2 --ps-replicas 1", "5").run(), "5");
}

/// The line with the accuracy of the model.
pub(crate) fn accuracy(ended: &Ended) -> String {
    let line = ended.stdout.lines().find(|line| line.contains("accuracy "));
    let (_, accuracy) = line.unwrap().split_once("accuracy ").unwrap();
    accuracy.to_owned()
}

#[test]
fn a_job_begins_with_the_values_of_the_one_before() {
    let place = tempfile::tempdir().unwrap();
    let flags = format!(
        "-np 2 --ps 2 --ps-replicas 1 --ps-snapshots {}",
        place.path().display()
    );
    let ended = digits(&flags, "5").run();
    has_learned(&ended, "5");
    let again = digits(&flags.replace("--ps 2", "--ps 3"), "0").run();
    again.expect(0, &["succeeded"]);
    assert_eq!(accuracy(&again), accuracy(&ended));

    let manifest = place.path().join("parameter-server/2/manifest.json");
    fs::write(&manifest, "{").unwrap();
    let refused = digits(&flags, "1").run();
    refused.expect(2, &["it cannot use the place of --ps-snapshots"]);
    let why = "2/manifest.json cannot be used: it is damaged";
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
}

#[test]
fn a_process_without_the_key_of_the_job_takes_no_part() {
    let program = binaries::example_of_servers().display().to_string();
    let stranger = format!("env -u ELASTICRUN_PS_KEY {program} --epochs 5 2>&1");
    let script = format!("[ $DMLC_ROLE = server ] || {stranger}; exec {program} --epochs 5");
    let ended = Job::new("-np 2 --ps 1")
        .command(["sh", "-c", &script])
        .run();
    has_learned(&ended, "5");
    let refused = "refused this node: this job has a key";
    assert_eq!(ended.stdout.matches(refused).count(), 2, "{}", ended.stdout);
}

/// What the role of each process is, and where it writes.
const SAY_ROLE: &str = "echo role $DMLC_ROLE of $DMLC_NUM_SERVER and $DMLC_NUM_WORKER at $DMLC_NODE_HOST, rank ${RANK-none}";

#[test]
fn servers_have_a_role_and_no_rank() {
    let script = format!("{SAY_ROLE}; while [ $DMLC_ROLE = server ]; do sleep 0.1; done");
    let ended = Job::new("-np 1 --ps 1")
        .command(["sh", "-c", &script])
        .run();
    ended.expect(0, &["succeeded"]);
    let text = &ended.stdout;
    for line in [
        "[server 0]<stdout>:role server of 1 and 1 at 127.0.0.1, rank none",
        "[0]<stdout>:role worker of 1 and 1 at 127.0.0.1, rank 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{text}");
    }
}

#[test]
fn a_server_that_fails_ends_the_job_if_servers_are_not_elastic() {
    let script = "[ $DMLC_ROLE = worker ] || exit 3; sleep 100";
    let ended = Job::new("-np 1 --ps 2").command(["sh", "-c", script]).run();
    ended.expect(
        1,
        &[
            "failed: a parameter server failed",
            "host localhost, parameter server ",
            "exit code 3",
        ],
    );
}

#[test]
fn elastic_servers_that_always_fail_end_the_job() {
    let script = "[ $DMLC_ROLE = worker ] || exit 3; sleep 100";
    let ended = Job::new("-np 1 --ps 1 --ps-replicas 0")
        .command(["sh", "-c", script])
        .run();
    ended.expect(1, &["5 parameter servers failed one after the other"]);
}

/// A job whose processes are recorded, with what they print.
fn recorded(flags: &str) -> Job {
    let program = binaries::example_of_servers();
    let script = format!(
        "echo $DMLC_ROLE $$ >> $PROCESS_TEST_DIR/nodes; exec {} --epochs 120 >> $PROCESS_TEST_DIR/trained",
        program.display()
    );
    Job::new(flags).command(["sh", "-c", &script])
}

/// Waits until the workers have seen their images so often.
fn wait_epoch(job: &mut Running, epoch: u32) {
    let line = format!("epoch {epoch} of");
    job.wait_until("training", |job| {
        let text = fs::read_to_string(job.path("trained")).unwrap_or_default();
        text.contains(&line).then_some(())
    });
}

/// Starts a job, and waits until its workers train.
fn training(flags: &str) -> Running {
    let mut job = recorded(flags).start();
    wait_epoch(&mut job, 3);
    job
}

/// Kills the node with this role that was started last.
fn kill(job: &Running, role: &str) {
    let nodes = fs::read_to_string(job.path("nodes")).unwrap();
    let mut lines = nodes.lines().rev();
    let pid = lines.find_map(|line| line.strip_prefix(role)?.trim().parse().ok());
    send_signal(pid.unwrap(), Signal::SIGKILL);
}

/// The job has trained to its end.
fn has_trained(job: Running) -> Ended {
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    let text = fs::read_to_string(ended.path("trained")).unwrap();
    assert!(text.contains("accuracy "), "{text}");
    ended
}

#[test]
fn workers_that_are_replaced_find_the_values() {
    let flags = "-np 2 --max-restarts 2 --ps 2 --ps-replicas 1 --blacklist-cooldown-range 0s 1s";
    let job = training(flags);
    kill(&job, "worker");
    let ended = has_trained(job);
    assert!(ended.stderr.contains("restart 1 of 2"), "{}", ended.stderr);
    assert!(
        !ended.stderr.contains("parameter server 2"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_server_that_is_killed_is_replaced() {
    let job = training("-np 2 --ps 2 --ps-replicas 1");
    kill(&job, "server");
    let ended = has_trained(job);
    assert!(
        ended.stderr.contains("parameter server 2 starts"),
        "{}",
        ended.stderr
    );
}

#[test]
fn servers_and_workers_go_on_under_the_next_driver() {
    let mut run = Survivor::start(recorded("-np 2 --min-np 1 --ps 2 --ps-replicas 1"));
    wait_epoch(&mut run.job, 3);
    let mut run = run.take_over();
    run.job.wait_said("goes on with 2 workers");
    wait_epoch(&mut run.job, 20);
    let ended = has_trained(run.job);
    let nodes = fs::read_to_string(ended.path("nodes")).unwrap();
    assert_eq!(nodes.lines().count(), 4, "the same processes: {nodes}");
}
