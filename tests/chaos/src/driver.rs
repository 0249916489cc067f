//! A supervised driver that is killed again and again. After each take-over the list of hosts changes.

use std::time::Duration;

use elasticrun_process_tests::{Job, Running, monotonic, send_signal};
use nix::sys::signal::Signal;

use crate::{
    report::Row,
    steps::Progress,
    turn::{Turn, Window},
};

/// The time from one kill to the next.
const EVERY: Duration = Duration::from_secs(5);

const FLAGS: &str = "-np 4 --min-np 2 --max-np 4 --launcher local --supervise --orphan-timeout 60s --log-format json";

/// The hosts of the workers.
pub(crate) const HOSTS: &str = "localhost:2\n127.0.0.1:2\n";

/// Trains four workers on two hosts.
pub(crate) fn run(turn: Turn) -> Row {
    let mut job = Job::new(FLAGS)
        .discovered(HOSTS)
        .plan(|plan| plan.step_ms = turn.step_ms)
        .start();
    job.wait_training(4, 5);
    let window = Window::begin(turn.time);
    let mut accepted = Vec::new();
    while turn.disturbed && window.left() > EVERY {
        let next = Window::begin(EVERY);
        take_over(&mut job);
        accepted.push(accept(&mut job, accepted.len()));
        next.pass();
    }
    window.pass();
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    Row {
        name: match turn.disturbed {
            true => "driver killed every 5 s",
            false => "driver undisturbed",
        },
        faults: accepted.len(),
        progress: Progress::between(&ended.events, window),
        accepted,
    }
}

/// Kills the driver, and waits for the next one.
fn take_over(job: &mut Running) {
    let before = job.decisions("driver_replaced").len();
    let driver = job.wait_until("there is a driver", Running::supervised_driver);
    send_signal(driver, Signal::SIGKILL);
    job.wait_until("a new driver has taken over", |job| {
        (job.decisions("driver_replaced").len() > before).then_some(())
    });
}

/// Lists one more host, with one or two slots in alternation. Gives the milliseconds until the driver has accepted it.
pub(crate) fn accept(job: &mut Running, count: usize) -> f64 {
    let slots = 1 + count as u64 % 2;
    let begun = monotonic();
    job.set_hosts(&format!("{HOSTS}127.0.0.2:{slots}\n"));
    job.wait_until("the list of hosts is accepted", |job| {
        let last = job.decisions("hosts_changed").pop()?;
        (last["slots"] == 4 + slots).then_some(())
    });
    (monotonic() - begun) as f64 / 1e6
}
