//! How a job ends: first success, results of all workers, and mixed results.

use elasticrun_process_tests::{Fault, Job, Kind, Point, What, When};

#[test]
fn one_success_and_one_failure_are_a_failure() {
    let at_the_end = |what| {
        Fault::new(
            Point::Trained,
            When {
                rank: Some(1),
                ..When::default()
            },
            what,
        )
    };
    let flags = "-np 2 --min-np 1 --max-np 2 -H localhost:2";
    let job = Job::new(flags).plan(|plan| plan.steps = Some(20));
    let mut job = job
        .fault(at_the_end(What::Wait))
        .fault(at_the_end(What::Exit(5)))
        .start();
    job.wait_for("rank 0 is done", |events| {
        events
            .iter()
            .any(|e| e.kind == Kind::Trained && e.rank == 0)
            .then_some(())
    });
    job.touch("release");
    let ended = job.end();
    ended.expect(
        1,
        &[
            "some workers succeeded and others did not",
            "rank 1",
            "exit code 5",
        ],
    );
    assert_eq!(ended.sizes(), [2], "no new round after the first success");
}

#[test]
fn a_host_that_comes_when_training_is_done_gets_no_round() {
    let waits = Fault::new(
        Point::Trained,
        When {
            rank: Some(1),
            ..When::default()
        },
        What::Wait,
    );
    let flags = "-np 2 --min-np 2 --max-np 4 --last-call 50ms";
    let mut job = Job::new(flags)
        .discovered("localhost:2\n")
        .fault(waits)
        .start();
    job.wait_training(2, 3);
    job.finish();
    job.wait_for("rank 1 is done", |events| {
        events
            .iter()
            .any(|event| event.kind == Kind::Fault)
            .then_some(())
    });
    job.set_hosts("localhost:2\n127.0.0.1:2\n");
    job.wait_said("2 hosts with 4 slots");
    job.touch("release");
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [2]);
}

#[test]
fn the_last_lines_of_the_first_failure_are_shown() {
    let dies = Fault::new(
        Point::Step,
        When {
            rank: Some(1),
            step: Some(5),
            ..When::default()
        },
        What::Error,
    );
    let ended = Job::new("-np 2 -H localhost:2").fault(dies).run();
    ended.expect(1, &["rank 1", "exit code 1"]);
    assert!(ended.stderr.contains("  | "), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("a fault of the test"),
        "{}",
        ended.stderr
    );
}
