//! Paths between hosts that are cut, or were never there, while the driver reaches everybody.

// A test panics where it fails; its helpers too.
#![allow(clippy::unwrap_used)]

use elasticrun_ssh_tests::Net;

/// A net, or the end of the test with the reason.
macro_rules! net {
    ($hosts:literal, $test:literal) => {
        match Net::new($hosts) {
            Ok(net) => net,
            Err(why) => {
                eprintln!("skipped {}: {why}", $test);
                return;
            }
        }
    };
}

#[test]
fn ssh_a_job_that_begins_on_the_drivers_machine_goes_on_with_hosts_of_others() {
    let net = net!(
        2,
        "ssh_a_job_that_begins_on_the_drivers_machine_goes_on_with_hosts_of_others"
    );
    let mut job = net
        .job("-np 1 --min-np 1 --max-np 3 --last-call 200ms")
        .discovered("localhost:1")
        .start();
    let one = job.wait_training(1, 3);
    let (first, second) = (net.host(0).address, net.host(1).address);
    job.set_hosts(&format!("localhost:1\n{first}:1\n{second}:1"));
    let all = job.wait_training(3, one[0].step + 1);
    assert_eq!(all[0].pid, one[0].pid, "the worker that began trains on");
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert!(!ended.stderr.contains("peer lost"), "{}", ended.stderr);
    net.assert_empty();
}
