//! A driver with its journal in etcd that is killed again and again, each time with a standby driver beside it. After each
//! take-over the list of hosts changes.

use std::time::Duration;

use elasticrun_etcd_tests::Cluster;
use elasticrun_process_tests::{Beside, Job, Running};

use crate::{
    driver::{HOSTS, accept},
    report::Row,
    steps::Progress,
    turn::{Turn, Window},
};

/// The time from one kill to the next. The lease of a driver lasts for 3 s of it.
const EVERY: Duration = Duration::from_secs(10);

const FLAGS: &str =
    "-np 4 --min-np 2 --max-np 4 --launcher local --orphan-timeout 9s --log-format json";

/// Trains four workers on two hosts, with a cluster of three members.
///
/// # Panics
/// Without etcd.
pub(crate) fn run(turn: Turn) -> Row {
    let cluster = Cluster::start(3).unwrap_or_else(|why| panic!("{why}"));
    let journal = format!("etcd://{}", cluster.endpoints().join(","));
    let mut job = Job::new(FLAGS)
        .flag(["--journal", &journal])
        .discovered(HOSTS)
        .plan(|plan| plan.step_ms = turn.step_ms)
        .start();
    job.wait_training(4, 5);
    let standby = format!("resume {} --standby --journal {journal}", run_id(&job));
    let window = Window::begin(turn.time);
    let mut accepted = Vec::new();
    while turn.disturbed && window.left() > EVERY {
        let next = Window::begin(EVERY);
        let waiting = wait_for_standby(&mut job, &standby);
        job.kill_only_driver();
        job = job.continue_with(waiting);
        job.wait_until("the standby driver has taken over", |job| {
            (!job.decisions("driver_replaced").is_empty()).then_some(())
        });
        accepted.push(accept(&mut job, accepted.len()));
        next.pass();
    }
    window.pass();
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    Row {
        name: match turn.disturbed {
            true => "etcd: driver killed",
            false => "etcd: undisturbed",
        },
        faults: accepted.len(),
        progress: Progress::between(&ended.events, window),
        accepted,
    }
}

/// The id of the run, which each event of its driver has.
fn run_id(job: &Running) -> String {
    let started = job.decisions("round_started").remove(0);
    let id = started["run"].as_str().expect("each event has the run");
    id.to_owned()
}

/// Starts a standby driver, and waits until the driver knows it.
fn wait_for_standby(job: &mut Running, arguments: &str) -> Beside {
    let mut standby = job.start_beside(arguments);
    standby.wait_said(": standby driver at ");
    let address = standby.standby_address().expect("it has said so");
    job.wait_until("the driver knows the standby driver", |job| {
        let known = job.decisions("standbys_changed").pop()?;
        let known = known["standbys"].as_array()?;
        known.iter().any(|known| *known == address).then_some(())
    });
    standby
}
