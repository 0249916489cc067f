//! How long a job waits for what it needs, tested without the simulation.

use std::time::Duration;

use elasticrun_core::{Command, Decision, Event, Job, Settings, Time, results::Outcome};
use elasticrun_hosts::{Host, Snapshot};
use elasticrun_protocol::DriverEpoch;

fn at(seconds: u64) -> Time {
    Time::from_start(Duration::from_secs(seconds))
}

fn job(np: u32) -> Job {
    let settings = Settings {
        elastic_timeout: Duration::from_secs(10),
        ..Settings::elastic(np, np, None)
    };
    Job::new(settings, "run", DriverEpoch(1), 1)
}

#[test]
fn discovery_that_never_answers_ends_the_job_in_time() {
    let mut job = job(1);
    let mut out = Vec::new();
    assert_eq!(job.next_deadline(), Some(at(10)));
    job.tick(at(9), &mut out);
    assert_eq!(out, []);
    job.tick(at(10), &mut out);
    assert!(
        matches!(
            out[..],
            [
                Command::End(Outcome::TimedOut {
                    usable: 0,
                    needed: 1,
                    ..
                }),
                Command::Exit
            ]
        ),
        "{out:?}"
    );
}

#[test]
fn too_few_slots_are_told_once_and_the_wait_counts_from_the_start() {
    let mut job = job(2);
    let mut out = Vec::new();
    for second in 1..4 {
        job.step(
            at(second),
            Event::SourceAnswered {
                source: 0,
                snapshot: Snapshot::new(vec![Host {
                    slots: Some(1),
                    ..Host::new("a")
                }]),
            },
            &mut out,
        );
    }
    let told = |command: &&Command| {
        matches!(
            command,
            Command::Announce(Decision::WaitingForSlots {
                usable: 1,
                needed: 2
            })
        )
    };
    assert_eq!(out.iter().filter(told).count(), 1, "{out:?}");
    assert_eq!(job.next_deadline(), Some(at(10)));
}
