//! `--supervise`: the parent process of a driver resumes the run when the driver dies.

use std::collections::BTreeSet;

use elasticrun_process_tests::{Event, Job, Running, send_signal};
use nix::sys::signal::Signal;

use crate::support::assert_nothing_lost;

const FOUR: &str = "-np 4 --min-np 2 --max-np 4 -H localhost:2,127.0.0.1:2 --launcher local --blacklist forever \
    --orphan-timeout 30s --supervise";

/// The driver below the supervisor.
fn driver(job: &Running) -> u32 {
    let supervisor = job.driver();
    let children = format!("/proc/{supervisor}/task/{supervisor}/children");
    let children = std::fs::read_to_string(children).unwrap();
    let driver = children.split_whitespace().next();
    driver.expect("it has a driver").parse().unwrap()
}

/// Kills the driver, and waits until the supervisor knows.
fn kill_driver(job: &mut Running) {
    let stderr = job.path("stderr");
    let resumed = move || {
        let said = std::fs::read_to_string(&stderr).unwrap();
        said.matches("was killed by SIGKILL; resuming the run")
            .count()
    };
    let before = resumed();
    send_signal(driver(job), Signal::SIGKILL);
    job.wait_for("the supervisor has seen it", |_| {
        (resumed() > before).then_some(())
    });
}

#[test]
fn a_killed_driver_is_resumed() {
    let mut job = Job::new(FOUR).start();
    let pids =
        |events: Vec<Event>| -> BTreeSet<u32> { events.iter().map(|event| event.pid).collect() };
    let before = pids(job.wait_training(4, 3));
    kill_driver(&mut job);
    job.wait_said("round 1 goes on with 4 workers");
    let newest = job.events().iter().map(|event| event.step).max().unwrap();
    assert_eq!(pids(job.wait_training(4, newest + 2)), before);
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_nothing_lost(&ended.events, 0);
}

/// A signal of the user between two drivers, or while the next one starts, ends the run in order.
#[test]
fn a_signal_between_two_drivers_ends_the_run() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut job = Job::new(FOUR).start();
        job.wait_training(4, 3);
        kill_driver(&mut job);
        send_signal(job.driver(), signal);
        let ended = job.end();
        assert_eq!(ended.code, 128 + signal as i32, "{}", ended.stderr);
        assert_eq!(ended.stderr.matches("resuming the run").count(), 1);
    }
}

/// As under `nohup`: the end of the terminal is no wish to end the run.
#[test]
fn an_ignored_signal_does_not_end_the_supervision() {
    let mut job = Job::new(FOUR).before(["nohup"]).start();
    job.wait_training(4, 3);
    send_signal(job.driver(), Signal::SIGHUP);
    kill_driver(&mut job);
    job.wait_said("round 1 goes on with 4 workers");
    job.finish();
    job.end().expect(0, &["succeeded"]);
}

#[test]
fn a_run_that_cannot_have_a_journal_is_not_supervised() {
    let job = Job::new("-np 1 --supervise").before(["env", "-u", "HOME", "-u", "XDG_STATE_HOME"]);
    let ended = job.run();
    ended.expect(2, &["--supervise", "XDG_STATE_HOME"]);
}
