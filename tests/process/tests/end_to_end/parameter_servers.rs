//! Parameter servers beside the workers (`--ps`), with the program of examples/ps.

use elasticrun_process_tests::{Ended, Job, binaries};

fn digits(flags: &str, epochs: &str) -> Job {
    let program = binaries::example_of_servers().display().to_string();
    Job::new(flags).command([&program, "--epochs", epochs])
}

fn stdout(ended: &Ended) -> &str {
    &ended.stdout
}

#[test]
fn servers_run_beside_the_workers() {
    let ended = digits("-np 2 --ps 2", "5").run();
    ended.expect(0, &["succeeded"]);
    let text = stdout(&ended);
    assert!(text.contains("accuracy "), "{text}");
    assert!(text.contains("worker 1: 719 images, 5 epochs"), "{text}");
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
    let text = stdout(&ended);
    for line in [
        "[server 0]<stdout>:role server of 1 and 1 at 127.0.0.1, rank none",
        "[0]<stdout>:role worker of 1 and 1 at 127.0.0.1, rank 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{text}");
    }
}

#[test]
fn servers_that_always_fail_end_the_job() {
    let script = "[ $DMLC_ROLE = worker ] || exit 3; sleep 100";
    let ended = Job::new("-np 1 --ps 1").command(["sh", "-c", script]).run();
    ended.expect(1, &["5 parameter servers failed one after the other"]);
}
