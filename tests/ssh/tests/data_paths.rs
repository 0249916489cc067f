//! Paths between hosts that are cut or never existed, while the driver reaches all hosts.

// Tests and their helpers may panic.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use elasticrun_process_tests::{Event, Kind};
use elasticrun_ssh_tests::{Host, Net};

/// Makes a net, or skips the test with the reason.
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

/// Hosts of one slot as a script prints them.
fn list(hosts: &[&Host]) -> String {
    let line = |host: &&Host| format!("{}:1\n", host.address);
    hosts.iter().map(line).collect()
}

/// The longest time between two steps of rank 0.
fn longest_pause(events: &[Event]) -> Duration {
    let steps = |event: &&Event| event.kind == Kind::Step && event.rank == 0;
    let times: Vec<u64> = events.iter().filter(steps).map(|event| event.at).collect();
    let pauses = times.windows(2).map(|two| two[1] - two[0]);
    Duration::from_nanos(pauses.max().unwrap_or(u64::MAX))
}

#[test]
fn ssh_a_newcomer_that_reaches_nobody_stops_no_training() {
    let net = net!(4, "ssh_a_newcomer_that_reaches_nobody_stops_no_training");
    let others = [0, 1, 2].map(|number| net.host(number));
    let newcomer = net.host(3);
    for other in others {
        newcomer.lose_way(other);
        other.lose_way(newcomer);
    }
    let flags = "-np 3 --min-np 2 --last-call 200ms --heartbeat-interval 200ms --heartbeat-timeout 2s \
                 --blacklist-cooldown-range 1s 2s --max-host-failures 0";
    let mut job = net.job(flags).discovered(&list(&others)).start();
    let three = job.wait_training(3, 3);
    let all = [others[0], others[1], others[2], newcomer];
    job.set_hosts(&list(&all));
    let names = others.map(|other| other.address.to_string()).join(", ");
    let line = format!(
        "host {} failed: it cannot reach {names}, where others train; check the network",
        newcomer.address
    );
    job.wait_said(&line);
    let pause = longest_pause(job.events());
    // A round that breaks costs at least the heartbeat timeout.
    assert!(pause < Duration::from_secs(2), "{pause:?}");
    for other in others {
        newcomer.find_way(other);
        other.find_way(newcomer);
    }
    let four = job.wait_training(4, three[0].step + 1);
    assert_eq!(four[0].pid, three[0].pid, "no worker was restarted");
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_eq!(ended.sizes(), [3, 4], "{}", ended.stderr);
    net.assert_empty();
}

#[test]
fn ssh_of_two_hosts_that_lose_their_way_one_is_failed_and_comes_back() {
    let net = net!(
        3,
        "ssh_of_two_hosts_that_lose_their_way_one_is_failed_and_comes_back"
    );
    one_is_failed_and_comes_back(&net, true);
}

#[test]
fn ssh_of_two_hosts_one_of_which_does_not_reach_the_other_one_is_failed_and_comes_back() {
    let net = net!(
        3,
        "ssh_of_two_hosts_one_of_which_does_not_reach_the_other_one_is_failed_and_comes_back"
    );
    one_is_failed_and_comes_back(&net, false);
}

/// The path between two of three hosts is cut, in both directions or in one, while they train.
fn one_is_failed_and_comes_back(net: &Net, both: bool) {
    let all = [0, 1, 2].map(|number| net.host(number));
    // The hosts of ranks 0 and 2: small sums of three hosts meet at rank 0.
    let [one, _, other] = all;
    let flags = "-np 3 --min-np 2 --last-call 200ms --heartbeat-interval 200ms --heartbeat-timeout 2s \
                 --blacklist-cooldown-range 1s 2s --max-host-failures 0";
    let mut job = net.job(flags).discovered(&list(&all)).start();
    let three = job.wait_training(3, 3);
    if both {
        one.lose_way(other);
    }
    other.lose_way(one);
    let since = job.events().len();
    job.wait_said(&format!(
        "its workers and those of {} cannot reach each other; check the network",
        one.address
    ));
    let two = job.wait_training(2, three[0].step + 1);
    assert_eq!(two[0].pid, three[0].pid, "rank 0 was never restarted");
    let pause = longest_pause(&job.events()[since.saturating_sub(3)..]);
    println!("the longest pause was {pause:?}");
    if both {
        one.find_way(other);
    }
    other.find_way(one);
    let again = job.wait_training(3, two[0].step + 1);
    assert_eq!(again[0].pid, three[0].pid);
    job.finish();
    let ended = job.end();
    ended.expect(0, &["succeeded"]);
    assert_nothing_is_done_twice(&ended.events);
    net.assert_empty();
}

/// Checks that the log has each step of rank 0 once, and none is left out.
fn assert_nothing_is_done_twice(events: &[Event]) {
    let steps = |event: &&Event| event.kind == Kind::Step && event.rank == 0;
    let steps: Vec<u64> = events
        .iter()
        .filter(steps)
        .map(|event| event.step)
        .collect();
    assert!(
        steps.windows(2).all(|two| two[1] == two[0] + 1),
        "{steps:?}"
    );
}
