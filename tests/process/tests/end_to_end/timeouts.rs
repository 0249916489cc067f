//! Slow processes delay no other: each timeout ends what it is for, and the job waits for nothing else.
//!
//! Tests assert lower bounds of waits only. The harness checks that a wait ends: its deadline is shorter than all
//! timeouts that a test does not set, so a wait for the wrong timeout fails. The delay after a timeout depends on
//! the machine, and benches/ measures it.

use std::time::Duration;

use elasticrun_process_tests::{Event, Fault, Job, Kind, Point, What, When, binaries, send_signal};
use nix::sys::signal::Signal;

use crate::support::{assert_nothing_lost, on_file};

fn since(events: &[Event], began: u64, found: impl Fn(&Event) -> bool) -> Duration {
    let event = events
        .iter()
        .find(|event| event.at > began && found(event))
        .expect("such an event");
    Duration::from_nanos(event.at - began)
}

#[test]
fn a_stopped_survivor_does_not_hold_up_the_round_longer_than_its_time_out() {
    let flags = "-np 4 --min-np 2 --max-np 4 -H localhost:2,127.0.0.1:2 --failure-domain slot --blacklist forever \
                 --abort-timeout 1s --heartbeat-timeout 60s";
    let mut job = Job::new(flags).start();
    let four = job.wait_training(4, 3);
    send_signal(four[3].pid, Signal::SIGSTOP);
    let began = elasticrun_process_tests::monotonic();
    send_signal(four[1].pid, Signal::SIGKILL);
    job.wait_training(2, four[0].step);
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded", "2 failures"]);
    let waited = since(&ended.events, began, |event| {
        event.kind == Kind::Step && event.size == 2
    });
    assert!(waited >= Duration::from_secs(1), "{waited:?}");
}

#[test]
fn a_worker_that_is_stopped_is_silent_and_fails() {
    let flags = "-np 2 --min-np 1 --max-np 2 -H localhost:2 --blacklist forever \
                 --heartbeat-interval 100ms --heartbeat-timeout 4s";
    let mut job = Job::new(flags).start();
    let two = job.wait_training(2, 3);
    let began = elasticrun_process_tests::monotonic();
    send_signal(two[0].pid, Signal::SIGSTOP);
    job.wait_training(1, two[0].step);
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded", "1 failure"]);
    let waited = since(&ended.events, began, |event| {
        event.kind == Kind::Step && event.size == 1
    });
    // The last heartbeat came a while before, on a busy machine several intervals.
    assert!(waited >= Duration::from_secs(2), "{waited:?}");
}

#[test]
fn a_stopped_agent_is_a_failed_host() {
    let flags = "-np 4 --min-np 2 --max-np 4 -H localhost:2,127.0.0.1:2 --blacklist forever \
                 --heartbeat-interval 100ms --heartbeat-timeout 4s --orphan-timeout 500ms";
    let mut job = Job::new(flags).start();
    let four = job.wait_training(4, 3);
    let status = std::fs::read_to_string(format!("/proc/{}/status", four[3].pid)).unwrap();
    let agent = status
        .lines()
        .find_map(|line| line.strip_prefix("PPid:"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let began = elasticrun_process_tests::monotonic();
    send_signal(agent, Signal::SIGSTOP);
    job.wait_training(2, four[0].step + 1);
    send_signal(agent, Signal::SIGCONT);
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    let waited = since(&ended.events, began, |event| {
        event.kind == Kind::Step && event.size == 2
    });
    // The last heartbeat came a while before, on a busy machine several intervals.
    assert!(waited >= Duration::from_secs(2), "{waited:?}");
}

/// Part of the driver's message about a worker that a timeout ends.
const LATE: &str = "it took too long";

#[test]
fn a_worker_that_never_comes_to_wait_is_killed_and_nobody_waits_for_it() {
    let hangs = Fault::new(
        Point::Begin,
        When {
            local_rank: Some(2),
            ..When::default()
        },
        What::Hang,
    );
    let flags = "-np 2 --min-np 2 --max-np 3 -H localhost:3 --blacklist forever --start-timeout 4s --last-call 100ms";
    let mut job = Job::new(flags).fault(hangs).start();
    job.wait_training(2, 3);
    assert!(
        !job.said().contains(LATE),
        "the others did not wait for the hanging worker"
    );
    let hung = job.wait_for("the third begins", |events| {
        events
            .iter()
            .find(|event| event.kind == Kind::Begin && event.local_rank == 2)
            .cloned()
    });
    job.wait_said(LATE);
    job.wait_for("it is gone", |_| {
        (!std::path::Path::new(&format!("/proc/{}", hung.pid)).exists()).then_some(())
    });
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded", "1 failure"]);
    assert_eq!(ended.sizes(), [2]);
}

#[test]
fn a_worker_that_does_not_reach_the_common_boundary_is_not_waited_for() {
    let hangs = on_file(1, "hang", What::Hang);
    let flags = "-np 2 --min-np 1 --max-np 3 --blacklist forever --failure-domain slot \
                 --interrupt-timeout 700ms --abort-timeout 700ms";
    let mut job = Job::new(flags)
        .discovered("localhost:2\n")
        .fault(hangs)
        .start();
    let two = job.wait_training(2, 3);
    job.touch("hang");
    job.wait_for("rank 1 hangs", |events| {
        events.iter().any(|e| e.kind == Kind::Fault).then_some(())
    });
    // One timeout to reach the boundary, one to come back. The default of each is longer than the harness waits.
    job.set_hosts("localhost:2\n127.0.0.1:1\n");
    job.wait_for("the new host trains with rank 0", |events| {
        let trains = |of: &dyn Fn(&Event) -> bool| {
            events
                .iter()
                .any(|e| e.kind == Kind::Step && e.round > 1 && of(e))
        };
        (trains(&|event| event.host == "127.0.0.1") && trains(&|event| event.pid == two[0].pid))
            .then_some(())
    });
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_nothing_lost(&ended.events, 0);
}

#[test]
fn a_host_whose_worker_hangs_is_left_and_the_newcomer_has_its_state() {
    let hangs = on_file(1, "hang", What::Hang);
    let flags = "-np 2 --min-np 1 --max-np 3 --blacklist forever --interrupt-timeout 400ms --abort-timeout 400ms";
    let mut job = Job::new(flags)
        .discovered("localhost:2\n")
        .fault(hangs)
        .start();
    job.wait_training(2, 3);
    job.touch("hang");
    job.wait_for("rank 1 hangs", |events| {
        events.iter().any(|e| e.kind == Kind::Fault).then_some(())
    });
    job.set_hosts("localhost:2\n127.0.0.1:1\n");
    job.wait_training(1, 5);
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_nothing_lost(&ended.events, 0);
}

#[test]
fn the_others_get_their_time_after_the_first_success_and_not_more() {
    let hangs = Fault::new(
        Point::Trained,
        When {
            rank: Some(1),
            ..When::default()
        },
        What::Hang,
    );
    let flags = "-np 2 --min-np 1 --max-np 2 -H localhost:2 --exit-timeout 700ms";
    let ended = Job::new(flags)
        .plan(|plan| plan.steps = Some(20))
        .fault(hangs)
        .run();
    ended.expect(1, &["--exit-timeout"]);
    assert_eq!(ended.sizes(), [2]);
}

#[test]
fn nothing_is_left_when_the_driver_is_killed() {
    let flags = "-np 4 --min-np 2 --max-np 4 -H localhost:2,127.0.0.1:2 --orphan-timeout 600ms";
    let mut job = Job::new(flags).start();
    job.wait_training(4, 3);
    let took = job.kill_driver();
    assert!(
        took > Duration::from_millis(500),
        "agents keep their workers for --orphan-timeout: {took:?}"
    );
}

#[test]
fn workers_outlive_their_driver_and_the_next_program_runs_in_its_place() {
    let flags = "-np 2 --min-np 2 -H localhost:2 --orphan-timeout 2s";
    let mut job = Job::new(flags).start();
    let before = job.wait_training(2, 3);
    job.kill_only_driver();
    let left = job.tag().processes();
    let lives = |event: &Event| left.iter().any(|(pid, _)| *pid == event.pid);
    assert!(before.iter().all(lives), "{left:?}");
    // The agent waits for a driver before it ends its workers and itself.
    let ended = job
        .resume("--version")
        .end_within(Duration::from_secs(2 + 4));
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
    assert!(ended.stdout.starts_with("elasticrun "), "{}", ended.stdout);
}

#[test]
fn a_process_that_hangs_at_each_start_ends_the_job() {
    let flags = "-np 2 --min-np 2 -H localhost:1,127.0.0.1:1 --start-timeout 300ms --elastic-timeout 2s \
                 --blacklist-cooldown-range 10ms 20ms --max-host-failures 0";
    let script = format!(
        "[ $HOROVOD_HOSTNAME = localhost ] || exec sleep 1000; exec {}",
        binaries::worker().display()
    );
    let ended = Job::new(flags).command(["sh", "-c", &script]).run();
    // The slot of the host may be excluded by its cooldown at that moment.
    let short = ["failed: 1 worker at run()", "failed: 1 usable slot"];
    let short = short.into_iter().find(|words| ended.stderr.contains(words));
    let last = format!(
        "{}, 2 needed, for 2 s (--elastic-timeout)",
        short.unwrap_or("?")
    );
    ended.expect(3, &[&last]);
    assert!(
        ended.stderr.contains("it took too long"),
        "{}",
        ended.stderr
    );
}
